// Checks the config of a compute context, and keeps the default one.
#include "engine/attention/compute.h"

#include <atomic>
#include <memory>

#include "base/enums.h"
#include "base/hooks.h"
#include "base/status.h"

namespace pkv::attention {

namespace {

const pkv_compute_config& checked(const pkv_compute_config& config) {
  check_allocator(config.allocator);
  check_runner(config.runner, config.threads);
  check_threads(config.threads);
  check_enum(config.isa, "isa");
  if (!kernels::isa_supported(config.isa))
    fail(PKV_UNSUPPORTED, "isa %s is not in this build, or this CPU lacks it",
         enum_name(config.isa));
  if (config.reserved != 0)
    fail(PKV_INVALID_ARGUMENT, "config: reserved is %u, not 0", config.reserved);
  return config;
}

}  // namespace

Compute::Compute(const pkv_compute_config& config)
    : memory_(checked(config).allocator),
      kernels_(kernels::select(config.isa)),
      workers_(count_threads(config.runner, config.threads),
               config.runner != nullptr ? *config.runner : pkv_runner{}),
      scratch_(memory_) {}

pkv_compute_info Compute::info() const {
  return {sizeof(pkv_compute_info), workers_.threads(), kernels_.isa, 0};
}

// Made at its first use, and never destroyed, because a call may still use it while the process
// ends. Without a lock, which would stay locked forever in a child that is forked while another
// thread holds it: several threads may make one at once, and the first one to store its own wins.
Compute& default_compute() {
  static constinit std::atomic<Compute*> place{nullptr};
  if (Compute* const existing = place.load(std::memory_order_acquire)) return *existing;
  auto made = std::make_unique<Compute>(pkv_compute_config{});
  Compute* existing = nullptr;
  if (!place.compare_exchange_strong(existing, made.get(), std::memory_order_acq_rel))
    return *existing;
  return *made.release();
}

}  // namespace pkv::attention
