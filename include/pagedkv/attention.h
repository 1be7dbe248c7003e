/* pagedkv: attention parameters, views of K and V, and attention over memory the caller describes.
 *
 *   out[i] = sum_j softmax_j(score_ij) v[j]        score_ij = cap(scale * q[i] . k[j]) + slope * (j - i)
 *
 * over the positions j that query i sees (Vaswani et al. 2017); cap(x) = softcap * tanh(x / softcap) and the slope (ALiBi, Press et
 * al. 2021) only where they are asked for. Each query head uses the KV head
 * query_head / (query_heads / kv_heads) (grouped-query attention, Ainslie et al. 2023). The softmax is
 * computed online over blocks (Milakov and Gimelshein 2018; Dao et al. 2022) in fp32; partial results over
 * parts of a long sequence are merged in a fixed order, so that the bits do not depend on the number of threads.
 * Sessions of a batch that share leading blocks have those read once for all of them (Juravsky et al. 2024, Ye et al. 2024).
 * A query that sees no position gives zeros. INT8 and INT4 are multiplied as integers, queries and weights rounded to 2^-15 of
 * their largest.
 *
 * Threads: every function may be called from any thread.
 */
#ifndef PAGEDKV_ATTENTION_H
#define PAGEDKV_ATTENTION_H

#include <pagedkv/cache.h>

#ifdef __cplusplus
extern "C" {
#endif

/** window value: the window of the layer's group. */
#define PKV_WINDOW_OF_LAYER ((uint32_t)0xFFFFFFFFu)
/** sinks value: the sinks of the layer's group. */
#define PKV_SINKS_OF_LAYER ((uint32_t)0xFFFFFFFFu)

/** Which attention is computed. Variants combine freely. */
typedef struct pkv_attention_params {
  uint32_t struct_size;
  float scale;     /**< Factor of the scores, finite; 0 (default): 1 / sqrt(key_dim). */
  uint32_t causal; /**< 1 (default): a query sees no position after its own. 0: all of its sequence. */
  uint32_t window; /**< A query sees its own position and window - 1 before it; 0: all. Default PKV_WINDOW_OF_LAYER (stateless: all). */

  float softcap;             /**< 0 (default): none. Finite, not negative. */
  const float* alibi_slopes; /**< [query_heads]; NULL: none. */
  /** [query_heads] logits that take part in the softmax without a value, as learned attention sinks; NULL: none. */
  const float* sink_logits;
  /**
   * Which new tokens of its own session a new token sees, [rows][mask_words]: bit j % 64 of word j / 64 stands for the session's new token
   * j. What was there before the step is seen as ever, by causal, window and sinks; of the new tokens just those are whose bit is set and which the window does not hide. For
   * trees of speculative tokens. NULL: no mask.
   */
  const uint64_t* mask;
  uint64_t mask_words; /**< Words per row, at most 2^26: 64 * mask_words must reach the new
                            tokens of every session. */
  uint32_t sinks;      /**< First positions seen whatever the window; PKV_SINKS_OF_LAYER (default; stateless: none). */
  uint32_t reserved;   /**< 0. */
  /** Out, [rows][query_heads]: log of the sum of exp(score), sink_logits included (and alone where nothing was seen; without them -infinity). NULL: not wanted. */
  float* lse;
} pkv_attention_params;

/** Fills *params with defaults. Statuses: INVALID_ARGUMENT. Since 0.1. */
PKV_API pkv_status pkv_attention_params_init(pkv_attention_params* params, size_t struct_size);

/**
 * K and V of one layer in paged memory: a cache's (pkv_cache_kv_view) or the caller's own. Strides count
 * elements of dtype; of INT8 and INT4, whose rows end in scales, bytes. Block b begins at b * block_stride; in it
 *   PLAIN   element (token t, head h, dim d) is at t * row_stride + h * head_stride + d;
 *   PACKED  tile t / 16 begins at (t / 16) * row_stride + h * head_stride; inside, see PKV_LAYOUT_PACKED.
 * Where block_stride == block_size * row_stride (PLAIN) the same memory is token-flat: slot s begins at s * row_stride.
 */
typedef struct pkv_kv_view {
  uint32_t struct_size;
  pkv_dtype dtype;
  pkv_layout layout;
  uint32_t block_size; /**< PACKED: a multiple of 16. PLAIN: 1 or more. */
  uint32_t kv_heads;
  uint32_t key_dim;
  uint32_t value_dim;
  pkv_dtype value_dtype; /**< Of V; 0: dtype. */
  uint64_t blocks;     /**< How many blocks the memory holds: no id at or above this is followed. */
  const void* k;
  const void* v;       /**< NULL: V is the first value_dim dims of K. */
  int64_t k_block_stride, k_row_stride, k_head_stride;
  int64_t v_block_stride, v_row_stride, v_head_stride;
} pkv_kv_view;

/**
 * The memory of one layer of a paged cache, for engines with kernels of their own. The addresses
 * stay valid as long as the cache; which blocks hold what is told by pkv_session_block_table. Read only. Statuses:
 * OUT_OF_RANGE (layer), UNSUPPORTED (not PAGED). Since 0.1.
 */
PKV_API pkv_status pkv_cache_kv_view(pkv_cache cache, uint32_t layer, pkv_kv_view* out);

/** A ragged set of sequences over one pkv_kv_view, described by the caller. */
typedef struct pkv_attention_sequences {
  uint32_t struct_size;
  uint32_t query_heads;           /**< A multiple of the view's kv_heads. */
  uint64_t count;                 /**< Sequences. */
  const uint32_t* query_lengths;  /**< [count] query rows of each; they are the last positions of the sequence. */
  const uint64_t* kv_lengths;     /**< [count] positions of each, the queries' own included; at least query_lengths. */
  const uint32_t* block_tables;   /**< [count][block_table_stride] block ids; entries beyond kv_lengths, or before a window, are not read. */
  uint64_t block_table_stride;
} pkv_attention_sequences;

/**
 * Attention without a cache: over a view and block tables that the caller owns. q (in) is [sum of query_lengths][query_heads][key_dim], out
 * [same rows][query_heads][value_dim]. params may be NULL. Runs on all processors. Nothing is kept.
 * Any thread. Statuses: INVALID_ARGUMENT, OUT_OF_RANGE (a block id or a length), OVERFLOW, NO_MEMORY. Since 0.1.
 */
PKV_API pkv_status pkv_attention(const pkv_kv_view* kv, const pkv_attention_sequences* sequences, const pkv_attention_params* params,
                                 const pkv_tensor* q, const pkv_tensor* out);

/**
 * Combines results of several attention calls over the same queries and different positions, by their lse: merged = sum_i exp(lse[i]) out[i]
 * / sum_i exp(lse[i]). outs ([count], in) are [rows][heads][dim], lse ([count], in) [rows][heads], merged (out) [rows][heads][dim],
 * merged_lse (out, may be NULL) [rows][heads]. A result with lse -infinity counts for nothing. Sink logits belong into one of the calls only.
 * Any thread. Statuses: INVALID_ARGUMENT, OUT_OF_RANGE, OVERFLOW, NO_MEMORY. Since 0.1.
 */
PKV_API pkv_status pkv_merge_states(size_t count, const pkv_tensor* outs, const float* const* lse, size_t rows, uint32_t heads,
                                    uint32_t dim, const pkv_tensor* merged, float* merged_lse);

#ifdef __cplusplus
}
#endif
#endif
