// A pool's handle in many threads: calls on it, its destruction, and fork() in the middle of a
// call.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <thread>

#include "../support/portable.h"
#include "storm.h"

namespace hostile::pools_test {
namespace {

pkv_pool make_pool(const pkv_allocator* allocator = nullptr) {
  auto config = made<pkv_pool_config>({.blocks = 300, .allocator = allocator});
  pkv_pool pool = nullptr;
  OK(pkv_pool_create(&config, &pool));
  return pool;
}

bool is_one_of(std::initializer_list<pkv_status> allowed, pkv_status got) {
  return std::find(allowed.begin(), allowed.end(), got) != allowed.end();
}

// Makes calls until the pool is destroyed. Returns how many were accepted.
uint64_t call_until_gone(pkv_pool pool, std::mt19937& random) {
  uint64_t let_in = 0;
  for (;;) {
    pkv_block_ref blocks[3];
    const size_t n = 1 + random() % 3;
    pkv_status status = pkv_pool_alloc(pool, n, blocks);
    HOSTILE_CHECK(is_one_of({PKV_OK, PKV_BUSY, PKV_STALE_HANDLE, PKV_OUT_OF_BLOCKS}, status),
                  "alloc gave %s", pkv_status_name(status));
    if (status == PKV_STALE_HANDLE) return let_in;
    if (status != PKV_OK) continue;
    let_in++;
    // While a destroy meets other calls, this call is refused for a moment.
    do status = pkv_pool_release(pool, n, blocks);
    while (status == PKV_BUSY);
    HOSTILE_CHECK(is_one_of({PKV_OK, PKV_STALE_HANDLE}, status), "release gave %s",
                  pkv_status_name(status));
  }
}

TEST(Pools, DestroyWhileOthersCall) {
  const storm::Clock clock(4);
  uint64_t destroyed = 0;
  std::atomic<uint64_t> let_in{0};
  while (clock.running()) {
    const pkv_pool pool = make_pool();
    EXPECT_EQ(storm::run(4,
                         [&](unsigned thread, std::mt19937& random) {
                           random.seed(static_cast<uint32_t>(destroyed * 4 + thread));
                           if (thread > 0) {
                             let_in += call_until_gone(pool, random);
                             return;
                           }
                           for (auto i = random() % 100; i > 0; i--) std::this_thread::yield();
                           pkv_status status;
                           do status = pkv_pool_destroy(pool);
                           while (status == PKV_BUSY);
                           HOSTILE_CHECK(status == PKV_OK, "destroy gave %s",
                                         pkv_status_name(status));
                         }),
              "");
    destroyed++;
    EXPECT_EQ(pkv_pool_destroy(pool), PKV_STALE_HANDLE);
    // The next pool takes the same slot. Calls that were refused have left no trace there.
    EXPECT_EQ(pkv_pool_destroy(make_pool()), PKV_OK);
  }
  EXPECT_GT(destroyed, 0u);
  EXPECT_GT(let_in, 0u);
}

// If many threads destroy a pool, exactly one succeeds.
TEST(Pools, OneDestroyWins) {
  const storm::Clock clock(1500);
  while (clock.running()) {
    const pkv_pool pool = make_pool();
    std::atomic<int> won{0};
    EXPECT_EQ(storm::run(4,
                         [&](unsigned, std::mt19937&) {
                           pkv_status status;
                           do status = pkv_pool_destroy(pool);
                           while (status == PKV_BUSY);
                           HOSTILE_CHECK(is_one_of({PKV_OK, PKV_STALE_HANDLE}, status),
                                         "destroy gave %s", pkv_status_name(status));
                           won += status == PKV_OK;
                         }),
              "");
    EXPECT_EQ(won, 1);
  }
}

// Blocks the second allocation of a pool, the scratch memory of a long list, until the test
// releases it.
class Gate {
 public:
  pkv_allocator allocator() {
    return {[](void* gate, size_t size, size_t alignment) {
              return static_cast<Gate*>(gate)->alloc(size, alignment);
            },
            [](void*, void* memory, size_t, size_t) { portable::free_aligned(memory); }, this};
  }
  void close() { closed_ = true; }
  void wait_for_somebody() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return inside_; });
  }
  void open() {
    const std::lock_guard lock(mutex_);
    closed_ = false;
    changed_.notify_all();
  }

 private:
  void* alloc(size_t size, size_t alignment) {
    std::unique_lock lock(mutex_);
    inside_ = closed_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return !closed_; });
    alignment = std::max(alignment, sizeof(void*));
    return portable::allocate_aligned(alignment, (size + alignment - 1) / alignment * alignment);
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<bool> closed_{false};
  bool inside_ = false;
};

class CallUnderWay : public testing::Test {
 protected:
  CallUnderWay() : allocator_(gate_.allocator()), pool_(make_pool(&allocator_)), blocks_(100) {
    OK(pkv_pool_alloc(pool_, blocks_.size(), blocks_.data()));
    std::reverse(blocks_.begin(), blocks_.end());
    gate_.close();
    caller_ =
        std::thread([this] { status_ = pkv_pool_release(pool_, blocks_.size(), blocks_.data()); });
    gate_.wait_for_somebody();
  }
  void end_call() {
    gate_.open();
    caller_.join();
    EXPECT_EQ(status_, PKV_OK);
  }

  Gate gate_;
  pkv_allocator allocator_;
  pkv_pool pool_;
  std::vector<pkv_block_ref> blocks_;
  std::thread caller_;
  pkv_status status_ = PKV_INTERNAL;
};

TEST_F(CallUnderWay, KeepsThePool) {
  for (int i = 0; i < 3; i++) {
    pkv_block_ref block;
    EXPECT_EQ(pkv_pool_destroy(pool_), PKV_BUSY);
    EXPECT_EQ(pkv_pool_alloc(pool_, 1, &block), PKV_OK) << "others are let in as before";
    EXPECT_EQ(pkv_pool_release(pool_, 1, &block), PKV_OK);
  }
  end_call();
  EXPECT_EQ(pkv_pool_validate(pool_), PKV_OK);
  EXPECT_EQ(pkv_pool_destroy(pool_), PKV_OK);
}

// The calling thread does not exist in the child. So its call keeps neither the pool nor the next
// pool in the same place.
TEST_F(CallUnderWay, IsNotInheritedByFork) {
  SKIP_WITHOUT_FORK();
  EXPECT_EQ(in_child([&] {
              pkv_block_ref block;
              WANT(PKV_WRONG_PROCESS, pkv_pool_alloc(pool_, 1, &block));
              OK(pkv_pool_destroy(pool_));
              for (int i = 0; i < 3; i++) {
                const pkv_pool next = make_pool();
                OK(pkv_pool_alloc(next, 1, &block));
                OK(pkv_pool_destroy(next));
              }
            }),
            "");
  EXPECT_EQ(pkv_pool_destroy(pool_), PKV_BUSY);
  end_call();
  EXPECT_EQ(pkv_pool_destroy(pool_), PKV_OK);
}

}  // namespace
}  // namespace hostile::pools_test
