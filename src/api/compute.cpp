// The C functions of compute contexts (pkv_compute_).
#include <pagedkv/compute.h>

#include "api/boundary.h"
#include "api/compute_object.h"
#include "base/openmp_runner.h"

using namespace pkv;
using namespace pkv::api;

pkv_status pkv_compute_create(const pkv_compute_config* config, pkv_compute* out) {
  return guarded([&] {
    check_pointer(out, "out");
    *out =
        LeaseOfCompute::make(std::make_unique<attention::Compute>(read_optional(config, "config")));
  });
}

pkv_status pkv_compute_destroy(pkv_compute handle) {
  return guarded([&] { LeaseOfCompute::close(handle); });
}

pkv_status pkv_compute_get_info(pkv_compute compute, pkv_compute_info* out) {
  return guarded([&] { fill_struct(out, ComputeLease(compute)->info(), "out"); });
}

pkv_status pkv_openmp_runner(pkv_runner* out) {
  return guarded([&] {
    check_pointer(out, "out");
    *out = openmp_runner();
  });
}
