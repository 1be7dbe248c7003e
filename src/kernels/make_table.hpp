// Makes the table of an instruction set from the templates. Only the files of isa/ include this.
#pragma once

#include "kernels/attend.hpp"
#include "kernels/copy.hpp"
#include "kernels/finish.hpp"
#include "kernels/kernels.h"
#include "kernels/score_blocks.hpp"
#include "kernels/weigh_blocks.hpp"

namespace pkv::kernels {

template <class Isa, class Direct = Isa>
constexpr Table make_table(pkv_isa isa) {
  return {isa,
          prepare<Isa>,
          attend_scratch_bytes<Isa, Direct>,
          attend<Isa, Direct>,
          finish<Isa>,
          score_blocks<Isa>,
          weigh_scratch_bytes<Isa>,
          weigh_blocks<Isa>,
          merge<Isa>,
          store<Isa>,
          load<Isa>,
          transfer<Isa>};
}

}  // namespace pkv::kernels
