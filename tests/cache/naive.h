// A naive model of a cache: one vector of rows per session. A row is a number that determines every
// key and value of its token, so the model stores no keys or values.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <vector>

#include "../support/cache.h"
#include "../support/source.h"

namespace cache_test {

inline constexpr uint32_t block_size = 16, layers = 3, heads = 2, key_dim = 16, value_dim = 32,
                          max_tokens = 150;
// Blocks are scarce: eight sessions of 150 tokens would take 80.
inline constexpr uint64_t blocks = 24;

// The expected content of a session or a snapshot.
struct Naive {
  std::vector<uint32_t> rows;
  std::vector<int32_t> tokens;
  // A trim must reach any length from here on. With a window that is the length before the last
  // step, until another step begins, because begin() and reserve() may free what left the window.
  size_t trimmable = 0;
  bool suspended = false;
  // A step was committed, or it was resumed. Until then it leaves the watermark.
  bool has_run = false;
  // The token ids from before a suspension.
  std::vector<int32_t> remembered;

  int32_t known(size_t position) const {
    return position < remembered.size() ? remembered[position] : PKV_NO_TOKEN;
  }
  size_t total() const { return std::max(rows.size(), remembered.size()); }
  void forget() { remembered.clear(), suspended = false; }
  // The session may have lost what left its window.
  void expire() { trimmable = rows.size(); }

  // Appends rows and the ids of their tokens. If no id is given, the remembered one is used.
  void extend(const std::vector<uint32_t>& more, const std::vector<int32_t>& told) {
    trimmable = rows.size();
    has_run = has_run || !more.empty();
    rows.insert(rows.end(), more.begin(), more.end());
    for (const int32_t token : told)
      tokens.push_back(token != PKV_NO_TOKEN ? token : known(tokens.size()));
    if (tokens.size() >= remembered.size()) remembered.clear();
  }

  void trim(size_t length) {
    rows.resize(length);
    tokens.resize(length);
    trimmable = length;
    has_run = has_run && length > 0;
    forget();
  }

  void suspend() {
    if (remembered.size() > tokens.size())
      std::copy(tokens.begin(), tokens.end(), remembered.begin());
    else
      remembered = tokens;
    rows.clear();
    tokens.clear();
    trimmable = 0;
    suspended = true;
  }

  // Returns all ids that the library knows; the remembered ones come last.
  std::vector<int32_t> all_tokens() const {
    std::vector<int32_t> all = tokens;
    for (size_t i = all.size(); i < remembered.size(); i++) all.push_back(remembered[i]);
    return all;
  }

  // Returns a copy for another session or snapshot of the same text.
  Naive copy() const {
    Naive result = *this;
    result.forget();
    result.has_run = false;
    return result;
  }
};

struct Setup {
  const char* name;
  pkv_storage storage;
  pkv_layout layout;
  pkv_dtype dtype;
  uint32_t window;  // The window of the last layer, which is a group of its own.
  uint32_t sinks = 0;
  uint32_t watermark = 0;
  // With a rotation under which all test numbers are exact.
  bool rotated = false;

  uint32_t window_of(uint32_t layer) const { return layer == layers - 1 ? window : 0; }
};

// Every storage kind, layout and dtype that stores all test numbers exactly, with and without a
// window, sinks and a watermark.
inline constexpr Setup setups[] = {
    {"packed_bf16", PKV_STORAGE_PAGED, PKV_LAYOUT_PACKED, PKV_BF16, 0},
    {"packed_f32_window", PKV_STORAGE_PAGED, PKV_LAYOUT_PACKED, PKV_F32, 24},
    {"plain_f16", PKV_STORAGE_PAGED, PKV_LAYOUT_PLAIN, PKV_F16, 0},
    {"plain_bf16_window", PKV_STORAGE_PAGED, PKV_LAYOUT_PLAIN, PKV_BF16, 1},
    {"none", PKV_STORAGE_NONE, PKV_LAYOUT_PACKED, PKV_F32, 0},
    {"none_window", PKV_STORAGE_NONE, PKV_LAYOUT_PACKED, PKV_F32, 33},
    {"packed_f16_sinks", PKV_STORAGE_PAGED, PKV_LAYOUT_PACKED, PKV_F16, 20, 5},
    {"packed_f32_watermark", PKV_STORAGE_PAGED, PKV_LAYOUT_PACKED, PKV_F32, 0, 0, 6},
    {"none_watermark", PKV_STORAGE_NONE, PKV_LAYOUT_PACKED, PKV_F32, 33, 0, 3},
    {"packed_f32_rotated", PKV_STORAGE_PAGED, PKV_LAYOUT_PACKED, PKV_F32, 24, 0, 0, true}};

// A Hadamard matrix for each 16 dims, times 1 / 4.
template <uint32_t dim>
constexpr std::array<float, size_t{dim} * dim> exact_rotation() {
  std::array<float, size_t{dim} * dim> matrix{};
  for (uint32_t i = 0; i < dim; i++)
    for (uint32_t j = i / 16 * 16; j < i / 16 * 16 + 16; j++)
      matrix[i * dim + j] = std::popcount(i % 16 & j % 16) % 2 != 0 ? -0.25f : 0.25f;
  return matrix;
}
inline constexpr auto key_rotation = exact_rotation<key_dim>();
inline constexpr auto value_rotation = exact_rotation<value_dim>();

// Returns an element of a row. It is exact in every dtype of the setups.
inline float element(uint32_t row, uint32_t layer, bool value, uint32_t head, uint32_t dim) {
  const uint32_t mixed = (row * 2654435761u) ^
                         (layer * 40503u + value * 30011u + head * 1009u + dim * 17u) * 2246822519u;
  return static_cast<float>(mixed >> 24) - 127;
}

// Dense f32 rows in a plain vector, because random tests spend most of their time here.
struct Numbers {
  std::vector<float> list;

  pkv_tensor tensor() { return {list.data(), PKV_F32, 0, 0, 0}; }
  float get(size_t row, uint32_t head, uint32_t dim, uint32_t width) const {
    return list[(row * heads + head) * width + dim];
  }
  bool operator==(const Numbers& other) const { return list == other.list; }
};

inline Numbers room_for(size_t rows, bool value) {
  return {std::vector<float>(rows * heads * (value ? value_dim : key_dim))};
}

inline Numbers rows_of(const std::vector<uint32_t>& rows, uint32_t layer, bool value) {
  Numbers result = room_for(rows.size(), value);
  float* to = result.list.data();
  for (const uint32_t row : rows)
    for (uint32_t h = 0; h < heads; h++)
      for (uint32_t d = 0; d < (value ? value_dim : key_dim); d++)
        *to++ = element(row, layer, value, h, d);
  return result;
}

// Makes queries that select one dim of the keys. Their scores are at most 2.
inline Numbers queries_for(size_t rows, uint32_t dim) {
  Numbers queries = room_for(rows, false);
  for (size_t i = dim; i < queries.list.size(); i += key_dim) queries.list[i] = 0x1p-6f;
  return queries;
}

// Computes what the last of these rows gets for such a query, by the definition of attention.
inline std::vector<double> attention(const std::vector<uint32_t>& rows, uint32_t layer,
                                     uint32_t head, uint32_t dim, uint32_t window, uint32_t sinks) {
  const size_t first = window == 0 || rows.size() < window ? 0 : rows.size() - window;
  std::vector<double> sum(value_dim);
  double weights = 0;
  for (size_t i = 0; i < rows.size(); i++) {
    if (i < first && i >= sinks) continue;
    const double weight = std::exp(0x1p-6 * double{element(rows[i], layer, false, head, dim)});
    weights += weight;
    for (uint32_t d = 0; d < value_dim; d++)
      sum[d] += weight * double{element(rows[i], layer, true, head, d)};
  }
  for (double& x : sum) x /= weights;
  return sum;
}

}  // namespace cache_test
