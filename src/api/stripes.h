// Counts of the calls that use a pool, a cache or a compute; they keep it from being closed. Many
// threads use such an object at once, so the count is split into stripes.
//
// Each of up to own_stripes threads has a stripe of its own, to which no other thread writes: it
// enters and leaves by plain stores, where an atomic addition would take several times as long. All
// other threads share stripes and change them by atomic additions.
//
// A call enters and then reads the mark that a closing call sets. The closing call sets the mark
// and then reads the counts. At least one of the two must see the other, so neither may read before
// its own store is visible. Atomic additions are seq_cst and ensure that themselves. For plain
// stores the closing call ensures it: between its store and its loads, it makes all threads of the
// process execute a barrier. If a thread's store comes before its barrier, the closing call sees
// the count; if it comes after, the thread sees the mark.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>

#include "base/os.h"

namespace pkv::api {

class Stripes {
 public:
  static constexpr uint32_t own_stripes = 48, shared_stripes = 16;

  // The count that a call is in.
  struct Ticket {
    std::atomic<uint64_t>* calls = nullptr;
    bool own = false;  // no other thread writes to it
  };

  // Decides, once per process, how stripes are used. Call it before the first object with stripes
  // can be used.
  static void prepare() noexcept;

  // Counts a call until leave(), which the same thread must call.
  Ticket enter() noexcept {
    const uint32_t stripe = thread_stripe();
    std::atomic<uint64_t>& calls = stripes_[stripe].calls;
    if (stripe < own_stripes) {
      calls.store(calls.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
      std::atomic_signal_fence(std::memory_order_seq_cst);  // the compiler keeps the order, too
      return {&calls, true};
    }
    calls.fetch_add(1, std::memory_order_seq_cst);
    return {&calls, false};
  }
  // Release: makes what the call did to the object visible to the call that closes it.
  static void leave(Ticket ticket) noexcept {
    if (ticket.own)
      ticket.calls->store(ticket.calls->load(std::memory_order_relaxed) - 1,
                          std::memory_order_release);
    else
      ticket.calls->fetch_sub(1, std::memory_order_release);
  }

  // Makes visible to this thread the counts of all threads that entered before they could see a
  // mark of this thread.
  static void make_visible() noexcept;
  // Whether any call is counted. If not, this thread also sees what the earlier calls did.
  bool any() const noexcept {
    return std::any_of(stripes_.begin(), stripes_.end(), [](const Stripe& stripe) {
      return stripe.calls.load(std::memory_order_seq_cst) != 0;
    });
  }
  // Forgets all calls: their threads do not exist in this process.
  void clear() noexcept {
    for (Stripe& stripe : stripes_) stripe.calls.store(0, std::memory_order_relaxed);
  }

 private:
  struct alignas(64) Stripe {
    std::atomic<uint64_t> calls{0};
  };
  static constexpr uint32_t no_stripe = UINT32_MAX;

  static uint32_t thread_stripe() noexcept {
    return stripe_ != no_stripe ? stripe_ : choose_stripe();
  }
  static uint32_t choose_stripe() noexcept;

  inline static constinit thread_local uint32_t stripe_ = no_stripe;
  std::array<Stripe, own_stripes + shared_stripes> stripes_;

  friend class StripeOwners;
};

}  // namespace pkv::api
