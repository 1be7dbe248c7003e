// Conversion of rows between the floating-point dtypes. Lengths are multiples of 16; addresses need
// no alignment. Numbers are rounded to nearest even, NaN becomes a quiet NaN, and denormals are
// kept. A row that keeps its dtype keeps its bits.
#pragma once

#include "kernels/fp8.hpp"
#include "kernels/vectors.hpp"

namespace pkv::kernels {

// Loads and stores a vector of elements of a floating-point dtype. The general case is fp8.
template <class Isa, pkv_dtype dtype>
struct Elements {
  static constexpr unsigned bytes = 1;
  static Floats<Isa> load(const unsigned char* from) {
    return fp8_to_f32<Isa, dtype>(Isa::widen_bytes(from));
  }
  static void store(unsigned char* to, Floats<Isa> value) {
    narrow_bytes<Isa>(to, f32_to_fp8<Isa, dtype>(value));
  }
};

template <class Isa>
struct Elements<Isa, PKV_F32> {
  static constexpr unsigned bytes = 4;
  static Floats<Isa> load(const unsigned char* from) {
    return as_floats<Isa>(load_words<Isa>(from));
  }
  static void store(unsigned char* to, Floats<Isa> value) {
    value.store_unaligned(reinterpret_cast<float*>(to));
  }
};

template <class Isa>
struct Elements<Isa, PKV_F16> {
  static constexpr unsigned bytes = 2;
  static Floats<Isa> load(const unsigned char* from) { return Isa::load_f16(from); }
  static void store(unsigned char* to, Floats<Isa> value) { Isa::store_f16(to, value); }
};

// Returns the nearest bf16 numbers, in the upper half of each lane. The lower half has no meaning.
template <class Isa>
Words<Isa> nearest_bf16_bits(Floats<Isa> value) {
  using I = Ints<Isa>;
  const I bits = same_bits<I>(value);
  const I rounded = bits + I(0x7FFF) + ((bits >> 16) & I(1));
  const I kept = xsimd::select((bits & I(0x7FFFFFFF)) > I(0x7F800000), bits | I(0x400000), rounded);
  return same_bits<Words<Isa>>(kept);
}

template <class Isa>
struct Elements<Isa, PKV_BF16> {
  static constexpr unsigned bytes = 2;
  static Floats<Isa> load(const unsigned char* from) {
    return as_floats<Isa>(Isa::widen(from) << 16);
  }

  static void store(unsigned char* to, Floats<Isa> value) {
    Isa::narrow(to, nearest_bf16_bits<Isa>(value) >> 16);
  }
};

template <class Isa, pkv_dtype from_dtype, pkv_dtype to_dtype>
void convert(const unsigned char* from, unsigned char* to, uint32_t n) {
  using From = Elements<Isa, from_dtype>;
  using To = Elements<Isa, to_dtype>;
  constexpr unsigned lanes = Floats<Isa>::size;
  if constexpr (from_dtype == to_dtype)
    __builtin_memcpy(to, from, n * To::bytes);
  else
    for (uint32_t i = 0; i < n; i += lanes, from += lanes * From::bytes, to += lanes * To::bytes)
      To::store(to, From::load(from));
}

// Converts from one of the three dtypes of a caller's rows.
template <class Isa, pkv_dtype to_dtype>
void convert_from_rows(pkv_dtype from_dtype, const unsigned char* from, unsigned char* to,
                       uint32_t n) {
  if (from_dtype == PKV_F32)
    convert<Isa, PKV_F32, to_dtype>(from, to, n);
  else if (from_dtype == PKV_F16)
    convert<Isa, PKV_F16, to_dtype>(from, to, n);
  else
    convert<Isa, PKV_BF16, to_dtype>(from, to, n);
}

// Converts one of the three dtypes of a caller's rows to fp32 and multiplies it by a factor.
template <class Isa>
void scale_row(pkv_dtype dtype, const unsigned char* from, float factor, float* to, uint32_t n) {
  const auto scale = [&]<class From>(From) {
    for (uint32_t i = 0; i < n; i += Floats<Isa>::size)
      (From::load(from + i * From::bytes) * Floats<Isa>(factor)).store_unaligned(to + i);
  };
  if (dtype == PKV_F32)
    scale(Elements<Isa, PKV_F32>());
  else if (dtype == PKV_F16)
    scale(Elements<Isa, PKV_F16>());
  else
    scale(Elements<Isa, PKV_BF16>());
}

// Converts to one of the three dtypes of a caller's rows.
template <class Isa, pkv_dtype from_dtype>
void convert_to_rows(const unsigned char* from, pkv_dtype to_dtype, unsigned char* to, uint32_t n) {
  if (to_dtype == PKV_F32)
    convert<Isa, from_dtype, PKV_F32>(from, to, n);
  else if (to_dtype == PKV_F16)
    convert<Isa, from_dtype, PKV_F16>(from, to, n);
  else
    convert<Isa, from_dtype, PKV_BF16>(from, to, n);
}

// Returns a row of a caller with zeros behind it up to whole_dims(dim): itself if there are none,
// otherwise a copy.
static inline const unsigned char* whole_row(const unsigned char* row, pkv_dtype dtype,
                                             uint32_t dim, unsigned char* copy) {
  if (dim == whole_dims(dim)) return row;
  const size_t bytes = size_t{dim} * dtype_bytes(dtype);
  __builtin_memcpy(copy, row, bytes);
  __builtin_memset(copy + bytes, 0, size_t{whole_dims(dim)} * dtype_bytes(dtype) - bytes);
  return copy;
}

// Writes the first `dim` of whole_dims(dim) floats to a caller's row.
template <class Isa>
void put_row(const float* from, uint32_t dim, pkv_dtype dtype, unsigned char* row) {
  const auto* const bytes = reinterpret_cast<const unsigned char*>(from);
  if (dim == whole_dims(dim)) return convert_to_rows<Isa, PKV_F32>(bytes, dtype, row, dim);
  alignas(64) unsigned char whole[max_dim * 4];
  convert_to_rows<Isa, PKV_F32>(bytes, dtype, whole, whole_dims(dim));
  __builtin_memcpy(row, whole, size_t{dim} * dtype_bytes(dtype));
}

// Returns the address of element (row, head, 0) in a caller's memory.
static inline unsigned char* caller_row(const RowsView& rows, uint64_t row, uint64_t head) {
  const int64_t index =
      static_cast<int64_t>(row) * rows.row_stride + static_cast<int64_t>(head) * rows.head_stride;
  return rows.data + index * dtype_bytes(rows.dtype);
}

}  // namespace pkv::kernels
