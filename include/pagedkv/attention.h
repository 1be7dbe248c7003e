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

/** sinks value: no sinks, though the layer's group has some. */
#define PKV_NO_SINKS ((uint32_t)0xFFFFFFFFu)

/** What the data of a pkv_mask are. */
typedef enum pkv_mask_kind PKV_ENUM {
  /**
   * uint64_t [rows][row_stride]: bit j % 64 of word j / 64 says whether the row sees new token j of
   * its own session. Of the new tokens, those are seen whose bit is set and which the window does
   * not hide; what was there before the step is seen as without a mask.
   */
  PKV_MASK_BITS = 1,
  /**
   * int32_t [rows]: a tree of speculative tokens by the parent of each new token: its index among
   * the new tokens of its session, lower than the token's own, or -1 for none. A new token sees
   * itself, its ancestors and, as without a mask, what was there before the step.
   */
  PKV_MASK_PARENTS = 2,
  /**
   * uint8_t, for positions: 0 hides; any other byte shows what the causal rule and the window do
   * not hide. The byte of query i of sequence s for column c is data[s * batch_stride + i *
   * row_stride + c]; with first_rows (of pkv_attention_sequences, or pkv_batch_set_first_rows), i
   * counts the rows of the padded batch. Positions before the first column are seen as without a
   * mask.
   */
  PKV_MASK_BYTES = 3
} pkv_mask_kind;

/** Which positions each query sees, besides what the causal rule and the window say. */
typedef struct pkv_mask {
  uint32_t struct_size; /**< sizeof(pkv_mask): the caller sets it. */
  pkv_mask_kind kind;   /**< What data is. */
  const void* data;     /**< Only read. */
  /**
   * BITS: words per row, at most 2^26; 64 bits of each must reach the new tokens of every session.
   * BYTES: bytes from row to row; 0: all queries of a sequence have the same row. PARENTS: 0.
   */
  int64_t row_stride;
  int64_t batch_stride; /**< BYTES: bytes from sequence to sequence; 0: all have the same rows. */
  uint64_t columns;     /**< BYTES: they reach the last position of every sequence. */
  /**
   * BYTES: [sequences]: the position of column 0. A negative one is the number of first columns
   * that stand for no position, such as padding on the left. NULL: 0.
   */
  const int64_t* first_positions;
} pkv_mask;

/**
 * Which blocks queries read, in place of all of them (guide/chosen_blocks.md). Each query reads,
 * for each KV head, the blocks that it chooses, the first and last ones, and those with tokens of
 * the step. Windows, sinks and masks hide what they hide anyway. Not with ALiBi, or positions that
 * the caller gives.
 */
typedef struct pkv_chosen_blocks {
  uint32_t struct_size; /**< sizeof(pkv_chosen_blocks): the caller sets it. */
  /**
   * How many blocks each query chooses for each KV head: those with the highest bounds (Tang et al.
   * 2024), among those in which it sees a token. The bound of a block is the sum, over the query
   * heads of the KV head and over the dims, of the larger of q * min and q * max of its keys. Needs
   * a cache. 0: lists are given.
   */
  uint32_t top;
  uint32_t first; /**< How many first blocks are read as well; 1 suits most models. */
  uint32_t last;  /**< How many blocks before those of the step are read as well, likewise. */
  /**
   * With top: 1: the new tokens of a session choose the same blocks, those with the highest sums of
   * their bounds, and read them together: for trees of speculative tokens, say. 0 (default): each
   * chooses its own.
   */
  uint32_t together;
  uint32_t reserved; /**< 0. */
  /**
   * [rows][kv_heads][list_size]: the blocks that each query reads for each KV head, in place of
   * top: their indices in the block table, rising, PKV_NO_BLOCK after the last. Blocks that are
   * read in any case may be among them. NULL: top is given.
   */
  const uint32_t* lists;
  uint64_t list_size; /**< Indices per query and KV head. */
  /**
   * Out, [rows][kv_heads][top]: what top chose, as lists, for another layer say. NULL (default):
   * not wanted.
   */
  uint32_t* chosen;
} pkv_chosen_blocks;

/**
 * The attention mass of each entry of a block table: the sum of the weights (after the softmax)
 * that the queries of the sequence give to the tokens of the block, 0 where they see none. A query
 * has the mass 1 to give, less what a sink logit takes. It takes one more reading of the keys. Not
 * for storage CONTIGUOUS, and not with chosen blocks.
 */
typedef struct pkv_block_mass {
  uint32_t struct_size; /**< sizeof(pkv_block_mass): the caller sets it. */
  /** Only this many last new tokens of each session count; 0 (default): all. */
  uint32_t queries;
  /**
   * Out, [sequences][query_heads][size]: the masses. Entries beyond the blocks of a sequence, and
   * those of one without queries, are left as they are.
   */
  float* masses;
  uint64_t size; /**< Entries per query head: those of the longest sequence, or more. */
} pkv_block_mass;

/**
 * Which attention is computed. Variants combine freely. Lists of [rows] have the rows of all
 * sequences, one after the other, also where tensors are padded.
 */
typedef struct pkv_attention_params {
  uint32_t struct_size; /**< sizeof(pkv_attention_params): the caller sets it. */
  float scale;          /**< Factor of the scores, finite; 0 (default): 1 / sqrt(key_dim). */
  /** 0 (default): a query sees nothing after its position (causal). 1: its whole sequence. */
  uint32_t bidirectional;
  /**
   * A query sees its position and window - 1 before it. 0 (default): the window of the layer's
   * group; all positions if it has none.
   */
  uint32_t window;
  /**
   * First positions that are seen whatever the window. 0 (default): those of the layer's group;
   * PKV_NO_SINKS: none.
   */
  uint32_t sinks;
  float softcap; /**< Bound of the scores, finite, not negative; 0 (default): none. */
  /**
   * [kv_heads]: the window of each KV head, in place of `window`: the queries that use the head see
   * only that far back. 0: that of the layer's group. NULL (default): `window`.
   */
  const uint32_t* head_windows;
  /** [kv_heads]: the sinks of each KV head, in place of `sinks`. NULL (default): `sinks`. */
  const uint32_t* head_sinks;
  const float* alibi_slopes; /**< [query_heads]: slopes of ALiBi. NULL (default): none. */
  /**
   * [query_heads]: logits that take part in the softmax without a value (learned attention sinks).
   * NULL (default): none.
   */
  const float* sink_logits;
  const pkv_mask* mask;                   /**< NULL (default): none. */
  const pkv_chosen_blocks* chosen_blocks; /**< NULL (default): queries read all blocks. */
  const pkv_block_mass* block_mass;       /**< NULL (default): not wanted. */
  /**
   * Out, [rows][query_heads]: log of the sum of exp(score), sink_logits included. Where nothing was
   * seen, it has the sink_logits alone, or is -infinity without them. NULL (default): not wanted.
   */
  float* lse;
} pkv_attention_params;

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
 * Statuses: INVALID_ARGUMENT, OUT_OF_RANGE (a block id or a length), UNSUPPORTED (top),
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
PKV_API pkv_status pkv_attention_merge(pkv_compute compute, size_t count, const pkv_tensor* outs,
                                       const float* const* lse, size_t rows, uint32_t heads,
                                       uint32_t dim, const pkv_tensor* merged, float* merged_lse);

#ifdef __cplusplus
}
#endif
#endif
