// A lease of a compute context, for all functions that run on one.
#pragma once

#include <optional>

#include "api/boundary.h"
#include "engine/attention/compute.h"

namespace pkv::api {

// Leases a compute context for reading, which any number of calls may do at once. A NULL handle
// stands for the default context.
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
