/* pagedkv: experimental functions and structs, which pagedkv.h does not include. To use them,
 * include this header as well.
 *
 * What is in this header may change or go in any minor version. The library never misreads a
 * program that was compiled with another version of it: a struct whose fields change gets another
 * size, so that its struct_size is refused (INVALID_ARGUMENT), and a removed function stays
 * exported and returns UNSUPPORTED. All other headers keep their promises (guide/stability.md),
 * also in a program that includes this one: no layout depends on it.
 *
 * Threads: as the functions and structs of session.h, attention.h, cache.h and kv.h that they
 * extend.
 */
#ifndef PAGEDKV_EXPERIMENTAL_H
#define PAGEDKV_EXPERIMENTAL_H

#include <pagedkv/attention.h>
#include <pagedkv/session.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Attention over some blocks -------------------------------------------------------------*/

/**
 * Sparse attention: queries read only some blocks (guide/chosen_blocks.md). Windows, sinks and
 * masks still apply. Not with ALiBi, additive masks or query_positions. It is
 * `chosen_blocks` of pkv_attention_params.
 *
 * Consecutive new tokens of a session may choose together. For each KV head, those that choose
 * together read the first first_blocks blocks, their own blocks, the last_blocks blocks before
 * these, and the top_blocks blocks that they choose. In arrays, [choices] counts the tokens that
 * choose together as one: for each session, its new tokens / tokens_per_choice, rounded up. The
 * choices of all sessions follow each other.
 */
typedef struct pkv_chosen_blocks {
  uint32_t struct_size; /**< Must be sizeof(pkv_chosen_blocks). */
  /**
   * How many blocks are chosen for each KV head: of the blocks in which the tokens see a token,
   * those with the highest scores. Scores are computed from the largest and the smallest key
   * element in each dim of a block. Needs a cache: UNSUPPORTED in pkv_kv_attend. 0: lists must be
   * set.
   */
  uint32_t top_blocks;
  uint32_t first_blocks; /**< How many blocks at the start are also read; 1 suits most models. */
  uint32_t last_blocks;  /**< How many blocks before their own are also read; usually 1. */
  /**
   * How many consecutive new tokens of a session choose together: their scores are added up, and
   * they read one set of blocks. 0 or 1: every token chooses for itself, as suits decode steps; 64
   * to 128 suit prompts; UINT32_MAX: all new tokens of a session choose together, as suits trees of
   * speculative tokens. The last tokens of a session may be fewer.
   */
  uint32_t tokens_per_choice;
  uint32_t list_blocks; /**< Indices in each list of `lists`. */
  /**
   * [choices][kv_heads][list_blocks]: the blocks to read instead of top_blocks, as ascending
   * indices in the block table (or OUT_OF_RANGE), filled up with PKV_NO_BLOCK_ID. They may include
   * blocks that are read anyway. NULL: top_blocks must be set.
   */
  const uint32_t* lists;
} pkv_chosen_blocks;

/**
 * Results for blocks: `block_outputs` of pkv_attention_outputs. Arrays that are not NULL are
 * written.
 */
typedef struct pkv_block_outputs {
  uint32_t struct_size; /**< Must be sizeof(pkv_block_outputs). */
  /** How many of the last new tokens of each session count in masses; 0 (default): all. */
  uint32_t mass_queries;
  /**
   * [choices][kv_heads][top_blocks]: the blocks that pkv_chosen_blocks.top_blocks chose, in the
   * form of its lists, for example for another layer. NULL (default): not wanted.
   */
  uint32_t* chosen;
  /**
   * [sequences][query_heads][mass_blocks]: the attention mass of each block of the block table: the
   * attention weights (after the softmax) of its tokens, summed over the queries of the sequence.
   * The masses of one query sum to 1, minus the weight of a sink logit. Entries beyond the blocks
   * of a sequence, and all entries of a sequence without queries, are not changed. This reads the
   * keys once more. Not with chosen_blocks. NULL (default): not wanted.
   */
  float* masses;
  /** Entries of masses per query head; at least the blocks of the longest sequence. */
  uint64_t mass_blocks;
} pkv_block_outputs;

/* ---- Dropped blocks -------------------------------------------------------------------------*/

/**
 * Frees blocks anywhere in a session, in one layer group (as H2O and SnapKV do;
 * guide/forget.md). The remaining tokens keep their positions. In this group, later steps attend as
 * if the tokens of these blocks were masked. The block table has PKV_NO_BLOCK_ID for a dropped
 * block, KV indices leave it out, and pkv_session_read of its tokens returns OUT_OF_RANGE. So does
 * a trim after which the next token would go into it; pkv_session_get_trim_point accounts for that.
 *
 * Beginning with the first dropped block, the session shares no blocks through the prefix index:
 * blocks that only this session used leave it, and later tokens do not enter it. A resume after
 * pkv_session_suspend brings back the whole sequence, to be computed again. Forks, snapshots and
 * files lack the dropped blocks; in a file that is loaded with another block size, dropped ranges
 * must begin and end at a multiple of the new size.
 *
 * @param     session  The session.
 * @param     group    The index of the group.
 * @param     n        The number of blocks.
 * @param[in] indices  [n]: their indices in the block table, ascending; each must be full.
 *                     Blocks that were already dropped or left the window are allowed.
 *
 * Statuses: OUT_OF_RANGE (group; a block that is not full), INVALID_ARGUMENT (not ascending),
 * UNSUPPORTED (a group with states), BUSY, SUSPENDED. Since 1.0.
 */
PKV_API pkv_status pkv_session_drop_blocks(pkv_session session, uint32_t group, size_t n,
                                           const uint32_t* indices);

/* ---- Rotations by matrices of the caller ----------------------------------------------------*/

/**
 * Orthogonal matrices that rotate rows before they are stored, as a pkv_rotation does, for K, for V
 * or for both: `rotation_matrices` of pkv_layer_group and pkv_kv_view, whose `rotation` must then
 * be NONE. A stored row is row * M (element j is the sum over i of row[i] * M[i][j]); outputs are
 * multiplied by the transpose. Not with latent. The rows of a matrix must have length 1 and be
 * orthogonal to each other, to within 1e-4: pkv_cache_create checks that and copies the matrices;
 * functions that take a view do neither. A view that pkv_cache_get_kv_view returns points to the
 * cache's copy.
 */
typedef struct pkv_rotation_matrices {
  uint32_t struct_size; /**< Must be sizeof(pkv_rotation_matrices). */
  uint32_t reserved;    /**< Must be 0. */
  const float* key;     /**< [key_dim][key_dim], for K and queries. NULL: K is not rotated. */
  const float* value;   /**< [value_dim][value_dim], for V and outputs. NULL: V is not rotated. */
} pkv_rotation_matrices;

#ifdef __cplusplus
}
#endif
#endif
