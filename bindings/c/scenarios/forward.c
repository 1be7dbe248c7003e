#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../common/util.h"
#include "player.h"

enum { MAX_ROWS = 128, MAX_HEADS = 8, MAX_DIM = 64 };

typedef struct pass {
  size_t count, rows;
  pkv_session sessions[MAX_SESSIONS];
  uint32_t new_tokens[MAX_SESSIONS];
  int32_t tokens[MAX_ROWS];
  uint64_t histories[MAX_ROWS];
  pkv_attention_params params;
  float lists[2][MAX_HEADS];
  float rows_of[3][MAX_ROWS * MAX_HEADS * MAX_DIM]; /* by row_kind */
  float out[MAX_LAYERS][MAX_ROWS * MAX_HEADS * MAX_DIM];
} pass;

/* The new tokens of one session, and the histories of its text up to each of them. */
static pkv_status add_session(player* p, pass* f, const cJSON* entry) {
  int32_t text[MAX_TOKENS], new_tokens[MAX_TOKENS];
  uint64_t length, history = 0;
  if (f->count == MAX_SESSIONS)
    die(EXIT_BAD_INPUT, "a step has room for %d sessions", MAX_SESSIONS);
  const pkv_session session = player_session(p, item_of(entry, "session")->valuestring);
  pkv_status status = p->lib->session_get_length(session, &length);
  if (status == PKV_OK && length > MAX_TOKENS)
    die(EXIT_BAD_INPUT, "a session has room for %d tokens", MAX_TOKENS);
  if (status == PKV_OK) status = p->lib->session_get_tokens(session, 0, length, text);
  if (status != PKV_OK) return status;

  const size_t n = player_tokens(item_of(entry, "tokens"), new_tokens);
  if (n > MAX_ROWS - f->rows) die(EXIT_BAD_INPUT, "a step has room for %d rows", MAX_ROWS);
  for (uint64_t i = 0; i < length; i++) history = scenario_history(history, text[i]);
  for (size_t i = 0; i < n; i++) {
    history = scenario_history(history, new_tokens[i]);
    f->histories[f->rows] = history;
    f->tokens[f->rows++] = new_tokens[i];
  }
  f->sessions[f->count] = session;
  f->new_tokens[f->count++] = (uint32_t)n;
  return PKV_OK;
}

static void read_params(pass* f, const cJSON* json) {
  const cJSON *item, *value;
  size_t lists = 0;
  f->params.struct_size = sizeof f->params;
  cJSON_ArrayForEach(item, json) {
    if (!cJSON_IsArray(item)) {
      set_field(&f->params, "pkv_attention_params", item);
      continue;
    }
    if (lists == 2) die(EXIT_BAD_INPUT, "a step has room for 2 lists");
    float* list = f->lists[lists++];
    size_t n = 0;
    cJSON_ArrayForEach(value, item) {
      if (n < MAX_HEADS) list[n++] = (float)value->valuedouble;
    }
    *(const float**)field_of(&f->params, "pkv_attention_params", item->string) = list;
  }
}

static pkv_tensor rows_of(pass* f, enum row_kind kind, uint32_t layer, size_t heads, size_t dim) {
  if (heads > MAX_HEADS || dim > MAX_DIM)
    die(EXIT_BAD_INPUT, "a row has room for %d heads of %d dims", MAX_HEADS, MAX_DIM);
  for (size_t row = 0; row < f->rows; row++)
    scenario_row(f->rows_of[kind] + row * heads * dim, f->histories[row], kind, layer, heads, dim);
  const pkv_tensor tensor = {.data = f->rows_of[kind], .dtype = PKV_F32};
  return tensor;
}

static pkv_status run_layer(const player* p, pass* f, pkv_batch batch, uint32_t layer) {
  const layer_shape* s = &p->config.shapes[layer];
  const pkv_tensor k = rows_of(f, ROW_K, layer, s->kv_heads, s->key_dim),
                   v = rows_of(f, ROW_V, layer, s->kv_heads, s->value_dim);
  const pkv_tensor q = rows_of(f, ROW_Q, layer, s->query_heads, s->key_dim),
                   out = {.data = f->out[layer], .dtype = PKV_F32};
  const pkv_status status = p->lib->batch_write(batch, layer, &k, &v);
  if (status != PKV_OK) return status;
  return p->lib->batch_attend(batch, layer, &f->params, &q, &out, NULL);
}

static void compare_outputs(player* p, const pass* f, const cJSON* expected) {
  const cJSON* item;
  char what[96];
  cJSON_ArrayForEach(item, expected) {
    size_t at[4];
    for (int i = 0; i < 4; i++) at[i] = (size_t)element_of(item, i);
    const layer_shape* s = &p->config.shapes[at[1]];
    snprintf(what, sizeof what, "output of row %zu, layer %zu, head %zu, dim %zu", at[0], at[1],
             at[2], at[3]);
    const double got =
        (double)f->out[at[1]][(at[0] * s->query_heads + at[2]) * s->value_dim + at[3]];
    player_expect_near(p, what, got, element_of(item, 4));
  }
}

/* ---- Opaque groups ---- */

static pkv_status compute_group(player* p, pkv_batch batch, uint32_t group, size_t n,
                                const uint64_t* histories) {
  uint64_t* slots = p->device.slots[group];
  uint32_t from[MAX_SESSIONS], to[MAX_SESSIONS];
  int64_t mapping[MAX_TOKENS];
  size_t count;
  pkv_status status = p->lib->batch_get_block_copies(batch, group, MAX_SESSIONS, from, to, &count);
  if (status != PKV_OK) return status;
  for (size_t i = 0; i < count; i++)
    memcpy(slots + (size_t)to[i] * DEVICE_BLOCK, slots + (size_t)from[i] * DEVICE_BLOCK,
           DEVICE_BLOCK * sizeof *slots);
  status = p->lib->batch_get_slot_mapping(batch, group, MAX_TOKENS, mapping, &count);
  for (size_t i = 0; status == PKV_OK && i < n; i++) slots[mapping[i]] = histories[i];
  return status;
}

/* Copies blocks and writes the histories of a batch's `n` new tokens, as kernels would. */
static pkv_status compute_on_device(player* p, pkv_batch batch, size_t n,
                                    const uint64_t* histories) {
  pkv_status status = PKV_OK;
  for (uint32_t group = 0; group < p->config.cache.group_count && status == PKV_OK; group++)
    status = compute_group(p, batch, group, n, histories);
  return status;
}

static pkv_status compare_group(player* p, pkv_session session, uint32_t group, uint64_t length,
                                const uint64_t* histories) {
  uint32_t table[MAX_TOKENS];
  size_t count;
  char what[64];
  const pkv_status status =
      p->lib->session_get_block_table(session, group, MAX_TOKENS, table, &count);
  for (uint64_t i = 0; status == PKV_OK && i < length; i++) {
    if (table[i / DEVICE_BLOCK] == PKV_NO_BLOCK_ID) continue;
    snprintf(what, sizeof what, "history of position %llu in group %u", (unsigned long long)i,
             group);
    player_expect(p, what,
                  (long long)p->device
                      .slots[group][table[i / DEVICE_BLOCK] * DEVICE_BLOCK + i % DEVICE_BLOCK],
                  (long long)histories[i]);
  }
  return status;
}

/* Compares the slots of a session with its tokens. */
static pkv_status compare_device(player* p, pkv_session session) {
  int32_t tokens[MAX_TOKENS];
  uint64_t histories[MAX_TOKENS], length, history = 0;
  pkv_status status = p->lib->session_get_length(session, &length);
  if (status == PKV_OK) status = p->lib->session_get_tokens(session, 0, length, tokens);
  if (status != PKV_OK) return status;
  for (uint64_t i = 0; i < length; i++)
    histories[i] = history = scenario_history(history, tokens[i]);
  for (uint32_t group = 0; group < p->config.cache.group_count && status == PKV_OK; group++)
    status = compare_group(p, session, group, length, histories);
  return status;
}

/* ---- A pass ---- */

static pkv_status compare_results(player* p, const pass* f, const cJSON* expected) {
  pkv_status status = PKV_OK;
  compare_outputs(p, f, expected);
  for (size_t i = 0; i < f->count && p->config.cache.block_io != NULL && status == PKV_OK; i++)
    status = compare_device(p, f->sessions[i]);
  return status;
}

static pkv_status run_pass(player* p, pass* f, const cJSON* step) {
  const cJSON *entry, *end = item_of(step, "end");
  pkv_batch batch;
  pkv_status status;
  cJSON_ArrayForEach(entry, item_of(step, "sessions")) {
    status = add_session(p, f, entry);
    if (status != PKV_OK) return status;
  }
  status = p->lib->batch_begin(p->cache, f->count, f->sessions, f->new_tokens, &batch);
  if (status != PKV_OK) return status;
  const uint32_t layers = p->config.cache.storage == PKV_STORAGE_EXTERNAL ? 0 : p->config.layers;
  if (p->config.cache.block_io != NULL) status = compute_on_device(p, batch, f->rows, f->histories);
  for (uint32_t layer = 0; layer < layers && status == PKV_OK; layer++)
    status = run_layer(p, f, batch, layer);
  if (status == PKV_OK && end == NULL) {
    status = p->lib->batch_commit(batch, f->rows, f->tokens);
    if (status == PKV_OK) return compare_results(p, f, item_of(step, "out"));
  }
  const pkv_status aborted = p->lib->batch_abort(batch);
  if (status == PKV_OK) compare_outputs(p, f, item_of(step, "out"));
  return status != PKV_OK ? status : aborted;
}

pkv_status player_forward(player* p, const cJSON* step) {
  pass* f = new_array(1, sizeof *f);
  read_params(f, item_of(step, "params"));
  const pkv_status status = run_pass(p, f, step);
  free(f);
  return status;
}
