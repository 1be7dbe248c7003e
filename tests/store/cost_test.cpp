// Measures the cost of hostile files. Each kind of file is doubled three times: memory and work
// must grow no faster than the file, unless the blocks of the cache bound them. The bytes requested
// from operator new measure the work, because every walk through a text or a table makes an
// allocation.
#include <ctime>

#include "../support/memory.h"
#include "file.h"
#include "support.h"

namespace store::cost_test {
namespace {

constexpr uint32_t none = 0xFFFFFFFF;

// Writes tables as FORMAT.md has them.
class Numbers {
 public:
  template <class... Each>
  Numbers& u32(Each... numbers) {
    (put(static_cast<uint32_t>(numbers)), ...);
    return *this;
  }
  Numbers& u64(uint64_t number) { return put(number), *this; }
  Numbers& u8(unsigned char number) { return put(number), *this; }
  Bytes bytes;

 private:
  template <class Number>
  void put(Number number) {
    const size_t at = bytes.size();
    bytes.resize(at + sizeof number);
    std::memcpy(bytes.data() + at, &number, sizeof number);
  }
};

struct ChainOf {
  uint32_t parent, tokens;
  unsigned char held = 1;
};
struct SessionOf {
  uint32_t chain;
  uint64_t length;
  uint64_t remembered = 0;
};
struct EntryOf {
  uint32_t salt, chain;
  uint64_t length;
};

// A file of one layer group, without keys and values.
struct Hostile {
  uint32_t window = 0, salts = 0, groups = 1;
  std::vector<ChainOf> chains;
  std::vector<SessionOf> sessions;
  std::vector<EntryOf> entries;

  Bytes file() const {
    Numbers out;
    out.u32(16, 0, 0, groups);
    for (uint32_t g = 0; g < groups; g++)
      out.u32(1, 1, 16, 16, PKV_F32, PKV_F32, window, 0, 0, 0).u64(0).u64(0).u64(0).u32(g);
    out.u32(salts);
    for (uint32_t i = 0; i < salts; i++) out.u32(4, i);
    out.u32(chains.size());
    for (const ChainOf& chain : chains) {
      out.u32(chain.parent, chain.tokens);
      for (uint32_t g = 0; g < groups; g++) out.u8(chain.held);
      for (uint32_t i = 0; i < chain.tokens; i++) out.u32(i);
    }
    out.u32(sessions.size());
    for (const SessionOf& session : sessions) {
      out.u64(1).u64(session.length).u32(session.chain, none, 0, session.remembered > 0 ? 1 : 0, 1);
      for (uint32_t g = 0; g < groups; g++) out.u64(0);
      out.u64(session.remembered);
      for (uint64_t i = 0; i < session.remembered; i++) out.u32(i);
      out.u64(UINT64_MAX);
      for (uint32_t g = 0; g < groups; g++) out.u32(0);
    }
    out.u32(entries.size());
    for (const EntryOf& entry : entries) out.u32(entry.salt, entry.chain).u64(entry.length).u32(1);
    Numbers lengths;
    for (const ChainOf& chain : chains) lengths.u64(chain.tokens);
    lengths.bytes.resize((lengths.bytes.size() + 63) / 64 * 64);
    return store_file::file_of(out.bytes, {}, lengths.bytes);
  }
};

// Makes n chains, each of which follows the one before.
Hostile trunk(uint32_t n, uint32_t window = 0, unsigned char held = 1) {
  Hostile made;
  made.window = window;
  for (uint32_t i = 0; i < n; i++) made.chains.push_back({i == 0 ? none : i - 1, 16, held});
  return made;
}

struct Kind {
  const char* name;
  Hostile (*make)(uint32_t n);
};
const Kind kinds[] = {
    {"many_chains",
     [](uint32_t n) {
       Hostile made;
       made.chains.assign(n, {none, 1});
       return made;
     }},
    {"a_long_text",
     [](uint32_t n) {
       Hostile made = trunk(n);
       made.sessions = {{n - 1, n * uint64_t{16}}};
       return made;
     }},
    {"texts_in_one_chain",
     [](uint32_t n) {
       Hostile made = trunk(n);
       made.entries.assign(n, {none, n - 1, n * uint64_t{16}});
       return made;
     }},
    {"texts_that_fit",
     [](uint32_t n) {
       Hostile made = trunk(32);
       made.entries.assign(n, {none, 31, 512});
       return made;
     }},
    {"texts_of_every_length",
     [](uint32_t n) {
       Hostile made = trunk(60);
       for (uint32_t i = 0; i < n; i++)
         made.entries.push_back({none, i % 60, i % 60 * 16 + 1 + i % 16});
       return made;
     }},
    {"texts_that_branch",
     [](uint32_t n) {
       Hostile made = trunk(n, 20);
       for (uint32_t i = 0; i < n; i++)
         made.chains.push_back({i, 16}),
             made.entries.push_back({none, n + i, (i + 2) * uint64_t{16}});
       return made;
     }},
    {"texts_that_branch_and_hold_nothing",
     [](uint32_t n) {
       Hostile made = trunk(n, 20, 0);
       for (uint32_t i = 0; i < n; i++)
         made.chains.push_back({n - 1, 16, 0}),
             made.entries.push_back({none, n + i, (n + 1) * uint64_t{16}});
       return made;
     }},
    {"sessions_in_one_chain",
     [](uint32_t n) {
       Hostile made = trunk(n);
       made.sessions.assign(n, {n - 1, n * uint64_t{16}});
       return made;
     }},
    {"sessions_that_fit",
     [](uint32_t n) {
       Hostile made = trunk(32);
       made.sessions.assign(n, {31, 512});
       return made;
     }},
    {"sessions_that_remember",
     [](uint32_t n) {
       Hostile made;
       made.sessions.assign(n, {none, 0, 20});
       return made;
     }},
    {"many_salts",
     [](uint32_t n) {
       Hostile made = trunk(32);
       made.salts = n;
       made.entries = {{n - 1, 31, 512}};
       return made;
     }},
    {"a_text_under_many_salts",
     [](uint32_t n) {
       Hostile made = trunk(32);
       made.salts = n;
       for (uint32_t i = 0; i < n; i++) made.entries.push_back({i, 31, 512});
       return made;
     }},
    {"many_groups",
     [](uint32_t n) {
       Hostile made = trunk(1);
       made.groups = n;
       return made;
     }},
    {"groups_and_chains",
     [](uint32_t n) {
       Hostile made = trunk(n);
       made.groups = 30;
       return made;
     }},
};

// The cost of one file: the bytes requested in total, and at one time.
struct Cost {
  uint64_t bytes, peak;
};

class Costs : public testing::TestWithParam<Kind> {
 protected:
  // Makes a cache of 64 blocks. Its storage is EXTERNAL, so that the content that a file claims
  // costs no keys and values.
  static Cache create_small(uint32_t window) {
    Plan plan;
    plan.groups = {{.layers = 1, .query_heads = 1, .kv_heads = 1, .key_dim = 16, .window = window}};
    plan.storage = PKV_STORAGE_EXTERNAL;
    plan.prefix = true;
    plan.blocks = 64;
    return create(plan);
  }
  template <class Call>
  static Cost cost_of(const Call& call) {
    memory::begin_count();
    call();
    return {memory::counted_bytes, static_cast<uint64_t>(memory::max_live_bytes)};
  }
  // Both grow with the file, or stay below what its cache bounds.
  static void expect_linear(const char* what, const std::vector<uint64_t>& costs,
                            const std::vector<size_t>& sizes, uint64_t bound) {
    for (size_t i = 0; i < costs.size(); i++) {
      SCOPED_TRACE(testing::Message()
                   << what << ": " << costs[i] << " bytes for a file of " << sizes[i]);
      EXPECT_LE(costs[i], 64 * sizes[i] + bound);
      if (costs[i] > bound) {
        EXPECT_LE(costs[i], 2.0 * static_cast<double>(costs[0]) * static_cast<double>(sizes[i]) /
                                    static_cast<double>(sizes[0]) +
                                static_cast<double>(bound));
      }
    }
  }
};

TEST_P(Costs, GrowNoFasterThanTheFile) {
  // Some files have entries at 64 * 64 positions, each of which may cost 512 bytes.
  constexpr uint64_t usual = 1 << 16, bounded_by_the_cache = 64 * 64 * 512;
  std::vector<size_t> sizes;
  std::vector<uint64_t> loads, load_peaks, inspects, inspect_peaks;
  auto config = made<pkv_file_config>({.prefix_index = 1, .trust_salts = 1});
  for (uint32_t n = 1000; n <= 8000; n *= 2) {
    const Hostile hostile = GetParam().make(n);
    const Bytes file = hostile.file();
    const Cache cache = create_small(hostile.window);
    const pkv_stream from = buffer(file);
    std::vector<pkv_session> sessions(n);
    size_t count = 0;
    pkv_status status;
    const Cost load = cost_of([&] {
      status = pkv_file_load(cache, &config, &from, n, sessions.data(), nullptr, &count);
    });
    for (size_t i = 0; status == PKV_OK && i < count; i++) CHECK(pkv_session_close(sessions[i]));
    CHECK(pkv_cache_validate(cache));
    auto info = made<pkv_file_info>();
    const Cost inspect = cost_of([&] { CHECK(pkv_file_inspect(nullptr, &from, &info)); });
    sizes.push_back(file.size());
    loads.push_back(load.bytes), load_peaks.push_back(load.peak);
    inspects.push_back(inspect.bytes), inspect_peaks.push_back(inspect.peak);
    if (std::getenv("PKV_SHOW_COSTS") != nullptr)
      printf("%u: file %zu, load %llu at peak %llu (%s), inspect %llu at peak %llu\n", n,
             file.size(), (unsigned long long)load.bytes, (unsigned long long)load.peak,
             pkv_status_name(status), (unsigned long long)inspect.bytes,
             (unsigned long long)inspect.peak);
  }
  expect_linear("work of a load", loads, sizes, bounded_by_the_cache);
  expect_linear("memory of a load", load_peaks, sizes, usual);
  expect_linear("work of an inspection", inspects, sizes, usual);
  expect_linear("memory of an inspection", inspect_peaks, sizes, usual);
}

INSTANTIATE_TEST_SUITE_P(Kinds, Costs, testing::ValuesIn(kinds),
                         [](const auto& test) { return test.param.name; });

class LoadLimits : public Costs {
 protected:
  // Loads n sessions with the same 512 tokens into a cache of 1024 tokens.
  static pkv_status load(uint32_t n, uint64_t max_tokens) {
    Hostile hostile = trunk(32);
    hostile.sessions.assign(n, {31, 512});
    const Bytes file = hostile.file();
    const Cache cache = create_small(0);
    const pkv_stream from = buffer(file);
    auto config = made<pkv_file_config>({.max_tokens = max_tokens});
    std::vector<pkv_session> sessions(n);
    size_t count = 0;
    const pkv_status status =
        pkv_file_load(cache, &config, &from, n, sessions.data(), nullptr, &count);
    for (size_t i = 0; i < count; i++) CHECK(pkv_session_close(sessions[i]));
    CHECK(pkv_cache_validate(cache));
    return status;
  }
};

TEST_F(LoadLimits, TokensOfAllSessions) {
  EXPECT_EQ(PKV_OK, load(129, 0)) << pkv_last_error();
  EXPECT_EQ(PKV_TOO_LARGE, load(130, 0));
  EXPECT_STREQ("the 130 sessions of the file have more than 66048 tokens, the limit (max_tokens)",
               pkv_last_error());
  EXPECT_EQ(PKV_OK, load(1000, 512'000)) << pkv_last_error();
  EXPECT_EQ(PKV_TOO_LARGE, load(1000, 511'999));
  EXPECT_EQ(PKV_TOO_LARGE, load(1, 1));
}

// ---- Saves --------------------------------------------------------------------------------------

// Returns one of many blocks that have the same XXH3 where `seed` is known: a product in it has a
// factor of 0, whatever the other factor is.
std::vector<int32_t> block_made_to_collide(uint32_t number, uint64_t seed) {
  std::vector<int32_t> block(16, 1);
  uint64_t zero;
  std::memcpy(&zero, XXH3_kSecret, sizeof zero);
  zero += seed;
  std::memcpy(block.data(), &zero, sizeof zero);
  block[3] = static_cast<int32_t>(number);
  return block;
}

// A save of n texts, each of one block of those.
class Collisions {
 public:
  explicit Collisions(uint32_t n) {
    Plan plan;
    plan.groups = {{.layers = 1, .query_heads = 1, .kv_heads = 1, .key_dim = 16}};
    plan.storage = PKV_STORAGE_EXTERNAL;
    plan.blocks = n;
    cache_ = create(plan);
    for (uint32_t i = 0; i < n; i++) {
      sessions_.push_back(open(cache_));
      Batch batch = begin(cache_, {sessions_.back()}, {16});
      commit(batch, block_made_to_collide(i, seed));
    }
    items_ = items_of({sessions_.begin(), sessions_.end()});
  }
  // Returns the processor time of a save in seconds, of the fastest of three.
  double save() {
    double least = 1e9;
    for (int i = 0; i < 3; i++) {
      const double begun = processor_time();
      store::save(cache_, items_);
      least = std::min(least, processor_time() - begun);
    }
    return least;
  }

 private:
  static constexpr uint64_t seed = 0xFFFFFFFF;  // of the first block of a text
  static double processor_time() {
    timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
  }
  Cache cache_;
  std::vector<Session> sessions_;
  std::vector<pkv_file_item> items_;
};

// Eight times the texts cost about eight times as much, not 64 times.
TEST(SaveCosts, TextsMadeToCollideCostWhatOthersCost) {
  const double few = Collisions(2500).save(), many = Collisions(20000).save();
  EXPECT_LT(many, 24 * few) << few << " s and " << many << " s";
}

}  // namespace
}  // namespace store::cost_test
