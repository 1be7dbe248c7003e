// A step that lacks blocks makes the store release what it holds. Other threads may pass more to
// the store until it is asked for that, and the step gets that, too.
#include <optional>
#include <thread>

#include "api/handles.h"
#include "engine/cache/cache.h"
#include "engine/session/session.h"
#include "engine/store/worker.h"
#include "support.h"

namespace store::give_way_test {
namespace {

// Holds one content, and calls a function before it is first asked to give way.
class ScriptedStore : public pkv::Store {
 public:
  // `stopped` is called by stop().
  explicit ScriptedStore(std::function<void()> before, std::function<void()> stopped = nullptr)
      : before_(std::move(before)), stopped_(std::move(stopped)) {}
  bool enqueue(pkv::Content content, pkv::Writing) noexcept override {
    return held_.emplace(std::move(content)), true;
  }
  uint64_t release_for(const Choose& choose) override {
    if (before_) std::exchange(before_, nullptr)();
    std::vector<pkv::prefix::Releasable> releasables;
    if (held_) releasables.push_back({held_->releasable()});
    const uint64_t taken = held_ ? 1 : 0;
    if (!choose(releasables).empty()) held_.reset();
    return taken;
  }
  bool waits() const noexcept override { return false; }
  void fetch(std::string_view, pkv::prefix::Tokens) override {}
  bool prefetch(std::string_view, pkv::prefix::Tokens, uint8_t, uint64_t) override { return false; }
  bool reads_pause() const noexcept override { return false; }
  bool writes_pause() const noexcept override { return false; }
  void inspect(const std::function<void(std::span<const pkv::Content* const>)>& look) override {
    std::vector<const pkv::Content*> contents;
    if (held_) contents.push_back(&*held_);
    look(contents);
  }
  void stop() noexcept override {
    if (stopped_) stopped_();
  }

 private:
  std::optional<pkv::Content> held_;
  std::function<void()> before_, stopped_;
};

TEST(GiveWay, WhatIsPassedToTheStoreMeanwhileIsFound) {
  Plan small{.blocks = 8, .prefix = true};
  const Cache cache = create(small);
  Session ending = open(cache);
  append(cache, ending, small, 6 * 16, 1);
  {
    const pkv::api::Lease lease(reinterpret_cast<uint64_t>(cache.get()), pkv::api::Kind::cache,
                                pkv::api::Access::get);
    lease.object<pkv::Cache>().set_store(
        std::make_unique<ScriptedStore>([&] { std::thread([&] { ending.close(); }).join(); }));
  }
  const Session session = open(cache);
  append(cache, session, small, 4 * 16, 2);
  EXPECT_FALSE(ending) << "it ended while the step looked for blocks";
  CHECK(pkv_cache_validate(cache));
}

// The content of a thread is released while it copies, and the thread has not yet given up what it
// copied.
TEST(GiveWay, WhatAThreadOfTheStoreHasCopiedIsFound) {
  Plan small{.blocks = 8};
  const Cache cache = create(small);
  Session session = open(cache);
  append(cache, session, small, 4 * 16, 1);
  const pkv::api::Lease lease(reinterpret_cast<uint64_t>(session.get()), pkv::api::Kind::session,
                              pkv::api::Access::get);
  const pkv::Content& content = lease.object<pkv::Session>().content();
  pkv::store::Worker worker;
  const auto count_released = [&] {
    std::vector<pkv::prefix::Releasable> releasables;
    const auto lock = worker.lock_to_release(releasables);
    worker.release();
    return releasables.empty() ? 0 : releasables[0].size();
  };
  {
    auto step = worker.lock();
    worker.content().emplace(content.fork());
    worker.in_flight().emplace(content.fork());
    worker.unlocked(step, [&] { EXPECT_EQ(1u, count_released()); });
    EXPECT_TRUE(worker.in_flight()) << "it was released while it was copied";
  }
  EXPECT_EQ(1u, count_released());
  EXPECT_FALSE(worker.in_flight());
}

// The threads of a store need blocks until they end, and look for the store then.
TEST(GiveWay, ACacheHasItsStoreUntilTheThreadsOfThatEnded) {
  Plan small{.blocks = 8, .prefix = true};
  Cache cache = create(small);
  const pkv::Store* set = nullptr;
  const pkv::Store* when_stopped = nullptr;
  {
    const pkv::api::Lease lease(reinterpret_cast<uint64_t>(cache.get()), pkv::api::Kind::cache,
                                pkv::api::Access::get);
    auto& inside = lease.object<pkv::Cache>();
    inside.set_store(
        std::make_unique<ScriptedStore>(nullptr, [&] { when_stopped = inside.store(); }));
    set = inside.store();
  }
  cache.close();
  EXPECT_EQ(set, when_stopped);
}

}  // namespace
}  // namespace store::give_way_test
