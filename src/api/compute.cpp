// The C functions of compute contexts (pkv_compute_).
#include <pagedkv/compute.h>

#include "api/boundary.h"
#include "api/compute_object.h"
#include "base/openmp_runner.h"

using namespace pkv;
using namespace pkv::api;

pkv_status pkv_compute_config_init(pkv_compute_config* config, size_t struct_size) {
  return init_struct(config, struct_size, attention::default_compute_config(), "config");
}

pkv_status pkv_compute_create(const pkv_compute_config* config, pkv_compute* out) {
  return guarded([&] {
    check_pointer(out, "out");
    const pkv_compute_config defaults = attention::default_compute_config();
    auto compute = std::make_unique<attention::Compute>(
        config == nullptr ? defaults : read_struct(config, defaults, "config"));
    *out = handle_from<pkv_compute>(make_handle(Kind::compute, std::move(compute), 0));
  });
}

pkv_status pkv_compute_destroy(pkv_compute handle) {
  return guarded([&] {
    if (handle == nullptr) return;
    Lease lease(bits(handle), Kind::compute, Access::close);
    if (!lease.inherited()) delete &lease.object<attention::Compute>();
    lease.retire();
  });
}

pkv_status pkv_compute_get_info(pkv_compute compute, pkv_compute_info* out) {
  return guarded([&] { fill_struct(out, (*ComputeLease(compute)).info(), "out"); });
}

pkv_status pkv_openmp_runner(pkv_runner* out) {
  return guarded([&] {
    check_pointer(out, "out");
    *out = openmp_runner();
  });
}
