/* The forward pass (Touvron et al. 2023): RMSNorm, rotary positions on interleaved pairs,
 * grouped-query attention, SwiGLU. */
#include "llama2.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "matmul.h"

struct llama2_run {
  const llama2* model;
  float* frequencies; /* [head_dim / 2] radians per position */
  float* rotation;    /* [rows][head_dim / 2] cosine and sine */
  float* x;           /* [rows][dim] the residual stream */
  float* normed;      /* [rows][dim] */
  float* q;           /* [rows][dim] */
  float* k;           /* [rows][kv_dim] */
  float* v;           /* [rows][kv_dim] */
  float* attended;    /* [rows][dim] */
  float* gate;        /* [rows][hidden] */
  float* up;          /* [rows][hidden] */
  float* logits;      /* [rows][vocabulary] */
};

/* Room for rows * width floats; width comes from a file. */
static float* new_rows(size_t rows, size_t width) {
  size_t count;
  if (__builtin_mul_overflow(rows, width, &count))
    die(EXIT_BAD_INPUT, "%zu rows of %zu numbers do not fit into memory", rows, width);
  return new_array(count, sizeof(float));
}

llama2_run* llama2_run_new(const llama2* model, size_t max_rows) {
  llama2_run* run = new_array(1, sizeof *run);
  const size_t pairs = model->head_dim / 2;
  run->model = model;
  run->frequencies = new_rows(pairs, 1);
  for (size_t i = 0; i < pairs; i++)
    run->frequencies[i] = (float)pow(10000.0, -(double)(2 * i) / (double)model->head_dim);
  run->rotation = new_rows(max_rows, model->head_dim);
  run->x = new_rows(max_rows, model->dim);
  run->normed = new_rows(max_rows, model->dim);
  run->q = new_rows(max_rows, model->dim);
  run->k = new_rows(max_rows, model->kv_dim);
  run->v = new_rows(max_rows, model->kv_dim);
  run->attended = new_rows(max_rows, model->dim);
  run->gate = new_rows(max_rows, model->hidden);
  run->up = new_rows(max_rows, model->hidden);
  run->logits = new_rows(max_rows, model->vocabulary);
  return run;
}

void llama2_run_free(llama2_run* run) {
  if (run == NULL) return;
  float* const buffers[] = {run->frequencies, run->rotation, run->x,     run->normed,
                            run->q,           run->k,        run->v,     run->attended,
                            run->gate,        run->up,       run->logits};
  for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++) free(buffers[i]);
  free(run);
}

static void rms_norm(float* out, const float* x, const float* weight, size_t rows, size_t dim) {
  for (size_t row = 0; row < rows; row++, x += dim, out += dim) {
    float squares = 0;
    for (size_t i = 0; i < dim; i++) squares += x[i] * x[i];
    const float scale = 1.0f / sqrtf(squares / (float)dim + 1e-5f);
    for (size_t i = 0; i < dim; i++) out[i] = weight[i] * (scale * x[i]);
  }
}

static void compute_rotation(llama2_run* run, size_t rows, const size_t* positions) {
  const size_t pairs = run->model->head_dim / 2;
  float* out = run->rotation;
  for (size_t row = 0; row < rows; row++)
    for (size_t i = 0; i < pairs; i++) {
      const double angle = (double)positions[row] * (double)run->frequencies[i];
      *out++ = (float)cos(angle);
      *out++ = (float)sin(angle);
    }
}

static void rotate(float* x, const float* rotation, size_t rows, size_t heads, size_t head_dim) {
  for (size_t row = 0; row < rows; row++, rotation += head_dim)
    for (size_t head = 0; head < heads; head++, x += head_dim)
      for (size_t i = 0; i < head_dim; i += 2) {
        const float a = x[i], b = x[i + 1];
        x[i] = a * rotation[i] - b * rotation[i + 1];
        x[i + 1] = a * rotation[i + 1] + b * rotation[i];
      }
}

static void add(float* x, const float* y, size_t count) {
  for (size_t i = 0; i < count; i++) x[i] += y[i];
}

static void swiglu(float* gate, const float* up, size_t count) {
  for (size_t i = 0; i < count; i++) gate[i] = gate[i] / (1.0f + expf(-gate[i])) * up[i];
}

static void attention_block(llama2_run* run, size_t layer, size_t rows, llama2_attend* attend,
                            void* user) {
  const llama2* m = run->model;
  rms_norm(run->normed, run->x, m->attention_norm + layer * m->dim, rows, m->dim);
  matmul(run->q, run->normed, m->wq + layer * m->dim * m->dim, rows, m->dim, m->dim);
  matmul(run->k, run->normed, m->wk + layer * m->kv_dim * m->dim, rows, m->dim, m->kv_dim);
  matmul(run->v, run->normed, m->wv + layer * m->kv_dim * m->dim, rows, m->dim, m->kv_dim);
  /* [rotate] */
  rotate(run->q, run->rotation, rows, m->query_heads, m->head_dim);
  rotate(run->k, run->rotation, rows, m->kv_heads, m->head_dim);
  attend(user, layer, run->q, run->k, run->v, run->attended);
  /* [rotate end] */
  matmul(run->normed, run->attended, m->wo + layer * m->dim * m->dim, rows, m->dim, m->dim);
  add(run->x, run->normed, rows * m->dim);
}

static void ffn_block(llama2_run* run, size_t layer, size_t rows) {
  const llama2* m = run->model;
  rms_norm(run->normed, run->x, m->ffn_norm + layer * m->dim, rows, m->dim);
  matmul(run->gate, run->normed, m->w1 + layer * m->hidden * m->dim, rows, m->dim, m->hidden);
  matmul(run->up, run->normed, m->w3 + layer * m->hidden * m->dim, rows, m->dim, m->hidden);
  swiglu(run->gate, run->up, rows * m->hidden);
  matmul(run->normed, run->gate, m->w2 + layer * m->dim * m->hidden, rows, m->hidden, m->dim);
  add(run->x, run->normed, rows * m->dim);
}

void llama2_forward(llama2_run* run, size_t rows, const int32_t* tokens, const size_t* positions,
                    llama2_attend* attend, void* user) {
  const llama2* m = run->model;
  for (size_t row = 0; row < rows; row++)
    memcpy(run->x + row * m->dim, m->embedding + (size_t)tokens[row] * m->dim,
           m->dim * sizeof(float));
  compute_rotation(run, rows, positions);
  for (size_t layer = 0; layer < m->layers; layer++) {
    attention_block(run, layer, rows, attend, user);
    ffn_block(run, layer, rows);
  }
}

const float* llama2_logits(llama2_run* run, size_t count, const size_t* row_indices) {
  const llama2* m = run->model;
  for (size_t i = 0; i < count; i++)
    rms_norm(run->normed + i * m->dim, run->x + row_indices[i] * m->dim, m->final_norm, 1, m->dim);
  matmul(run->logits, run->normed, m->classifier, count, m->dim, m->vocabulary);
  return run->logits;
}
