#include "model.h"

#include <stdlib.h>
#include <string.h>

void check(const machine* m, pkv_status status, const char* what) {
  if (status != PKV_OK)
    die(EXIT_BAD_INPUT, "%s: %s (%s)", what, m->lib.last_error(), m->lib.status_name(status));
}

/* A fingerprint of all weights: the last of the library's hashes of the file's words. */
static uint64_t fingerprint(const machine* m) {
  const size_t words = m->model.file.size / 4, blocks = words / 256;
  uint64_t* hashes = new_array(blocks + 1, sizeof *hashes);
  check(m,
        m->lib.prefix_hash_blocks(NULL, 0, 256, words, (const int32_t*)m->model.file.data, hashes),
        "the model");
  const uint64_t last = blocks == 0 ? 0 : hashes[blocks - 1];
  free(hashes);
  return last;
}

void machine_open(machine* m, const char* library, const char* model, uint32_t group) {
  memset(m, 0, sizeof *m);
  pkv_dl_open(&m->lib, library);
  llama2_open(&m->model, model);
  const size_t stem = strlen(model) - (strlen(model) > 4 ? 4 : 0); /* FILE.bin */
  char* words = new_array(strlen(model) + 20, 1);
  memcpy(words, model, stem);
  strcpy(words + stem, ".tokenizer.bin");
  tokenizer_open(&m->words, words, m->model.vocabulary);
  free(words);

  const pkv_layer_group layers = {.struct_size = sizeof layers,
                                  .layers = (uint32_t)m->model.layers,
                                  .query_heads = (uint32_t)m->model.query_heads,
                                  .kv_heads = (uint32_t)m->model.kv_heads,
                                  .key_dim = (uint32_t)m->model.head_dim};
  const pkv_prefix_config prefix = {.struct_size = sizeof prefix};
  const pkv_cache_config config = {.struct_size = sizeof config,
                                   .groups = &layers,
                                   .blocks = 1024,
                                   .threads = 1,
                                   .prefix = &prefix};
  check(m, m->lib.cache_create(&config, &m->cache), "the cache");
  m->run = llama2_run_new(&m->model, CHUNK + MOST_TEXTS);
  m->shape.layers = layers.layers;
  m->shape.kv_heads = layers.kv_heads;
  m->shape.key_dim = layers.key_dim;
  m->shape.row_bytes = sizeof(float);
  m->shape.fingerprint = fingerprint(m);
  m->group = group == 0 || group > layers.layers ? layers.layers : group;
  m->parts = new_array(2 * m->group, sizeof *m->parts);
  m->sizes = new_array(2 * m->group, sizeof *m->sizes);
}

void machine_close(machine* m) {
  check(m, m->lib.cache_destroy(m->cache), "closing the cache");
  llama2_run_free(m->run);
  tokenizer_close(&m->words);
  llama2_close(&m->model);
  free(m->parts);
  free(m->sizes);
}

/* Queues the rows of a layer for the other end while the next layer is computed. The rows are
 * copied, since the model's buffers are reused; layers that wait for their frame are copied here.
 * */
void send_layer(machine* m, size_t layer, const float* k, const float* v) {
  const size_t size = m->rows * m->model.kv_dim * sizeof(float);
  const float* const rows[2] = {k, v};
  for (int i = 0; i < 2; i++) {
    void* copy = new_array(size, 1);
    memcpy(copy, rows[i], size);
    m->parts[m->pending] = copy;
    m->sizes[m->pending++] = size;
  }
  const size_t layers = m->pending / 2;
  if (layers < m->group && layer + 1 < m->model.layers) return;
  const frame_rows head = {m->request, (uint32_t)m->rows, m->position,
                           (uint32_t)(layer + 1 - layers), (uint32_t)layers};
  if (!stream_send(m->to, FRAME_ROWS, &head, sizeof head, m->pending, m->parts, m->sizes))
    m->lost = true;
  while (m->pending > 0) free((void*)m->parts[--m->pending]);
}

static void attend(void* user, size_t layer, float* q, float* k, float* v, float* out) {
  machine* m = user;
  const pkv_tensor queries = {.data = q, .dtype = PKV_F32}, keys = {.data = k, .dtype = PKV_F32};
  const pkv_tensor values = {.data = v, .dtype = PKV_F32},
                   outputs = {.data = out, .dtype = PKV_F32};
  check(m, m->lib.batch_write(m->batch, (uint32_t)layer, &keys, &values), "write");
  if (m->to != NULL && !m->lost) send_layer(m, layer, k, v);
  check(m, m->lib.batch_attend(m->batch, (uint32_t)layer, NULL, &queries, &outputs), "attend");
}

void forward(machine* m, size_t count, part* parts) {
  pkv_session sessions[MOST_TEXTS];
  uint32_t new_tokens[MOST_TEXTS];
  int32_t tokens[CHUNK + MOST_TEXTS];
  size_t positions[CHUNK + MOST_TEXTS], ends[MOST_TEXTS], rows = 0;
  for (size_t i = 0; i < count; i++) {
    sessions[i] = parts[i].session;
    new_tokens[i] = (uint32_t)parts[i].count;
    for (size_t j = 0; j < parts[i].count; j++, rows++) {
      tokens[rows] = parts[i].tokens[j];
      positions[rows] = parts[i].position + j;
    }
    ends[i] = rows - 1;
  }
  m->rows = rows;
  m->position = parts[0].position;
  check(m, m->lib.batch_begin(m->cache, count, sessions, new_tokens, NULL, &m->batch), "begin");
  llama2_forward(m->run, rows, tokens, positions, attend, m);
  check(m, m->lib.batch_commit(m->batch, tokens), "commit");
  const float* logits = llama2_logits(m->run, count, ends);
  for (size_t i = 0; i < count; i++, logits += m->model.vocabulary) {
    parts[i].best = 0;
    for (size_t token = 1; token < m->model.vocabulary; token++)
      if (logits[token] > logits[parts[i].best]) parts[i].best = (int32_t)token;
  }
}

pkv_session open_session(const machine* m, size_t count, const int32_t* tokens, uint64_t* matched) {
  pkv_session session;
  check(m, m->lib.session_open(m->cache, NULL, &session), "a session");
  check(m, m->lib.session_match_prefix(session, count - 1, tokens, matched), "a match");
  return session;
}
