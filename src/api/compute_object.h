// A lease of a compute context, for all functions that run on one.
#pragma once

#include <optional>

#include "api/boundary.h"
#include "engine/attention/compute.h"

namespace pkv::api {

using LeaseOfCompute = LeaseOf<pkv_compute, Kind::compute, attention::Compute>;

// Leases a compute context for reading, which any number of calls may do at once. A NULL handle
// stands for the default context.
class ComputeLease {
 public:
  explicit ComputeLease(pkv_compute handle) {
    if (handle != nullptr) lease_.emplace(handle);
  }
  attention::Compute& operator*() const { return lease_ ? **lease_ : attention::default_compute(); }
  attention::Compute* operator->() const { return &**this; }

 private:
  std::optional<LeaseOfCompute> lease_;
};

}  // namespace pkv::api
