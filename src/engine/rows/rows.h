// Rows of keys, values, queries and outputs in a caller's memory: checks of the tensors that
// describe them, and copies between them and sequences.
#pragma once

#include <span>
#include <utility>

#include "base/parallel.h"
#include "engine/memory/layout.h"
#include "kernels/views.h"

namespace pkv::rows {

// Checks a tensor and fills in its default strides. `name` is its name in error sentences, such as
// "k". Throws INVALID_ARGUMENT (also for a padded batch), OUT_OF_RANGE, OVERFLOW.
kernels::RowsView check_rows(const pkv_tensor* tensor, uint64_t rows, uint32_t heads, uint32_t dim,
                             const char* name);

// Does the same for values. If V is latent in K, the tensor must be NULL and the view is empty.
kernels::RowsView check_values(const pkv_tensor* tensor, uint64_t rows, uint32_t heads,
                               uint32_t dim, bool latent);

// The rows of each sequence of a batch in the tensors.
class BatchRows {
 public:
  // `first_rows` has the first row of each sequence, or is NULL: see pkv_kv_sequences.
  explicit BatchRows(const uint32_t* first_rows) : first_rows_(first_rows) {}
  BatchRows() = default;
  // Adds the next sequence. Throws OVERFLOW.
  void add(uint64_t rows);

  uint64_t sequences() const { return sequences_; }
  uint64_t rows() const { return rows_; }  // of all sequences
  // Returns the number of rows of a whole tensor, or of one entry of a padded batch.
  uint64_t reach(bool padded) const { return padded || first_rows_ != nullptr ? end_ : rows_; }
  // Throws INVALID_ARGUMENT if sequences share rows of a tensor that is not padded, or are not in
  // order.
  void check_apart(const char* name) const;
  // Returns the first row of a sequence in a tensor, or in its entry of a padded batch. `before` is
  // the number of rows of the sequences before it.
  uint64_t first(uint64_t sequence, uint64_t before, bool padded) const {
    return first_rows_ != nullptr ? first_rows_[sequence] : padded ? 0 : before;
  }

 private:
  const uint32_t* first_rows_ = nullptr;
  uint64_t sequences_ = 0, rows_ = 0;
  uint64_t end_ = 0;       // the last row of any sequence, plus 1
  uint64_t last_end_ = 0;  // of the last sequence that has rows
  // The first sequence that begins before the end of the previous one, and that end; 0 if there is
  // none.
  uint64_t meeting_ = 0, met_end_ = 0;
};

// A sequence with queries, or with new tokens to write, and its K and V.
struct Sequence {
  kernels::KvView kv;
  uint64_t length;                     // positions with K and V
  uint32_t queries;                    // the number of its queries, or new tokens
  uint64_t first_query;                // the index of its first one among those of all sequences
  uint64_t index;                      // among all sequences of the caller
  const int64_t* positions = nullptr;  // of its queries; NULL: the last ones

  uint64_t start() const { return length - queries; }  // without `positions`
  uint64_t position(uint32_t query) const {
    return positions != nullptr ? static_cast<uint64_t>(positions[query]) : start() + query;
  }
};

// A tensor with the rows of a batch.
struct BatchTensor {
  kernels::RowsView view;
  uint64_t batch_stride;  // 0: not padded

  // Returns the element at which the rows of a sequence begin.
  uint64_t begin(const BatchRows& rows, const Sequence& sequence) const {
    return sequence.index * batch_stride +
           rows.first(sequence.index, sequence.first_query, batch_stride != 0) *
               static_cast<uint64_t>(view.row_stride);
  }
};

// Like the functions above, for the rows of a batch, which may be padded.
BatchTensor check_rows(const pkv_tensor* tensor, const BatchRows& rows, uint32_t heads,
                       uint32_t dim, const char* name);
BatchTensor check_values(const pkv_tensor* tensor, const BatchRows& rows, uint32_t heads,
                         uint32_t dim, bool latent);

// Returns the addresses between which all rows of a tensor lie.
std::pair<uintptr_t, uintptr_t> extent_of(const BatchTensor& tensor, const BatchRows& rows,
                                          uint32_t heads, uint32_t dim);

// Returns a view of the rows from an element on.
kernels::RowsView rows_at(const kernels::RowsView& rows, uint64_t element);

// Returns a view of the rows from row `first` on.
kernels::RowsView rows_from(const kernels::RowsView& rows, uint64_t first);

// Runs a store or load kernel over all tasks, in parallel if there is enough to copy. `token_bytes`
// is the size of K and V of one token. If there is no memory to cut the tasks, the caller's thread
// runs all of them.
void copy_rows(Workers& workers, void (*kernel)(const kernels::CopyTask&),
               std::span<const kernels::CopyTask> tasks, uint64_t token_bytes);

}  // namespace pkv::rows
