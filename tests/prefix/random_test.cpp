// Uses the index at random through the C interface and compares it with a naive one: a set of all
// texts that were published. Every step is validated. PKV_ROUNDS is the number of steps.
#include <map>
#include <random>
#include <set>

#include "../support/portable.h"
#include "../support/rounds.h"
#include "replay.h"

namespace random_test {
namespace {

constexpr uint32_t block_size = 16;
const int rounds = static_cast<int>(pkv::test::number_in("PKV_ROUNDS", 5000));
using Text = std::vector<int32_t>;

Text first_tokens(const Text& text, size_t n) {
  return {text.begin(), text.begin() + static_cast<std::ptrdiff_t>(n)};
}

// Refuses memory now and then, while this is enabled.
struct Allocator {
  std::mt19937 random{5};
  bool failing = false;
  uint64_t refused = 0;

  static void* alloc(void* user, size_t size, size_t alignment) {
    Allocator& own = *static_cast<Allocator*>(user);
    if (own.failing && own.random() % 4 == 0) return own.refused++, nullptr;
    return portable::allocate_aligned(alignment, (size + alignment - 1) / alignment * alignment);
  }
  static void free(void*, void* memory, size_t, size_t) { portable::free_aligned(memory); }
};

class Random : public testing::TestWithParam<pkv_eviction> {
 protected:
  struct Running {
    cache_test::Session session;
    Text text;
  };

  // Texts have up to eight blocks, each of which is one of two. Many texts share prefixes.
  Text random_text() {
    Text text;
    for (auto blocks = random_() % 9; blocks > 0; blocks--)
      text.insert(text.end(), block_size, static_cast<int32_t>(random_() % 2 + 1));
    if (random_() % 4 == 0) text.insert(text.end(), random_() % block_size, 3);
    return text;
  }

  void make(uint64_t blocks) {
    auto prefix = made<pkv_prefix_config>({.eviction = GetParam()});
    ModelConfig config = cache_test::config_of({}, blocks, PKV_STORAGE_EXTERNAL);
    config.prefix = &prefix;
    const pkv_allocator allocator = {Allocator::alloc, Allocator::free, &memory_};
    config.allocator = &allocator;
    cache_ = cache_test::create(config);
  }

  // Accepts that a call fails because memory or blocks are short, and for no other reason.
  bool done(pkv_status status) {
    if (status == PKV_OK) return true;
    EXPECT_TRUE((status == PKV_OUT_OF_MEMORY && memory_.refused > 0) || status == PKV_OUT_OF_BLOCKS)
        << pkv_status_name(status) << ": " << pkv_last_error();
    return false;
  }

  // Records for which text each block was computed. A block that is found must be of the same text.
  void learn_blocks(const Running& running) {
    const std::vector<uint32_t> table = cache_test::block_table(running.session);
    for (size_t i = 0; (i + 1) * block_size <= running.text.size(); i++) {
      const Text text = first_tokens(running.text, (i + 1) * block_size);
      text_of_[table[i]] = text;
      for (size_t n = 0; n < block_size; n++)
        published_.insert(first_tokens(text, text.size() - n));
    }
  }
  void check_blocks(const Running& running, uint64_t matched) {
    const std::vector<uint32_t> table = cache_test::block_table(running.session);
    for (size_t i = 0; i * block_size < matched; i++) {
      const size_t end = std::min<size_t>(matched, (i + 1) * block_size);
      EXPECT_EQ(first_tokens(running.text, end), first_tokens(text_of_[table[i]], end));
    }
  }

  void open() {
    pkv_session session;
    if (!done(pkv_session_open(cache_, nullptr, &session))) return;
    Running running{cache_test::Session(session), {}};
    const Text text = random_text();
    uint64_t matched = 0, longest = 0;
    if (!done(pkv_session_admit(session, text.size(), text.data(), 0, &matched))) return;
    running.text = first_tokens(text, matched);
    check_blocks(running, matched);
    while (longest < text.size() && published_.contains(first_tokens(text, longest + 1))) longest++;
    if (complete_) {
      EXPECT_EQ(longest, matched);
    }
    EXPECT_LE(matched, longest);
    found_ += matched;
    extend(running, text);
    running_.push_back(std::move(running));
  }

  void extend(Running& running, const Text& text) {
    const uint32_t more = static_cast<uint32_t>(text.size() - running.text.size());
    const pkv_session session = running.session;
    pkv_batch batch;
    if (more == 0 || !done(pkv_batch_begin(cache_, 1, &session, &more, &batch))) return;
    if (!done(pkv_batch_commit(batch, more, text.data() + running.text.size()))) {
      CHECK(pkv_batch_abort(batch));
      return;
    }
    running.text = text;
    learn_blocks(running);
  }

  void step() {
    const auto what = random_() % 20;
    if (running_.empty() || what < 6) return open();
    Running& one = running_[random_() % running_.size()];
    if (what < 9) {
      Text text = one.text;
      for (const int32_t token : random_text()) text.push_back(token);
      if (text.size() <= 16 * block_size) extend(one, text);
    } else if (what < 12) {
      const size_t length = random_() % (one.text.size() + 1);
      CHECK(pkv_session_trim(one.session, length));
      one.text.resize(length);
    } else if (what < 13) {
      pkv_session child;
      if (done(pkv_session_fork(one.session, &child)))
        running_.push_back({cache_test::Session(child), Text(one.text)});
    } else if (what < 14 && !complete_) {
      done(pkv_prefix_clear(cache_, nullptr, PKV_ALL_SALTS));
    } else {
      std::swap(one, running_.back());
      running_.pop_back();
    }
  }

  void play(uint64_t blocks, size_t sessions, int steps, bool failing_memory = false) {
    make(blocks);
    memory_.failing = failing_memory;
    for (int i = 0; i < steps && !HasFailure(); i++) {
      SCOPED_TRACE(i);
      step();
      while (running_.size() > sessions) running_.erase(running_.begin());
      const bool failing = std::exchange(memory_.failing, false);
      CHECK(pkv_cache_validate(cache_));
      memory_.failing = failing;
    }
    memory_.failing = false;
    pkv_prefix_stats stats{};
    stats.struct_size = sizeof stats;
    CHECK(pkv_prefix_get_stats(cache_, nullptr, PKV_ALL_SALTS, &stats));
    evicted_ = stats.evicted_tokens;
    running_.clear();
    CHECK(pkv_cache_validate(cache_));
    CHECK(pkv_prefix_clear(cache_, nullptr, PKV_ALL_SALTS));
    EXPECT_EQ(blocks, cache_test::pool_stats_of(cache_).free_blocks);
    EXPECT_GT(found_, 0u);
  }

  std::mt19937 random_{6};
  Allocator memory_;
  cache_test::Cache cache_;
  std::vector<Running> running_;
  std::set<Text> published_;
  std::map<uint32_t, Text> text_of_;
  bool complete_ = false;
  uint64_t found_ = 0, evicted_ = 0;
};

INSTANTIATE_TEST_SUITE_P(, Random, testing::Values(PKV_EVICTION_LEARNED, PKV_EVICTION_LRU));

TEST_P(Random, WithRoomForAllEveryPublishedBeginningIsFound) {
  complete_ = true;
  play(8000, 6, std::min(rounds, 2000));  // more evict something
  EXPECT_EQ(0u, evicted_);
}

TEST_P(Random, WithLittleRoomWhatIsFoundIsRight) {
  play(60, 6, rounds);
  EXPECT_GT(evicted_, rounds / 20u);
}

TEST_P(Random, WithoutMemoryNothingBreaks) {
  play(60, 6, rounds, true);
  EXPECT_GT(memory_.refused, rounds / 20u);
}

}  // namespace
}  // namespace random_test
