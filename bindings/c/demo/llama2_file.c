/* The checkpoint: its header is checked against the file's real size before any weight is read. */
#include <stdbool.h>
#include <string.h>

#include "llama2.h"

enum { HEADER_INTS = 7 };

typedef struct cursor {
  const char* path;
  const mapped_file* file;
  size_t offset;
} cursor;

/* The next tensor, of a * b * c floats. */
static const float* take(cursor* at, const char* tensor, size_t a, size_t b, size_t c) {
  const size_t left = at->file->size - at->offset;
  size_t count, bytes;
  if (__builtin_mul_overflow(a, b, &count) || __builtin_mul_overflow(count, c, &count) ||
      __builtin_mul_overflow(count, sizeof(float), &bytes) || bytes > left)
    die(EXIT_BAD_INPUT,
        "the model %s is cut short or not a llama2.c checkpoint: %s needs %zu x %zu x %zu floats, "
        "%zu bytes are left of %zu",
        at->path, tensor, a, b, c, left, at->file->size);
  const float* data = (const float*)(const void*)(at->file->data + at->offset);
  at->offset += bytes;
  return data;
}

/* A negative vocabulary size means that the classifier is separate from the embedding. */
static bool read_header(llama2* model, const char* path) {
  static const char* const names[HEADER_INTS] = {"dim",      "hidden dim", "layers", "heads",
                                                 "KV heads", "vocabulary", "context"};
  int32_t header[HEADER_INTS];
  if (model->file.size < sizeof header)
    die(EXIT_BAD_INPUT, "the model %s has %zu bytes, its header alone takes %zu", path,
        model->file.size, sizeof header);
  memcpy(header, model->file.data, sizeof header);
  const bool own_classifier = header[5] < 0;
  if (own_classifier && header[5] != INT32_MIN) header[5] = -header[5];
  for (size_t i = 0; i < HEADER_INTS; i++)
    if (header[i] <= 0)
      die(EXIT_BAD_INPUT, "the model %s is not a llama2.c checkpoint: its %s is %d", path, names[i],
          header[i]);
  model->dim = (size_t)header[0];
  model->hidden = (size_t)header[1];
  model->layers = (size_t)header[2];
  model->query_heads = (size_t)header[3];
  model->kv_heads = (size_t)header[4];
  model->vocabulary = (size_t)header[5];
  model->context = (size_t)header[6];
  return own_classifier;
}

static void check_heads(llama2* model, const char* path) {
  if (model->dim % model->query_heads != 0 || model->query_heads % model->kv_heads != 0)
    die(EXIT_BAD_INPUT,
        "the model %s is not a llama2.c checkpoint: dim %zu, %zu heads and %zu KV heads do not "
        "divide",
        path, model->dim, model->query_heads, model->kv_heads);
  model->head_dim = model->dim / model->query_heads;
  model->kv_dim = model->head_dim * model->kv_heads;
  if (model->head_dim % 2 != 0)
    die(EXIT_BAD_INPUT, "the model %s has a head dim of %zu; rotary positions need pairs", path,
        model->head_dim);
}

void llama2_open(llama2* model, const char* path) {
  memset(model, 0, sizeof *model);
  model->file = map_file(path, "model");
  const bool own_classifier = read_header(model, path);
  check_heads(model, path);

  cursor at = {path, &model->file, HEADER_INTS * sizeof(int32_t)};
  const size_t dim = model->dim, layers = model->layers;
  model->embedding = take(&at, "the embedding", 1, model->vocabulary, dim);
  model->attention_norm = take(&at, "the attention norm", layers, 1, dim);
  model->wq = take(&at, "wq", layers, dim, dim);
  model->wk = take(&at, "wk", layers, model->kv_dim, dim);
  model->wv = take(&at, "wv", layers, model->kv_dim, dim);
  model->wo = take(&at, "wo", layers, dim, dim);
  model->ffn_norm = take(&at, "the FFN norm", layers, 1, dim);
  model->w1 = take(&at, "w1", layers, model->hidden, dim);
  model->w2 = take(&at, "w2", layers, dim, model->hidden);
  model->w3 = take(&at, "w3", layers, model->hidden, dim);
  model->final_norm = take(&at, "the final norm", 1, 1, dim);
  take(&at, "the unused rotary tables", 2, model->context, model->head_dim / 2);
  model->classifier =
      own_classifier ? take(&at, "the classifier", 1, model->vocabulary, dim) : model->embedding;
  if (at.offset != model->file.size)
    die(EXIT_BAD_INPUT,
        "the model %s is not a llama2.c checkpoint: %zu bytes, its header accounts for %zu", path,
        model->file.size, at.offset);
}

void llama2_close(llama2* model) { unmap_file(&model->file); }
