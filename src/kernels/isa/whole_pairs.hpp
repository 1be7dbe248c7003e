// What the sets with a bf16 dot product share for many rows. Only whole rows of queries are
// multiplied in pairs. Weights for bf16 V are rounded to bf16 if results become bf16, as GPU
// kernels do (Dao et al. 2022); the sums of weights are those of the unrounded weights.
#pragma once

#include "kernels/isa/split_query.hpp"
#include "kernels/pairs.hpp"

namespace pkv::kernels {

template <class Isa>
struct WholeKeyPairs {
  static size_t tile_bytes(uint32_t dim) { return size_t{tile_tokens} * dim * 2; }
  static bool put_query(const float* q, uint32_t dim, float scale, uint32_t* to, float* unit) {
    *unit = scale;
    const bool whole = KeyTile<Isa, PKV_BF16>::is_whole(q, dim, scale);
    if (whole) KeyTile<Isa, PKV_BF16>::put_whole(q, dim, scale, to);
    return whole;
  }
};

template <class Isa>
struct Bf16ValuePairs {
  static constexpr bool skip_not_finite = false;
  static uint32_t scales(uint32_t) { return 0; }
  static uint32_t scale_of(uint32_t) { return 0; }

 protected:
  static constexpr unsigned char no_tile[max_dim * tile_tokens * 2] = {};
};

}  // namespace pkv::kernels
