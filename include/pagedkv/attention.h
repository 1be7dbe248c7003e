/* pagedkv: attention parameters, and attention over memory the caller describes.
 *
 *   out[i] = sum_j softmax_j(score_ij) v[j]
 *   score_ij = cap(scale * q[i] . k[j]) + slope * (j - i)
 *
 * over the positions j that query i sees (Vaswani et al. 2017). cap(x) = softcap * tanh(x /
 * softcap) and the slope (ALiBi, Press et al. 2021) apply only where they are asked for. A query
 * that sees no position gives zeros.
 *
 * Each query head uses the KV head query_head / (query_heads / kv_heads) (grouped-query attention,
 * Ainslie et al. 2023). The softmax is computed online over blocks (Milakov and Gimelshein 2018;
 * Dao et al. 2022) in fp32; partial results over parts of a long sequence are merged in a fixed
 * order, so that the bits do not depend on the number of threads. Where sessions of a batch share
 * leading blocks, these are read once for all of them (Juravsky et al. 2024, Ye et al. 2024). INT8
 * and INT4 are multiplied as integers, with queries and weights rounded to 2^-15 of their largest.
 *
 * Threads: every function may be called from any thread.
 */
#ifndef PAGEDKV_ATTENTION_H
#define PAGEDKV_ATTENTION_H

#include <pagedkv/kv.h>

#ifdef __cplusplus
extern "C" {
#endif

/** window value: the window of the layer's group. */
#define PKV_WINDOW_OF_LAYER ((uint32_t)0xFFFFFFFFu)
/** sinks value: the sinks of the layer's group. */
#define PKV_SINKS_OF_LAYER ((uint32_t)0xFFFFFFFFu)

/**
 * Which attention is computed. Variants combine freely. Lists of [rows] have the rows of all
 * sequences, one after the other, also where tensors are padded.
 */
typedef struct pkv_attention_params {
  uint32_t struct_size; /**< sizeof(pkv_attention_params): pkv_attention_params_init sets it. */
  float scale;          /**< Factor of the scores, finite; 0 (default): 1 / sqrt(key_dim). */
  /** 1 (default): a query sees nothing after its position. 0: its whole sequence. */
  uint32_t causal;
  /**
   * A query sees its position and window - 1 before it; 0: all. Default PKV_WINDOW_OF_LAYER
   * (stateless: 0).
   */
  uint32_t window;
  /**
   * First positions that are seen whatever the window. Default PKV_SINKS_OF_LAYER (stateless: 0).
   */
  uint32_t sinks;
  float softcap;             /**< Bound of the scores, finite, not negative; 0 (default): none. */
  const float* alibi_slopes; /**< [query_heads]: slopes of ALiBi. NULL (default): none. */
  /**
   * [query_heads]: logits that take part in the softmax without a value (learned attention sinks).
   * NULL (default): none.
   */
  const float* sink_logits;
  /**
   * [rows][mask_words]: which new tokens of its own session a new token sees, for trees of
   * speculative tokens. Bit j % 64 of word j / 64 stands for the session's new token j. Of the new
   * tokens just those are seen whose bit is set and which the window does not hide; what was there
   * before the step is seen by causal, window and sinks as without a mask. NULL (default): no mask.
   */
  const uint64_t* mask;
  /** Words per row, at most 2^26: 64 * mask_words must reach the new tokens of every session. */
  uint64_t mask_words;
  /**
   * Out, [rows][query_heads]: log of the sum of exp(score), sink_logits included. Where nothing was
   * seen, it has the sink_logits alone, or is -infinity without them. NULL (default): not wanted.
   */
  float* lse;
  /**
   * [rows]: the mask of a tree of speculative tokens by the parent of each new token: its index
   * among the new tokens of its session, lower than the token's own, or -1 for none. A new token
   * sees itself, its ancestors and, as without a mask, what was there before the step. NULL
   * (default): no tree. At most one of mask, parents and bool_mask is given.
   */
  const int32_t* parents;
  /**
   * Which positions each query sees, in bytes: 0 hides; another byte shows what causal and the
   * window do not hide. That of query i of sequence s for column c is at bool_mask[s *
   * bool_mask_batch_stride + i * bool_mask_row_stride + c]; with first_rows (of
   * pkv_attention_sequences, or pkv_batch_set_first_rows), i counts the rows of the padded batch.
   * Positions before the first column are seen as without a mask. NULL (default): no mask.
   */
  const uint8_t* bool_mask;
  uint64_t bool_mask_columns;     /**< They reach the last position of every sequence. */
  int64_t bool_mask_row_stride;   /**< 0 (default): all queries of a sequence have the same row. */
  int64_t bool_mask_batch_stride; /**< 0 (default): all sequences have the same rows. */
  /**
   * [sequences]: the position of column 0. A negative one is the number of first columns that stand
   * for no position, such as padding on the left. NULL (default): 0.
   */
  const int64_t* bool_mask_first_positions;

  /* Chosen blocks: queries read some of the blocks instead of all (guide/chosen_blocks.md). Window,
   * sinks and masks hide what they hide without them. Not with ALiBi, or positions that the caller
   * gives. */
  /**
   * How many blocks each query chooses for each KV head: those with the highest bounds (Tang et al.
   * 2024), among those in which it sees a token. It reads these, the first_blocks, the last_blocks
   * and those with tokens of the step. The bound of a block is the sum, over the query heads of the
   * KV head and over the dims, of the larger of q * min and q * max of its keys. 0 (default): none
   * is chosen so. Needs a cache.
   */
  uint32_t top_blocks;
  uint32_t first_blocks; /**< With chosen blocks: so many first blocks are read, too. Default 1. */
  /**
   * With chosen blocks: so many blocks before those of the step are read, too. Default 1.
   */
  uint32_t last_blocks;
  /** Of block_mass: only so many last new tokens of each session count; 0 (default): all. */
  uint32_t block_mass_queries;
  /**
   * [rows][kv_heads][block_list_size]: the blocks that each query reads for each KV head, in place
   * of top_blocks: their indices in the block table, rising, PKV_NO_BLOCK after the last. Of those
   * that are read in any case, it may name some. NULL (default): no list.
   */
  const uint32_t* block_lists;
  uint64_t block_list_size; /**< Indices per query and KV head. */
  /**
   * Out, [rows][kv_heads][top_blocks]: what top_blocks chose, as a block list, for another layer
   * say. NULL (default): not wanted.
   */
  uint32_t* chosen_blocks;

  /**
   * Out, [sequences][query_heads][block_mass_size]: the attention mass of each entry of a block
   * table: the sum of the weights (after the softmax) that the queries of the sequence give to the
   * tokens of the block, 0 where they see none. A query has the mass 1 to give, less what a sink
   * logit takes. Entries beyond the blocks of a sequence, and those of one without queries, are
   * left as they are. It takes one more reading of the keys. Not for storage CONTIGUOUS, and not
   * with chosen blocks. NULL (default): not wanted.
   */
  float* block_mass;
  uint64_t block_mass_size; /**< Entries per query head: those of the longest sequence, or more. */

  /**
   * [kv_heads]: the window of each KV head, in place of `window`: the queries that use the head see
   * so far back. 0: all; PKV_WINDOW_OF_LAYER: that of the layer. NULL (default): `window`.
   */
  const uint32_t* head_windows;
  /** [kv_heads]: the sinks of each KV head, in place of `sinks`. NULL (default): `sinks`. */
  const uint32_t* head_sinks;
  /**
   * Of top_blocks: 1: the new tokens of a session choose the same blocks, those with the highest
   * sums of their bounds, and read them together: for trees of speculative tokens, say. 0
   * (default): each chooses its own.
   */
  uint32_t choose_together;
  uint32_t reserved; /**< 0. */
} pkv_attention_params;

/**
 * Fills params with defaults.
 *
 * @param[out] params       The params.
 * @param      struct_size  sizeof(pkv_attention_params) as the caller compiled it.
 *
 * Statuses: INVALID_ARGUMENT. Since 0.1.
 */
PKV_API pkv_status pkv_attention_params_init(pkv_attention_params* params, size_t struct_size);

/**
 * Computes attention without a cache: over a view and block tables that the caller owns. Any
 * thread.
 *
 * @param      compute    What it runs on. NULL: all processors.
 * @param[in]  kv         The memory of K and V.
 * @param[in]  sequences  The sequences; rows of q and out are theirs, one after the other or in a
 *                        padded batch.
 * @param[in]  params     Which attention. NULL: defaults.
 * @param[in]  q          Queries, [sum of query_lengths][query_heads][key_dim].
 * @param[out] out        Results, [sum of query_lengths][query_heads][value_dim].
 *
 * Statuses: INVALID_ARGUMENT, OUT_OF_RANGE (a block id or a length), UNSUPPORTED (top_blocks),
 * OVERFLOW, NO_MEMORY. Since 0.1.
 */
PKV_API pkv_status pkv_attention(pkv_compute compute, const pkv_kv_view* kv,
                                 const pkv_attention_sequences* sequences,
                                 const pkv_attention_params* params, const pkv_tensor* q,
                                 const pkv_tensor* out);

/**
 * Combines the results of several attention calls over the same queries and different positions:
 * merged = sum_i exp(lse[i]) outs[i] / sum_i exp(lse[i]). Any thread.
 *
 * Sink logits belong into one of the calls only.
 *
 * @param      compute     Whose instruction set it uses, on the calling thread. NULL: the best.
 * @param      count       How many results.
 * @param[in]  outs        [count]: results, each [rows][heads][dim].
 * @param[in]  lse         [count]: their lse, each [rows][heads]. A result with -infinity counts
 *                         for nothing, and so does one with +infinity, which FlashAttention 2
 *                         gives where nothing was seen. If none counts, the merged result is 0
 *                         and its lse -infinity. NaN makes both NaN.
 * @param      rows        Rows of each result.
 * @param      heads       Query heads.
 * @param      dim         Head dim of the results.
 * @param[out] merged      The merged result, [rows][heads][dim].
 * @param[out] merged_lse  Its lse, [rows][heads]. May be NULL.
 *
 * Statuses: INVALID_ARGUMENT, OUT_OF_RANGE, OVERFLOW, NO_MEMORY. Since 0.1.
 */
PKV_API pkv_status pkv_merge_states(pkv_compute compute, size_t count, const pkv_tensor* outs,
                                    const float* const* lse, size_t rows, uint32_t heads,
                                    uint32_t dim, const pkv_tensor* merged, float* merged_lse);

#ifdef __cplusplus
}
#endif
#endif
