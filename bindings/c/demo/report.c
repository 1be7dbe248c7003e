#include "report.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "text.h"

static int by_value(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

static void measure_first_tokens(run_result* r) {
  double* times = new_array(r->sessions, sizeof *times);
  for (size_t i = 0; i < r->sessions; i++) {
    times[i] = r->sequences[i].first_token;
    r->first_mean += times[i] / (double)r->sessions;
  }
  qsort(times, r->sessions, sizeof *times, by_value);
  r->first_median = times[(r->sessions - 1) / 2];
  r->first_max = times[r->sessions - 1];
  free(times);
}

run_result report_take(scheduler* s, const options* o) {
  const engine* e = s->engine;
  run_result r = {.storage = e->info.storage,
                  .dtype = o->dtype,
                  .isa = e->lib->isa_name(e->info.isa),
                  .sessions = s->count};
  r.blocks = e->plan.blocks;
  r.block_size = e->info.block_size;
  r.library_seconds = e->library_seconds;
  r.totals = s->totals;
  r.sequences = s->sequences;
  for (size_t i = 0; i < r.sessions; i++) {
    r.prompt_tokens += r.sequences[i].prompt_length;
    r.generated += r.sequences[i].length - r.sequences[i].prompt_length;
  }
  measure_first_tokens(&r);
  s->sequences = NULL;
  s->count = 0;
  return r;
}

void report_free(run_result* r) {
  for (size_t i = 0; i < r->sessions; i++) free(r->sequences[i].tokens);
  free(r->sequences);
}

void report_texts(const run_result* r, const tokenizer* t, size_t common) {
  if (common > 1) {
    puts("--- what all sessions begin with ---");
    text_write(stdout, t, r->sequences[0].tokens, 1, common);
    fputs("\n\n", stdout);
  }
  for (size_t i = 0; i < r->sessions; i++) {
    const sequence* q = &r->sequences[i];
    printf("--- session %zu ---\n", i + 1);
    text_write(stdout, t, q->tokens, common > 1 ? common : 1, q->length);
    fputs("\n\n", stdout);
  }
}

size_t report_difference(const run_result* a, const run_result* b) {
  for (size_t i = 0; i < a->sessions; i++) {
    const sequence *x = &a->sequences[i], *y = &b->sequences[i];
    if (x->length != y->length || memcmp(x->tokens, y->tokens, x->length * sizeof *x->tokens) != 0)
      return i + 1;
  }
  return 0;
}

/* ---- Figures ---- */

static double ratio(double part, double whole) { return whole > 0 ? part / whole : 0; }
static double decode_rate(const run_result* r) {
  return ratio((double)r->totals.decode_tokens, r->totals.decode_seconds);
}
static double library_share(const run_result* r) {
  return ratio(r->library_seconds, r->totals.seconds);
}
static double utilization(const run_result* r) {
  return ratio((double)r->totals.filled_bytes, (double)r->totals.reserved_bytes);
}
static double worst_case_utilization(const run_result* r) {
  return ratio((double)r->totals.tokens, (double)r->totals.worst_case);
}
static double mebibytes(uint64_t bytes) { return (double)bytes / (1 << 20); }

/* A row of the summary: a label, then one `print` per run. */
typedef void print_figure(const run_result* r, char* text, size_t size);

static void print_kind(const run_result* r, char* text, size_t size) {
  snprintf(text, size, "%s %s", storage_name(r->storage), dtype_name(r->dtype));
}
static void print_isa(const run_result* r, char* text, size_t size) {
  snprintf(text, size, "%s", r->isa);
}
static void print_sessions(const run_result* r, char* text, size_t size) {
  snprintf(text, size, "%zu", r->sessions);
}
static void print_generated(const run_result* r, char* text, size_t size) {
  snprintf(text, size, "%zu", r->generated);
}
static void print_seconds(const run_result* r, char* text, size_t size) {
  snprintf(text, size, "%.2f s", r->totals.seconds);
}
static void print_milliseconds(double seconds, char* text, size_t size) {
  snprintf(text, size, "%.0f ms", 1e3 * seconds);
}
static void print_first_mean(const run_result* r, char* text, size_t size) {
  print_milliseconds(r->first_mean, text, size);
}
static void print_first_median(const run_result* r, char* text, size_t size) {
  print_milliseconds(r->first_median, text, size);
}
static void print_first_max(const run_result* r, char* text, size_t size) {
  print_milliseconds(r->first_max, text, size);
}
static void print_rate(const run_result* r, char* text, size_t size) {
  snprintf(text, size, "%.0f", decode_rate(r));
}
static void print_share(const run_result* r, char* text, size_t size) {
  snprintf(text, size, "%.0f %%", 100 * library_share(r));
}
static void print_blocks(const run_result* r, char* text, size_t size) {
  snprintf(text, size, "%llu of %llu", (unsigned long long)r->totals.peak_blocks,
           (unsigned long long)r->blocks);
}
static void print_bytes(const run_result* r, char* text, size_t size) {
  snprintf(text, size, "%.1f MiB", mebibytes(r->totals.peak_bytes));
}
static void print_utilization(const run_result* r, char* text, size_t size) {
  snprintf(text, size, "%.1f %%", 100 * utilization(r));
}
static void print_worst_case(const run_result* r, char* text, size_t size) {
  snprintf(text, size, "%.1f %%", 100 * worst_case_utilization(r));
}
static void print_saved(const run_result* r, char* text, size_t size) {
  snprintf(text, size, "%llu", (unsigned long long)r->totals.peak_saved_blocks);
}
static void print_copied(const run_result* r, char* text, size_t size) {
  snprintf(text, size, "%llu", (unsigned long long)r->totals.copied_blocks);
}
static void print_matched(const run_result* r, char* text, size_t size) {
  snprintf(text, size, "%llu of %llu", (unsigned long long)r->totals.matched_tokens,
           (unsigned long long)r->totals.asked_tokens);
}
static void print_evicted(const run_result* r, char* text, size_t size) {
  snprintf(text, size, "%llu", (unsigned long long)r->totals.evicted_blocks);
}
static void print_preemptions(const run_result* r, char* text, size_t size) {
  snprintf(text, size, "%zu", r->totals.preemptions);
}

void report_summary(const run_result* runs, size_t count) {
  static const struct {
    const char* label;
    print_figure* print;
  } rows[] = {
      {"KV cache", print_kind},
      {"  kernels", print_isa},
      {"sessions", print_sessions},
      {"tokens generated", print_generated},
      {"seconds in all", print_seconds},
      {"time to first token, mean", print_first_mean},
      {"  median", print_first_median},
      {"  longest", print_first_max},
      {"decode tokens per second", print_rate},
      {"  share of the time in libpagedkv", print_share},
      {"blocks at peak", print_blocks},
      {"K and V memory at peak", print_bytes},
      {"K and V memory filled, of reserved", print_utilization},
      {"  had each reserved a whole context", print_worst_case},
      {"blocks saved by sharing, at peak", print_saved},
      {"blocks copied on write", print_copied},
      {"tokens found in the prefix index", print_matched},
      {"  blocks evicted from it", print_evicted},
      {"preemptions", print_preemptions},
  };
  for (size_t row = 0; row < sizeof rows / sizeof *rows; row++) {
    printf("%-36s", rows[row].label);
    for (size_t i = 0; i < count; i++) {
      char text[64];
      rows[row].print(&runs[i], text, sizeof text);
      printf("%18s", text);
    }
    putchar('\n');
  }
}

/* ---- Files ---- */

FILE* report_open(const char* path) {
  if (path == NULL) return NULL;
  FILE* file = fopen(path, "w");
  if (file == NULL) die(EXIT_BAD_INPUT, "cannot write %s: %s", path, strerror(errno));
  return file;
}

static void close_output(FILE* file, const char* path) {
  const int failed = ferror(file);
  if (fclose(file) != 0 || failed)
    die(EXIT_BAD_INPUT, "cannot write %s: %s", path, strerror(errno));
}

void report_tokens(const run_result* r, FILE* file, const char* path) {
  for (size_t i = 0; i < r->sessions; i++) {
    const sequence* q = &r->sequences[i];
    for (size_t j = q->prompt_length; j < q->length; j++)
      fprintf(file, "%s%d", j > q->prompt_length ? " " : "", q->tokens[j]);
    fputc('\n', file);
  }
  close_output(file, path);
}

static void json_run(FILE* file, const run_result* r) {
  const run_totals* t = &r->totals;
  fprintf(file, "  {\"kv\": \"%s\", \"dtype\": \"%s\", \"isa\": \"%s\",\n",
          storage_name(r->storage), dtype_name(r->dtype), r->isa);
  fprintf(
      file,
      "   \"sessions\": %zu, \"prompt_tokens\": %zu, \"generated_tokens\": %zu, \"passes\": %zu,\n",
      r->sessions, r->prompt_tokens, r->generated, t->passes);
  fprintf(file,
          "   \"seconds\": %.6f, \"library_seconds\": %.6f, \"decode_tokens_per_second\": %.1f,\n",
          t->seconds, r->library_seconds, decode_rate(r));
  fprintf(file, "   \"first_token_seconds\": {\"mean\": %.6f, \"p50\": %.6f, \"max\": %.6f},\n",
          r->first_mean, r->first_median, r->first_max);
  fprintf(
      file,
      "   \"blocks\": %llu, \"block_size\": %llu, \"peak_blocks\": %llu, \"peak_bytes\": %llu,\n",
      (unsigned long long)r->blocks, (unsigned long long)r->block_size,
      (unsigned long long)t->peak_blocks, (unsigned long long)t->peak_bytes);
  fprintf(file, "   \"utilization\": %.6f, \"worst_case_utilization\": %.6f,\n", utilization(r),
          worst_case_utilization(r));
  fprintf(file,
          "   \"peak_saved_blocks\": %llu, \"copied_blocks\": %llu, \"matched_tokens\": %llu, "
          "\"asked_tokens\": %llu,\n",
          (unsigned long long)t->peak_saved_blocks, (unsigned long long)t->copied_blocks,
          (unsigned long long)t->matched_tokens, (unsigned long long)t->asked_tokens);
  fprintf(file, "   \"evicted_blocks\": %llu, \"preemptions\": %zu}",
          (unsigned long long)t->evicted_blocks, t->preemptions);
}

void report_json(const run_result* runs, size_t count, FILE* file, const char* path) {
  fputs("{\"runs\": [\n", file);
  for (size_t i = 0; i < count; i++) {
    json_run(file, &runs[i]);
    fputs(i + 1 < count ? ",\n" : "\n", file);
  }
  fputs("]}\n", file);
  close_output(file, path);
}
