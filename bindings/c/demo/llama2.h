/* A Llama model from a llama2.c checkpoint: seven int32 (dim, hidden, layers, heads, KV heads,
 * vocabulary, context), then fp32 tensors.
 *
 * The forward pass knows nothing of caches: when a layer needs attention, it passes its queries,
 * keys and values to the caller.
 */
#ifndef PKV_GENERATE_LLAMA2_H
#define PKV_GENERATE_LLAMA2_H

#include <stddef.h>
#include <stdint.h>

#include "../common/system.h"
#include "../common/util.h"

typedef struct llama2 {
  size_t dim, hidden, layers, query_heads, kv_heads, vocabulary, context;
  size_t head_dim; /* dim / query_heads */
  size_t kv_dim;   /* kv_heads * head_dim */
  const float *embedding, *attention_norm, *wq, *wk, *wv, *wo, *ffn_norm, *w1, *w2, *w3,
      *final_norm, *classifier;
  mapped_file file;
} llama2;

/* Maps the checkpoint. Ends the program with a sentence if the file is not one; never reads beyond
 * its size. */
void llama2_open(llama2* model, const char* path);
void llama2_close(llama2* model);

/* Attention of one layer over the rows of the pass and all earlier rows of their sequences: q
 * [rows][query_heads][head_dim], k and v [rows][kv_heads][head_dim], out as q. Positions (RoPE) are
 * already applied to keys and queries. */
typedef void llama2_attend(void* user, size_t layer, float* q, float* k, float* v, float* out);

/* Buffers of a forward pass of up to max_rows rows. */
typedef struct llama2_run llama2_run;
llama2_run* llama2_run_new(const llama2* model, size_t max_rows);
void llama2_run_free(llama2_run* run);

/* One pass over rows of different sequences and positions; positions may exceed the model's
 * context. Then llama2_logits gives the scores of the next token after each of the listed rows,
 * [count][vocabulary], until the next call. */
void llama2_forward(llama2_run* run, size_t rows, const int32_t* tokens, const size_t* positions,
                    llama2_attend* attend, void* user);
const float* llama2_logits(llama2_run* run, size_t count, const size_t* row_indices);

#endif
