#include "arrays.h"

#include <stdlib.h>
#include <string.h>

typedef struct arrays {
  const pkv_dl* lib;
  pkv_compute compute;
  size_t layers, count; /* of sessions */
  uint64_t bytes;       /* of K and V */
  unsigned char* memory;
  pkv_kv_view* views; /* [layers]: each session's rows are one block, as long as a text can get */
  sequence* sequences;
  size_t* held; /* [count]: the tokens that each session has computed */
  double library_seconds;

  /* The pass in progress: its sessions, and their rows. */
  llama2_run* run;
  pkv_kv_sequences rows;
  size_t* owners;
  uint32_t *lengths, *blocks;
  uint64_t* kv_lengths;
  int32_t* tokens;
  size_t *positions, *logit_rows;
} arrays;

static void check(const arrays* a, pkv_status status, const char* what) {
  if (status != PKV_OK)
    die(EXIT_BAD_INPUT, "%s: %s (%s)", what, a->lib->last_error(), a->lib->status_name(status));
}

static size_t longest(const arrays* a) {
  size_t most = 0;
  for (size_t i = 0; i < a->count; i++)
    if (a->sequences[i].limit > most) most = a->sequences[i].limit;
  return most;
}

static void open_memory(arrays* a, const llama2* model, const options* o) {
  const pkv_kv_view layer = {.struct_size = sizeof layer,
                             .layout = PKV_LAYOUT_PLAIN,
                             .block_size = (uint32_t)longest(a),
                             .kv_heads = (uint32_t)model->kv_heads,
                             .key_dim = (uint32_t)model->head_dim,
                             .dtype = o->dtype,
                             .blocks = a->count};
  uint64_t bytes = 0;
  a->views = new_array(a->layers, sizeof *a->views);
  for (size_t l = 0; l < a->layers; l++) {
    a->views[l] = layer;
    check(a, a->lib->kv_view_init(&a->views[l], &bytes), "the arrays");
  }
  a->bytes = bytes * a->layers;
  a->memory = new_array((size_t)a->bytes, 1);
  for (size_t l = 0; l < a->layers; l++) {
    a->views[l].k = a->memory + l * bytes;
    check(a, a->lib->kv_view_init(&a->views[l], &bytes), "the arrays");
  }
}

static void open_arrays(arrays* a, const options* o, const pkv_dl* lib, const llama2* model,
                        const prompts* p, size_t context) {
  const size_t max_rows = p->count + o->chunk;
  const pkv_compute_config config = {.struct_size = sizeof config,
                                     .threads = (uint32_t)o->threads,
                                     .isa = engine_isa(lib, o->isa)};
  memset(a, 0, sizeof *a);
  a->lib = lib;
  a->layers = model->layers;
  a->count = p->count;
  check(a, lib->compute_create(&config, &a->compute), "the threads");
  a->sequences = new_array(a->count, sizeof *a->sequences);
  for (size_t i = 0; i < a->count; i++) a->sequences[i] = sequence_new(p, o, context, i);
  open_memory(a, model, o);
  a->held = new_array(a->count, sizeof *a->held);
  a->run = llama2_run_new(model, max_rows);
  a->owners = new_array(a->count, sizeof *a->owners);
  a->lengths = new_array(a->count, sizeof *a->lengths);
  a->blocks = new_array(a->count, sizeof *a->blocks);
  a->kv_lengths = new_array(a->count, sizeof *a->kv_lengths);
  a->tokens = new_array(max_rows, sizeof *a->tokens);
  a->positions = new_array(max_rows, sizeof *a->positions);
  a->logit_rows = new_array(a->count, sizeof *a->logit_rows);
  a->rows = (pkv_kv_sequences){.struct_size = sizeof a->rows,
                               .query_heads = (uint32_t)model->query_heads,
                               .query_lengths = a->lengths,
                               .kv_lengths = a->kv_lengths,
                               .block_tables = a->blocks,
                               .block_table_stride = 1};
}

/* Keeps the sequences, which the result has. */
static void close_arrays(arrays* a) {
  check(a, a->lib->compute_destroy(a->compute), "closing the threads");
  llama2_run_free(a->run);
  free(a->memory);
  free(a->views);
  free(a->held);
  free(a->owners);
  free(a->lengths);
  free(a->blocks);
  free(a->kv_lengths);
  free(a->tokens);
  free(a->positions);
  free(a->logit_rows);
}

/* Adds the next `count` tokens of a session to the pass, whose rows so far are `rows`. */
static void add_rows(arrays* a, size_t session, size_t count, size_t rows) {
  const sequence* q = &a->sequences[session];
  const size_t at = (size_t)a->rows.count++;
  a->owners[at] = session;
  a->blocks[at] = (uint32_t)session;
  a->lengths[at] = (uint32_t)count;
  a->kv_lengths[at] = a->held[session] + count;
  for (size_t i = 0; i < count; i++) {
    a->positions[rows + i] = a->held[session] + i;
    a->tokens[rows + i] = q->tokens[a->held[session] + i];
  }
}

/* One token of each session that decodes, and `chunk` tokens of prompts. Returns the rows. */
static size_t plan_pass(arrays* a, size_t chunk) {
  size_t rows = 0;
  a->rows.count = 0;
  for (size_t i = 0; i < a->count; i++) {
    const size_t pending = a->sequences[i].length - a->held[i];
    if (a->sequences[i].state == SEQUENCE_DONE || (pending > 1 && chunk == 0)) continue;
    const size_t count = pending <= 1 ? 1 : pending < chunk ? pending : chunk;
    if (pending > 1) chunk -= count;
    add_rows(a, i, count, rows);
    rows += count;
  }
  return rows;
}

static void attend(void* user, size_t layer, float* q, float* k, float* v, float* out) {
  arrays* a = user;
  const double start = seconds();
  const pkv_tensor queries = {.data = q, .dtype = PKV_F32}, keys = {.data = k, .dtype = PKV_F32},
                   values = {.data = v, .dtype = PKV_F32},
                   outputs = {.data = out, .dtype = PKV_F32};
  const pkv_kv_view* view = &a->views[layer];
  check(a, a->lib->kv_write(a->compute, view, &a->rows, &keys, &values), "write");
  check(a, a->lib->kv_attend(a->compute, view, &a->rows, NULL, &queries, &outputs, NULL), "attend");
  a->library_seconds += seconds() - start;
}

/* Samples a token for each session of the pass that has no other token to compute. Returns how many
 * of them decoded. */
static size_t take_tokens(arrays* a, const llama2* model, double start) {
  size_t rows = 0, wanted = 0, decoded = 0;
  for (size_t i = 0; i < a->rows.count; i++) {
    const size_t session = a->owners[i];
    a->held[session] += a->lengths[i];
    rows += a->lengths[i];
    if (a->held[session] < a->sequences[session].length) continue;
    a->owners[wanted] = session;
    a->logit_rows[wanted++] = rows - 1;
  }
  const float* logits = llama2_logits(a->run, wanted, a->logit_rows);
  for (size_t i = 0; i < wanted; i++, logits += model->vocabulary) {
    sequence* q = &a->sequences[a->owners[i]];
    decoded += q->length > q->prompt_length;
    if (!sequence_continue(q, logits, model->vocabulary, start)) q->state = SEQUENCE_DONE;
  }
  return decoded;
}

static void observe(const arrays* a, run_totals* t, size_t context) {
  t->passes++;
  t->peak_bytes = a->bytes;
  t->reserved_bytes += a->bytes;
  const size_t row_bytes = (size_t)a->bytes / a->count / a->views[0].block_size;
  for (size_t i = 0; i < a->count; i++) {
    if (a->sequences[i].state == SEQUENCE_DONE) continue;
    t->filled_bytes += a->held[i] * row_bytes;
    t->tokens += a->held[i];
    t->worst_case += context;
  }
}

run_result arrays_run(const options* o, const pkv_dl* lib, const llama2* model, const prompts* p,
                      size_t context) {
  arrays a;
  run_totals totals = {0};
  open_arrays(&a, o, lib, model, p, context);
  const double begin = seconds();
  for (size_t rows; (rows = plan_pass(&a, o->chunk)) > 0;) {
    const double start = seconds();
    llama2_forward(a.run, rows, a.tokens, a.positions, attend, &a);
    observe(&a, &totals, context);
    const size_t decoded = take_tokens(&a, model, begin);
    totals.decode_tokens += decoded;
    if (decoded > 0) totals.decode_seconds += seconds() - start;
  }
  totals.seconds = seconds() - begin;
  run_result result = report_new(a.sequences, a.count, &totals);
  pkv_compute_info info = {.struct_size = sizeof info};
  check(&a, lib->compute_get_info(a.compute, &info), "the threads");
  result.memory = "arrays";
  result.dtype = o->dtype;
  result.isa = lib->isa_name(info.isa);
  result.library_seconds = a.library_seconds;
  close_arrays(&a);
  return result;
}
