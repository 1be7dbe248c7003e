// What the kernels work on: plain pointers, strides and block ids. This header uses no type of the
// engine and no inline function of the standard library, because it is compiled for several
// instruction sets whose objects are linked together: the linker could keep a copy that this CPU
// cannot run.
#pragma once

#include <pagedkv/cache.h>
#include <pagedkv/pool.h>
#include <stddef.h>
#include <stdint.h>

namespace pkv::kernels {

inline constexpr uint32_t tile_tokens = 16;  // tokens of a packed tile
inline constexpr uint32_t max_dim = 576;     // of K and of V

// Kernels compute with a multiple of 16 dims. Queries, and partial results, have zeros (or numbers
// that nobody reads) behind the dims of a row, up to this number.
static inline constexpr uint32_t whole_dims(uint32_t dim) { return (dim + 15) / 16 * 16; }

// The rotation of rows of K or of V before they are stored: HADAMARD, a caller's matrix, or none.
struct Rotation {
  uint32_t block = 0;             // HADAMARD: dims that are transformed together; or 0
  const float* matrix = nullptr;  // a caller's: [dim][dim]; or NULL
};

// Which of the two rows of a token.
enum class Side { k, v };

// What a row has in memory if that is not what kernels take.
struct RowFormat {
  pkv_dtype dtype;
  uint32_t dim;
};

// K or V of one layer. Strides are in bytes. Block b begins at data + b * block_stride. In it, for
// KV head h,
//   plain layout   the row of token t is at t * row_stride + h * head_stride,
//   packed layout  tile t / 16 is at (t / 16) * row_stride + h * head_stride.
// PKV_LAYOUT_PACKED describes what is in a tile.
struct SideView {
  unsigned char* data;
  int64_t block_stride, row_stride, head_stride;
  pkv_dtype dtype;
  uint32_t dim;            // a multiple of 16
  Rotation rotation = {};  // of the stored rows; a caller's rows are never rotated
  // Rows of the plain layout whose dims are no multiple of 16, or whose type cannot be stored, are
  // read as whole_dims() of F32: `dtype` and `dim`. This is what they have in memory. Otherwise its
  // dim is 0.
  RowFormat in_memory = {};
};

static inline constexpr bool is_converted(const SideView& side) { return side.in_memory.dim != 0; }
static inline constexpr RowFormat format_of(const SideView& side) {
  return is_converted(side) ? side.in_memory : RowFormat{side.dtype, side.dim};
}

struct KvView {
  SideView k;
  SideView v;              // data is NULL where V is the first v.dim dims of K
  const uint32_t* blocks;  // block table of the sequence; NULL: all its tokens are contiguous
  uint32_t block_size;     // tokens per block; unused if blocks is NULL
  uint32_t kv_heads;
  pkv_layout layout;
  // True if entries of the block table may be PKV_NO_BLOCK_ID. No query sees the tokens of such an
  // entry, and block_size is then a multiple of tile_tokens.
  bool has_holes = false;
};

// Bytes of an element of a caller's rows, which are f32, f16 or bf16.
static inline constexpr unsigned dtype_bytes(pkv_dtype dtype) { return dtype == PKV_F32 ? 4 : 2; }

// Rows in a caller's memory. Strides count elements of dtype.
struct RowsView {
  unsigned char* data;
  pkv_dtype dtype;
  int64_t row_stride;
  int64_t head_stride;
};

// Copies rows between a caller's memory, where they are not rotated, and positions [first, first +
// count) of a sequence. Row 0 is position `first`. If k.data or v.data is NULL, K or V is not
// copied.
struct CopyTask {
  KvView kv;
  uint64_t first;
  uint64_t count;
  RowsView k;
  RowsView v;
};

// Copies the stored bits of `count` positions from one sequence to another, or within one in
// ascending order. Dtypes and dims must be the same; layouts may differ. K or V is not copied if
// either sequence has no data for it.
struct TransferTask {
  KvView from;
  uint64_t from_first;
  KvView to;
  uint64_t to_first;
  uint64_t count;
};

// The positions that one query sees: those below its task's `sinks` and those from `begin` on, all
// of them below `end`. Of the positions from mask_begin on, it sees only those whose bit is set in
// the mask: bit i of word w stands for position mask_begin + 64 w + i. It sees no position in a
// hole of the block table.
struct QueryView {
  uint64_t position;  // the query's own, for slopes
  uint64_t begin, end;
  const uint64_t* mask;  // NULL: no mask
  uint64_t mask_begin;
  // NULL, or what is added to the scores: numbers of ScoreTransform::bias_dtype, one for each
  // position from mask_begin on. Those of positions that the query does not see may be any numbers.
  const unsigned char* bias = nullptr;
};

// The steps that a score q . k passes before the softmax, in this order.
struct ScoreTransform {
  float softcap;  // 0: none; otherwise the score becomes softcap * tanh(score / softcap)
  // NULL, or one per query head: slope * (position of the token - position of the query) is added.
  const float* alibi_slopes;
  // For slopes, NULL or what is added to the positions of tokens from shifts_begin on, up to the
  // end of the last tile: a token of a tree counts from its depth, not from where it is stored.
  const float* key_shifts = nullptr;
  uint64_t shifts_begin = 0;            // a multiple of tile_tokens
  bool biased = false;                  // a query may have a bias
  pkv_dtype bias_dtype = PKV_F32;       // or F16
  const float* bias_factors = nullptr;  // NULL, or one per query head: the bias is multiplied by it
};

// Attention of some queries over positions [begin, end) of one sequence, or of several that share
// these positions, for KV heads [head_begin, head_end). The result is partial and not normalised.
// KV head h has queries * heads_per_kv_head rows: row r is query r / heads_per_kv_head with query
// head h * heads_per_kv_head + r % heads_per_kv_head. Arrays of [heads][rows] begin with
// head_begin.
struct AttendTask {
  KvView kv;
  uint32_t head_begin, head_end;
  uint32_t heads_per_kv_head;  // query heads per KV head
  uint32_t queries;
  const QueryView* query;  // [queries]
  uint64_t begin, end;
  uint64_t sinks;  // positions below this are seen whatever QueryView::begin is
  ScoreTransform transform;
  const float* q;  // in: [heads][rows][kv.k.dim], already multiplied by the scale
  // The scale that q was multiplied by. A kernel may divide by it and, if a row is then bf16,
  // multiply it as bf16.
  float scale;
  pkv_dtype results;       // the dtype of the results, which limits the rounding of weights
  float* out;              // out: [heads][rows][kv.v.dim], the sum of exp(score - max) * v
  float* max;              // out: [heads][rows], -infinity if nothing was seen
  float* sum;              // out: [heads][rows], the sum of exp(score - max); 0 if nothing was seen
  unsigned char* scratch;  // Table::attend_scratch_bytes() of memory, aligned to 64 bytes
};

// With at least this many rows per KV head, K and V are unpacked once for all rows and multiplied
// as matrices. With fewer, they are multiplied as they are stored in tiles.
inline constexpr uint32_t min_matmul_rows = 16;

// A partial result of some rows. Row r of head h has index i = h * head_rows + r: its result is
// max[i], sum[i] and value_dim floats from out + i * whole_dims(value_dim) on.
struct Partial {
  const float* out;
  const float* max;
  const float* sum;
  uint64_t head_rows;
};

// Merges partial results of the same rows, in order, normalises them and writes them to a caller's
// rows.
struct FinishTask {
  uint32_t head_begin, head_end;  // KV heads; head 0 of the parts is head_begin
  uint32_t heads_per_kv_head, queries, value_dim;
  uint32_t parts;
  const Partial* part;
  const float* sink_logits;  // NULL, or one per query head: a logit that has no value
  RowsView rows;             // out: row i is query i, its heads are query heads
  float* lse;  // out: [queries][query heads], the logarithm of the sum of exp(score); or NULL
  uint64_t lse_stride;     // floats from one query to the next
  Rotation rotation = {};  // of V; it is undone in the caller's rows
};

// Converts the queries of some KV heads to fp32, multiplies them by the scale, rotates them like K
// and puts them into the order of AttendTask::q.
struct QueryTask {
  uint32_t head_begin, head_end, heads_per_kv_head, queries, key_dim;
  float scale;
  RowsView rows;  // in: row i is query i, its heads are query heads
  // out: row r of head h is whole_dims(key_dim) floats, number (h - head_begin) * head_rows + r.
  float* q;
  uint64_t head_rows;      // rows from one head to the next in q
  Rotation rotation = {};  // of K; the queries get the same rotation
};

// Scores blocks by the bounds of their keys (the largest and the smallest key element in each dim):
// the sum, over dims, of the bounds times their weights; infinity if that is NaN.
struct ScoreTask {
  const uint16_t* bounds;  // bf16, [block][2][dim]: largest, then smallest
  const uint32_t* blocks;  // [count]: ids of the blocks to score
  uint32_t count, dim;
  const float *largest, *smallest;  // [dim]: the weights of the largest and the smallest elements
  float* scores;                    // out: [count]
};

// Adds up the weights of the tokens of each block in the attention of some rows of one KV head.
struct WeighTask {
  AttendTask attend;  // has one KV head; only its scratch memory is written
  // Log-sum-exps: that of query i and the h-th query head of the KV head is at i * lse_stride + h.
  const float* lse;
  uint64_t lse_stride;
  // In and out: the sum of query head h and entry b of the block table, at h * weights_stride + b.
  float* weights;
  uint64_t weights_stride;
};

// Merges the normalised results of several attention calls with the same rows into one, by their
// log-sum-exps.
struct MergeTask {
  uint64_t rows;
  uint32_t heads, dim, count;
  const RowsView* out;      // in: [count]
  const float* const* lse;  // in: [count][rows][heads]
  RowsView merged;          // out
  float* merged_lse;        // out: [rows][heads], or NULL
};

}  // namespace pkv::kernels
