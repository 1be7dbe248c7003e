// Attention of some rows over bf16 K and V by a matrix unit, such as a decode step with several
// query heads per KV head. AttendDirect iterates over the tiles as usual; the unit multiplies up to
// 8 rows with a tile in its layout. Weights are rounded to bf16, so results must become bf16.
//
// Registers always have 8 rows. Rows after the last one have arbitrary values, and their results
// are not used: a row's result does not depend on them.
#pragma once

#include "kernels/attend_direct.hpp"
#include "kernels/isa/matrix_product.hpp"

namespace pkv::kernels {

// An instruction set whose unit multiplies bf16 K and V. It has no kernels for other dtypes.
template <class Base, class MatrixUnit>
struct WithUnit : Base {
  using Unit = MatrixUnit;
  static constexpr unsigned rows_at_once = 8;
  static constexpr unsigned prefetch_distance = 3072;
};

template <class Base, class Unit>
struct KeyTile<WithUnit<Base, Unit>, PKV_BF16> : FloatKeyTile<WithUnit<Base, Unit>, PKV_BF16> {
  using Isa = WithUnit<Base, Unit>;
  static constexpr unsigned max_tiles = 2;

  // A prepared row: its parts, the row in fp32, then its QueryParts. Whole cache lines, so that no
  // row of a register lies on two.
  static size_t query_bytes(uint32_t dim) {
    return (end_of_floats(dim) + sizeof(QueryParts) + 63) / 64 * 64;
  }

  static void prepare(const float* row, uint32_t dim, float scale, void* to) {
    unsigned char* const bytes = static_cast<unsigned char*>(to);
    const QueryParts parts = find_query_parts(row, dim, scale, false);
    put_query_parts(row, dim, dim, parts, false, max_parts, bytes, size_t{dim} * 2);
    __builtin_memcpy(bytes + begin_of_floats(dim), row, size_t{dim} * 4);
    __builtin_memcpy(bytes + end_of_floats(dim), &parts, sizeof parts);
  }

  template <unsigned rows, unsigned tiles>
  static void scores(const void* q, uint32_t dim, TilePointers at, TilePointers next,
                     ScoreRow* scores) {
    const unsigned char* const queries = static_cast<const unsigned char*>(q);
    multiply<rows, tiles>(queries, dim, at, next);
    alignas(64) ScoreRow sums[tiles][Isa::rows_at_once];
    Unit::template store<0>(sums[0], sizeof(ScoreRow));
    if constexpr (tiles == 2) Unit::template store<1>(sums[1], sizeof(ScoreRow));
    for (unsigned r = 0; r < rows; r++) {
      const unsigned char* const query = queries + r * query_bytes(dim);
      const QueryParts parts = parts_of(query, dim);
      for (unsigned i = 0; i < tiles; i++) {
        const __m512 x = _mm512_mul_ps(_mm512_load_ps(sums[i][r]), _mm512_set1_ps(parts.factor));
        const __mmask16 by_unit = parts.count != 0 ? _mm512_cmp_ps_mask(x, x, _CMP_ORD_Q) : 0;
        ScoreRow* const to = scores + i * rows + r;
        if (by_unit != 0xFFFF) [[unlikely]]
          multiply_floats(query, dim, at + i, next + i, to);
        _mm512_mask_store_ps(*to, by_unit, x);
      }
    }
  }

 private:
  static size_t begin_of_floats(uint32_t dim) { return size_t{dim} * 2 * max_parts; }
  static size_t end_of_floats(uint32_t dim) { return begin_of_floats(dim) + size_t{dim} * 4; }

  static QueryParts parts_of(const unsigned char* query, uint32_t dim) {
    QueryParts parts;
    __builtin_memcpy(&parts, query + end_of_floats(dim), sizeof parts);
    return parts;
  }

  // Computes the sums of tile i in register i.
  template <unsigned rows, unsigned tiles>
  static void multiply(const unsigned char* queries, uint32_t dim, TilePointers at,
                       TilePointers next) {
    const size_t stride = query_bytes(dim);
    unsigned parts = 1;
    for (unsigned r = 0; r < rows; r++) {
      const unsigned count = parts_of(queries + r * stride, dim).count;
      parts = count > parts ? count : parts;
    }
    Unit::template zero<0>();
    if constexpr (tiles == 2) Unit::template zero<1>();
    for (uint32_t d = 0; d < dim; d += unit_depth) {
      const bool whole = dim - d >= unit_depth;
      for (unsigned i = 0; i < tiles; i++)
        prefetch_lines<Isa>(next[i] + d * 32, whole ? 1024 : 512);
      for (unsigned part = 0; part < parts; part++) {
        const unsigned char* const a = queries + (size_t{part} * dim + d) * 2;
        if (whole)
          multiply_depth<tiles, 4, 6>(a, stride, at, d);
        else
          multiply_depth<tiles, 5, 7>(a, stride, at, d);
      }
    }
  }

  template <unsigned tiles, int left, int right>
  static void multiply_depth(const unsigned char* a, size_t stride, TilePointers at, uint32_t d) {
    Unit::template load<left>(a, stride);
    Unit::template load<right>(at[0] + size_t{d} * 32, 64);
    Unit::template multiply<0, left, right>();
    if constexpr (tiles == 2) {
      Unit::template load<right>(at[1] + size_t{d} * 32, 64);
      Unit::template multiply<1, left, right>();
    }
  }

  // An infinity has no parts, so a row with a NaN from one is multiplied without the unit.
  [[gnu::noinline]] static void multiply_floats(const unsigned char* query, uint32_t dim,
                                                TilePointers at, TilePointers next,
                                                ScoreRow* scores) {
    FloatKeyTile<Isa, PKV_BF16>::template scores<1, 1>(query + begin_of_floats(dim), dim, at, next,
                                                       scores);
  }
};

template <class Base, class Unit>
struct ValueTile<WithUnit<Base, Unit>, PKV_BF16> : FloatValueTile<WithUnit<Base, Unit>, PKV_BF16> {
  using Isa = WithUnit<Base, Unit>;
  static constexpr unsigned max_tiles = 2;

  template <unsigned rows, unsigned tiles>
  static void accumulate(TilePointers at, TilePointers next, const ScoreRow* weights, uint32_t dim,
                         float* out) {
    alignas(64) unsigned char rounded[tiles][Isa::rows_at_once][tile_tokens * 2] = {};
    for (unsigned i = 0; i < tiles; i++)
      for (unsigned r = 0; r < rows; r++)
        _mm256_store_si256(reinterpret_cast<__m256i*>(rounded[i][r]),
                           Unit::round(_mm512_load_ps(weights[i * rows + r])));
    uint32_t d = 0;
    for (; d + 4 * tile_tokens <= dim; d += 4 * tile_tokens)
      add_dims<rows, tiles, 4>(at, next, rounded, dim, d, out + d);
    for (; d < dim; d += tile_tokens) add_dims<rows, tiles, 1>(at, next, rounded, dim, d, out + d);
  }

 private:
  using Weights = const unsigned char (*)[8][tile_tokens * 2];

  // Adds up 16 * `vectors` dims from d on: the first 16 dims in register 0, the next in register 1.
  template <unsigned rows, unsigned tiles, unsigned vectors>
  static void add_dims(TilePointers at, TilePointers next, Weights weights, uint32_t dim,
                       uint32_t d, float* out) {
    constexpr bool in_place = rows == Isa::rows_at_once;
    alignas(64) float copy[in_place ? 1 : Isa::rows_at_once][vectors * tile_tokens];
    constexpr size_t row_bytes = vectors * tile_tokens * sizeof(float);
    for (unsigned r = 0; r < rows && !in_place; r++)
      __builtin_memcpy(copy[r], out + size_t{r} * dim, row_bytes);
    float* const sums = in_place ? out : copy[0];
    const size_t stride = in_place ? size_t{dim} * sizeof(float) : row_bytes;

    for_each_vector<vectors>(
        [&](auto n) { Unit::template load<n()>(sums + n() * tile_tokens, stride); });
    for (unsigned i = 0; i < tiles; i++) {
      prefetch_lines<Isa>(next[i] + size_t{d} * 32, vectors * 512);
      Unit::template load<5>(weights[i], tile_tokens * 2);
      for_each_vector<vectors>([&](auto n) {
        Unit::template load<7>(at[i] + (size_t{d} + n() * tile_tokens) * 4, size_t{dim} * 4);
        Unit::template multiply<n(), 5, 7>();
      });
    }
    for_each_vector<vectors>(
        [&](auto n) { Unit::template store<n()>(sums + n() * tile_tokens, stride); });
    for (unsigned r = 0; r < rows && !in_place; r++)
      __builtin_memcpy(out + size_t{r} * dim, copy[r], row_bytes);
  }

  // A number that is a constant for the compiler.
  template <int n>
  struct Number {
    constexpr int operator()() const { return n; }
  };
  template <unsigned vectors, class Do>
  static void for_each_vector(const Do& each) {
    each(Number<0>());
    if constexpr (vectors == 4) each(Number<1>()), each(Number<2>()), each(Number<3>());
  }
};

// Returns whether the unit multiplies the few rows of a task. With fewer heads per KV head its
// configuration costs more than it saves. The number of queries does not matter, so that a row's
// bits do not depend on it.
static inline bool multiplies_few_rows(const AttendTask& task) {
  constexpr uint32_t min_heads_per_kv_head = 8;
  const SideView &k = task.kv.k, &v = task.kv.v;
  return k.dtype == PKV_BF16 && v.dtype == PKV_BF16 && v.data != nullptr &&
         task.results == PKV_BF16 && task.heads_per_kv_head >= min_heads_per_kv_head;
}

template <class Isa, class Unit>
class AttendFewRows : AttendDirect<WithUnit<Isa, Unit>> {
 public:
  using AttendDirect<WithUnit<Isa, Unit>>::AttendDirect;

  void run() {
    const typename Unit::KeptConfig kept;
    // Registers 0 to 3 have sums, 4 and 6 have factors of depth 32, 5 and 7 have factors of depth
    // 16.
    Unit::configure({{8, 8, 8, 8, 8, 8, 16, 8}, {64, 64, 64, 64, 64, 32, 64, 64}});
    AttendDirect<WithUnit<Isa, Unit>>::run();
  }
};

// K and V of these rows have one dtype.
template <class Isa, class Unit, class Few = WithUnit<Isa, Unit>>
constexpr SetOps few_rows_ops = {
    {nullptr, nullptr, &dtype_ops<Few, PKV_BF16>, nullptr, nullptr, nullptr, nullptr}, nullptr};

}  // namespace pkv::kernels
