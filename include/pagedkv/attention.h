/* pagedkv: attention parameters, and attention over memory that the caller describes.
 *
 *   out[i] = sum_j softmax_j(score_ij) v[j]
 *   score_ij = cap(scale * q[i] . k[j]) + slope * (j - i)
 *
 * over the positions j that query i sees (Vaswani et al. 2017). cap(x) = softcap * tanh(x /
 * softcap) and the slope (ALiBi, Press et al. 2021) apply only if they are set. A query that sees
 * no position gets zeros.
 *
 * Each query head uses the KV head query_head / (query_heads / kv_heads) (grouped-query attention,
 * Ainslie et al. 2023). The softmax is computed online over blocks (Milakov and Gimelshein 2018;
 * Dao et al. 2022) in fp32. Partial results of a long sequence are merged in a fixed order, so the
 * bits do not depend on the number of threads. Leading blocks that sessions of a batch share are
 * read once for all of them (Juravsky et al. 2024, Ye et al. 2024). INT8 and INT4 are multiplied as
 * integers; queries and weights are rounded to 2^-15 of the largest.
 *
 * Threads: every function may be called from any thread.
 */
#ifndef PAGEDKV_ATTENTION_H
#define PAGEDKV_ATTENTION_H

#include <pagedkv/kv.h>

#ifdef __cplusplus
extern "C" {
#endif

/** sinks of pkv_attention_params: none, even if the layer's group has some. */
#define PKV_NO_SINKS ((uint32_t)0xFFFFFFFFu)

/** The kind of data of a pkv_mask. */
typedef enum pkv_mask_kind PKV_ENUM {
  /**
   * uint64_t [rows][row_stride]: if bit j % 64 of word j / 64 is set, the row sees new token j of
   * its own session, unless the window hides it. Tokens from before the step are seen as without a
   * mask.
   */
  PKV_MASK_BITS = 1,
  /**
   * int32_t [rows]: a tree of speculative tokens, as the parent of each new token: an index among
   * the new tokens of the session, lower than the token's own, or -1 for none. A new token sees
   * itself, its ancestors and, as without a mask, the tokens from before the step.
   */
  PKV_MASK_PARENTS = 2,
  /**
   * uint8_t, one per position: 0 hides the position; any other byte shows it, unless the causal
   * rule or the window hides it. The byte of query i of sequence s for column c is data[s *
   * batch_stride + i * row_stride + c]; with first_rows (of pkv_attention_sequences, or
   * pkv_batch_set_first_rows), i counts the rows of the padded batch. Positions before the first
   * column are seen as without a mask.
   */
  PKV_MASK_BYTES = 3
} pkv_mask_kind;

/** A mask: which positions each query sees, in addition to the causal rule and the window. */
typedef struct pkv_mask {
  uint32_t struct_size; /**< sizeof(pkv_mask): the caller sets it. */
  pkv_mask_kind kind;   /**< The kind of data. */
  const void* data;     /**< Only read. */
  /**
   * BITS: words of 64 bits per row, at most 2^26; they must cover the new tokens of every session.
   * BYTES: bytes from row to row; 0: all queries of a sequence have the same row. PARENTS: 0.
   */
  int64_t row_stride;
  int64_t batch_stride; /**< BYTES: bytes from sequence to sequence; 0: all have the same rows. */
  uint64_t columns;     /**< BYTES: must reach the last position of every sequence. */
  /**
   * BYTES: [sequences]: the position of column 0. If it is -n, the first n columns have no
   * position, such as padding on the left. NULL: 0.
   */
  const int64_t* first_positions;
} pkv_mask;

/**
 * Lets queries read only some blocks (guide/chosen_blocks.md). For each KV head, each query reads
 * the blocks that it chooses, the first and last ones, and those with tokens of the step. Windows,
 * sinks and masks still apply. Not with ALiBi or query_positions.
 */
typedef struct pkv_chosen_blocks {
  uint32_t struct_size; /**< sizeof(pkv_chosen_blocks): the caller sets it. */
  /**
   * How many blocks each query chooses for each KV head: those with the highest bounds (Tang et al.
   * 2024), among the blocks in which it sees a token. The bound of a block is the sum, over the
   * query heads of the KV head and over the dims, of the larger of q * min and q * max of its keys.
   * Needs a cache. 0: lists must be set.
   */
  uint32_t top;
  uint32_t first; /**< How many first blocks are also read; 1 suits most models. */
  uint32_t last;  /**< How many blocks before those of the step are also read; likewise. */
  /**
   * With top: 1: the new tokens of a session choose the same blocks, by the highest sums of their
   * bounds, and read them together, for example in trees of speculative tokens. 0 (default): each
   * token chooses its own.
   */
  uint32_t together;
  uint32_t reserved; /**< Must be 0. */
  /**
   * [rows][kv_heads][list_size]: the blocks that each query reads for each KV head, instead of top:
   * ascending indices in the block table, then PKV_NO_BLOCK after the last. Blocks that are read
   * anyway are allowed. NULL: top must be set.
   */
  const uint32_t* lists;
  uint64_t list_size; /**< Indices per query and KV head. */
  /**
   * Out, [rows][kv_heads][top]: the blocks that top chose, in the form of lists, for example for
   * another layer. NULL (default): not wanted.
   */
  uint32_t* chosen;
} pkv_chosen_blocks;

/**
 * Asks for the attention mass of each entry of a block table: the sum of the weights (after the
 * softmax) that the queries of the sequence give to the tokens of the block; 0 if they see none of
 * them. The masses from one query sum to 1, less what a sink logit takes. This reads the keys once
 * more. Not for storage CONTIGUOUS, and not with chosen blocks.
 */
typedef struct pkv_block_mass {
  uint32_t struct_size; /**< sizeof(pkv_block_mass): the caller sets it. */
  /** How many of the last new tokens of each session count; 0 (default): all. */
  uint32_t queries;
  /**
   * Out, [sequences][query_heads][size]: the masses. Entries beyond the blocks of a sequence, and
   * all entries of a sequence without queries, are not changed.
   */
  float* masses;
  uint64_t size; /**< Entries per query head: at least the blocks of the longest sequence. */
} pkv_block_mass;

/**
 * The kind of attention. Variants combine freely, except where noted. Lists of [rows] have the rows
 * of all sequences, one after the other, even if tensors are padded.
 */
typedef struct pkv_attention_params {
  uint32_t struct_size; /**< sizeof(pkv_attention_params): the caller sets it. */
  float scale;          /**< Factor of the scores, finite; 0 (default): 1 / sqrt(key_dim). */
  /** 0 (default): a query sees nothing after its position (causal). 1: its whole sequence. */
  uint32_t bidirectional;
  /**
   * A query sees its position and the window - 1 positions before it. 0 (default): the window of
   * the layer's group; all positions if it has none.
   */
  uint32_t window;
  /**
   * How many first positions are seen whatever the window is. 0 (default): as in the layer's group;
   * PKV_NO_SINKS: none.
   */
  uint32_t sinks;
  float softcap; /**< Bound of the scores, finite, not negative; 0 (default): none. */
  /**
   * [kv_heads]: the window for each KV head and the query heads that use it, instead of `window`.
   * 0: that of the layer's group. NULL (default): `window`.
   */
  const uint32_t* head_windows;
  /** [kv_heads]: the sinks of each KV head, instead of `sinks`. NULL (default): `sinks`. */
  const uint32_t* head_sinks;
  const float* alibi_slopes; /**< [query_heads]: ALiBi slopes. NULL (default): none. */
  /**
   * [query_heads]: logits that take part in the softmax without a value (learned attention sinks).
   * NULL (default): none.
   */
  const float* sink_logits;
  const pkv_mask* mask;                   /**< NULL (default): none. */
  const pkv_chosen_blocks* chosen_blocks; /**< NULL (default): queries read all blocks. */
  const pkv_block_mass* block_mass;       /**< NULL (default): not wanted. */
  /**
   * Out, [rows][query_heads]: log of the sum of exp(score), including sink_logits. If a query sees
   * nothing, only the sink logit counts; without one, lse is -infinity. NULL (default): not wanted.
   */
  float* lse;
} pkv_attention_params;

/**
 * Computes attention without a cache, over a view and block tables that the caller owns. Any
 * thread.
 *
 * @param      compute    The threads and kernels. NULL: all CPUs.
 * @param[in]  kv         The memory of K and V.
 * @param[in]  sequences  The sequences. q and out have their rows, one sequence after the other or
 *                        in a padded batch.
 * @param[in]  params     The kind of attention. NULL: defaults.
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
 * Merges the results of attention calls with the same queries over different positions: merged =
 * sum_i exp(lse[i]) outs[i] / sum_i exp(lse[i]). Any thread.
 *
 * Set sink logits in only one of the calls.
 *
 * @param      compute     Its instruction set is used, on the calling thread. NULL: the fastest.
 * @param      count       The number of results.
 * @param[in]  outs        [count]: results, each [rows][heads][dim].
 * @param[in]  lse         [count]: their lse, each [rows][heads]. Results with -infinity are
 *                         ignored, and so are those with +infinity, which FlashAttention 2 returns
 *                         if nothing was seen. If all are ignored, the merged result is 0 and its
 *                         lse is -infinity. NaN makes both NaN.
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
