// Rows of keys, values, queries and outputs in a caller's memory: checks of the tensors that
// describe them, and copies between them and sequences.
#pragma once

#include <span>

#include "base/parallel.h"
#include "engine/memory/layout.h"
#include "kernels/views.h"

namespace pkv::attention {

// Checks a tensor and fills in its default strides. `name` is what sentences call it, "k" say.
// Throws INVALID_ARGUMENT, OUT_OF_RANGE, OVERFLOW.
kernels::RowsView check_rows(const pkv_tensor* tensor, uint64_t rows, uint32_t heads, uint32_t dim,
                             const char* name);

// Does the same for the values of a layer. Where values are latent in K, the tensor must be NULL
// and the view is empty.
kernels::RowsView check_values(const pkv_tensor* tensor, uint64_t rows, const memory::Shape& shape);

// Returns a view of the rows from row `first` on.
kernels::RowsView rows_from(const kernels::RowsView& rows, uint64_t first);

// Runs a store or load kernel over all tasks, in parallel if there is enough to copy. `token_bytes`
// is the size of K and V of one token. Without memory for cutting the tasks the caller's thread
// runs them all.
void copy_rows(Workers& workers, void (*kernel)(const kernels::CopyTask&),
               std::span<const kernels::CopyTask> tasks, uint64_t token_bytes);

}  // namespace pkv::attention
