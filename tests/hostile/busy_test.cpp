// One call is stopped inside an allocator hook while another thread tries every function on the
// same object. Functions that would change it, or read what is being changed, return BUSY and
// change nothing.
#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "matrix.h"

namespace hostile::busy_test {
namespace {

// Holds the first allocation of its thread until release().
class Held {
 public:
  Held(World& world, std::function<void()> call) : world_(world) {
    world.hooks.inside = [this] {
      if (std::this_thread::get_id() != thread_.get_id() || held_) return;
      std::unique_lock lock(mutex_);
      held_ = true;
      changed_.notify_all();
      changed_.wait(lock, [this] { return released_; });
    };
    std::unique_lock lock(mutex_);
    thread_ = std::thread([this, call] {
      {
        const std::lock_guard until_started(mutex_);
      }
      call();
      const std::lock_guard done(mutex_);
      ended_ = true;
      changed_.notify_all();
    });
    changed_.wait(lock, [this] { return held_ || ended_; });
  }
  ~Held() { release(); }

  bool held() const { return held_; }
  void release() {
    if (!thread_.joinable()) return;
    {
      const std::lock_guard lock(mutex_);
      released_ = true;
      changed_.notify_all();
    }
    thread_.join();
    world_.hooks.inside = nullptr;
  }

 private:
  World& world_;
  std::thread thread_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool held_ = false, released_ = false, ended_ = false;
};

// Returns valid arguments, with the objects that long calls hold instead of the hybrid ones.
Values held_values(const Function& function, World& world) {
  Values values = valid_values(function, world);
  std::replace(values.begin(), values.end(), bits(world.recurrent), bits(world.session));
  std::replace(values.begin(), values.end(), bits(world.recurring), bits(world.batch));
  return values;
}

using Wants = std::function<pkv_status(const Function&)>;

void try_all(Handle kind, const std::function<pkv_status(World&)>& long_call, const Wants& wants) {
  size_t tried = 0;
  for (const Function& function : all_rows()) {
    if (!function.takes(kind)) continue;
    tried++;
    const std::string failed = in_child([&] {
      World world;
      const Values values = held_values(function, world);
      pkv_status outcome = PKV_INTERNAL;
      world.remember();
      Held held(world, [&] { outcome = long_call(world); });
      HOSTILE_CHECK(held.held(), "the long call never came to an allocation");
      const pkv_status wanted = wants(function);
      expect(wanted, function.call(values), function.name.c_str());
      if (wanted != PKV_OK) world.check_memory();
      held.release();
      expect(PKV_OK, outcome, "the long call");
      if (wanted == PKV_OK && function.undo) function.undo(world, values);
      world.validate();
      world.close();
    });
    EXPECT_EQ(failed, "") << function.name;
  }
  EXPECT_GT(tried, 1u);
}

TEST(Busy, Session) {
  try_all(
      Handle::session, [](World& world) { return pkv_session_reserve(world.session, 300); },
      [](const Function&) { return PKV_BUSY; });
}

TEST(Busy, Batch) {
  const auto attend = [](World& world) {
    std::vector<float> q(3 * q_floats), out(3 * q_floats);
    const pkv_tensor q_rows = tensor(q.data()), out_rows = tensor(out.data());
    return pkv_batch_attend(world.batch, 0, nullptr, &q_rows, &out_rows, nullptr);
  };
  try_all(Handle::batch, attend, [](const Function&) { return PKV_BUSY; });
}

// Readers work side by side. Only closing the object must wait.
TEST(Busy, Snapshot) {
  const auto open = [](World& world) {
    pkv_session opened = nullptr;
    return pkv_snapshot_fork(world.snapshot, &opened);
  };
  try_all(Handle::snapshot, open,
          [](const Function& function) { return function.closes ? PKV_BUSY : PKV_OK; });
}

TEST(Busy, Pool) {
  const auto release = [](World& world) {
    std::vector<pkv_block_ref> list(world.blocks.begin(), world.blocks.begin() + 80);
    // The search for duplicates takes memory.
    std::reverse(list.begin(), list.end());
    return pkv_pool_release(world.pool, list.size(), list.data());
  };
  size_t tried = 0;
  for (const Function& function : all_rows()) tried += function.takes(Handle::pool);
  EXPECT_GT(tried, 5u);
  const std::string failed = in_child([&] {
    World world;
    pkv_status outcome = PKV_INTERNAL;
    Held held(world, [&] { outcome = release(world); });
    HOSTILE_CHECK(held.held(), "the long call never came to an allocation");
    WANT(PKV_BUSY, pkv_pool_destroy(world.pool));
    pkv_block_ref more = 0;
    OK(pkv_pool_alloc(world.pool, 1, &more));
    OK(pkv_pool_release(world.pool, 1, &more));
    held.release();
    expect(PKV_OK, outcome, "the release");
    world.close();
  });
  EXPECT_EQ(failed, "");
}

TEST(Busy, Cache) {
  const auto open = [](World& world) {
    pkv_session opened = nullptr;
    return pkv_session_open(world.cache, nullptr, &opened);
  };
  try_all(Handle::cache, open,
          [](const Function& function) { return function.closes ? PKV_BUSY : PKV_OK; });
}

TEST(Busy, Compute) {
  const auto attend = [](World& world) {
    auto view = made<pkv_kv_view>();
    OK(pkv_cache_get_kv_view(world.cache, 0, &view));
    const std::vector<uint32_t> queries{1}, table{0};
    const std::vector<uint64_t> lengths{1};
    auto sequences = sequences_of(query_heads, queries, lengths, table);
    std::vector<float> q(q_floats), out(q_floats);
    const pkv_tensor q_rows = tensor(q.data()), out_rows = tensor(out.data());
    return pkv_kv_attend(world.compute, &view, &sequences, nullptr, &q_rows, &out_rows, nullptr);
  };
  try_all(Handle::compute, attend,
          [](const Function& function) { return function.closes ? PKV_BUSY : PKV_OK; });
}

// The cache cannot be destroyed while a call on any of its objects is in progress. Then everything
// is as before.
TEST(Busy, DestroyWaitsForItsChildren) {
  const std::function<pkv_status(World&)> calls[] = {
      [](World& world) { return pkv_session_reserve(world.session, 300); },
      [](World& world) {
        std::vector<float> q(3 * q_floats), out(3 * q_floats);
        const pkv_tensor q_rows = tensor(q.data()), out_rows = tensor(out.data());
        return pkv_batch_attend(world.batch, 0, nullptr, &q_rows, &out_rows, nullptr);
      },
      [](World& world) {
        pkv_session fork = nullptr;
        return pkv_session_fork(world.session, &fork);
      }};
  for (const auto& call : calls) {
    const std::string failed = in_child([&] {
      World world;
      pkv_status outcome = PKV_INTERNAL;
      Held held(world, [&] { outcome = call(world); });
      HOSTILE_CHECK(held.held(), "the long call never came to an allocation");
      WANT(PKV_BUSY, pkv_cache_destroy(world.cache));
      OK(pkv_snapshot_close(world.snapshot));  // The refused destroy has not left it locked.
      held.release();
      expect(PKV_OK, outcome, "the long call");
      OK(pkv_batch_commit(world.batch, 0, nullptr));
      world.validate();
      OK(pkv_cache_destroy(world.cache));
      WANT(PKV_STALE_HANDLE, pkv_session_close(world.session));
      world.close();
    });
    EXPECT_EQ(failed, "");
  }
}

}  // namespace
}  // namespace hostile::busy_test
