// A step that lacks blocks makes the store release what it holds. Other threads may pass more to
// the store meanwhile, and the step gets that, too.
#include <optional>
#include <thread>

#include "api/handles.h"
#include "engine/cache/cache.h"
#include "engine/session/content.h"
#include "support.h"

namespace store::give_way_test {
namespace {

// Holds one content, and calls a function when it is first found empty.
class ScriptedStore : public pkv::Store {
 public:
  explicit ScriptedStore(std::function<void()> when_empty) : when_empty_(std::move(when_empty)) {}
  void write(pkv::Content content) noexcept override {
    held_.emplace(std::move(content));
    taken_++;
  }
  uint64_t give_way() noexcept override {
    const uint64_t taken = taken_;
    const bool any = held_.has_value();
    held_.reset();
    if (!any && when_empty_) std::exchange(when_empty_, nullptr)();
    return taken;
  }
  void fetch(std::string_view, pkv::prefix::Tokens) override {}
  bool share(pkv::Content) noexcept override { return false; }
  bool prefetch(std::string_view, pkv::prefix::Tokens, uint8_t, uint64_t) override { return false; }
  bool down() const noexcept override { return false; }
  void inspect(const std::function<void(std::span<const pkv::Content* const>)>& look) override {
    std::vector<const pkv::Content*> contents;
    if (held_) contents.push_back(&*held_);
    look(contents);
  }

 private:
  std::optional<pkv::Content> held_;
  std::atomic<uint64_t> taken_ = 0;
  std::function<void()> when_empty_;
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

}  // namespace
}  // namespace store::give_way_test
