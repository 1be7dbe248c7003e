// An image of the prefix index is copied in pieces, between which the index changes in all ways.
// What it then has is still cached unless it is marked as gone, and it has all that was cached
// during the whole time. The same plays show what ends a single block in the index.
//
//   PKV_ROUNDS=100000 PKV_SEED=1 test-prefix-visits --gtest_filter='Image*:Index*'
#include <algorithm>
#include <random>

#include "api/boundary.h"
#include "replay.h"

namespace image_test {
namespace {

using Text = std::vector<int32_t>;
using cache_test::Session;
using pkv::prefix::Image;

constexpr uint32_t block_size = 16;
const std::string salts[] = {"", "a", "b"};

uint64_t number_from(const char* variable, uint64_t otherwise) {
  const char* const set = std::getenv(variable);
  return set != nullptr ? std::strtoull(set, nullptr, 10) : otherwise;
}

class Play {
 public:
  explicit Play(uint64_t seed) : random_(seed), cache_(replay::cache_of(40, block_size, policy())) {
    for (int i = 0; i < 12; i++) change();
    for (int i = 0; i < 2; i++) {
      const std::string& salt = some_salt();
      Session session = open(salt);
      const Text text = some_text();
      replay::run(cache_, session, text);
      held_.push_back({salt, text, std::move(session)});
    }
  }

  void run() {
    const pkv::api::CacheLease lease(cache_);
    pkv::prefix::Index& index = *lease->prefix();
    const auto image = index.begin_image();
    while (index.copy_more(*image, static_cast<uint32_t>(1 + below(3))))
      for (uint64_t i = below(3); i > 0; i--) change();
    check(index, *image);
    CHECK(pkv_cache_validate(cache_));
  }

  // A block may get another use between the forecast for a step and the end of its tail.
  void let_go() {
    const pkv::api::CacheLease lease(cache_);
    pkv::prefix::Index& index = *lease->prefix();
    const auto cached = [&] { return cache_test::prefix_stats_of(cache_).cached_blocks; };
    for (int i = 0; i < 20; i++) {
      const uint64_t before = cached();
      const auto id = static_cast<uint32_t>(below(40));
      if (!index.has_unpinned(0, id)) continue;
      index.let_go(0, id);
      const bool stays = index.has_unpinned(0, id);
      EXPECT_EQ(stays, cached() == before);
    }
    CHECK(pkv_cache_validate(cache_));
  }

 private:
  struct Held {
    std::string salt;
    Text text;
    Session session;
  };

  uint64_t below(uint64_t n) { return random_() % n; }
  pkv_eviction policy() { return below(2) == 0 ? PKV_EVICTION_LRU : PKV_EVICTION_LEARNED; }
  const std::string& some_salt() { return salts[below(std::size(salts))]; }

  // Returns a text of few different blocks, so that texts often begin with the same ones.
  Text some_text() {
    Text text;
    for (uint64_t blocks = 1 + below(6); blocks > 0; blocks--)
      text.insert(text.end(), block_size, static_cast<int32_t>(below(3)));
    return text;
  }

  Session open(const std::string& salt) {
    auto config = made<pkv_session_config>({.salt = salt.data(), .salt_size = salt.size()});
    pkv_session session;
    CHECK(pkv_session_open(cache_, &config, &session));
    return Session(session);
  }

  // Caches, extends, splits, evicts or clears.
  void change() {
    const std::string salt = some_salt();
    switch (below(8)) {
      case 0:
        CHECK(pkv_prefix_clear(cache_, salt.data(), salt.size()));
        break;
      case 1: {
        const Session session = open(salt);
        const uint64_t blocks = 1 + below(cache_test::pool_stats_of(cache_, 0).free_blocks + 8);
        pkv_session_reserve(session, blocks * block_size);  // evicts, if it can
        break;
      }
      case 2:
        if (open_.size() < 3) {
          open_.push_back(open(salt));
          replay::run(cache_, open_.back(), some_text());
        }
        break;
      case 3:
        if (!open_.empty()) open_.erase(open_.begin());
        break;
      case 4:
        if (!open_.empty()) {
          const Text more = some_text();
          cache_test::Batch batch =
              cache_test::begin(cache_, {open_.back()}, {static_cast<uint32_t>(more.size())});
          cache_test::commit(batch, more);
          if (open_.size() > 1 || cache_test::length_of(open_.back()) > 12 * block_size)
            open_.pop_back();
        }
        break;
      default: {
        const Session session = open(salt);
        replay::run(cache_, session, some_text());
      }
    }
  }

  void check(const pkv::prefix::Index& index, Image& image) const {
    std::vector<std::pair<std::string, Text>> texts;  // by part, up to its end
    std::vector<size_t> cached;                       // by part: blocks before the first gone one
    for (const Image::Part& part : image.parts) {
      const bool first = part.parent == Image::no_parent;
      auto& [salt, text] = texts.emplace_back(image.salts[part.salt], Text());
      if (!first) text = texts[part.parent].second;
      size_t& there = cached.emplace_back(first ? 0 : cached[part.parent]);
      for (size_t i = 0; i < part.blocks.size(); i++)
        if (there == text.size() / block_size + i)
          there += image.read(0, pkv::memory::block_id(part.blocks[i]), [] {});
      text.insert(text.end(), part.tokens.begin(), part.tokens.end());
      EXPECT_GE(index.cached(salt, text), there);
    }
    for (const Held& held : held_) {
      const bool there = std::any_of(texts.begin(), texts.end(), [&](const auto& each) {
        return each.first == held.salt && each.second.size() >= held.text.size() &&
               std::equal(held.text.begin(), held.text.end(), each.second.begin());
      });
      EXPECT_TRUE(there) << "a text that was in use during the whole time";
    }
    const size_t leaves = static_cast<size_t>(std::count_if(
        image.parts.begin(), image.parts.end(), [](const auto& part) { return part.leaf; }));
    EXPECT_GE(leaves, held_.empty() ? 0u : 1u);
  }

  std::mt19937_64 random_;
  cache_test::Cache cache_;
  std::vector<Held> held_;
  std::vector<Session> open_;
};

TEST(Image, HasWhatStaysCachedWhileItIsMade) {
  const uint64_t seed = number_from("PKV_SEED", 1), rounds = number_from("PKV_ROUNDS", 300);
  for (uint64_t i = 0; i < rounds && !testing::Test::HasFailure(); i++) {
    SCOPED_TRACE("PKV_SEED=" + std::to_string(seed + i));
    Play(seed + i).run();
  }
}

TEST(Index, EvictsNothingForABlockThatCannotGo) {
  const uint64_t seed = number_from("PKV_SEED", 1), rounds = number_from("PKV_ROUNDS", 300);
  for (uint64_t i = 0; i < rounds && !testing::Test::HasFailure(); i++) {
    SCOPED_TRACE("PKV_SEED=" + std::to_string(seed + i));
    Play(seed + i).let_go();
  }
}

}  // namespace
}  // namespace image_test
