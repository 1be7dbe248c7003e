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

#include <barrier>
#include <thread>

#include "storm.h"

namespace hostile {
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
  const Stripes::Entry entry = stripes.enter();
  HOSTILE_CHECK(stripes.any(), "the call is not counted");
  Stripes::leave(entry);
  HOSTILE_CHECK(!stripes.any(), "the call is still counted");
  return entry.own;
}

// How many of so many threads at once have a stripe of their own.
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

// Threads stay inside for a moment in which nobody may close, while another one closes and opens.
void fight() {
  constexpr uint64_t length = 20;
  Stripes stripes;
  std::atomic<bool> mark{false}, closed{false};
  std::atomic<uint64_t> let_in{0}, times_closed{0};
  const storm::Clock clock;
  const std::string failed = storm::run(3, [&](unsigned thread, std::mt19937&) {
    while (thread == 0 && clock.running()) {
      mark.exchange(true);
      Stripes::make_visible();
      // Who is inside may wait for a processor.
      for (int look = 0; look < 1000 && stripes.any(); look++) std::this_thread::yield();
      if (!stripes.any()) {
        closed.store(true, std::memory_order_relaxed);
        for (uint64_t i = 0; i < length; i++) stripes.any();
        times_closed++;
        closed.store(false, std::memory_order_relaxed);
      }
      const uint64_t before = let_in;
      mark.store(false, std::memory_order_release);
      for (uint64_t i = 0; i < length; i++) stripes.any();
      // Where a barrier takes long, the mark is nearly always set.
      for (uint64_t i = 0; i < 100000 && let_in == before && clock.running(); i++) {
      }
    }
    while (thread != 0 && clock.running()) {
      const Stripes::Entry entry = stripes.enter();
      if (!mark.load(std::memory_order_acquire)) {
        for (uint64_t i = 0; i < length * 10; i++)
          HOSTILE_CHECK(!closed.load(std::memory_order_relaxed), "closed with a call inside");
        let_in.fetch_add(1, std::memory_order_relaxed);
      }
      Stripes::leave(entry);
    }
  });
  HOSTILE_CHECK(failed.empty(), "%s", failed.c_str());
  HOSTILE_CHECK(!stripes.any(), "a call is still counted");
  HOSTILE_CHECK(let_in > 0 && times_closed > 0, "%llu let in, %llu times closed",
                (unsigned long long)let_in, (unsigned long long)times_closed);
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
}  // namespace hostile
