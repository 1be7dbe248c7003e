// Arguments from bytes: valid structs with some fields overwritten, tensors and views over real
// memory, numbers that are often edge cases.
#pragma once

#include <gtest/gtest.h>
#include <pagedkv/pagedkv.h>

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <vector>

#include "../tests/support/guarded.h"
#include "../tests/support/source.h"

inline uint64_t number(Source& draw) {
  constexpr uint64_t edges[] = {
      0,           1,          2,          15,         16,         17,         255,
      256,         257,        576,        65536,      0x7FFFFFFF, 0x80000000, 0xFFFFFFFF,
      0x100000000, 1ull << 48, 1ull << 62, 1ull << 63, ~0ull,      ~0ull - 15, ~0ull / 4,
      ~0ull / 16,  0x7FC00000, 0x7F800000, 0x3F800000, 0xBF800000, 4097};
  switch (draw.below(4)) {
    case 0:
      return draw.below(64);
    case 1:
      return edges[draw.below(std::size(edges))];
    case 2:
      return 16 * draw.below(64);
    default:
      return draw.below(UINT64_MAX);
  }
}

// Overwrites a few words of a struct, or sometimes all of it. The caller must correct pointers.
template <class Struct>
void spoil(Struct& value, Source& draw) {
  auto* const bytes = reinterpret_cast<unsigned char*>(&value);
  if (draw.chance(3)) {
    for (size_t i = 0; i < sizeof value; i++)
      bytes[i] = static_cast<unsigned char>(draw.below(256));
    return;
  }
  for (uint64_t n = draw.below(4); n > 0; n--) {
    const size_t at = 4 * draw.below(sizeof value / 4);
    const uint64_t word = number(draw);
    std::memcpy(bytes + at, &word, at + 8 <= sizeof value && draw.chance(30) ? 8 : 4);
  }
}

inline size_t element_bytes(pkv_dtype dtype) {
  return dtype == PKV_F32 ? 4 : dtype == PKV_F16 || dtype == PKV_BF16 ? 2 : 1;
}

// Whether a caller may pass strides that reach this far: within the buffer, or so far that the call
// must be refused.
inline bool honest(double bytes, size_t room) {
  return bytes <= static_cast<double>(room) || bytes >= 0x1p65;
}

// The bytes from the first element of a tensor to the end of a row of a sequence, as a double;
// exact if it is small, and 0 if the tensor is refused.
inline double reach(const pkv_tensor& tensor, double sequence, double row, uint32_t heads,
                    uint32_t width) {
  if (tensor.row_stride < 0 || tensor.head_stride < 0 || tensor.batch_stride < 0) return 0;
  const double head_stride =
      tensor.head_stride != 0 ? static_cast<double>(tensor.head_stride) : width;
  const double row_stride = tensor.row_stride != 0 ? static_cast<double>(tensor.row_stride)
                                                   : static_cast<double>(width) * heads;
  return (sequence * static_cast<double>(tensor.batch_stride) + row * row_stride +
          (heads - 1.0) * head_stride + width) *
         4;
}

// The rows that each sequence of a call has in its tensors.
struct SequenceRows {
  std::vector<uint64_t> lengths;
  const uint32_t* first_rows = nullptr;

  // The first row of a sequence: in the tensor, or within its entry of a padded batch.
  uint64_t first(const pkv_tensor& tensor, size_t sequence) const {
    uint64_t before = 0;
    for (size_t s = 0; s < sequence && tensor.batch_stride == 0; s++) before += lengths[s];
    return first_rows != nullptr ? first_rows[sequence] : before;
  }
  // The bytes of a tensor up to the last row of any sequence.
  double reach(const pkv_tensor& tensor, uint32_t heads, uint32_t width) const {
    double end = 0;
    for (size_t s = 0; s < lengths.size(); s++)
      if (lengths[s] > 0)
        end = std::max(
            end, ::reach(tensor, static_cast<double>(s),
                         static_cast<double>(first(tensor, s) + lengths[s] - 1), heads, width));
    return end;
  }
};

// What the bytes of an input change of a tensor. Inputs of the corpus rely on the order of fields
// and on the size.
struct DrawnTensor {
  void* data;
  pkv_dtype dtype;
  uint32_t batch;  // up to 2^31 - 1 the rows from sequence to sequence, above it 2^31 + elements
  int64_t row_stride, head_stride;

  pkv_tensor tensor(uint32_t heads, uint32_t width) const {
    const uint64_t row =
        row_stride != 0 ? static_cast<uint64_t>(row_stride) : uint64_t{heads} * width;
    const uint64_t stride = batch >> 31 != 0 ? batch & INT32_MAX : batch * row;
    return {nullptr, dtype, 0, row_stride, head_stride, static_cast<int64_t>(stride), 0};
  }
};

inline pkv_tensor draw_tensor(Source& draw, Guarded& buffer, const SequenceRows& rows,
                              uint32_t heads, uint32_t width) {
  DrawnTensor drawn{nullptr, PKV_F32, 0, 0, 0};
  spoil(drawn, draw);
  pkv_tensor tensor = drawn.tensor(heads, width);
  tensor.data = draw.chance(97) && honest(rows.reach(tensor, heads, width), buffer.size())
                    ? buffer.data()
                    : nullptr;
  return tensor;
}
inline pkv_tensor draw_tensor(Source& draw, Guarded& buffer, uint64_t rows, uint32_t heads,
                              uint32_t width) {
  return draw_tensor(draw, buffer, SequenceRows{{rows}}, heads, width);
}

// Checks that a call wrote only the elements of its rows, and a refused call nothing.
inline void check_written(Guarded& buffer, const pkv_tensor& tensor, const SequenceRows& rows,
                          uint32_t heads, uint32_t width, pkv_status status) {
  if (status != PKV_OK) {
    EXPECT_TRUE(buffer.untouched_from());
    return;
  }
  const size_t size = element_bytes(tensor.dtype);
  const size_t head = static_cast<size_t>(tensor.head_stride != 0 ? tensor.head_stride : width);
  const size_t row = tensor.row_stride != 0 ? static_cast<size_t>(tensor.row_stride) : head * heads;
  for (size_t s = 0; s < rows.lengths.size(); s++)
    for (uint64_t i = 0; i < rows.lengths[s]; i++)
      for (uint32_t h = 0; h < heads; h++)
        std::memset(buffer.data() + (s * static_cast<size_t>(tensor.batch_stride) +
                                     (rows.first(tensor, s) + i) * row + h * head) *
                                        size,
                    Guarded::filler, width * size);
  EXPECT_TRUE(buffer.untouched_from());
}
inline void check_written(Guarded& buffer, const pkv_tensor& tensor, uint64_t rows, uint32_t heads,
                          uint32_t width, pkv_status status) {
  check_written(buffer, tensor, SequenceRows{{rows}}, heads, width, status);
}

// OK, or one of the statuses that the header names; all calls may say INVALID_ARGUMENT,
// OUT_OF_RANGE and OVERFLOW of numbers.
inline void documented(pkv_status status, std::initializer_list<pkv_status> others = {}) {
  for (const pkv_status usual : {PKV_OK, PKV_INVALID_ARGUMENT, PKV_OUT_OF_RANGE, PKV_OVERFLOW})
    if (status == usual) return;
  EXPECT_TRUE(std::find(others.begin(), others.end(), status) != others.end())
      << pkv_status_name(status) << ": " << pkv_last_error();
}
