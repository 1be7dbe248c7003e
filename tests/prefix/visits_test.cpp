// The cost of a call under the lock of the prefix index does not grow with what others have there.
// The sources of the index, and of what looks for blocks, are compiled so that each basic block
// calls a counting function, which sees every iteration of every loop. The counts are the same on
// each run and each machine.
#include "visits.h"

#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include "../support/hints.h"
#include "api/boundary.h"
#include "replay.h"

extern "C" void __sanitizer_cov_trace_pc();
extern "C" void __sanitizer_cov_trace_pc() { pkv::test::visits++; }

namespace {

using pkv::test::count;

using Text = std::vector<int32_t>;
using cache_test::Session;

constexpr uint32_t block_size = 16;

// Returns `blocks` blocks of tokens that are unique to this name.
Text text(int32_t name, size_t blocks) {
  Text tokens(blocks * block_size);
  for (size_t i = 0; i < tokens.size(); i++)
    tokens[i] = name * 100000 + static_cast<int32_t>(i % 100000);
  return tokens;
}

// The layer groups of a model: one, one more with a window, or these two in a memory that they
// share.
enum class Groups { full, window, shared_memory };

// A cache in which `others` salts, texts, sessions, pins and quotas are not ours.
class World {
 public:
  World(Groups kind, int32_t others) {
    const uint64_t blocks = 6 * static_cast<uint64_t>(others) + 1000;
    ModelConfig config = cache_test::config_of({}, blocks, PKV_STORAGE_EXTERNAL);
    pkv_layer_group groups[] = {config.model, config.model};
    groups[1].window = 2 * block_size;
    auto prefix = made<pkv_prefix_config>({.max_events = 64});
    config.block_size = block_size;
    config.prefix = &prefix;
    if (kind != Groups::full) {
      config.groups = groups;
      config.group_count = 2;
    }
    if (kind == Groups::window) groups[1].blocks = blocks / 3 * 2;  // of these it is short first
    if (kind == Groups::shared_memory) {
      config.memory_bytes = blocks * cache_test::sizes_of(config).bytes_per_block;
      config.groups_share_memory = 1;
      cache_test::set_blocks(config, 0);
    }
    cache = cache_test::create(config);
    for (int32_t i = 0; i < others; i++) add_others(i);
    for (int32_t turn = 1; turn <= 20; turn++) serve(turn);
  }

  // Caches other texts until some are evicted.
  void fill() const {
    const auto evicted = [&] {
      auto stats = made<pkv_prefix_stats>();
      CHECK(pkv_prefix_get_stats(cache, nullptr, PKV_ALL_SALTS, &stats));
      return stats.evicted_tokens;
    };
    const uint64_t before = evicted();
    for (int32_t i = 0; evicted() == before; i++) {
      const Session session = open("filler");
      replay::run(cache, session, text(i, 4));
    }
  }

  Session open(const std::string& of) const {
    auto config = made<pkv_session_config>({.salt = of.data(), .salt_size = of.size()});
    pkv_session session;
    CHECK(pkv_session_open(cache, &config, &session));
    return Session(session);
  }

  // Computes the next turn of our conversation, beside one that leaves it there: each turn is then
  // a node of its own.
  void serve(int32_t turn) const {
    Session session = open(salt);
    replay::run(cache, session, conversation(turn));
    Text aside = conversation(turn);
    aside.resize(aside.size() - block_size);
    const Text other = text(turn, 1);
    aside.insert(aside.end(), other.begin(), other.end());
    Session leaving = open(salt);
    replay::run(cache, leaving, aside);
  }
  static Text conversation(int32_t turns) { return text(0, static_cast<size_t>(turns) * 2); }

  cache_test::Cache cache;
  const std::string salt = "ours";
  const Text ours = conversation(20);

 private:
  void add_others(int32_t i) {
    const std::string name = "other " + std::to_string(i);
    Session session = open(name);
    replay::run(cache, session, text(i, 1));
    sessions_.push_back(std::move(session));
    Session ended = open("crowd");
    replay::run(cache, ended, text(i, 2));
    ended.close();
    // This one shares a block of a text that nobody uses up to there.
    Session trimmed = open("crowd");
    replay::match(trimmed, text(i, 2));
    CHECK(pkv_session_trim(trimmed, 2 * block_size - 1));
    sessions_.push_back(std::move(trimmed));
    if (i % 4 == 0) {
      cache_test::hint(cache, PKV_HINT_PIN, text(i, 1), "crowd", {.end = block_size});
      CHECK(pkv_prefix_set_quota(cache, name.data(), name.size(), 10 * block_size));
    }
  }

  std::vector<Session> sessions_;
};

// Counts a hint about our text, and then undoes it.
uint64_t count_hint(const World& world, pkv_hint_action action, pkv_hint_action undo) {
  const auto give = [&](pkv_hint_action each, pkv_retention retention) {
    const pkv_hint bounds{.first = 48, .end = 192, .retention = retention, .duration_ms = 1000};
    cache_test::hint(world.cache, each, world.ours, world.salt, bounds);
  };
  if (action == PKV_HINT_UNPIN) give(undo, PKV_RETENTION_HIGH);
  const uint64_t visited = count([&] { give(action, PKV_RETENTION_HIGH); });
  if (action != PKV_HINT_UNPIN) give(undo, PKV_RETENTION_NORMAL);
  return visited;
}

struct Row {
  const char* name;
  uint64_t (*cost)(const World& world);
};

// By function of the interface; each leaves the world unchanged.
const Row rows[] = {
    {"pkv_session_open",
     [](const World& world) { return count([&] { world.open("a new salt"); }); }},
    {"pkv_session_close",
     [](const World& world) {
       Session session = world.open(world.salt);
       replay::match(session, world.ours);
       return count([&] { session.close(); });
     }},
    {"pkv_session_admit, total_tokens 0",
     [](const World& world) {
       const Session session = world.open(world.salt);
       return count([&] { replay::match(session, world.ours); });
     }},
    {"pkv_session_admit",
     [](const World& world) {
       const Session session = world.open(world.salt);
       uint64_t matched = 0;
       return count([&] {
         CHECK(pkv_session_admit(session, world.ours.size(), world.ours.data(), world.ours.size(),
                                 &matched));
       });
     }},
    {"pkv_batch_commit",
     [](const World& world) {
       Session session = world.open("a new salt");
       uint64_t visited = 0;
       {
         cache_test::Batch batch = cache_test::begin(world.cache, {session}, {4 * block_size});
         visited =
             count([&] { cache_test::commit(batch, std::span(world.ours).first(4 * block_size)); });
       }
       session.close();
       CHECK(pkv_prefix_clear(world.cache, "a new salt", 10));
       return visited;
     }},
    {"pkv_session_trim",
     [](const World& world) {
       const Session session = world.open(world.salt);
       replay::match(session, world.ours);
       return count([&] { CHECK(pkv_session_trim(session, world.ours.size() - 1)); });
     }},
    {"pkv_session_drop_blocks",
     [](const World& world) {
       const Session session = world.open(world.salt);
       replay::match(session, world.ours);
       const uint32_t block = 3;
       return count([&] { CHECK(pkv_session_drop_blocks(session, 0, 1, &block)); });
     }},
    {"pkv_session_fork",
     [](const World& world) {
       const Session session = world.open(world.salt);
       replay::match(session, world.ours);
       return count([&] { cache_test::fork(session); });
     }},
    {"pkv_session_suspend",
     [](const World& world) {
       const Session session = world.open(world.salt);
       replay::match(session, world.ours);
       return count([&] {
         CHECK(pkv_session_suspend(session));
         uint64_t length = 0, total = 0;
         CHECK(pkv_session_resume(session, &length, &total));
       });
     }},
    {"pkv_prefix_get_stats",
     [](const World& world) {
       return count([&] {
         pkv_prefix_stats stats{};
         stats.struct_size = sizeof stats;
         CHECK(pkv_prefix_get_stats(world.cache, world.salt.data(), world.salt.size(), &stats));
         CHECK(pkv_prefix_get_stats(world.cache, nullptr, PKV_ALL_SALTS, &stats));
       });
     }},
    {"pkv_cache_get_stats",
     [](const World& world) { return count([&] { cache_test::stats_of(world.cache); }); }},
    {"pkv_prefix_clear",
     [](const World& world) {
       const uint64_t visited = count(
           [&] { CHECK(pkv_prefix_clear(world.cache, world.salt.data(), world.salt.size())); });
       for (int32_t turn = 1; turn <= 20; turn++) world.serve(turn);
       return visited;
     }},
    {"pkv_prefix_probe",
     [](const World& world) {
       uint64_t cached = 0;
       return count(
           [&] { CHECK(pkv_prefix_probe(world.cache, TextArg(world.ours, world.salt), &cached)); });
     }},
    {"a pin", [](const World& world) { return count_hint(world, PKV_HINT_PIN, PKV_HINT_UNPIN); }},
    {"an unpin",
     [](const World& world) { return count_hint(world, PKV_HINT_UNPIN, PKV_HINT_PIN); }},
    {"a retention for a time",
     [](const World& world) {
       return count_hint(world, PKV_HINT_SET_RETENTION, PKV_HINT_SET_RETENTION);
     }},
    {"pkv_prefix_set_quota",
     [](const World& world) {
       const auto set = [&](const std::string& salt, uint64_t tokens) {
         CHECK(pkv_prefix_set_quota(world.cache, salt.data(), salt.size(), tokens));
       };
       const uint64_t visited = count([&] {
         set(world.salt, 1000 * block_size);
         set(world.salt, PKV_NO_QUOTA);
         set("a new salt", 10 * block_size);
       });
       CHECK(pkv_prefix_set_quota(world.cache, "a new salt", 10, 0));
       return visited;
     }},
    {"pkv_prefix_read_events",
     [](const World& world) {
       uint64_t next = 0, lost = 0;
       pkv_prefix_event events[64];
       size_t n;
       return count(
           [&] { CHECK(pkv_prefix_read_events(world.cache, &next, 64, events, &n, &lost)); });
     }},
    {"pkv_prefix_hash_blocks",
     [](const World& world) {
       std::vector<uint64_t> hashes(world.ours.size() / block_size);
       return count(
           [&] { CHECK(pkv_prefix_hash_blocks(TextArg(world.ours), block_size, hashes.data())); });
     }},
    // From here on, the cache is full.
    {"pkv_session_reserve, which evicts",
     [](const World& world) {
       world.fill();
       uint64_t visited = 0;
       std::vector<Session> sessions;
       for (int32_t i = 0; i < 64; i++) {
         const pkv_session session = sessions.emplace_back(world.open("a new salt"));
         visited += count([&] { CHECK(pkv_session_reserve(session, block_size)); });
       }
       return visited;
     }},
};

class Visits : public testing::TestWithParam<Groups> {};

TEST_P(Visits, DoNotGrowWithWhatOthersHave) {
  std::vector<std::vector<uint64_t>> costs(std::size(rows));
  for (const int32_t others : {100, 200, 800}) {
    const World world(GetParam(), others);
    // The lower one of two costs, since the eviction policy learns once in a while.
    for (size_t i = 0; i < std::size(rows); i++)
      costs[i].push_back(std::min(rows[i].cost(world), rows[i].cost(world)));
    CHECK(pkv_cache_validate(world.cache));
  }
  uint64_t seen = 0;
  for (size_t i = 0; i < std::size(rows); i++) {
    std::printf("%-34s", rows[i].name);
    for (const uint64_t cost : costs[i]) std::printf(" %8llu", (unsigned long long)cost);
    std::printf("\n");
    // Searches in ordered maps and sets take three steps more among eight times as many.
    EXPECT_LT(costs[i].back(), 2 * costs[i].front() + 10) << rows[i].name;
    seen += costs[i].front();
  }
  EXPECT_GT(seen, 1000u) << "nothing was counted";
}

std::string name_of(const testing::TestParamInfo<Groups>& kind) {
  constexpr const char* names[] = {"OneFull", "FullAndWindow", "SharedMemory"};
  return names[static_cast<size_t>(kind.param)];
}

INSTANTIATE_TEST_SUITE_P(Groups, Visits,
                         testing::Values(Groups::full, Groups::window, Groups::shared_memory),
                         name_of);

// ---- Texts that cannot be published -------------------------------------------------------------

// Computes tokens of a session.
void compute(pkv_cache cache, pkv_session session, const Text& tokens) {
  cache_test::Batch batch =
      cache_test::begin(cache, {session}, {static_cast<uint32_t>(tokens.size())});
  cache_test::commit(batch, tokens);
}

Text unknown(size_t blocks) { return Text(blocks * block_size, PKV_UNKNOWN_TOKEN); }

// A session of `blocks` blocks of which nothing, or next to nothing, can be published.
struct Unpublished {
  const char* name;
  Session (*make)(const World& world, size_t blocks);
};

const Unpublished unpublished[] = {
    {"an unknown id in the first block",
     [](const World& world, size_t blocks) {
       Session session = world.open("a new salt");
       Text tokens = text(1, blocks);
       tokens[0] = PKV_UNKNOWN_TOKEN;
       compute(world.cache, session, tokens);
       return session;
     }},
    {"ids set late, after another session's",
     [](const World& world, size_t blocks) {
       Session first = world.open("a new salt");
       compute(world.cache, first, unknown(blocks));
       Session session = cache_test::fork(first);
       for (int32_t i = 0; const pkv_session each : {pkv_session(first), pkv_session(session)}) {
         const Text ids = text(++i, blocks);
         CHECK(pkv_session_set_tokens(each, 0, ids.size(), ids.data()));
       }
       return session;
     }},
    {"no room in the quota",
     [](const World& world, size_t blocks) {
       Session session = world.open("a full salt");
       CHECK(pkv_prefix_set_quota(world.cache, "a full salt", 11, block_size));
       compute(world.cache, session, text(1, blocks));
       return session;
     }},
};

TEST(VisitsTest, OfAStepDoNotGrowWithATextThatCannotBePublished) {
  for (const auto& [name, make] : unpublished) {
    std::vector<uint64_t> costs;
    for (const size_t blocks : {size_t{50}, size_t{800}}) {
      const World world(Groups::full, 300);
      const Session session = make(world, blocks);
      compute(world.cache, session, text(2, 1));  // its list of tokens gets longer
      costs.push_back(count([&] { compute(world.cache, session, text(3, 1)); }));
      CHECK(pkv_cache_validate(world.cache));
    }
    std::printf("%-38s %8llu %8llu\n", name, (unsigned long long)costs[0],
                (unsigned long long)costs[1]);
    EXPECT_LT(costs[1], 2 * costs[0]) << name;
  }
}

TEST(VisitsTest, AQuotaMakesNoRoomForWhatCannotBeStored) {
  const World world(Groups::full, 100);
  const std::string salt = "a new salt";
  const Session session = unpublished[1].make(world, 10);
  const Text cached = text(7, 10);
  {
    const Session ended = world.open(salt);
    replay::run(world.cache, ended, cached);
  }
  CHECK(pkv_prefix_set_quota(world.cache, salt.data(), salt.size(), 20 * block_size));
  compute(world.cache, session, text(3, 1));
  uint64_t found = 0;
  CHECK(pkv_prefix_probe(world.cache, TextArg(cached, salt), &found));
  EXPECT_EQ(cached.size(), found);
}

// ---- Saves --------------------------------------------------------------------------------------

// A save copies the index in pieces, each under the lock.
TEST(VisitsTest, OfAPieceOfASaveDoNotGrow) {
  std::vector<uint64_t> highest;
  for (const int32_t others : {400, 800}) {
    const World world(Groups::full, others);
    const Session session = world.open("a long text");
    replay::run(world.cache, session, text(1, static_cast<size_t>(others)));
    const pkv::api::CacheLease lease(world.cache);
    const auto image = lease->prefix()->begin_image();
    highest.push_back(0);
    for (bool more = true; more;)
      highest.back() =
          std::max(highest.back(), count([&] { more = lease->prefix()->copy_more(*image); }));
  }
  std::printf("a piece of a save: %llu, %llu\n", (unsigned long long)highest[0],
              (unsigned long long)highest[1]);
  EXPECT_LT(highest[1], 2 * highest[0]);
}

// ---- Caches beside others -----------------------------------------------------------------------

// What a call on all of a small cache visits does not depend on what other caches have, or had.
TEST(VisitsTest, OfACacheDoNotGrowWithTheSessionsOfAnother) {
  const auto visits = [] {
    cache_test::Cache cache =
        cache_test::create(cache_test::config_of({}, 16, PKV_STORAGE_EXTERNAL));
    Session session = cache_test::open(cache);
    cache_test::grow(cache, session, 8);
    std::vector<uint64_t> counts;
    const uint32_t tokens = 1;
    size_t found = 0;
    counts.push_back(count([&] { CHECK(pkv_cache_validate(cache)); }));
    counts.push_back(count([&] {
      const pkv_session step = session;
      CHECK(pkv_batch_choose_victims(cache, 1, &step, &tokens, 0, nullptr, &found));
    }));
    counts.push_back(count([&] { cache.close(); }));
    session.forget();
    return counts;
  };
  const std::vector<uint64_t> alone = visits();
  const cache_test::Cache other =
      cache_test::create(cache_test::config_of({}, 16, PKV_STORAGE_EXTERNAL));
  std::vector<Session> sessions;
  for (size_t i = 0; i < 20'000; i++) sessions.push_back(cache_test::open(other));
  EXPECT_EQ(visits(), alone);
  sessions.resize(10);
  EXPECT_EQ(visits(), alone);
}

TEST(VisitsTest, AreCountedForEveryFunctionOfTheIndex) {
  std::set<std::string> named;
  for (const Row& row : rows) named.insert(row.name);
  std::stringstream header;
  header << std::ifstream(PAGEDKV_ROOT "/include/pagedkv/prefix.h").rdbuf();
  const std::string source = header.str();
  const std::regex declaration("PKV_API pkv_status (\\w+)\\(");
  size_t functions = 0;
  for (std::sregex_iterator each(source.begin(), source.end(), declaration), end; each != end;
       ++each, functions++)
    EXPECT_TRUE(named.contains((*each)[1])) << (*each)[1];
  EXPECT_GT(functions, 5u);
}

}  // namespace
