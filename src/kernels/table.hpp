// The kernels of one instruction set as a table.
#pragma once

#include "kernels/attend.hpp"
#include "kernels/copy.hpp"
#include "kernels/finish.hpp"
#include "kernels/kernels.h"

namespace pkv {

template <class Isa, pkv_dtype dtype>
constexpr KvKernels packed_kernels() {
  return {attend<Isa, dtype, PackedTiles<Isa, dtype>>, PackedCopy<Isa, dtype>::store, PackedCopy<Isa, dtype>::load};
}

template <class Isa, pkv_dtype dtype>
constexpr KvKernels plain_kernels() {
  return {attend<Isa, dtype, PlainTiles<Isa, dtype>>, PlainCopy<Isa, dtype>::store, PlainCopy<Isa, dtype>::load};
}

template <class Isa>
constexpr Kernels make_table(pkv_isa isa) {
  return {isa,
          {packed_kernels<Isa, PKV_F32>(), packed_kernels<Isa, PKV_F16>(), packed_kernels<Isa, PKV_BF16>()},
          {plain_kernels<Isa, PKV_F32>(), plain_kernels<Isa, PKV_F16>(), plain_kernels<Isa, PKV_BF16>()},
          prepare<Isa>,
          finish<Isa>};
}

}  // namespace pkv
