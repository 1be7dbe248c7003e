// Which cells each row of a batch sees: sequences with block tables, made from ggml's mask.
//
// ggml describes what tokens see by a mask over all cells of its cache: -infinity hides a cell, and
// other numbers are added to scores. Reading the cells that a row does not see, and a mask for each
// cell, costs as much as attention. So rows that follow each other and see nested sets of cells, as
// those of a prompt do, become one sequence whose block table lists the cells in the order in which
// rows begin to see them: row r sees the first n_r of them, and no mask is left, unless it adds to
// scores (ALiBi). If cells also leave, in that order, as with a sliding window, the sequence has a
// window, wherever the cells are in the cache.
//
// All layers of a model have the same mask, so plans are kept for as long as its bytes are the
// same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ggml_pagedkv {

// The mask of an operation, and the cells that it is about.
struct Mask {
  const uint16_t* data;  // f16 [streams][row_stride rows][cells]; NULL: each row sees all cells
  int64_t cells;
  int64_t rows;
  int64_t streams;        // of queries, keys and values
  int64_t stream_stride;  // elements of data from stream to stream; 0: all streams share one
  int64_t row_stride;     // elements from row to row
  int64_t stream_blocks;  // the number of the first cell of a stream is a multiple of it
  bool joined;            // the rows of a stream follow those of the stream before it

  bool operator==(const Mask&) const = default;
};

// The sequences of one attention call. Rows and cells are numbered as in pkv_kv_sequences.
struct Call {
  int64_t stream = 0;   // whose first row is row 0 of the call; 0 if streams are joined
  uint32_t window = 0;  // 0: none
  std::vector<uint32_t> first_rows, query_lengths;
  std::vector<uint64_t> kv_lengths;
  std::vector<int64_t> query_positions;
  std::vector<uint32_t> block_tables;
  uint64_t block_table_stride = 0;
  std::vector<uint16_t> mask;  // of kind F16 for a single sequence; or empty
};

struct Plan {
  Mask mask;
  std::vector<uint16_t> bytes;  // what the mask was
  std::vector<Call> calls;
  std::vector<int64_t> unseeing;  // rows that see nothing, numbered through all streams

  bool is_of(const Mask& mask) const;
};

// Throws bad_alloc.
Plan make_plan(const Mask& mask);

// The plans of the masks of one batch.
class Plans {
 public:
  // Returns the plan of a mask, which is valid until the next call. Throws bad_alloc.
  const Plan& of(const Mask& mask);

 private:
  // Models have one mask for each kind of layer, with or without a window.
  static constexpr size_t max_plans = 4;
  std::vector<Plan> plans_;
  size_t oldest_ = 0;
};

}  // namespace ggml_pagedkv
