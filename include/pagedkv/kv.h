/* pagedkv: K and V of one layer in paged memory, a cache's or the caller's own: where they are, and
 * functions to write and read their rows.
 *
 * An engine with its own blocks and scheduler describes its memory with a pkv_kv_view, writes the
 * rows of a step to their slots, and calls pkv_kv_attend (attention.h):
 *
 *   pkv_kv_view_init(&kv, &bytes);           computes the size
 *   kv.k = aligned_alloc(64, bytes);
 *   pkv_kv_view_init(&kv, &bytes);           sets the addresses
 *   pkv_kv_write_slots(NULL, &kv, rows, slots, &k, &v);
 *   pkv_kv_attend(NULL, &kv, &sequences, NULL, &q, &out, NULL);
 *
 * Threads: every function may be called from any thread. The caller must not write a slot while
 * another call reads or writes it. With PACKED, this holds for all 16 slots of its tile.
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
 * Strides count elements of the dtype; for types whose rows include scales (INT8, INT4, Q8_0,
 * Q4_0), they count bytes. Block b begins at b * block_stride. In it
 *
 *   PLAIN   element (token t, head h, dim d) is at t * row_stride + h * head_stride + d, or + d / 2
 *           for INT4, whose even d are lower halves. The scales of t and h follow their elements;
 *           both together have dim + 4 bytes for INT8, dim / 2 + 2 * ceil(dim / 32) for INT4. For
 *           Q8_0 and Q4_0, d is in ggml block d / 32 of t and h; these blocks follow each other;
 *   PACKED  tile t / 16 begins at (t / 16) * row_stride + h * head_stride.
 *
 * With PLAIN and block_stride == block_size * row_stride, slot s begins at s * row_stride.
 */
typedef struct pkv_kv_view {
  uint32_t struct_size; /**< Must be sizeof(pkv_kv_view). */
  pkv_layout layout;    /**< How the bytes of a block are arranged. */
  uint32_t block_size;  /**< Tokens per block. PACKED: a multiple of 16. PLAIN: 1 or more. */
  uint32_t kv_heads;    /**< KV heads of the layer. */
  /**
   * Dims of K per head, up to 576: a multiple of 16; of 32 with Q8_0 and Q4_0; any number with
   * PLAIN rows of F32, F16 or BF16 that are not rotated.
   */
  uint32_t key_dim;
  uint32_t value_dim;    /**< Dims of V per head, likewise. */
  pkv_dtype dtype;       /**< Type of K. Q8_0 and Q4_0 are only read, and only with PLAIN. */
  pkv_dtype value_dtype; /**< Type of V; 0: dtype. */
  uint64_t blocks;       /**< Number of blocks; block ids must be lower. */
  void* k;               /**< Memory of K. Only pkv_kv_write and pkv_kv_write_slots write to it. */
  void* v;               /**< Memory of V, as k; NULL with latent. */
  /**
   * The bytes from k to the end of K. If it is set, a view that reaches further is refused. 0: not
   * known.
   */
  uint64_t k_bytes;
  uint64_t v_bytes;       /**< The bytes from v to the end of V, likewise. */
  int64_t k_block_stride; /**< K: from block to block. */
  int64_t k_row_stride;   /**< K: from token to token; with PACKED, from tile (16) to tile. */
  int64_t k_head_stride;  /**< K: from KV head to KV head. */
  int64_t v_block_stride; /**< V: from block to block. */
  int64_t v_row_stride;   /**< V: from token to token; with PACKED, from tile (16) to tile. */
  int64_t v_head_stride;  /**< V: from KV head to KV head. */
  /**
   * How the rows in this memory are rotated (see pkv_rotation). Functions here take and return
   * unrotated rows; kernels of your own must rotate queries and outputs themselves. Default NONE.
   */
  pkv_rotation rotation;
  uint32_t latent; /**< 1: V is the first value_dim dims of K. 0 (default): V has memory. */
  /** Another rotation, by the caller's matrices (experimental.h). NULL (default): `rotation`. */
  const struct pkv_rotation_matrices* rotation_matrices;
} pkv_kv_view;

/**
 * Returns where one layer of a cache with storage INTERNAL is in memory: for pkv_kv_attend, and
 * with layout PLAIN for kernels of your own. Do not write to it, not even with pkv_kv_write. The
 * addresses stay valid as long as the cache. pkv_cache_destroy does not notice calls with a view:
 * let them end first. pkv_session_get_block_table returns the blocks of each session.
 *
 * @param      cache  The cache.
 * @param      layer  The layer of the model.
 * @param[out] out    The view.
 *
 * Statuses: OUT_OF_RANGE (layer), UNSUPPORTED (storage EXTERNAL; a group that is opaque or has
 * states). Since 1.0.
 */
PKV_API pkv_status pkv_cache_get_kv_view(pkv_cache cache, uint32_t layer, pkv_kv_view* out);

/**
 * Lays out K and V of one layer in one piece of the caller's memory, as a cache of the same layout
 * does. Returns the size of that piece and completes a view. Allocates and touches no memory.
 *
 * @param[in,out] kv      The caller sets layout, block_size, kv_heads, key_dim, value_dim
 *                        (0: key_dim), dtype, value_dtype, blocks, latent, rotation (or
 *                        rotation_matrices), and k to the memory for K and V, preferably aligned to
 *                        64 bytes. The call sets v, k_bytes, v_bytes and the strides. With k NULL,
 *                        v is NULL.
 * @param[out]    bytes   The size of K and V together, rounded up to a multiple of 64.
 *
 * Statuses: INVALID_ARGUMENT, OVERFLOW, UNSUPPORTED (Q8_0 or Q4_0 with PACKED). Since 1.0.
 */
PKV_API pkv_status pkv_kv_view_init(pkv_kv_view* kv, uint64_t* bytes);

/** The slot of a padding row: nothing is written or read for it. */
#define PKV_NO_SLOT (-1)

/**
 * Writes rows of K and V to slots of the caller's memory, converted, quantised and packed as in a
 * cache. Any thread.
 *
 * Slot s is in block s / block_size, at offset s % block_size. If several rows have the same slot,
 * the last one wins. Other slots do not change.
 *
 * @param     compute  Threads and kernels. NULL: all CPUs.
 * @param[in] kv       The memory of K and V. Its slots may not overlap.
 * @param     rows     The number of rows.
 * @param[in] slots    [rows]: the slot of each row, or PKV_NO_SLOT.
 * @param[in] k        Keys, [rows][kv_heads][key_dim].
 * @param[in] v        Values, [rows][kv_heads][value_dim]. NULL if V is part of K.
 *
 * Statuses: INVALID_ARGUMENT, UNSUPPORTED (rows of Q8_0 or Q4_0), OUT_OF_RANGE (a slot), OVERFLOW,
 * OUT_OF_MEMORY. Since 1.0.
 */
PKV_API pkv_status pkv_kv_write_slots(pkv_compute compute, const pkv_kv_view* kv, size_t rows,
                                      const int64_t* slots, const pkv_tensor* k,
                                      const pkv_tensor* v);

/**
 * Copies K and V from slots to rows, converted to the dtype of the rows. Any thread.
 *
 * @param      compute  Threads and kernels. NULL: all CPUs.
 * @param[in]  kv       The memory of K and V.
 * @param      rows     The number of rows.
 * @param[in]  slots    [rows]: the slot of each row. PKV_NO_SLOT: the row is not changed.
 * @param[out] k        Keys, [rows][kv_heads][key_dim]. NULL: not copied.
 * @param[out] v        Values, [rows][kv_heads][value_dim]. NULL: not copied.
 *
 * Statuses: INVALID_ARGUMENT, UNSUPPORTED (Q8_0 or Q4_0 with PACKED), OUT_OF_RANGE (a slot),
 * OVERFLOW, OUT_OF_MEMORY. Since 1.0.
 */
PKV_API pkv_status pkv_kv_read_slots(pkv_compute compute, const pkv_kv_view* kv, size_t rows,
                                     const int64_t* slots, const pkv_tensor* k,
                                     const pkv_tensor* v);

/**
 * Sequences of different lengths over one pkv_kv_view. [queries] is the sum of query_lengths;
 * arrays of [queries] have no padding, even if tensors are padded.
 */
typedef struct pkv_kv_sequences {
  uint32_t struct_size; /**< Must be sizeof(pkv_kv_sequences). */
  uint32_t query_heads; /**< For pkv_kv_attend: a multiple of the view's kv_heads. */
  uint64_t count;       /**< The number of sequences. */
  /**
   * [count]: the number of query rows of each sequence: its last positions, unless query_positions
   * is set.
   */
  const uint32_t* query_lengths;
  /**
   * [count]: the number of positions of each sequence, including its queries; at least its
   * query_lengths, or at least 1 with query_positions.
   */
  const uint64_t* kv_lengths;
  /**
   * [count][block_table_stride]: block ids. Entries beyond kv_lengths, or between the sinks and the
   * window, are not read.
   */
  const uint32_t* block_tables;
  uint64_t block_table_stride; /**< Entries from one sequence's table to the next. */
  /**
   * [count]: where the rows of each sequence begin. In tensors with a batch_stride: the number of
   * padding rows before each; NULL (default): none. In tensors without one: the row of the tensor
   * at which each begins, as in cu_seqlens, ascending and without overlap; NULL (default): each
   * sequence follows the one before it. Either all tensors of a call have a batch_stride, or none
   * has.
   */
  const uint32_t* first_rows;
  /**
   * [queries]: the position of each query, for the causal rule, windows and slopes. Set it for
   * queries that are not the last positions of their sequence, as in cross-attention. NULL
   * (default): the last positions, or with a mask of kind TREE_PARENTS those of the tree.
   *
   * With a mask of kind TREE_BITS or TREE_PARENTS, the queries are always the last tokens of the
   * sequence. query_positions then only gives these tokens, as queries and as keys, the positions
   * that windows and slopes use, and the causal rule towards tokens from before the step. So in
   * causal attention, or with a window, each must be at least kv_length - query_length - 1, the
   * last position before the new tokens.
   */
  const int64_t* query_positions;
} pkv_kv_sequences;

/**
 * Writes rows of K and V to positions of sequences, as pkv_kv_write_slots does to slots. Any
 * thread.
 *
 * @param     compute    Threads and kernels. NULL: all CPUs.
 * @param[in] kv         The memory of K and V. Its slots may not overlap.
 * @param[in] sequences  The sequences. The rows of a sequence go to its query_positions, or else to
 *                       its last query_lengths positions.
 * @param[in] k          Keys, [queries][kv_heads][key_dim].
 * @param[in] v          Values, [queries][kv_heads][value_dim]. NULL if V is part of K.
 *
 * Statuses: INVALID_ARGUMENT, UNSUPPORTED (rows of Q8_0 or Q4_0), OUT_OF_RANGE (a block id, a
 * length or a position), OVERFLOW, OUT_OF_MEMORY. Since 1.0.
 */
PKV_API pkv_status pkv_kv_write(pkv_compute compute, const pkv_kv_view* kv,
                                const pkv_kv_sequences* sequences, const pkv_tensor* k,
                                const pkv_tensor* v);

/**
 * Copies K and V from positions of sequences to rows, as pkv_kv_read_slots does from slots. Any
 * thread.
 *
 * @param      compute    Threads and kernels. NULL: all CPUs.
 * @param[in]  kv         The memory of K and V.
 * @param[in]  sequences  The sequences. The positions are those of pkv_kv_write.
 * @param[out] k          Keys, [queries][kv_heads][key_dim]. NULL: not copied.
 * @param[out] v          Values, [queries][kv_heads][value_dim]. NULL: not copied.
 *
 * Statuses: INVALID_ARGUMENT, UNSUPPORTED (Q8_0 or Q4_0 with PACKED), OUT_OF_RANGE (a block id, a
 * length or a position), OVERFLOW, OUT_OF_MEMORY. Since 1.0.
 */
PKV_API pkv_status pkv_kv_read(pkv_compute compute, const pkv_kv_view* kv,
                               const pkv_kv_sequences* sequences, const pkv_tensor* k,
                               const pkv_tensor* v);

#ifdef __cplusplus
}
#endif
#endif
