// K and V of 16 tokens in the plain layout, multiplied where their rows are. A tile is then a list
// of row addresses; rows can be anywhere in memory.
//
// K: each lane of a sum accumulates some of the dims, and the lanes are added up at the end. So
// scores differ from those of packed tiles by rounding, but the bits of a row do not depend on the
// rows beside it. V is added up in the order of packed tiles.
#pragma once

#include "kernels/integer_keys.hpp"
#include "kernels/values.hpp"

namespace pkv::kernels {

// What TilePointers of plain tiles point to.
struct PlainTile {
  const unsigned char* const* rows;  // [16 tokens]: addresses of the rows of KV head 0
  int64_t offset;                    // from there to the rows of this head
  uint32_t scale_offset;             // int8: from the row of a head to its scale

  const unsigned char* row(uint32_t t) const { return rows[t] + offset; }
  static const PlainTile& of(const unsigned char* tile) {
    return *reinterpret_cast<const PlainTile*>(tile);
  }
};

// Rows of int8, q8_0 and q4_0 need these instructions, which widen signed bytes to 16- or 32-bit
// lanes, and split_nibbles(), which widens the nibbles of 16 bytes to 32 lanes of 16 bits: the
// lower ones, then the upper ones. Sets without them first convert rows of q8_0 and q4_0. Rows of
// int4 and fp8 are packed first.
template <class Isa>
concept widens_signed_bytes = requires(const void* from) {
  Isa::signed_halves(from);
  Isa::signed_lanes(from);
};

// Prefetches `bytes` bytes of a row.
template <class Isa>
void prefetch_row(const unsigned char* row, size_t bytes) {
  __builtin_prefetch(row, 0, 2);
  for (size_t line = 64; line + 64 < bytes; line += 64) __builtin_prefetch(row + line, 0, 2);
  __builtin_prefetch(row + bytes - 1, 0, 2);
}

// The tokens of K that are multiplied with some rows at once: they have as many independent sums as
// hide the latency of a multiply-add.
template <class Isa, unsigned rows>
inline constexpr unsigned plain_tokens = rows == 3 ? Isa::direct_rows : 2 * Isa::direct_rows / rows;

// The vectors of dims of V that are added at once.
template <class Isa, unsigned rows>
inline constexpr unsigned plain_vectors = rows == 1   ? 8
                                          : rows == 3 ? Isa::direct_rows / 2
                                                      : 2 * Isa::direct_rows / rows;

// Adds up the lanes of each of the sums [row][token] of some tokens of a tile after others, and
// writes the totals as scores. Totals are made as many at a time as a vector has lanes.
template <class Isa, unsigned rows, unsigned tokens>
class TotalScores {
 public:
  // Takes the sums of the tokens from t on.
  void put(const Floats<Isa> (&sum)[rows * tokens], uint32_t t, ScoreRow* scores) {
    if constexpr (rows * tokens % lanes == 0 && rows != 3) {
      alignas(64) float totals[rows * tokens];
      PKV_UNROLL
      for (unsigned i = 0; i < rows * tokens; i += lanes)
        Isa::sums_of(sum + i).store_aligned(totals + i);
      PKV_UNROLL
      for (unsigned r = 0; r < rows; r++)
        __builtin_memcpy(scores[r] + t, totals + r * tokens, tokens * sizeof(float));
    } else if constexpr (sums_quads) {
      PKV_UNROLL
      for (unsigned r = 0; r < rows; r++) {
        PKV_UNROLL
        for (unsigned i = 0; i < tokens; i += 4)
          Isa::quad_sums(sum + r * tokens + i).store_aligned(kept_[r][(t + i) / 4]);
      }
      if (t + tokens == tile_tokens)
        finish([](const Floats<Isa>(&quads)[4]) { return Isa::sums_of_quads(quads); }, t, scores);
    } else {
      PKV_UNROLL
      for (unsigned r = 0; r < rows; r++) {
        PKV_UNROLL
        for (unsigned i = 0; i < tokens; i++)
          sum[r * tokens + i].store_aligned(kept_[r][t % lanes + i]);
      }
      if (t % lanes + tokens == lanes)
        finish([](const Floats<Isa>(&x)[lanes]) { return Isa::sums_of(x); }, t, scores);
    }
  }

 private:
  static constexpr unsigned lanes = Floats<Isa>::size;
  static constexpr bool sums_quads = requires(const Floats<Isa> (&x)[4]) { Isa::sums_of_quads(x); };
  static constexpr unsigned kept_vectors = sums_quads ? 4 : lanes;

  // Writes the totals of the vector of tokens that ends with those at t.
  template <class Sums>
  void finish(const Sums& sums_of, uint32_t t, ScoreRow* scores) const {
    PKV_UNROLL
    for (unsigned r = 0; r < rows; r++) {
      Floats<Isa> kept[kept_vectors];
      PKV_UNROLL
      for (unsigned i = 0; i < kept_vectors; i++) kept[i] = Floats<Isa>::load_aligned(kept_[r][i]);
      sums_of(kept).store_aligned(scores[r] + t / lanes * lanes);
    }
  }

  alignas(64) float kept_[rows][kept_vectors][lanes];
};

// A vector of dims of a row of K, and its product with a row of queries.
template <class Isa, pkv_dtype dtype>
struct PlainVector {
  using Sum = Floats<Isa>;
  static constexpr unsigned dims = Floats<Isa>::size;
  static constexpr unsigned dim_bytes = Elements<Isa, dtype>::bytes;
  static size_t query_bytes(uint32_t) { return 0; }
  static size_t query_stride(uint32_t dim) { return size_t{dim} * 4; }
  static void prepare(const float*, uint32_t, float, void*) {}

  Floats<Isa> k;
  PlainVector() = default;
  explicit PlainVector(const unsigned char* from) : k(Elements<Isa, dtype>::load(from)) {}
  static Floats<Isa> query(const unsigned char* q, size_t d) {
    return as_floats<Isa>(load_words<Isa>(q + d * 4));
  }
  Sum add(Floats<Isa> q, Sum sum) const { return Isa::fma(q, k, sum); }
};

// int8: the query is rounded to 16-bit integers, whose order is that of the dims.
template <class Isa>
struct PlainVector<Isa, PKV_INT8> {
  using Sum = Ints<Isa>;
  static constexpr unsigned dims = 2 * Floats<Isa>::size, dim_bytes = 1;
  static size_t query_bytes(uint32_t dim) { return IntegerQuery::bytes(dim); }
  static size_t query_stride(uint32_t dim) { return query_bytes(dim); }
  static void prepare(const float* row, uint32_t dim, float, void* to) {
    IntegerQuery* const query = static_cast<IntegerQuery*>(to);
    query->scale = query_pairs<Isa, 2>(row, dim, query->pairs());
  }

  Words<Isa> k;
  PlainVector() = default;
  explicit PlainVector(const unsigned char* from) : k(Isa::signed_halves(from)) {}
  static Words<Isa> query(const unsigned char* q, size_t d) {
    return load_words<Isa>(q + sizeof(IntegerQuery) + d * 2);
  }
  Sum add(Words<Isa> q, Sum sum) const { return Isa::dot_pairs(sum, k, q); }
};

template <class Isa, pkv_dtype dtype>
struct PlainKeys {
  using Vector = PlainVector<Isa, dtype>;
  static constexpr unsigned max_tiles = 1;
  static size_t query_bytes(uint32_t dim) { return Vector::query_bytes(dim); }
  static void prepare(const float* row, uint32_t dim, float scale, void* to) {
    Vector::prepare(row, dim, scale, to);
  }

  template <unsigned rows, unsigned tiles>
  static void scores(const void* q, uint32_t dim, TilePointers at, TilePointers next,
                     ScoreRow* scores) {
    constexpr unsigned tokens = plain_tokens<Isa, rows>;
    const PlainTile &tile = PlainTile::of(*at), &ahead = PlainTile::of(*next);
    const size_t stride = Vector::query_stride(dim), dims = dim;
    const unsigned char* query[rows];
    PKV_UNROLL
    for (unsigned r = 0; r < rows; r++)
      query[r] = static_cast<const unsigned char*>(q) + r * stride;
    TotalScores<Isa, rows, tokens> totals;
    for (uint32_t t = 0; t < tile_tokens; t += tokens) {
      typename Vector::Sum sum[rows * tokens];
      PKV_UNROLL
      for (auto& each : sum) each = typename Vector::Sum(0);
      const unsigned char* k[tokens];
      PKV_UNROLL
      for (unsigned i = 0; i < tokens; i++) {
        k[i] = tile.row(t + i);
        prefetch_row<Isa>(ahead.row(t + i), dims * Vector::dim_bytes);
      }
      for (size_t d = 0; d < dims; d += Vector::dims) {
        if constexpr (rows <= tokens) {
          decltype(Vector::query(query[0], 0)) q_of[rows];
          PKV_UNROLL
          for (unsigned r = 0; r < rows; r++) q_of[r] = Vector::query(query[r], d);
          PKV_UNROLL
          for (unsigned i = 0; i < tokens; i++) {
            const Vector vector(k[i] + d * Vector::dim_bytes);
            PKV_UNROLL
            for (unsigned r = 0; r < rows; r++)
              sum[r * tokens + i] = vector.add(q_of[r], sum[r * tokens + i]);
          }
        } else {
          Vector vector[tokens];
          PKV_UNROLL
          for (unsigned i = 0; i < tokens; i++) vector[i] = Vector(k[i] + d * Vector::dim_bytes);
          PKV_UNROLL
          for (unsigned r = 0; r < rows; r++) {
            const auto q_of = Vector::query(query[r], d);
            PKV_UNROLL
            for (unsigned i = 0; i < tokens; i++)
              sum[r * tokens + i] = vector[i].add(q_of, sum[r * tokens + i]);
          }
        }
      }
      put_totals(sum, t, totals, scores);
    }
    if constexpr (dtype == PKV_INT8) apply_scales<rows>(tile, query, scores);
  }

 private:
  template <unsigned n, class Totals>
  static void put_totals(const Floats<Isa> (&sum)[n], uint32_t t, Totals& totals,
                         ScoreRow* scores) {
    totals.put(sum, t, scores);
  }
  template <unsigned n, class Totals>
  static void put_totals(const Ints<Isa> (&sum)[n], uint32_t t, Totals& totals, ScoreRow* scores) {
    Floats<Isa> floats[n];
    PKV_UNROLL
    for (unsigned i = 0; i < n; i++) floats[i] = xsimd::to_float(sum[i]);
    totals.put(floats, t, scores);
  }

  template <unsigned rows>
  static void apply_scales(const PlainTile& tile, const unsigned char* const* query,
                           ScoreRow* scores) {
    alignas(64) float scales[tile_tokens];
    for (uint32_t t = 0; t < tile_tokens; t++)
      __builtin_memcpy(scales + t, tile.row(t) + tile.scale_offset, sizeof(float));
    for (unsigned r = 0; r < rows; r++) {
      const Floats<Isa> scale(reinterpret_cast<const IntegerQuery*>(query[r])->scale);
      for (unsigned t = 0; t < tile_tokens; t += Floats<Isa>::size)
        (Floats<Isa>::load_aligned(scores[r] + t) * Floats<Isa>::load_aligned(scales + t) * scale)
            .store_aligned(scores[r] + t);
    }
  }
};

// Some vectors of dims of two rows of V. int8 is without its scales.
template <class Isa, pkv_dtype dtype, unsigned vectors>
struct PlainPair : FloatPair<Isa, vectors> {
  PlainPair(const unsigned char* row, const unsigned char* next_row, uint32_t d) {
    constexpr unsigned lanes = Floats<Isa>::size;
    PKV_UNROLL
    for (unsigned n = 0; n < vectors; n++) {
      this->first[n] = load(row, d + n * lanes);
      this->second[n] = load(next_row, d + n * lanes);
    }
  }

 private:
  static Floats<Isa> load(const unsigned char* row, uint32_t d) {
    if constexpr (dtype == PKV_INT8)
      return xsimd::to_float(Isa::signed_lanes(row + d));
    else
      return Elements<Isa, dtype>::load(row + size_t{d} * Elements<Isa, dtype>::bytes);
  }
};

template <class Isa, pkv_dtype dtype>
struct PlainValues {
  static constexpr unsigned max_tiles = 1;

  template <unsigned rows, unsigned tiles>
  static void accumulate(TilePointers at, TilePointers next, const ScoreRow* weights, uint32_t dim,
                         float* out) {
    const PlainTile &tile = PlainTile::of(*at), &ahead = PlainTile::of(*next);
    alignas(64) float scaled[rows][tile_tokens];
    if constexpr (dtype == PKV_INT8) {
      const auto scales = scales_of(tile);
      for (unsigned r = 0; r < rows; r++)
        for (uint32_t t = 0; t < tile_tokens; t++) scaled[r][t] = weights[r][t] * scales.of[t];
      weights = scaled;
    }
    const unsigned char* at_row[tile_tokens];
    for (uint32_t t = 0; t < tile_tokens; t++) at_row[t] = tile.row(t);
    constexpr unsigned vectors = plain_vectors<Isa, rows>;
    const uint32_t parts = dim / (vectors * Floats<Isa>::size);
    Ahead next_rows{ahead, dim * element_bits(dtype) / 8,
                    parts == 0 ? tile_tokens : (tile_tokens + parts - 1) / parts};
    add<rows, vectors>(at_row, next_rows, weights, dim, 0, out);
  }

  // As FloatValueTile::unpack.
  static void unpack(const unsigned char* at, uint32_t dim, float* to, size_t token_stride,
                     size_t panel_stride) {
    const PlainTile& tile = PlainTile::of(at);
    constexpr unsigned lanes = Floats<Isa>::size, vectors = vectors_per_tile<Isa>;
    Scales scales;
    if constexpr (dtype == PKV_INT8) scales = scales_of(tile);
    for (uint32_t d = 0; d < dim; d += tile_tokens, to += panel_stride)
      for (uint32_t t = 0; t < tile_tokens; t += 2) {
        PlainPair<Isa, dtype, vectors> v(tile.row(t), tile.row(t + 1), d);
        for (unsigned n = 0; n < vectors; n++) {
          if constexpr (dtype == PKV_INT8) {
            v.first[n] *= Floats<Isa>(scales.of[t]);
            v.second[n] *= Floats<Isa>(scales.of[t + 1]);
          }
          v.first[n].store_unaligned(to + t * token_stride + n * lanes);
          v.second[n].store_unaligned(to + (t + 1) * token_stride + n * lanes);
        }
      }
  }

 private:
  struct Scales {
    float of[tile_tokens];
  };
  static Scales scales_of(const PlainTile& tile) {
    Scales scales;
    for (uint32_t t = 0; t < tile_tokens; t++)
      __builtin_memcpy(scales.of + t, tile.row(t) + tile.scale_offset, sizeof(float));
    return scales;
  }

  // Prefetches some rows at a time.
  struct Ahead {
    const PlainTile& tile;
    const unsigned bytes, rows_at_a_time;
    uint32_t next = 0;

    void prefetch() {
      for (unsigned i = 0; i < rows_at_a_time && next < tile_tokens; i++, next++)
        prefetch_row<Isa>(tile.row(next), bytes);
    }
  };

  // Adds the dims from d on, `vectors` vectors at a time as long as there are as many.
  template <unsigned rows, unsigned vectors>
  static void add(const unsigned char* const* at_row, Ahead& ahead, const ScoreRow* weights,
                  uint32_t dim, uint32_t d, float* out) {
    constexpr unsigned lanes = Floats<Isa>::size, dims = vectors * lanes;
    for (; d + dims <= dim; d += dims) {
      Floats<Isa> sum[rows][vectors];
      PKV_UNROLL
      for (unsigned r = 0; r < rows; r++) {
        PKV_UNROLL
        for (unsigned n = 0; n < vectors; n++)
          sum[r][n] = Floats<Isa>::load_unaligned(out + size_t{r} * dim + d + n * lanes);
      }
      ahead.prefetch();
      for (uint32_t t = 0; t < tile_tokens; t += 2) {
        const PlainPair<Isa, dtype, vectors> v(at_row[t], at_row[t + 1], d);
        PKV_UNROLL
        for (unsigned r = 0; r < rows; r++) v.add(weights[r], t, sum[r]);
      }
      PKV_UNROLL
      for (unsigned r = 0; r < rows; r++) {
        PKV_UNROLL
        for (unsigned n = 0; n < vectors; n++)
          sum[r][n].store_unaligned(out + size_t{r} * dim + d + n * lanes);
      }
    }
    if constexpr (dims > tile_tokens)
      if (d < dim) add<rows, vectors / 2>(at_row, ahead, weights, dim, d, out);
  }
};

}  // namespace pkv::kernels
