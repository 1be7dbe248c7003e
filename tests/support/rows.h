// Rows of keys, values, queries or outputs in memory, of any dtype, with any strides and at any
// alignment.
#pragma once

#include <pagedkv/common.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "cache.h"
#include "enums.h"
#include "source.h"

namespace cache_test {

// Draws the same numbers on every platform. The distributions of the standard library do not.
class Random : public Source {
 public:
  using Source::Source;
  float uniform() {
    return static_cast<float>(below(uint64_t{1} << 24)) / static_cast<float>(1 << 23) - 1;
  }
  template <class T>
  T pick(std::initializer_list<T> list) {
    return list.begin()[below(list.size())];
  }
};

inline size_t bytes_of(pkv_dtype dtype) { return dtype == PKV_F32 ? 4 : 2; }

// Returns half of the distance from 1 to the next number, the largest relative error of one
// rounding.
inline double unit_roundoff(pkv_dtype dtype) {
  return std::ldexp(1.0, dtype == PKV_F32 ? -24 : dtype == PKV_F16 ? -11 : -8);
}

using pkv::test::name_of;
using pkv::test::stored_dtypes;

// Returns the dtype in which rows of a stored type are written and read back.
inline pkv_dtype rows_dtype(pkv_dtype stored) { return stored <= PKV_BF16 ? stored : PKV_F32; }

// binary16. g++ 12 has _Float16 in C++ for x86 alone.
#if defined(__aarch64__)
using Float16 = __fp16;
#else
using Float16 = _Float16;
#endif

inline void store_element(pkv_dtype dtype, float value, unsigned char* to) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  uint16_t half = 0;
  if (dtype == PKV_F32) {
    std::memcpy(to, &bits, 4);
    return;
  }
  if (dtype == PKV_BF16)
    half = static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
  else
    half = std::bit_cast<uint16_t>(static_cast<Float16>(value));
  std::memcpy(to, &half, 2);
}

inline float load_element(pkv_dtype dtype, const unsigned char* from) {
  uint32_t bits = 0;
  std::memcpy(&bits, from, bytes_of(dtype));
  if (dtype == PKV_F16)
    return static_cast<float>(std::bit_cast<Float16>(static_cast<uint16_t>(bits)));
  return std::bit_cast<float>(dtype == PKV_F32 ? bits : bits << 16);
}

// Gaps are elements between heads and between rows; misalignment is in bytes.
struct Placement {
  int64_t head_gap = 0, row_gap = 0;
  size_t misalignment = 0;
};

class Rows {
 public:
  Rows() : Rows(0, 1, 16) {}
  Rows(size_t rows, uint32_t heads, uint32_t dim, pkv_dtype dtype = PKV_F32,
       Placement placement = {})
      : rows_(rows),
        heads_(heads),
        dim_(dim),
        dtype_(dtype),
        head_stride_(dim + placement.head_gap),
        row_stride_(head_stride_ * heads + placement.row_gap),
        offset_(placement.misalignment),
        bytes_(offset_ + (rows * static_cast<size_t>(row_stride_) + 1) * bytes_of(dtype), 0xAB) {}

  size_t rows() const { return rows_; }
  uint32_t heads() const { return heads_; }
  uint32_t dim() const { return dim_; }
  pkv_dtype dtype() const { return dtype_; }

  float get(size_t row, uint32_t head, uint32_t d) const {
    return load_element(dtype_, &bytes_[index(row, head, d)]);
  }
  void set(size_t row, uint32_t head, uint32_t d, float value) {
    store_element(dtype_, value, &bytes_[index(row, head, d)]);
  }

  // Returns these rows, from `first` on, as a tensor of the library.
  pkv_tensor tensor(size_t first = 0) {
    const size_t begin = offset_ + first * static_cast<size_t>(row_stride_) * bytes_of(dtype_);
    return {&bytes_[begin], dtype_, 0, row_stride_, head_stride_, 0, bytes_.size() - begin};
  }

  Rows& fill(Random& random, float amplitude = 1) {
    each([&](size_t r, uint32_t h, uint32_t d) { set(r, h, d, amplitude * random.uniform()); });
    return *this;
  }

  void append(const Rows& more) {
    Rows grown(rows_ + more.rows_, heads_, dim_, dtype_);
    grown.copy(0, *this, 0, rows_);
    grown.copy(rows_, more, 0, more.rows_);
    *this = std::move(grown);
  }

  void copy(size_t to, const Rows& from, size_t first, size_t count) {
    for (size_t r = 0; r < count; r++)
      for (uint32_t h = 0; h < heads_; h++)
        for (uint32_t d = 0; d < dim_; d++) set(to + r, h, d, from.get(first + r, h, d));
  }

  Rows slice(size_t first, size_t count) const {
    Rows result(count, heads_, dim_, dtype_);
    result.copy(0, *this, first, count);
    return result;
  }

  template <class Visit>
  void each(const Visit& visit) const {
    for (size_t r = 0; r < rows_; r++)
      for (uint32_t h = 0; h < heads_; h++)
        for (uint32_t d = 0; d < dim_; d++) visit(r, h, d);
  }

  // Compares every element bit for bit, wherever it lies.
  bool operator==(const Rows& other) const {
    if (rows_ != other.rows_ || heads_ != other.heads_ || dim_ != other.dim_ ||
        dtype_ != other.dtype_)
      return false;
    for (size_t r = 0; r < rows_; r++)
      for (uint32_t h = 0; h < heads_; h++)
        if (std::memcmp(&bytes_[index(r, h, 0)], &other.bytes_[other.index(r, h, 0)],
                        dim_ * bytes_of(dtype_)) != 0)
          return false;
    return true;
  }

  // Returns true if no byte outside of the elements has changed since they were made.
  bool gaps_untouched() const {
    std::vector<bool> element(bytes_.size());
    each([&](size_t r, uint32_t h, uint32_t d) {
      for (size_t b = 0; b < bytes_of(dtype_); b++) element[index(r, h, d) + b] = true;
    });
    for (size_t i = 0; i < bytes_.size(); i++)
      if (!element[i] && bytes_[i] != 0xAB) return false;
    return true;
  }

 private:
  size_t index(size_t row, uint32_t head, uint32_t d) const {
    return offset_ +
           (row * static_cast<size_t>(row_stride_) + head * static_cast<size_t>(head_stride_) + d) *
               bytes_of(dtype_);
  }

  size_t rows_;
  uint32_t heads_, dim_;
  pkv_dtype dtype_;
  int64_t head_stride_, row_stride_;
  size_t offset_;
  std::vector<unsigned char> bytes_;
};

inline void write(pkv_batch batch, uint32_t layer, Rows& k, Rows& v) {
  const pkv_tensor keys = k.tensor(), values = v.tensor();
  CHECK(pkv_batch_write(batch, layer, &keys, &values));
}

// Writes a latent layer, whose values are part of the keys.
inline void write(pkv_batch batch, uint32_t layer, Rows& k) {
  const pkv_tensor keys = k.tensor();
  CHECK(pkv_batch_write(batch, layer, &keys, nullptr));
}

inline void attend(pkv_batch batch, uint32_t layer, Rows& q, Rows& out,
                   const AttentionParams* params = nullptr) {
  const pkv_tensor queries = q.tensor(), results = out.tensor();
  CHECK(pkv_batch_attend(batch, layer, params, &queries, &results,
                         params != nullptr ? &params->outputs : nullptr));
}

// Keys and values of a layer that were read back.
struct KeysValues {
  Rows k, v;
  bool operator==(const KeysValues&) const = default;
};

inline KeysValues rows_of(const Model& model, size_t n) {
  return {Rows(n, model.kv_heads, model.key_dim, rows_dtype(model.dtype)),
          Rows(n, model.kv_heads, model.values(), rows_dtype(model.values_dtype()))};
}

inline KeysValues random_rows(const Model& model, size_t n, Random& random) {
  KeysValues rows = rows_of(model, n);
  rows.k.fill(random);
  rows.v.fill(random);
  return rows;
}

inline KeysValues materialize(pkv_session session, uint32_t layer, const Model& model,
                              uint64_t first, size_t n) {
  KeysValues rows = rows_of(model, n);
  const pkv_tensor keys = rows.k.tensor(), values = rows.v.tensor();
  CHECK(pkv_session_read(session, layer, first, n, &keys, &values));
  return rows;
}

inline void write(pkv_batch batch, uint32_t layer, const Model& model, KeysValues& rows) {
  if (model.latent())
    write(batch, layer, rows.k);
  else
    write(batch, layer, rows.k, rows.v);
}

// Makes one step of one session with the same keys and values in every layer.
inline void step(pkv_cache cache, pkv_session session, const Model& model, uint32_t tokens,
                 KeysValues& rows) {
  Batch batch = begin(cache, {session}, {tokens});
  for (uint32_t layer = 0; layer < model.layers; layer++) write(batch, layer, model, rows);
  commit(batch);
}

// Makes one step of one session with random keys and values in every layer. Returns what was
// written, one entry per layer.
inline std::vector<KeysValues> step(pkv_cache cache, pkv_session session, const Model& model,
                                    uint32_t tokens, Random& random) {
  Batch batch = begin(cache, {session}, {tokens});
  std::vector<KeysValues> written;
  for (uint32_t layer = 0; layer < model.layers; layer++) {
    KeysValues rows = random_rows(model, tokens, random);
    write(batch, layer, model, rows);
    written.push_back(std::move(rows));
  }
  commit(batch);
  return written;
}

}  // namespace cache_test
