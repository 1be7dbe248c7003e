#include "report.h"

#include <errno.h>
#include <inttypes.h>
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

run_result report_new(sequence* sequences, size_t count, const run_totals* totals) {
  run_result r = {.sessions = count, .totals = *totals, .sequences = sequences};
  for (size_t i = 0; i < r.sessions; i++) {
    r.prompt_tokens += r.sequences[i].prompt_length;
    r.generated += r.sequences[i].length - r.sequences[i].prompt_length;
  }
  measure_first_tokens(&r);
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

/* The figures of one run, each with its label. */
enum { MAX_FIGURES = 24 };
typedef struct figures {
  size_t count;
  const char* labels[MAX_FIGURES];
  char texts[MAX_FIGURES][64];
} figures;

static void add(figures* f, const char* label, const char* format, ...)
    __attribute__((PRINTF_FORMAT(3, 4)));
static void add(figures* f, const char* label, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  f->labels[f->count] = label;
  vsnprintf(f->texts[f->count++], sizeof *f->texts, format, arguments);
  va_end(arguments);
}

static figures figures_of(const run_result* r) {
  figures f = {.count = 0};
  const run_totals* t = &r->totals;
  add(&f, "keys and values", "%s %s", r->memory, dtype_name(r->dtype));
  add(&f, "  kernels", "%s", r->isa);
  add(&f, "sessions", "%zu", r->sessions);
  add(&f, "tokens generated", "%zu", r->generated);
  add(&f, "seconds in all", "%.2f s", t->seconds);
  add(&f, "time to first token, mean", "%.0f ms", 1e3 * r->first_mean);
  add(&f, "  median", "%.0f ms", 1e3 * r->first_median);
  add(&f, "  longest", "%.0f ms", 1e3 * r->first_max);
  add(&f, "decode tokens per second", "%.0f", decode_rate(r));
  add(&f, "  share of the time in libpagedkv", "%.0f %%", 100 * library_share(r));
  add(&f, "K and V memory at peak", "%.1f MiB", (double)t->peak_bytes / (1 << 20));
  add(&f, "K and V memory filled, of reserved", "%.1f %%", 100 * utilization(r));
  add(&f, "  had each reserved a whole context", "%.1f %%", 100 * worst_case_utilization(r));
  const size_t first_of_blocks = f.count;
  add(&f, "blocks at peak", "%" PRIu64 " of %" PRIu64, t->peak_blocks, r->blocks);
  add(&f, "blocks saved by sharing, at peak", "%" PRIu64, t->peak_saved_blocks);
  add(&f, "blocks copied on write", "%" PRIu64, t->copied_blocks);
  add(&f, "tokens found in the prefix index", "%" PRIu64 " of %" PRIu64, t->matched_tokens,
      t->lookup_tokens);
  add(&f, "  tokens evicted from it", "%" PRIu64, t->evicted_tokens);
  add(&f, "preemptions", "%zu", t->preemptions);
  for (size_t i = first_of_blocks; i < f.count && r->blocks == 0; i++) strcpy(f.texts[i], "-");
  return f;
}

void report_summary(const run_result* runs, size_t count) {
  const figures first = figures_of(&runs[0]), last = figures_of(&runs[count - 1]);
  for (size_t i = 0; i < first.count; i++) {
    printf("%-36s%18s", first.labels[i], first.texts[i]);
    if (count > 1) printf("%18s", last.texts[i]);
    putchar('\n');
  }
}

/* ---- Files ---- */

FILE* report_open(const char* path) {
  if (path == NULL) return NULL;
  FILE* file = fopen(path, "wb");
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
  fprintf(file,
          "  {\"kv\": \"%s\", \"dtype\": \"%s\", \"isa\": \"%s\",\n"
          "   \"sessions\": %zu, \"prompt_tokens\": %zu, \"generated_tokens\": %zu,"
          " \"passes\": %zu,\n"
          "   \"seconds\": %.6f, \"library_seconds\": %.6f, \"decode_tokens_per_second\": %.1f,\n"
          "   \"first_token_seconds\": {\"mean\": %.6f, \"p50\": %.6f, \"max\": %.6f},\n",
          r->memory, dtype_name(r->dtype), r->isa, r->sessions, r->prompt_tokens, r->generated,
          t->passes, t->seconds, r->library_seconds, decode_rate(r), r->first_mean, r->first_median,
          r->first_max);
  fprintf(file,
          "   \"blocks\": %" PRIu64 ", \"block_size\": %" PRIu64 ", \"peak_blocks\": %" PRIu64
          ", \"peak_bytes\": %" PRIu64
          ",\n"
          "   \"utilization\": %.6f, \"worst_case_utilization\": %.6f,\n",
          r->blocks, r->block_size, t->peak_blocks, t->peak_bytes, utilization(r),
          worst_case_utilization(r));
  fprintf(file,
          "   \"peak_saved_blocks\": %" PRIu64 ", \"copied_blocks\": %" PRIu64
          ", \"matched_tokens\": %" PRIu64 ", \"lookup_tokens\": %" PRIu64
          ",\n"
          "   \"evicted_tokens\": %" PRIu64 ", \"preemptions\": %zu}",
          t->peak_saved_blocks, t->copied_blocks, t->matched_tokens, t->lookup_tokens,
          t->evicted_tokens, t->preemptions);
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
