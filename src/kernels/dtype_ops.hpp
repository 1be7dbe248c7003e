// The functions that depend on the dtype of K or V, as tables. K and V of a sequence may have
// different dtypes, so code that handles both calls them through such tables. Instruction sets that
// extend another one take those of its functions that would be the same.
#pragma once

#include "kernels/integer_values.hpp"
#include "kernels/kernels.h"
#include "kernels/pack.hpp"
#include "kernels/pairs.hpp"
#include "kernels/plain_blocks.hpp"

namespace pkv::kernels {

// Functions that prefetch nothing.
struct StoredOps {
  void (*unpack_k)(const unsigned char* tile, uint32_t dim, float* to);
  void (*unpack_v)(const unsigned char* tile, uint32_t dim, float* to, size_t token_stride,
                   size_t panel_stride);

  // Stored rows to packed tiles and back; a caller's rows to stored rows and back.
  void (*pack_k)(const unsigned char* const* rows, TokenRange range, uint32_t dim,
                 unsigned char* tile);
  void (*pack_v)(const unsigned char* const* rows, TokenRange range, uint32_t dim,
                 unsigned char* tile);
  void (*row_of_k)(const unsigned char* tile, uint32_t token, uint32_t dim, unsigned char* row);
  void (*row_of_v)(const unsigned char* tile, uint32_t token, uint32_t dim, unsigned char* row);
  void (*encode)(pkv_dtype from_dtype, const unsigned char* from, uint32_t dim, unsigned char* to);
  void (*decode)(const unsigned char* from, uint32_t dim, pkv_dtype to_dtype, unsigned char* to);

  // For many rows. NULL if K or V of the dtype is multiplied in fp32.
  const KeyPairOps* key_pairs;
  const ValuePairOps* value_pairs;
};

struct DtypeOps {
  static constexpr unsigned row_counts = 5;
  // KeyTile::scores and ValueTile::accumulate.
  using Scores = void (*)(const void* q, uint32_t dim, TilePointers at, TilePointers next,
                          ScoreRow* scores);
  using Accumulate = void (*)(TilePointers at, TilePointers next, const ScoreRow* weights,
                              uint32_t dim, float* out);

  unsigned max_rows;                  // of a register tile in scores and accumulate
  unsigned max_k_tiles, max_v_tiles;  // KeyTile::max_tiles, ValueTile::max_tiles
  size_t (*query_bytes)(uint32_t dim);
  void (*prepare_query)(const float* row, uint32_t dim, float scale, void* to);
  // [0] takes one tile, [1] max_k_tiles or max_v_tiles; the second index is for 1, 2, 4, max_rows
  // and 3 rows. Those for 3 rows may be NULL.
  Scores scores[tiles_per_strip][row_counts];
  Accumulate accumulate[tiles_per_strip][row_counts];
  // The same for results that become bf16. Weights may then be rounded to bf16.
  Accumulate accumulate_rounded[tiles_per_strip][row_counts];
  const StoredOps* stored;
};

// The dtypes whose plain rows can be multiplied where they are.
static constexpr pkv_dtype plain_dtypes[] = {PKV_F32,  PKV_F16,  PKV_BF16,
                                             PKV_INT8, PKV_Q8_0, PKV_Q4_0};
inline constexpr unsigned plain_dtype_count = sizeof plain_dtypes / sizeof *plain_dtypes;

// The dtypes of an instruction set.
struct SetOps {
  const DtypeOps* dtypes[last_dtype - PKV_F32 + 1];
  // ReadsInOrder (keys.hpp), or NULL.
  int (*lead_in_order)(pkv_dtype dtype, uint32_t rows, uint32_t dim);
  // By plain_dtypes: for plain tiles (plain_tiles.hpp); `stored` has only unpack_v. Tiles of other
  // dtypes, and all if this is NULL, are packed first.
  const DtypeOps* plain = nullptr;
};

static inline const DtypeOps& ops_of(const SetOps& set, pkv_dtype dtype) {
  return *set.dtypes[dtype - PKV_F32];
}

static inline const DtypeOps* plain_ops_of(const SetOps& set, RowFormat row) {
  // The widest vectors have 32 elements of int8.
  if (set.plain == nullptr || row.dim % (row.dtype == PKV_INT8 ? 32 : tile_tokens) != 0)
    return nullptr;
  for (unsigned i = 0; i < plain_dtype_count; i++)
    if (plain_dtypes[i] == row.dtype)
      return set.plain[i].query_bytes != nullptr ? set.plain + i : nullptr;
  return nullptr;
}

// The functions for plain rows of K or V, or NULL if they are packed into tiles first.
struct PlainOps {
  const DtypeOps* ops;
  bool converted;  // rows are converted first
};

static inline PlainOps plain_ops_of(const SetOps& set, pkv_layout layout, const SideView& side) {
  if (layout != PKV_LAYOUT_PLAIN) return {nullptr, false};
  const DtypeOps* const as_they_are = plain_ops_of(set, format_of(side));
  if (as_they_are != nullptr || !is_converted(side)) return {as_they_are, false};
  return {plain_ops_of(set, {side.dtype, side.dim}), true};
}

// The rows of the largest register tile. int4 has separate sums for each of the two tiles of a
// strip, so there are not enough registers for 8 rows.
template <class Isa>
constexpr unsigned direct_rows(pkv_dtype dtype) {
  return dtype == PKV_INT4 ? 4 : Isa::direct_rows;
}

// ValueTile::accumulate_rounded() if there is one.
template <class V, unsigned rows, unsigned tiles>
constexpr auto rounded() {
  if constexpr (requires { &V::template accumulate_rounded<rows, tiles>; })
    return &V::template accumulate_rounded<rows, tiles>;
  else
    return &V::template accumulate<rows, tiles>;
}

template <class Isa, pkv_dtype dtype, class K = KeyTile<Isa, dtype>,
          class V = ValueTile<Isa, dtype>, class P = Pack<Isa, dtype>>
constexpr StoredOps stored_ops = {K::unpack,
                                  V::unpack,
                                  P::pack_k,
                                  P::pack_v,
                                  P::row_of_k,
                                  P::row_of_v,
                                  encode_row<Isa, dtype>,
                                  decode_row<Isa, dtype>,
                                  key_pairs_of<Isa, dtype>(),
                                  value_pairs_of<Isa, dtype>()};

template <class Isa, pkv_dtype dtype>
constexpr DtypeOps make_ops(const StoredOps* stored) {
  using K = KeyTile<Isa, dtype>;
  using V = ValueTile<Isa, dtype>;
  constexpr unsigned max_rows = direct_rows<Isa>(dtype);
  return {
      direct_rows<Isa>(dtype),
      K::max_tiles,
      V::max_tiles,
      K::query_bytes,
      K::prepare,
      {{K::template scores<1, 1>, K::template scores<2, 1>, K::template scores<4, 1>,
        K::template scores<max_rows, 1>},
       {K::template scores<1, K::max_tiles>, K::template scores<2, K::max_tiles>,
        K::template scores<4, K::max_tiles>, K::template scores<max_rows, K::max_tiles>}},
      {{V::template accumulate<1, 1>, V::template accumulate<2, 1>, V::template accumulate<4, 1>,
        V::template accumulate<max_rows, 1>},
       {V::template accumulate<1, V::max_tiles>, V::template accumulate<2, V::max_tiles>,
        V::template accumulate<4, V::max_tiles>, V::template accumulate<max_rows, V::max_tiles>}},
      {{rounded<V, 1, 1>(), rounded<V, 2, 1>(), rounded<V, 4, 1>(), rounded<V, max_rows, 1>()},
       {rounded<V, 1, V::max_tiles>(), rounded<V, 2, V::max_tiles>(), rounded<V, 4, V::max_tiles>(),
        rounded<V, max_rows, V::max_tiles>()}},
      stored};
}

template <class Isa, pkv_dtype dtype>
constexpr DtypeOps dtype_ops = make_ops<Isa, dtype>(&stored_ops<Isa, dtype>);

template <class Isa>
constexpr auto lead_in_order_of() -> int (*)(pkv_dtype, uint32_t, uint32_t) {
  if constexpr (ReadsInOrder<Isa>)
    return Isa::lead_in_order;
  else
    return nullptr;
}

template <class Isa, pkv_dtype dtype>
constexpr StoredOps plain_stored = [] {
  StoredOps ops{};
  ops.unpack_v = PlainValues<Isa, dtype>::unpack;
  return ops;
}();

template <class Isa, pkv_dtype dtype>
constexpr DtypeOps make_plain_ops() {
  using K = PlainKeys<Isa, dtype>;
  using V = PlainValues<Isa, dtype>;
  constexpr unsigned max_rows = Isa::direct_rows;
  constexpr DtypeOps::Accumulate accumulate[] = {
      V::template accumulate<1, 1>, V::template accumulate<2, 1>, V::template accumulate<4, 1>,
      V::template accumulate<max_rows, 1>, V::template accumulate<3, 1>};
  return {max_rows,
          1,
          1,
          K::query_bytes,
          K::prepare,
          {{K::template scores<1, 1>, K::template scores<2, 1>, K::template scores<4, 1>,
            K::template scores<max_rows, 1>, K::template scores<3, 1>},
           {}},
          {{accumulate[0], accumulate[1], accumulate[2], accumulate[3], accumulate[4]}, {}},
          {{accumulate[0], accumulate[1], accumulate[2], accumulate[3], accumulate[4]}, {}},
          &plain_stored<Isa, dtype>};
}

// Empty if the set does not multiply rows of the dtype.
template <class Isa, pkv_dtype dtype>
constexpr DtypeOps plain_ops_of_bytes() {
  if constexpr (widens_signed_bytes<Isa>)
    return make_plain_ops<Isa, dtype>();
  else
    return {};
}
template <class Isa>
constexpr DtypeOps plain_ops[plain_dtype_count] = {
    make_plain_ops<Isa, PKV_F32>(),      make_plain_ops<Isa, PKV_F16>(),
    make_plain_ops<Isa, PKV_BF16>(),     plain_ops_of_bytes<Isa, PKV_INT8>(),
    plain_ops_of_bytes<Isa, PKV_Q8_0>(), plain_ops_of_bytes<Isa, PKV_Q4_0>()};

// All dtypes of an instruction set that takes none from another one.
template <class Isa>
constexpr SetOps set_ops = {
    {&dtype_ops<Isa, PKV_F32>, &dtype_ops<Isa, PKV_F16>, &dtype_ops<Isa, PKV_BF16>,
     &dtype_ops<Isa, PKV_INT8>, &dtype_ops<Isa, PKV_INT4>, &dtype_ops<Isa, PKV_FP8_E4M3>,
     &dtype_ops<Isa, PKV_FP8_E5M2>},
    lead_in_order_of<Isa>(),
    plain_ops<Isa>};

}  // namespace pkv::kernels
