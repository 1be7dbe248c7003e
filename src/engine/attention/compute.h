// The threads, kernels and working memory of attention without a cache.
#pragma once

#include <pagedkv/compute.h>

#include "base/memory.h"
#include "base/parallel.h"
#include "engine/attention/scratch_pool.h"
#include "kernels/kernels.h"

namespace pkv::attention {

class Compute {
 public:
  // Throws INVALID_ARGUMENT, UNSUPPORTED, bad_alloc.
  explicit Compute(const pkv_compute_config& config);

  const kernels::Table& kernels() const { return kernels_; }
  Workers& workers() { return workers_; }
  ScratchPool& scratch() { return scratch_; }
  pkv_compute_info info() const;

 private:
  HookMemory memory_;
  const kernels::Table& kernels_;
  Workers workers_;
  ScratchPool scratch_;
};

// The compute context of calls that name none. It is made at the first use and never destroyed.
Compute& default_compute();

}  // namespace pkv::attention
