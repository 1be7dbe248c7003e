/* pagedkv: keys and values of one layer in paged memory, a cache's or the caller's own: where they
 * lie, and rows written to them and read from them.
 *
 * An engine that owns its blocks and its schedule describes its memory by a pkv_kv_view, writes the
 * rows of a step by their slots, and attends by pkv_attention (attention.h):
 *
 *   pkv_kv_view_plan(&kv, 0, NULL, &bytes);     how large
 *   pkv_kv_view_plan(&kv, 0, memory, &bytes);   where it lies
 *   pkv_kv_write_slots(NULL, &kv, rows, slots, &k, &v);
 *   pkv_attention(NULL, &kv, &sequences, NULL, &q, &out);
 *
 * Threads: every function may be called from any thread. Reads and writes of the same memory at
 * once are up to the caller; with PACKED the memory of a slot is that of its tile, 16 slots from a
 * multiple of 16 on.
 */
#ifndef PAGEDKV_KV_H
#define PAGEDKV_KV_H

#include <pagedkv/compute.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * K and V of one layer in paged memory: a cache's (pkv_cache_get_kv_view) or the caller's own.
 *
 * Strides count elements of the dtype; of INT8 and INT4, whose rows end in scales, bytes. Block b
 * begins at b * block_stride. In it
 *
 *   PLAIN   element (token t, head h, dim d) is at t * row_stride + h * head_stride + d;
 *   PACKED  tile t / 16 begins at (t / 16) * row_stride + h * head_stride; inside, see
 *           PKV_LAYOUT_PACKED.
 *
 * Where block_stride == block_size * row_stride (PLAIN) the same memory is token-flat: slot s
 * begins at s * row_stride.
 */
typedef struct pkv_kv_view {
  uint32_t struct_size;   /**< sizeof(pkv_kv_view): the caller sets it. */
  pkv_layout layout;      /**< How the bytes of a block are arranged. */
  uint32_t block_size;    /**< Tokens per block. PACKED: a multiple of 16. PLAIN: 1 or more. */
  uint32_t kv_heads;      /**< KV heads of this layer. */
  uint32_t key_dim;       /**< Dims of a row of K. */
  uint32_t value_dim;     /**< Dims of a row of V. */
  pkv_dtype dtype;        /**< Type of K, and of V. */
  pkv_dtype value_dtype;  /**< Type of V, if another one; 0: dtype. */
  uint64_t blocks;        /**< Blocks that the memory holds; no id at or above this is followed. */
  void* k;                /**< Only pkv_kv_write and pkv_kv_write_slots write to it. */
  void* v;                /**< As k. NULL: V is the first value_dim dims of K. */
  int64_t k_block_stride; /**< K: from block to block. */
  int64_t k_row_stride;   /**< K: from token to token; PACKED: from tile to tile. */
  int64_t k_head_stride;  /**< K: from KV head to KV head. */
  int64_t v_block_stride; /**< V: from block to block. */
  int64_t v_row_stride;   /**< V: from token to token; PACKED: from tile to tile. */
  int64_t v_head_stride;  /**< V: from KV head to KV head. */
  /**
   * How the rows in the memory are rotated (cache.h); those of callers never are. 0: NONE. Kernels
   * of the caller's have to rotate queries and outputs themselves.
   */
  pkv_rotation rotation;
  uint32_t reserved; /**< 0. */
  /** MATRIX: [key_dim][key_dim]. It has to be orthogonal, which no call checks. NULL: none of K. */
  const float* key_rotation;
  const float* value_rotation; /**< MATRIX: [value_dim][value_dim]. NULL: none of V. */
} pkv_kv_view;

/**
 * Tells where one layer of a paged cache is in memory, for engines with kernels of their own. Read
 * only.
 *
 * The addresses stay valid as long as the cache; pkv_session_get_block_table tells which blocks
 * hold what.
 *
 * @param      cache  The cache.
 * @param      layer  The layer of the model.
 * @param[out] out    The view.
 *
 * Statuses: OUT_OF_RANGE (layer), UNSUPPORTED (not PAGED). Since 0.1.
 */
PKV_API pkv_status pkv_cache_get_kv_view(pkv_cache cache, uint32_t layer, pkv_kv_view* out);

/**
 * Lays out K and V of one layer in a run of memory of the caller's, as a cache of the same layout
 * has them: fills in the strides of a view and tells its size. Allocates and touches nothing.
 *
 * @param[in,out] kv      Filled in by the caller: layout, block_size, kv_heads, key_dim, value_dim
 *                        (0: key_dim), dtype, value_dtype, blocks, rotation and its matrices.
 *                        Filled in by the call: the rest.
 * @param         latent  1: V is the first value_dim dims of K; 0: it has memory of its own.
 * @param[out]    memory  Where K and V are to lie, best at a multiple of 64; this call does not
 *                        touch it. NULL: only the strides and the size are wanted; k and v become
 *                        NULL.
 * @param[out]    bytes   The size of K and V.
 *
 * Statuses: INVALID_ARGUMENT, OVERFLOW. Since 0.1.
 */
PKV_API pkv_status pkv_kv_view_plan(pkv_kv_view* kv, uint32_t latent, void* memory,
                                    uint64_t* bytes);

/** Slot of a row that is padding: nothing is written or read for it. */
#define PKV_NO_SLOT (-1)

/**
 * Stores rows of K and V in memory of the caller's, converted, quantised and packed as a cache
 * stores them. Any thread.
 *
 * Slot s is in block s / block_size, at s % block_size. Of several rows with the same slot the last
 * one stays. Memory of slots that are not in the list does not change.
 *
 * @param     compute  What it runs on. NULL: all processors.
 * @param[in] kv       The memory of K and V. Its slots may not overlap.
 * @param     rows     How many rows.
 * @param[in] slots    [rows]: a slot for each row, or PKV_NO_SLOT.
 * @param[in] k        Keys, [rows][kv_heads][key_dim].
 * @param[in] v        Values, [rows][kv_heads][value_dim]. NULL if V is in the dims of K.
 *
 * Statuses: INVALID_ARGUMENT, OUT_OF_RANGE (a slot), OVERFLOW, NO_MEMORY. Since 0.1.
 */
PKV_API pkv_status pkv_kv_write_slots(pkv_compute compute, const pkv_kv_view* kv, size_t rows,
                                      const int64_t* slots, const pkv_tensor* k,
                                      const pkv_tensor* v);

/**
 * Copies K and V of some slots to dense rows, converted to their dtype. Any thread.
 *
 * @param      compute  What it runs on. NULL: all processors.
 * @param[in]  kv       The memory of K and V.
 * @param      rows     How many rows.
 * @param[in]  slots    [rows]: a slot for each row, or PKV_NO_SLOT: the row stays as it is.
 * @param[out] k        Keys, [rows][kv_heads][key_dim]. NULL: not wanted.
 * @param[out] v        Values, [rows][kv_heads][value_dim]. NULL: not wanted.
 *
 * Statuses: INVALID_ARGUMENT, OUT_OF_RANGE (a slot), OVERFLOW, NO_MEMORY. Since 0.1.
 */
PKV_API pkv_status pkv_kv_read_slots(pkv_compute compute, const pkv_kv_view* kv, size_t rows,
                                     const int64_t* slots, const pkv_tensor* k,
                                     const pkv_tensor* v);

/**
 * A ragged set of sequences over one pkv_kv_view, described by the caller. Lists with an entry per
 * query have those of all sequences, one after the other, also where tensors are padded.
 */
typedef struct pkv_attention_sequences {
  uint32_t struct_size; /**< sizeof(pkv_attention_sequences): the caller sets it. */
  uint32_t query_heads; /**< A multiple of the view's kv_heads. */
  uint64_t count;       /**< How many sequences. */
  /** [count]: query rows of each sequence; they are its last positions. */
  const uint32_t* query_lengths;
  /**
   * [count]: positions of each sequence, the queries' own included; at least query_lengths, or with
   * query_positions at least 1.
   */
  const uint64_t* kv_lengths;
  /**
   * [count][block_table_stride]: block ids. Entries beyond kv_lengths, or before a window, are not
   * read.
   */
  const uint32_t* block_tables;
  uint64_t block_table_stride; /**< Entries from one sequence's table to the next. */
  /**
   * [count]: the first row of each sequence: in a padded batch the rows before it are padding, in
   * other tensors it counts from the beginning (as the list of cumulative lengths of a packed
   * batch). NULL (default): 0 in a padded batch; else rows follow each other.
   */
  const uint32_t* first_rows;
  /**
   * [queries]: the position of each query, for the causal rule, windows and slopes, where it is not
   * one of the last ones: queries over the text of another sequence, or the depths of a tree. In
   * causal attention with a mask of new tokens (BITS or PARENTS), none may be before the last
   * position before the step. NULL (default): the last ones.
   */
  const int64_t* query_positions;
} pkv_attention_sequences;

/**
 * Stores rows of K and V of the queries' own positions, as pkv_kv_write_slots. Any thread.
 *
 * @param     compute    What it runs on. NULL: all processors.
 * @param[in] kv         The memory of K and V. Its slots may not overlap.
 * @param[in] sequences  The sequences. Row i of a sequence goes to its position query_positions[i],
 *                       or to the last ones in order.
 * @param[in] k          Keys, [queries][kv_heads][key_dim].
 * @param[in] v          Values, [queries][kv_heads][value_dim]. NULL if V is in the dims of K.
 *
 * Statuses: INVALID_ARGUMENT, OUT_OF_RANGE (a block id, a length or a position), OVERFLOW,
 * NO_MEMORY. Since 0.1.
 */
PKV_API pkv_status pkv_kv_write(pkv_compute compute, const pkv_kv_view* kv,
                                const pkv_attention_sequences* sequences, const pkv_tensor* k,
                                const pkv_tensor* v);

#ifdef __cplusplus
}
#endif
#endif
