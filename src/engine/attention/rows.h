// Rows of keys, values, queries and outputs in the caller's memory: checked, and moved in and out
// of sequences.
#pragma once

#include <span>

#include "base/parallel.h"
#include "engine/memory/layout.h"
#include "kernels/views.h"

namespace pkv::attention {

// The tensor with its strides filled in. Throws INVALID_ARGUMENT, OUT_OF_RANGE, OVERFLOW. name:
// "k", for the sentence.
kernels::RowsView check_rows(const pkv_tensor* tensor, uint64_t rows, uint32_t heads, uint32_t dim,
                             const char* name);

// The same of values: NULL, and only that, where they are latent in K.
kernels::RowsView check_values(const pkv_tensor* tensor, uint64_t rows, const memory::Shape& shape);

// The same rows from row `first` on.
kernels::RowsView rows_from(const kernels::RowsView& rows, uint64_t first);

// Runs a store or load kernel over all tasks, in parallel where there is enough to move.
// token_bytes: of K and V of one token.
void copy_rows(Workers& workers, void (*kernel)(const kernels::CopyTask&),
               std::span<const kernels::CopyTask> tasks, uint64_t token_bytes);

}  // namespace pkv::attention
