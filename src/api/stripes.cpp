// Which thread has which stripe, and the barrier that makes plain stores to stripes visible.
#include "api/stripes.h"

#include <pthread.h>

#include <bit>

namespace pkv::api {

// The stripes that single threads own, as bits, and how they are returned when a thread ends.
class StripeOwners {
 public:
  // Takes a stripe for this thread. Returns false if none is free.
  static bool take(uint32_t* stripe) noexcept {
    uint64_t free = free_.load(std::memory_order_relaxed);
    do {
      if (free == 0) return false;
      *stripe = static_cast<uint32_t>(std::countr_zero(free));
      // Acquire: what the stripe's last owner stored in it comes before what this thread stores.
    } while (!free_.compare_exchange_weak(free, free & (free - 1), std::memory_order_acquire,
                                          std::memory_order_relaxed));
    // The key's destructor returns the stripe. It is not called for NULL, hence the address.
    if (key_.made.load(std::memory_order_relaxed) && pthread_setspecific(key_.key, &free_) == 0)
      return true;
    give_back(*stripe);
    return false;
  }

 private:
  static void give_back(uint32_t stripe) noexcept {
    free_.fetch_or(uint64_t{1} << stripe, std::memory_order_release);
  }

  // Runs when a thread ends. Other destructors of the thread may still make calls after it.
  static void end_thread(void*) noexcept {
    const uint32_t own = Stripes::stripe_;
    Stripes::stripe_ = Stripes::own_stripes;
    give_back(own);
  }

  // Of the threads that owned stripes at a fork(), only this one exists in the child.
  static void begin_child() noexcept {
    const uint32_t own = Stripes::stripe_;
    free_.store(all & ~(own < Stripes::own_stripes ? uint64_t{1} << own : 0),
                std::memory_order_relaxed);
  }

  // Made when the library is loaded; a thread that makes a call before has no stripe of its own.
  // Deleted when the library is unloaded, because end_thread() is part of its code.
  struct Key {
    Key() noexcept {
      made = pthread_key_create(&key, end_thread) == 0 && os::at_fork_in_child(begin_child);
    }
    ~Key() {
      if (made.exchange(false)) pthread_key_delete(key);
    }
    pthread_key_t key;
    std::atomic<bool> made;
  };

  static constexpr uint64_t all = (uint64_t{1} << Stripes::own_stripes) - 1;
  inline static constinit std::atomic<uint64_t> free_{all};
  static Key key_;
};

StripeOwners::Key StripeOwners::key_;

namespace {

// Whether plain stores can be made visible. The first thread to find out decides for all.
enum class Plain { undecided, possible, impossible };
std::atomic<Plain> plain{Plain::undecided};

}  // namespace

void Stripes::prepare() noexcept {
  if (plain.load(std::memory_order_acquire) != Plain::undecided) return;
  Plain before = Plain::undecided;
  plain.compare_exchange_strong(before,
                                os::prepare_process_barrier() ? Plain::possible : Plain::impossible,
                                std::memory_order_acq_rel);
}

void Stripes::make_visible() noexcept {
  if (plain.load(std::memory_order_relaxed) == Plain::possible) os::process_barrier();
}

uint32_t Stripes::choose_stripe() noexcept {
  const bool possible = plain.load(std::memory_order_relaxed) == Plain::possible;
  if (!possible || !StripeOwners::take(&stripe_))
    stripe_ = own_stripes + os::thread_number() % shared_stripes;
  return stripe_;
}

}  // namespace pkv::api
