// Checks tensors for overlap and overflow, and cuts copies at tile boundaries.
#include "engine/rows/rows.h"

#include <algorithm>
#include <new>
#include <vector>

#include "base/checked.h"
#include "base/enums.h"
#include "base/status.h"
#include "kernels/kernels.h"

namespace pkv::rows {

namespace {

// The rows, heads or sequences of a tensor.
struct Axis {
  uint64_t count, stride;
};

// Checks that no two rows, heads or sequences overlap, so that no result overwrites another; that
// the size does not overflow; and that it is at most `bytes` (0: any). In order of their strides,
// each axis lies within the next. `rows` is the number of rows of one sequence, up to the last that
// is not padding.
void check_extent(const BatchTensor& tensor, uint64_t sequences, uint64_t rows, uint64_t heads,
                  uint64_t dim, uint64_t bytes, const char* name) {
  const kernels::RowsView& view = tensor.view;
  Axis axes[] = {{heads, static_cast<uint64_t>(view.head_stride)},
                 {rows, static_cast<uint64_t>(view.row_stride)},
                 {sequences, tensor.batch_stride}};
  std::ranges::sort(axes, {}, &Axis::stride);
  uint64_t extent = dim;  // of all that lies within an axis
  for (const Axis& axis : axes) {
    if (axis.count == 1) continue;
    if (axis.stride < extent)
      fail(PKV_INVALID_ARGUMENT,
           "%s: with row_stride %llu, head_stride %llu and batch_stride %llu the %llu rows of %llu "
           "heads of %llu overlap",
           name, llu(view.row_stride), llu(view.head_stride), llu(tensor.batch_stride),
           llu(sequences * rows), llu(heads), llu(dim));
    extent = checked_add(extent, checked_mul(axis.count - 1, axis.stride, name), name);
  }
  const uint64_t reach = checked_bytes(extent, kernels::dtype_bytes(view.dtype), name);
  if (bytes != 0 && reach > bytes)
    fail(PKV_INVALID_ARGUMENT,
         "%s: %llu rows of %llu heads of %llu reach over %llu bytes; bytes is %llu", name,
         llu(sequences * rows), llu(heads), llu(dim), llu(reach), llu(bytes));
}

// Checks everything in a tensor except its extent, and fills in its default strides.
kernels::RowsView check_tensor(const pkv_tensor* tensor, uint32_t heads, uint32_t dim,
                               const char* name) {
  if (tensor == nullptr) fail(PKV_INVALID_ARGUMENT, "%s is NULL", name);
  if (!kernels::dtype_of_rows(tensor->dtype)) {
    check_enum(tensor->dtype, "dtype", name);
    fail(PKV_INVALID_ARGUMENT, "%s: dtype is %s; rows are F32, F16 or BF16", name,
         enum_name(tensor->dtype));
  }
  if (tensor->reserved != 0)
    fail(PKV_INVALID_ARGUMENT, "%s: reserved is %u, not 0", name, tensor->reserved);
  if (tensor->row_stride < 0 || tensor->head_stride < 0 || tensor->batch_stride < 0)
    fail(PKV_INVALID_ARGUMENT,
         "%s: negative stride (row_stride %lld, head_stride %lld, batch_stride %lld)", name,
         (long long)tensor->row_stride, (long long)tensor->head_stride,
         (long long)tensor->batch_stride);
  if (tensor->row_stride == 0 && tensor->head_stride != 0 && tensor->head_stride != dim)
    fail(PKV_INVALID_ARGUMENT,
         "%s: row_stride is 0 (dense), but head_stride is %lld; dense heads are %u apart", name,
         (long long)tensor->head_stride, dim);
  kernels::RowsView view{};
  view.data = static_cast<unsigned char*>(tensor->data);
  view.dtype = tensor->dtype;
  view.head_stride = tensor->head_stride != 0 ? tensor->head_stride : int64_t{dim};
  view.row_stride =
      tensor->row_stride != 0
          ? tensor->row_stride
          : static_cast<int64_t>(std::min<uint64_t>(uint64_t{heads} * dim, INT64_MAX));
  return view;
}

void check_data(const kernels::RowsView& view, uint64_t rows, const char* name) {
  if (view.data == nullptr)
    fail(PKV_INVALID_ARGUMENT, "%s: data is NULL for %llu rows", name, llu(rows));
}

void check_no_values(const pkv_tensor* tensor, uint32_t dim) {
  if (tensor != nullptr)
    fail(PKV_INVALID_ARGUMENT, "v is given, but values of this layer are the first %u dims of k",
         dim);
}

}  // namespace

kernels::RowsView check_rows(const pkv_tensor* tensor, uint64_t rows, uint32_t heads, uint32_t dim,
                             const char* name) {
  const kernels::RowsView view = check_tensor(tensor, heads, dim, name);
  if (tensor->batch_stride != 0)
    fail(PKV_INVALID_ARGUMENT, "%s: batch_stride is %lld, but there are no sequences here", name,
         (long long)tensor->batch_stride);
  if (rows == 0) return view;
  check_data(view, rows, name);
  check_extent({view, 0}, 1, rows, heads, dim, tensor->bytes, name);
  return view;
}

BatchTensor check_rows(const pkv_tensor* tensor, const BatchRows& rows, uint32_t heads,
                       uint32_t dim, const char* name) {
  const kernels::RowsView view = check_tensor(tensor, heads, dim, name);
  const BatchTensor result{view, static_cast<uint64_t>(tensor->batch_stride)};
  const bool padded = result.batch_stride != 0;
  if (rows.rows() == 0) return result;
  check_data(view, rows.rows(), name);
  check_extent(result, padded ? rows.sequences() : 1, rows.reach(padded), heads, dim, tensor->bytes,
               name);
  if (!padded) rows.check_apart(name);
  return result;
}

kernels::RowsView check_values(const pkv_tensor* tensor, uint64_t rows, uint32_t heads,
                               uint32_t dim, bool latent) {
  if (!latent) return check_rows(tensor, rows, heads, dim, "v");
  check_no_values(tensor, dim);
  return {};
}

BatchTensor check_values(const pkv_tensor* tensor, const BatchRows& rows, uint32_t heads,
                         uint32_t dim, bool latent) {
  if (!latent) return check_rows(tensor, rows, heads, dim, "v");
  check_no_values(tensor, dim);
  return {};
}

std::pair<uintptr_t, uintptr_t> extent_of(const BatchTensor& tensor, const BatchRows& rows,
                                          uint32_t heads, uint32_t dim) {
  const kernels::RowsView& view = tensor.view;
  const auto begin = reinterpret_cast<uintptr_t>(view.data);
  const bool padded = tensor.batch_stride != 0;
  if (rows.rows() == 0) return {begin, begin};
  const uint64_t last = (padded ? (rows.sequences() - 1) * tensor.batch_stride : 0) +
                        (rows.reach(padded) - 1) * static_cast<uint64_t>(view.row_stride) +
                        (heads - 1) * static_cast<uint64_t>(view.head_stride);
  return {begin, begin + (last + dim) * kernels::dtype_bytes(view.dtype)};
}

void BatchRows::check_apart(const char* name) const {
  if (meeting_ != 0)
    fail(PKV_INVALID_ARGUMENT,
         "%s: first_rows[%llu] is %u, but the rows of the sequence before it end at %llu", name,
         llu(meeting_), first_rows_[meeting_], llu(met_end_));
}

void BatchRows::add(uint64_t rows) {
  const uint64_t begin = first_rows_ != nullptr ? first_rows_[sequences_] : 0;
  sequences_++;
  rows_ = checked_add(rows_, rows, "rows");
  if (rows == 0) return;
  const uint64_t end = checked_add(begin, rows, "rows");
  if (first_rows_ != nullptr && begin < last_end_ && meeting_ == 0) {
    meeting_ = sequences_ - 1;
    met_end_ = last_end_;
  }
  last_end_ = end;
  end_ = std::max(end_, end);
}

kernels::RowsView rows_at(const kernels::RowsView& rows, uint64_t element) {
  kernels::RowsView view = rows;
  if (view.data != nullptr) view.data += element * kernels::dtype_bytes(rows.dtype);
  return view;
}

kernels::RowsView rows_from(const kernels::RowsView& rows, uint64_t first) {
  return rows_at(rows, first * static_cast<uint64_t>(rows.row_stride));
}

namespace {

// Cuts tasks at multiples of `part_tokens` positions. That is a multiple of a tile, so that no two
// threads write to the same tile.
std::vector<kernels::CopyTask> cut_tasks(std::span<const kernels::CopyTask> tasks,
                                         uint64_t part_tokens) {
  std::vector<kernels::CopyTask> parts;
  for (const kernels::CopyTask& task : tasks) {
    for (uint64_t at = task.first, end = task.first + task.count; at < end;) {
      const uint64_t next = std::min(end, (at / part_tokens + 1) * part_tokens);
      kernels::CopyTask part = task;
      part.first = at;
      part.count = next - at;
      part.k = rows_from(task.k, at - task.first);
      part.v = rows_from(task.v, at - task.first);
      parts.push_back(part);
      at = next;
    }
  }
  return parts;
}

}  // namespace

void copy_rows(Workers& workers, void (*kernel)(const kernels::CopyTask&),
               std::span<const kernels::CopyTask> tasks, uint64_t token_bytes) {
  constexpr uint64_t part_bytes = 128 << 10;
  const uint64_t part_tiles =
      std::max<uint64_t>(1, part_bytes / (token_bytes * kernels::tile_tokens));
  uint64_t tokens = 0;
  for (const kernels::CopyTask& task : tasks) tokens += task.count;

  std::vector<kernels::CopyTask> parts;
  if (tokens * token_bytes > part_bytes && workers.threads() > 1) {
    try {
      parts = cut_tasks(tasks, part_tiles * kernels::tile_tokens);
    } catch (const std::bad_alloc&) {
      // Then this thread copies everything: a step that has begun should not fail for lack of a
      // short list.
    }
  }
  if (parts.empty()) {
    for (const kernels::CopyTask& task : tasks)
      if (task.count > 0) kernel(task);
    return;
  }
  workers.for_each(parts.size(), [&](size_t i, unsigned) { kernel(parts[i]); });
}

}  // namespace pkv::rows
