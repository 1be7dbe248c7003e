// How calls on pools and caches are counted (src/api/stripes.h): which threads count without atomic
// additions, and that no closing call misses a count. Each test is a process of its own, because a
// process decides once how it counts.
#include "api/stripes.h"

#include <errno.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <thread>
#include <vector>

#include "storm.h"

namespace hostile::stripes_test {
namespace {

using pkv::api::Stripes;

// Makes membarrier() fail in this process from now on.
void refuse_membarrier() {
  sock_filter code[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 0, 1),
                        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
                        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog program{sizeof code / sizeof code[0], code};
  HOSTILE_CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
                    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0,
                "skip: no filter can be set here");
}

void in_own_process(const std::function<void()>& body) {
  const std::string failed = in_child(body);
  if (failed.find("skip:") != std::string::npos) GTEST_SKIP() << failed;
  EXPECT_EQ("", failed);
}

// Whether a call of this thread is counted in a stripe of the thread's own.
bool has_own_stripe() {
  Stripes stripes;
  const Stripes::Ticket ticket = stripes.enter();
  HOSTILE_CHECK(stripes.any(), "the call is not counted");
  Stripes::leave(ticket);
  HOSTILE_CHECK(!stripes.any(), "the call is still counted");
  return ticket.own;
}

// Returns how many of `threads` threads at once have a stripe of their own.
unsigned own_among(unsigned threads) {
  std::atomic<unsigned> own{0};
  std::barrier<> all(threads);
  const std::string failed = storm::run(threads, [&](unsigned, std::mt19937&) {
    own += has_own_stripe();
    all.arrive_and_wait();
  });
  HOSTILE_CHECK(failed.empty(), "%s", failed.c_str());
  return own;
}

void skip_unless_possible() {
  Stripes::prepare();
  bool own = false;
  std::thread([&] { own = has_own_stripe(); }).join();
  HOSTILE_CHECK(own, "skip: the system has no membarrier() here");
}

// A variable with its own cache line, so that a store to it does not delay loads of others.
template <class Value>
struct alignas(64) Line {
  std::atomic<Value> value{};
};

// Threads stay inside a call for a moment, in which no thread may close, while another thread
// closes and opens.
void fight() {
  constexpr int looks_inside = 4000, looks_closed = 20;
  const unsigned threads = std::clamp(std::thread::hardware_concurrency(), 2u, 3u);
  Stripes stripes;
  Line<bool> mark, closed;
  Line<uint64_t> let_in, times_closed;
  // On busy processors it may take longer until both have happened.
  const storm::Clock clock(2000);
  const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  const auto missing = [&] {
    return (let_in.value == 0 || times_closed.value == 0) && !storm::somebody_failed &&
           std::chrono::steady_clock::now() < patience;
  };
  const auto close_and_open = [&](std::mt19937& random) {
    for (uint64_t wait = random() % 3000; wait > 0; wait--)
      std::atomic_signal_fence(std::memory_order_seq_cst);
    mark.value.exchange(true);
    Stripes::make_visible();
    // A thread inside a call may wait for a CPU.
    for (int look = 0; look < 1000 && stripes.any(); look++)
      if (look > 100) std::this_thread::yield();
    if (!stripes.any()) {
      closed.value.store(true, std::memory_order_relaxed);
      for (int look = 0; look < looks_closed; look++) stripes.any();
      times_closed.value++;
      closed.value.store(false, std::memory_order_relaxed);
    }
    const uint64_t before = let_in.value;
    mark.value.store(false, std::memory_order_release);
    // Where a barrier takes long, the mark is nearly always set.
    for (int look = 0; look < 100'000 && let_in.value == before; look++) {
    }
  };
  const std::string failed = storm::run(threads, [&](unsigned thread, std::mt19937& random) {
    while (thread == 0 && (clock.running() || missing())) close_and_open(random);
    // The store of a call waits for earlier ones to memory that is in no cache, and the load of the
    // mark does not.
    std::vector<std::atomic<uint64_t>> far(thread == 0 ? 0 : 1 << 22);
    while (thread != 0 && (!clock.over() || missing())) {
      for (int i = 0; i < 8; i++) far[random() % far.size()].store(1, std::memory_order_relaxed);
      const Stripes::Ticket ticket = stripes.enter();
      if (!mark.value.load(std::memory_order_acquire)) {
        for (int look = 0; look < looks_inside; look++)
          HOSTILE_CHECK(!closed.value.load(std::memory_order_relaxed), "closed with a call inside");
        let_in.value.fetch_add(1, std::memory_order_relaxed);
      }
      Stripes::leave(ticket);
    }
  });
  HOSTILE_CHECK(failed.empty(), "%s", failed.c_str());
  HOSTILE_CHECK(!stripes.any(), "a call is still counted");
  HOSTILE_CHECK(let_in.value > 0 && times_closed.value > 0, "%llu let in, %llu times closed",
                (unsigned long long)let_in.value, (unsigned long long)times_closed.value);
}

TEST(Stripes, NobodyIsMissed) {
  in_own_process([] {
    Stripes::prepare();
    fight();
  });
}

TEST(Stripes, NobodyIsMissedWhereMembarrierIsRefused) {
  in_own_process([] {
    refuse_membarrier();
    Stripes::prepare();
    HOSTILE_CHECK(own_among(4) == 0, "plain stores, which nobody can make visible");
    fight();
  });
}

TEST(Stripes, NobodyIsMissedWhereMembarrierIsRefusedLater) {
  in_own_process([] {
    skip_unless_possible();
    refuse_membarrier();
    HOSTILE_CHECK(has_own_stripe(), "the process has decided already");
    fight();
  });
}

TEST(Stripes, ThreadsThatEndGiveThemBack) {
  in_own_process([] {
    skip_unless_possible();
    for (int round = 0; round < 3; round++) {
      const unsigned own = own_among(Stripes::own_stripes + 20);
      HOSTILE_CHECK(own == Stripes::own_stripes, "%u own stripes in round %d", own, round);
    }
  });
}

// Destructors of a thread's data may make calls after the stripe was given back.
TEST(Stripes, CallsAtTheEndOfAThread) {
  in_own_process([] {
    skip_unless_possible();
    static std::atomic<unsigned> calls{0}, own{0};
    static pthread_key_t key;
    const auto call = [](void* rounds) {
      calls++;
      own += has_own_stripe();
      const auto left = reinterpret_cast<uintptr_t>(rounds) - 1;
      if (left > 0) pthread_setspecific(key, reinterpret_cast<void*>(left));
    };
    HOSTILE_CHECK(pthread_key_create(&key, call) == 0, "no key");
    for (unsigned thread = 0; thread < 2 * Stripes::own_stripes; thread++)
      std::thread([] {
        has_own_stripe();
        pthread_setspecific(key, reinterpret_cast<void*>(uintptr_t{3}));
      }).join();
    HOSTILE_CHECK(calls == 6 * Stripes::own_stripes, "%u calls", calls.load());
    HOSTILE_CHECK(own < calls, "a stripe that was given back is still used");
    HOSTILE_CHECK(own_among(Stripes::own_stripes) == Stripes::own_stripes, "stripes were lost");
  });
}

// In a child there are no other threads, and so all stripes but that of the forking thread are
// free.
TEST(Stripes, AChildHasThoseOfThreadsThatAreGone) {
  in_own_process([] {
    skip_unless_possible();
    HOSTILE_CHECK(has_own_stripe(), "no own stripe");
    std::barrier<> taken(Stripes::own_stripes), forked(Stripes::own_stripes);
    std::vector<std::thread> others;
    for (unsigned i = 1; i < Stripes::own_stripes; i++)
      others.emplace_back([&] {
        has_own_stripe();
        taken.arrive_and_wait();
        forked.arrive_and_wait();
      });
    taken.arrive_and_wait();
    const std::string failed = in_child([] {
      HOSTILE_CHECK(has_own_stripe(), "no own stripe");
      const unsigned own = own_among(Stripes::own_stripes + 10);
      HOSTILE_CHECK(own == Stripes::own_stripes - 1, "%u own stripes", own);
      fight();
    });
    forked.arrive_and_wait();
    for (std::thread& other : others) other.join();
    HOSTILE_CHECK(failed.empty(), "%s", failed.c_str());
  });
}

}  // namespace
}  // namespace hostile::stripes_test
