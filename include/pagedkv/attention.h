/* pagedkv: attention parameters, and attention over memory that the caller describes.
 *
 *   out[i] = sum_j softmax_j(score_ij) v[j]
 *   score_ij = cap(scale * q[i] . k[j]) + slope * (j - i) + mask_ij
 *
 * over the positions j that query i sees (Vaswani et al. 2017). cap(x) = softcap * tanh(x /
 * softcap), the slope (ALiBi, Press et al. 2021) and an additive mask apply only if they are set. A
 * query that sees no position gets zeros.
 *
 * Query head h uses KV head h / (query_heads / kv_heads) (grouped-query attention, Ainslie et al.
 * 2023). The softmax is computed online over blocks (Milakov and Gimelshein 2018; Dao et al. 2022)
 * in fp32. Some kernels multiply INT8 and INT4 as integers, and BF16, F16 and FP8 as BF16; queries
 * and weights are then rounded (guide/same-bits.md says when, and by how much). Partial results of
 * a long sequence are merged in a fixed order, so the bits do not depend on the number of threads.
 * Leading blocks that sessions of a batch share are read once for all of them (Juravsky et al.
 * 2024, Ye et al. 2024).
 *
 * Threads: every function may be called from any thread.
 */
#ifndef PAGEDKV_ATTENTION_H
#define PAGEDKV_ATTENTION_H

#include <pagedkv/kv.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A value of `sink_tokens` that means none, even if the layer's group has some. */
#define PKV_NO_SINK_TOKENS ((uint32_t)0xFFFFFFFFu)

/** The kind of data of a pkv_mask. */
typedef enum pkv_mask_kind PKV_ENUM {
  /**
   * uint64_t [rows][row_stride]: a row sees new token j of its own session if bit j % 64 of word j
   * / 64 is set, unless the window hides it. Tokens from before the step are seen as without a
   * mask. With a window or slopes, `positions` or query_positions must be set.
   */
  PKV_MASK_TREE_BITS = 1,
  /**
   * int32_t [rows]: a tree of speculative tokens. Each new token has the index of its parent among
   * the new tokens of its session, which must be lower than its own, or -1 for none. It sees
   * itself, its ancestors and, as without a mask, the tokens from before the step. For windows,
   * sinks and slopes, its position is the number of tokens before the step plus its depth, wherever
   * its row is. A session whose new tokens are a chain (-1, 0, 1, ...), such as a chunk of a prompt
   * beside trees, costs no more than without a mask.
   */
  PKV_MASK_TREE_PARENTS = 2,
  /**
   * uint8_t, one per query and position: 0 hides the position; any other value shows it, unless the
   * causal rule or the window hides it. The byte of query i of sequence s for column c is data[s *
   * batch_stride + i * row_stride + c]. i counts the queries of the sequence from 0; in a padded
   * batch with first rows it counts its rows, padding included. Positions before the first column
   * are seen as without a mask.
   */
  PKV_MASK_BYTES = 3,
  /**
   * IEEE binary16, one per query and position, where BYTES has bytes: an additive mask. The number,
   * times the factor of the query head, is added to the score. -infinity hides the position as a
   * byte of 0 does, whatever the factor. A score of NaN or +infinity makes all results of its query
   * and head NaN. Not with chosen_blocks.
   */
  PKV_MASK_F16 = 4,
  PKV_MASK_F32 = 5 /**< The same in float. */
} pkv_mask_kind;

/**
 * A mask: which positions each query sees. Among new tokens, TREE_BITS and TREE_PARENTS replace the
 * causal rule; the others apply in addition to it.
 */
typedef struct pkv_mask {
  uint32_t struct_size; /**< Must be sizeof(pkv_mask). */
  pkv_mask_kind kind;   /**< The kind of data. */
  const void* data;     /**< Only read. */
  /**
   * Elements of data from row to row. TREE_BITS: words, at most 2^26; 64 * row_stride must be at
   * least the new tokens of each session. TREE_PARENTS: 0. Others: 0 if all queries of a sequence
   * share one row.
   */
  int64_t row_stride;
  /** BYTES, F16, F32: elements from sequence to sequence; 0: all share the same rows. */
  int64_t batch_stride;
  /** BYTES, F16, F32: columns; they must reach the last position of each sequence. */
  uint64_t columns;
  /**
   * BYTES, F16, F32: [sequences]: the position of column 0. If it is -n, the first n columns are
   * padding on the left, and are ignored. NULL: 0.
   */
  const int64_t* first_positions;
  /**
   * TREE_BITS: [rows]: the position of each new token in its text, for windows, sinks and slopes.
   * For a token of a tree it is the number of tokens before the step plus its depth. No position
   * may be lower than the number of tokens before the step. Must be NULL if query_positions is set;
   * those are then used. May also be NULL if there is neither a window nor slopes.
   */
  const int64_t* positions;
  /**
   * F16, F32: [query_heads]: finite factors of the mask; keep the products within fp32. With slopes
   * as factors, a mask of -|i - j| is ALiBi in both directions. NULL: 1.
   */
  const float* head_factors;
} pkv_mask;

/**
 * The kind of attention. Variants combine freely, except where noted. Arrays of [rows] have no
 * padding, even if tensors are padded. All of it is only read, so calls may share it.
 */
typedef struct pkv_attention_params {
  uint32_t struct_size; /**< Must be sizeof(pkv_attention_params). */
  /**
   * Factor of q . k, finite; 0 (default): 1 / sqrt(key_dim). For absorbed MLA, set 1 / sqrt(head
   * dim before the absorption).
   */
  float scale;
  /**
   * 0 (default): causal, a query sees nothing after its position. 1: it also sees what comes after
   * it, as in encoders; not with alibi_slopes.
   */
  uint32_t bidirectional;
  /**
   * A query sees its position and the window - 1 positions before it; with bidirectional, also the
   * window - 1 positions after it. 0 (default): the window of the layer's group; all positions if
   * it has none, and in pkv_kv_attend.
   */
  uint32_t window;
  /**
   * How many positions at the start are seen in spite of the window. 0 (default): those of the
   * layer's group, none in pkv_kv_attend; PKV_NO_SINK_TOKENS: none.
   */
  uint32_t sink_tokens;
  float softcap; /**< Caps scores (see above); finite, not negative; 0 (default): no cap. */
  /**
   * [kv_heads]: a window for each KV head and its query heads, instead of `window`. An entry of 0
   * means the window of the layer's group. NULL (default): `window`.
   */
  const uint32_t* kv_head_windows;
  /**
   * [kv_heads]: the sink tokens of each KV head, instead of `sink_tokens`. 0: those of the layer's
   * group; PKV_NO_SINK_TOKENS: none. NULL (default): `sink_tokens`.
   */
  const uint32_t* kv_head_sink_tokens;
  const float* alibi_slopes; /**< [query_heads]: ALiBi slopes. NULL (default): none. */
  /**
   * [query_heads]: a logit that takes part in the softmax, but has no value (learned attention
   * sinks, as in gpt-oss). NULL (default): none.
   */
  const float* sink_logits;
  const pkv_mask* mask; /**< NULL (default): none. */
  /** Which blocks queries read (experimental.h). NULL (default): all of them. */
  const struct pkv_chosen_blocks* chosen_blocks;
} pkv_attention_params;

/**
 * Results of an attention call besides `out`. Arrays that are not NULL are written. They have no
 * padding, even if tensors are padded.
 */
typedef struct pkv_attention_outputs {
  uint32_t struct_size; /**< Must be sizeof(pkv_attention_outputs). */
  uint32_t reserved;    /**< Must be 0. */
  /**
   * [rows][query_heads]: natural logarithm of the sum of exp(score), including the sink logit. If a
   * query sees nothing and there is no sink logit, it is -infinity. NULL (default): not wanted.
   * (FlashAttention returns [heads][rows], FlashInfer logarithms to base 2.)
   */
  float* lse;
  /** Experimental (experimental.h). NULL (default): not wanted. */
  const struct pkv_block_outputs* block_outputs;
} pkv_attention_outputs;

/**
 * Computes attention without a cache, over memory and block tables of the caller. Any thread.
 *
 * @param      compute    The threads and kernels. NULL: all CPUs.
 * @param[in]  kv         The memory of K and V.
 * @param[in]  sequences  The sequences. Their rows in q and out follow each other, or are a padded
 *                        batch.
 * @param[in]  params     The kind of attention. NULL: defaults.
 * @param[in]  q          Queries, [sum of query_lengths][query_heads][key_dim].
 * @param[out] out        Results, [sum of query_lengths][query_heads][value_dim]. May overlap q.
 * @param[in]  outputs    Where other results go. NULL: none are wanted.
 *
 * Statuses: INVALID_ARGUMENT, OUT_OF_RANGE (a block id, a length or a position), UNSUPPORTED
 * (bidirectional with alibi_slopes; top_blocks of experimental.h; Q8_0 or Q4_0 with PACKED),
 * OVERFLOW, OUT_OF_MEMORY. Since 1.0.
 */
PKV_API pkv_status pkv_kv_attend(pkv_compute compute, const pkv_kv_view* kv,
                                 const pkv_kv_sequences* sequences,
                                 const pkv_attention_params* params, const pkv_tensor* q,
                                 const pkv_tensor* out, const pkv_attention_outputs* outputs);

/**
 * Merges the results of attention calls with the same queries over different positions: merged =
 * sum_i exp(lse[i]) outs[i] / sum_i exp(lse[i]). Any thread.
 *
 * Set sink logits in only one of the calls.
 *
 * @param      compute     Its instruction set is used, on the calling thread. NULL: the fastest.
 * @param      n           The number of results, 1 or more.
 * @param[in]  outs        [n]: results, each [rows][heads][dim].
 * @param[in]  lse         [n]: their lse, each [rows][heads]. A result whose lse is -infinity,
 *                         or +infinity as FlashAttention 2 returns it, saw nothing and is ignored.
 *                         If all are ignored, the merged result is 0 and its lse -infinity. If any
 *                         lse is NaN, the merged result and its lse are NaN.
 * @param      rows        Rows of each result.
 * @param      heads       Query heads.
 * @param      dim         Head dim of the results, 1 to 576.
 * @param[out] merged      The merged result, [rows][heads][dim].
 * @param[out] merged_lse  Its lse, [rows][heads]. May be NULL.
 *
 * Statuses: none of its own. Since 1.0.
 */
PKV_API pkv_status pkv_attention_merge(pkv_compute compute, size_t n, const pkv_tensor* outs,
                                       const float* const* lse, size_t rows, uint32_t heads,
                                       uint32_t dim, const pkv_tensor* merged, float* merged_lse);

#ifdef __cplusplus
}
#endif
#endif
