// The learned policy is never much worse than recency and frequency, for any traffic, and mostly
// better. This is the short form, in which learning is a large part; `pkv-serve --policies
// --workload all` prints the long one.
#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <random>

#include "replay.h"

namespace eviction_test {
namespace {

constexpr uint32_t block_size = 16;
constexpr double most_behind = 1.5;  // points; the wrong order is behind by up to 40

// A text is made of parts; a part's id and length say what its tokens are.
struct Part {
  uint64_t id;
  uint32_t blocks;
};
using Text = std::vector<Part>;
using Workload = std::vector<Text>;

std::vector<int32_t> tokens_of(const Text& text) {
  std::vector<int32_t> tokens;
  for (const Part& part : text)
    for (uint32_t i = 0; i < part.blocks * block_size; i++)
      tokens.push_back(
          static_cast<int32_t>((part.id * 0x9E3779B97F4A7C15u + i) * 0xBF58476D1CE4E5B9u >> 34));
  return tokens;
}

class Generator {
 public:
  explicit Generator(uint64_t seed) : random_(seed) {}
  uint64_t below(uint64_t n) { return random_() % n; }
  bool chance(double probability) {
    return static_cast<double>(random_() >> 11) * 0x1p-53 < probability;
  }
  // In proportion to 1 / (i + 1).
  uint64_t popular(uint64_t n) {
    const double exponent = static_cast<double>(random_() >> 11) * 0x1p-53;
    return static_cast<uint64_t>(std::pow(static_cast<double>(n), exponent)) - 1;
  }
  uint64_t fresh() { return ++fresh_ << 20; }

 private:
  std::mt19937_64 random_;
  uint64_t fresh_ = 0;
};

// Conversations that grow, some of which pause for a long time.
Workload chats(size_t texts, Generator& generator) {
  std::deque<Text> open;
  Workload workload;
  while (workload.size() < texts) {
    if (open.size() < 60 || generator.chance(0.2)) open.push_back({{1, 8}, {generator.fresh(), 4}});
    const size_t place =
        generator.below(generator.chance(0.7) ? std::min<size_t>(open.size(), 15) : open.size());
    Text& chat = open[open.size() - 1 - place];
    workload.push_back(chat);
    chat.push_back({generator.fresh(), static_cast<uint32_t>(2 + generator.below(6))});
    if (generator.chance(0.2)) open.erase(open.end() - 1 - static_cast<std::ptrdiff_t>(place));
  }
  return workload;
}

// Documents of fixed popularity, each followed by a question.
Workload documents(size_t texts, Generator& generator) {
  Workload workload;
  for (size_t i = 0; i < texts; i++)
    workload.push_back({{2, 4}, {3 + generator.popular(600), 12}, {generator.fresh(), 2}});
  return workload;
}

// Bursts of long texts that occur once, beside a few that return.
Workload scans(size_t texts, Generator& generator) {
  Workload workload;
  for (size_t i = 0; i < texts; i++)
    if (i / 100 % 3 == 0)
      workload.push_back({{generator.fresh(), 20}});
    else
      workload.push_back({{10 + generator.below(60), 10}, {generator.fresh(), 3}});
  return workload;
}

// The same texts in the same order, again and again: the worst case for recency.
Workload loops(size_t texts, Generator&) {
  Workload workload;
  for (size_t i = 0; i < texts; i++) workload.push_back({{100 + i % 250, 10}});
  return workload;
}

// Each text occurs a few times within a short time, and is not used later.
Workload fashions(size_t texts, Generator& generator) {
  Workload workload;
  for (size_t i = 0; i < texts; i++)
    workload.push_back({{1000 + i / 40 + generator.below(30), 10}, {generator.fresh(), 2}});
  return workload;
}

Workload phases(size_t texts, Generator& generator) {
  Workload workload;
  for (const auto& phase : {chats, scans, documents, fashions}) {
    const Workload part = phase(texts / 4, generator);
    workload.insert(workload.end(), part.begin(), part.end());
  }
  return workload;
}

struct Kind {
  const char* name;
  Workload (*make)(size_t texts, Generator& generator);
};
constexpr Kind kinds[] = {{"chats", chats}, {"documents", documents}, {"scans", scans},
                          {"loops", loops}, {"fashions", fashions},   {"phases", phases}};

class Eviction : public testing::TestWithParam<Kind> {};
INSTANTIATE_TEST_SUITE_P(, Eviction, testing::ValuesIn(kinds),
                         [](const auto& test) { return std::string(test.param.name); });

// The share of blocks that are found.
double percent(const Workload& workload, uint64_t capacity, pkv_eviction eviction) {
  cache_test::Cache cache = replay::cache_of(capacity, block_size, eviction);
  uint64_t found = 0, asked = 0;
  for (const Text& text : workload) {
    const std::vector<int32_t> tokens = tokens_of(text);
    const size_t length = std::min(tokens.size(), capacity * block_size);
    found += replay::serve(cache,
                           {tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(length)});
    asked += tokens.size();
  }
  CHECK(pkv_cache_validate(cache));
  return 100 * static_cast<double>(found) / static_cast<double>(asked);
}

TEST_P(Eviction, TheLearnedPolicyIsNeverMuchWorseThanRecency) {
  Generator generator(1);
  const Workload workload = GetParam().make(16000, generator);
  for (const uint64_t capacity : {100, 400, 1600, 6000}) {
    const double lru = percent(workload, capacity, PKV_EVICTION_LRU),
                 learned = percent(workload, capacity, PKV_EVICTION_LEARNED);
    std::printf("%s, %llu blocks: LRU %.2f, learned %.2f %%\n", GetParam().name,
                (unsigned long long)capacity, lru, learned);
    EXPECT_GE(learned, lru - most_behind) << capacity;
  }
}

}  // namespace
}  // namespace eviction_test
