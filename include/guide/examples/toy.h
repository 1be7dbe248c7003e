/* A toy model. To predict the next letter, it looks for earlier places with the same last letters
 * and takes the letter that followed there (an induction head, Olsson et al. 2022). Keys, queries
 * and values are unit vectors, so the output of attention is a distribution over the next letter,
 * and all that the model knows is in the cache.
 */
#ifndef TOY_H
#define TOY_H

#include <pagedkv/pagedkv.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS = 2, LETTERS = 32, KEY_DIM = 2 * LETTERS, MAX_ROWS = 1024, MAX_TEXT = 512 };

typedef struct text {
  size_t length;
  int32_t tokens[MAX_TEXT];
} text;

static inline void check(pkv_status status) {
  if (status == PKV_OK) return;
  fprintf(stderr, "%s: %s\n", pkv_status_name(status), pkv_last_error());
  exit(EXIT_FAILURE);
}

static const char ALPHABET[LETTERS] =
    " abcdefghijklmnopqrstuvwxyz.,?!"; /* the last token, NUL, begins a text */

static inline void add(text* t, const char* letters) {
  for (; *letters != '\0'; letters++)
    t->tokens[t->length++] = (int32_t)(strchr(ALPHABET, *letters) - ALPHABET);
}

static inline void print(const char* before, const text* t, size_t from) {
  fputs(before, stdout);
  for (size_t i = from; i < t->length; i++) putchar(ALPHABET[t->tokens[i]]);
  putchar('\n');
}

/* The most likely letter; the first one if several are equal up to rounding. */
static inline int32_t most_likely(const float* p) {
  int32_t best = 0;
  for (int32_t i = 1; i < LETTERS; i++)
    if (p[i] > p[best] + 1e-3f) best = i;
  return best;
}

static pkv_layer_group toy_model = {.struct_size = sizeof toy_model,
                                    .layers = LAYERS,
                                    .query_heads = 1,
                                    .kv_heads = 1,
                                    .key_dim = KEY_DIM,
                                    .value_dim = LETTERS,
                                    .blocks = 64};

/* A cache for the toy. */
static inline pkv_cache_config toy_config(void) {
  const pkv_cache_config config = {.struct_size = sizeof config, .groups = &toy_model};
  return config;
}

/* Computes the rows of one token from itself and its two predecessors, as the projections of a
 * real model do. Layer 0 looks at one letter, layer 1 at two. */
static inline void toy_row(uint32_t layer, int32_t before, int32_t last, int32_t token, float* q,
                           float* k, float* v) {
  memset(q, 0, KEY_DIM * sizeof *q), memset(k, 0, KEY_DIM * sizeof *k),
      memset(v, 0, LETTERS * sizeof *v);
  q[token] = k[last] = v[token] = 1;
  if (layer > 0) q[LETTERS + last] = k[LETTERS + before] = 1;
}

/* Returns the token at a position. Positions -1 and -2, before the text, hold the token that begins
 * it. */
static inline int32_t token_at(const text* t, size_t i) {
  return i < t->length ? t->tokens[i] : LETTERS - 1;
}

/* [forward] */
/* One forward pass over the letters of each text that its session does not hold yet. p[i] becomes
 * the distribution of the letter after text i. */
static inline pkv_status toy_forward(pkv_cache cache, size_t n, const pkv_session* sessions,
                                     const text* const* texts, float (*p)[LETTERS]) {
  static __thread float q[MAX_ROWS][KEY_DIM], k[MAX_ROWS][KEY_DIM], v[MAX_ROWS][LETTERS],
      out[MAX_ROWS][LETTERS];
  const pkv_tensor queries = {.data = q, .dtype = PKV_F32}, keys = {.data = k, .dtype = PKV_F32};
  const pkv_tensor values = {.data = v, .dtype = PKV_F32},
                   outputs = {.data = out, .dtype = PKV_F32};
  uint32_t new_tokens[64];
  int32_t tokens[MAX_ROWS];
  size_t rows = 0;
  for (size_t i = 0; i < n; i++) {
    uint64_t held;
    check(pkv_session_get_length(sessions[i], &held));
    new_tokens[i] = (uint32_t)(texts[i]->length - held);
    memcpy(tokens + rows, texts[i]->tokens + held, new_tokens[i] * sizeof *tokens);
    rows += new_tokens[i];
  }
  pkv_batch batch;
  pkv_status status = pkv_batch_begin(cache, n, sessions, new_tokens, &batch);
  if (status != PKV_OK) return status; /* not enough blocks: nothing has changed */

  /* With this scale, a letter that matches gets e^8 times the weight of one that does not. */
  const pkv_attention_params params = {.struct_size = sizeof params, .scale = 8};
  memset(p, 0, n * sizeof *p);
  for (uint32_t layer = 0; layer < LAYERS; layer++) {
    for (size_t i = 0, row = 0; i < n; i++)
      for (size_t at = texts[i]->length - new_tokens[i]; at < texts[i]->length; at++, row++)
        toy_row(layer, token_at(texts[i], at - 2), token_at(texts[i], at - 1), texts[i]->tokens[at],
                q[row], k[row], v[row]);
    check(pkv_batch_write(batch, layer, &keys, &values));
    check(pkv_batch_attend(batch, layer, &params, &queries, &outputs, NULL));
    for (size_t i = 0, row = 0; i < n; i++) {
      row += new_tokens[i];
      if (new_tokens[i] == 0) continue;
      for (int j = 0; j < LETTERS; j++)
        p[i][j] += out[row - 1][j] / (float)LAYERS; /* the last row of the session */
    }
  }
  check(pkv_batch_commit(batch, rows, tokens));
  return PKV_OK;
}
/* [forward end] */

#endif
