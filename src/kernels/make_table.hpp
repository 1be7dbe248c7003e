// Makes the table of an instruction set from the templates. Only the files of isa/ include this.
#pragma once

#include "kernels/attend.hpp"
#include "kernels/copy.hpp"
#include "kernels/drivers.hpp"
#include "kernels/finish.hpp"
#include "kernels/kernels.h"
#include "kernels/score_blocks.hpp"
#include "kernels/weigh_blocks.hpp"

namespace pkv::kernels {

template <class Isa>
constexpr Drivers make_drivers() {
  return {prepare<Isa>,      attend_scratch_bytes<Isa>,
          attend<Isa>,       finish<Isa>,
          score_blocks<Isa>, weigh_scratch_bytes<Isa>,
          weigh_blocks<Isa>, merge<Isa>,
          store<Isa>,        load<Isa>,
          transfer<Isa>};
}

template <class Isa>
constexpr Drivers drivers_of = make_drivers<Isa>();

// The table of a set that takes nothing from another one.
template <class Isa>
constexpr Table make_table(pkv_isa isa) {
  return make_table<Isa, drivers_of<Isa>, set_ops<Isa>>(isa);
}

}  // namespace pkv::kernels
