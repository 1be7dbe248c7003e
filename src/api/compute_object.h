// A lease of a compute context, for all functions that run on one.
#pragma once

#include <optional>

#include "api/boundary.h"
#include "engine/attention/compute.h"

namespace pkv::api {

// Leases a compute context for reading: any number of calls use it at once. The handle may be NULL,
// which stands for the default one.
class ComputeLease {
 public:
  explicit ComputeLease(pkv_compute handle) {
    if (handle != nullptr) lease_.emplace(bits(handle), Kind::compute, Access::read);
  }
  attention::Compute& operator*() const {
    return lease_ ? lease_->object<attention::Compute>() : attention::default_compute();
  }

 private:
  std::optional<Lease> lease_;
};

}  // namespace pkv::api
