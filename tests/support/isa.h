// Asks whether the library and this machine have an instruction set.
#pragma once

#include <pagedkv/compute.h>

#include "made.h"

namespace pkv::test {

inline bool isa_supported(pkv_isa isa) {
  const auto config = made<pkv_compute_config>({.threads = 1, .isa = isa});
  pkv_compute compute;
  if (pkv_compute_create(&config, &compute) != PKV_OK) return false;
  return pkv_compute_destroy(compute) == PKV_OK;
}

}  // namespace pkv::test
