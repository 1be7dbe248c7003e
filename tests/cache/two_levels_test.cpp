// A cache over a store that deletes what was not used for longest. What requests find in memory is
// not read from the store; yet after a restart the store must have it.
//
// Long form: PKV_ROUNDS=12031 plays all requests of the recorded workload.
#include <list>
#include <mutex>
#include <unordered_map>
#include <unordered_set>

#include "../support/files.h"
#include "../support/rounds.h"
#include "../support/trace.h"
#include "prefix_fixture.h"

namespace cache_test::two_levels_test {
namespace {

using trace::Request;

// A store with room for some items.
class LruStore {
 public:
  explicit LruStore(uint64_t capacity) : capacity_(capacity) {}

  pkv_store table() {
    pkv_store store = made<pkv_store>();
    store.user = this;
    store.put = [](void* user, size_t n, pkv_store_item* items) { return of(user).put(n, items); };
    store.get = [](void* user, size_t n, pkv_store_item* items) {
      return of(user).use(n, items, true);
    };
    store.touch = [](void* user, size_t n, pkv_store_item* items) {
      return of(user).use(n, items, false);
    };
    store.remove = [](void*, size_t, const pkv_store_item*) { return int64_t{0}; };
    store.close = [](void*) {};
    return store;
  }
  uint64_t puts() const { return puts_; }
  uint64_t touches() const { return touches_; }
  // Loses everything, as a server does with FLUSHALL.
  void clear() { items_.clear(), order_.clear(); }
  // Changes nothing while it lives, so that what is in the store can be looked at.
  void set_frozen(bool frozen) { frozen_ = frozen; }

 private:
  struct Item {
    std::vector<unsigned char> bytes;
    std::list<std::string>::iterator place;
  };

  static LruStore& of(void* user) { return *static_cast<LruStore*>(user); }
  static std::string key_of(const pkv_store_item& item) {
    return std::string(reinterpret_cast<const char*>(item.name), sizeof item.name);
  }

  int64_t put(size_t n, const pkv_store_item* items) {
    const std::lock_guard lock(mutex_);
    for (size_t i = 0; i < n && !frozen_; i++) {
      const std::string key = key_of(items[i]);
      const auto [at, is_new] = items_.try_emplace(key);
      if (!is_new) order_.erase(at->second.place);
      const auto* const bytes = static_cast<const unsigned char*>(items[i].data);
      at->second = {{bytes, bytes + items[i].size}, order_.insert(order_.end(), key)};
      puts_++;
      if (items_.size() <= capacity_) continue;
      items_.erase(order_.front());
      order_.pop_front();
    }
    return static_cast<int64_t>(n);
  }

  int64_t use(size_t n, pkv_store_item* items, bool read) {
    const std::lock_guard lock(mutex_);
    int64_t found = 0;
    touches_ += read ? 0 : n;
    for (size_t i = 0; i < n; i++) {
      const auto at = items_.find(key_of(items[i]));
      const uint64_t room = items[i].size;
      items[i].size = at == items_.end() ? 0 : at->second.bytes.size();
      if (at == items_.end()) continue;
      found++;
      if (read) std::memcpy(items[i].data, at->second.bytes.data(), std::min(room, items[i].size));
      if (!frozen_) order_.splice(order_.end(), order_, at->second.place);
    }
    return found;
  }

  const uint64_t capacity_;
  std::mutex mutex_;
  std::unordered_map<std::string, Item> items_;
  std::list<std::string> order_;  // the item that was not used for longest comes first
  bool frozen_ = false;
  uint64_t puts_ = 0, touches_ = 0;
};

// A cache of one layer over a store. Its requests are lists of blocks, as in the trace; each block
// is 16 tokens here.
class Levels {
 public:
  Levels(const pkv_store& store, uint64_t blocks) : table_(store), blocks_(blocks) { restart(); }

  // Ends the cache, which writes what is queued, and makes a new one.
  void restart() {
    cache_.close();
    pkv_store table = table_;
    auto store = made<pkv_store_config>({.wait_ms = 60'000, .store = &table});
    store.max_queued_tokens = 16 * blocks_;
    const auto prefix = made<pkv_prefix_config>({.eviction = PKV_EVICTION_LRU});
    ModelConfig config = config_of(Model{1, 1, 1, 16}, blocks_);
    config.prefix = &prefix;
    config.store = &store;
    cache_ = create(config);
  }
  // Serves a request, and waits until it is written. Returns how many of its blocks were found.
  uint64_t serve(const Request& request) {
    const std::vector<int32_t> tokens = tokens_of(request);
    uint64_t matched = 0;
    {
      Session session = open(cache_);
      CHECK(pkv_session_admit(session, tokens.size(), tokens.data(), 0, &matched));
      if (const auto rest = static_cast<uint32_t>(tokens.size() - matched); rest > 0) {
        Batch batch = begin(cache_, {session}, {rest});
        Rows kv(rest, 1, 16);
        write(batch, 0, kv, kv);
        commit(batch, std::span(tokens).subspan(matched));
      }
    }
    flush();
    return matched / 16;
  }
  // Returns how many blocks of a request are found; nothing is computed.
  uint64_t find(const Request& request) {
    const std::vector<int32_t> tokens = tokens_of(request);
    uint64_t matched = 0;
    Session session = open(cache_);
    CHECK(pkv_session_admit(session, tokens.size(), tokens.data(), 0, &matched));
    return matched / 16;
  }
  StoreStats stats() { return store_stats_of(cache_); }

 private:
  static std::vector<int32_t> tokens_of(const Request& request) {
    std::vector<int32_t> tokens;
    for (const uint32_t id : request) trace::append_tokens(id, 16, tokens);
    return tokens;
  }
  void flush() { EXPECT_EQ(0u, flush_store(cache_)); }

  const pkv_store table_;
  const uint64_t blocks_;
  Cache cache_;
};

Request operator+(Request a, const Request& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// Returns n blocks that differ from those of any other name.
Request blocks(uint32_t name, uint32_t n) {
  Request request(n);
  for (uint32_t i = 0; i < n; i++) request[i] = name * 1000 + i;
  return request;
}

// A store of each kind with room for about 114 items of a block.
class TwoLevels : public testing::TestWithParam<bool> {
 protected:
  pkv_store open_store() {
    if (!GetParam()) return lru_.table();
    const std::string path = directory_ / "store";
    auto config = made<pkv_directory_config>({.path = path.c_str()});
    config.max_bytes = 126 * bytes_of_item;  // it deletes a tenth at once
    pkv_store store = made<pkv_store>();
    CHECK(pkv_store_open_directory(&config, &store));
    return store;
  }
  static constexpr uint64_t bytes_of_item = 2176;

  // Ends a cache over the store, and makes a new one.
  void restart() {
    levels_.reset();
    levels_.emplace(open_store(), 256);
  }
  Levels& levels() { return *levels_; }
  void SetUp() override { restart(); }

  LruStore lru_{114};
  files::TemporaryDirectory directory_;
  std::optional<Levels> levels_;
};

INSTANTIATE_TEST_SUITE_P(, TwoLevels, testing::Bool(),
                         [](const auto& test) { return test.param ? "Directory" : "Table"; });

TEST_P(TwoLevels, APromptThatIsAlwaysInMemoryStaysInTheStore) {
  const Request prompt = blocks(1, 10);
  levels().serve(prompt + blocks(2, 10));
  for (uint32_t i = 3; i < 62; i++) ASSERT_EQ(10u, levels().serve(prompt + blocks(i, 10)));
  restart();
  EXPECT_EQ(10u, levels().find(prompt + blocks(99, 10)));
  EXPECT_EQ(20u, levels().find(prompt + blocks(61, 10))) << "the newest text";
}

// Eight chats take turns. Their texts have more blocks than the store, which then has whole
// beginnings of texts: ends without a beginning are of no use.
TEST_P(TwoLevels, ChatsKeepTheirBeginnings) {
  std::vector<Request> chats;
  for (uint32_t chat = 0; chat < 8; chat++) chats.push_back(blocks(100 * chat, 4));
  for (uint32_t turn = 1; turn <= 6; turn++)
    for (uint32_t chat = 0; chat < 8; chat++) {
      levels().serve(chats[chat]);
      if (turn < 6) chats[chat] = chats[chat] + blocks(100 * chat + turn, 4);
    }
  restart();
  uint64_t usable = 0;
  for (const Request& chat : chats) usable += levels().find(chat);
  EXPECT_GE(usable, 100u) << "of at most 114";
}

class LostItems : public testing::Test {
 protected:
  LruStore store_{1000};
  Levels levels_{store_.table(), 256};
};

// A server that lost its items gets those in use again, once as much was written as they have.
TEST_F(LostItems, AreWrittenAgain) {
  const Request prompt = blocks(1, 10);
  levels_.serve(prompt);
  store_.clear();
  levels_.serve(prompt);
  EXPECT_EQ(10u, store_.puts()) << "seen a moment ago";
  levels_.serve(blocks(2, 10));
  levels_.serve(prompt);
  EXPECT_EQ(30u, store_.puts());
}

// What is in use costs a question per item once as much was written as its text has, and not
// more often.
TEST_F(LostItems, AreNotAskedForWithEachRequest) {
  const Request prompt = blocks(1, 40);
  levels_.serve(prompt);
  const uint64_t before = store_.touches();
  for (uint32_t i = 0; i < 40; i++) levels_.serve(prompt + blocks(2 + i, 1));
  // Each request asks twice for its last block, which is new: to match it, and to write it.
  EXPECT_LE(store_.touches() - before, 2 * 40u + 40u);
}

// ---- A recorded workload ------------------------------------------------------------------------

// The most blocks that the next requests could find after a restart, if the store had chosen what
// to keep of the requests before with foresight: what most of the next ones begin with.
uint64_t optimum(std::span<const Request> before, std::span<const Request> next, uint64_t items) {
  std::unordered_set<uint32_t> had;
  for (const Request& request : before) had.insert(request.begin(), request.end());
  std::unordered_map<uint32_t, uint64_t> uses;
  for (const Request& request : next)
    for (const uint32_t id : request) {
      if (!had.contains(id)) break;
      uses[id]++;
    }
  std::vector<uint64_t> counts;
  for (const auto& [id, count] : uses) counts.push_back(count);
  std::ranges::sort(counts, std::greater());
  uint64_t found = 0;
  for (size_t i = 0; i < std::min<size_t>(items, counts.size()); i++) found += counts[i];
  return found;
}

// A store with the same order of deletion that every request uses itself, from its end to its
// beginning, as if there were no memory above it.
class OneLevel {
 public:
  explicit OneLevel(uint64_t items) : items_(items) {}
  void serve(const Request& request) {
    for (size_t i = request.size(); i-- > 0;) {
      const auto [at, is_new] = places_.try_emplace(request[i]);
      if (!is_new) order_.erase(at->second);
      at->second = order_.insert(order_.end(), request[i]);
      if (places_.size() <= items_) continue;
      places_.erase(order_.front());
      order_.pop_front();
    }
  }
  // Returns how many blocks of a request it has.
  uint64_t find(const Request& request) const {
    uint64_t found = 0;
    while (found < request.size() && places_.contains(request[found])) found++;
    return found;
  }

 private:
  const uint64_t items_;
  std::unordered_map<uint32_t, std::list<uint32_t>::iterator> places_;
  std::list<uint32_t> order_;
};

// Restarts the process four times, and counts what the next requests find in the store then.
TEST(TwoLevelsTrace, AfterARestartTheStoreHasWhatTheNextRequestsNeed) {
  const auto path = trace::path(PAGEDKV_ROOT);
  if (!std::filesystem::exists(path))
    GTEST_SKIP() << "no " << path << ": nothing was shown about the recorded workload";
  std::vector<Request> all = trace::read(path);
  const size_t count = std::min<size_t>(pkv::test::number_in("PKV_ROUNDS", 1000), all.size());
  constexpr size_t restarts = 4;
  const size_t watched = count / 8;
  for (const uint64_t items : {count, 3 * count, 9 * count}) {
    LruStore store(items);
    Levels levels(store.table(), std::max<uint64_t>(count / 4, 300));
    OneLevel one(items);
    uint64_t usable = 0, alone = 0, best = 0, hits = 0;
    for (size_t i = 0; i < count; i++) {
      hits += levels.serve(all[i]);
      one.serve(all[i]);
      if ((i + 1) % (count / (restarts + 1)) != 0 || i + 1 + watched > count) continue;
      levels.restart();
      const std::span next = std::span(all).subspan(i + 1, watched);
      store.set_frozen(true);
      {
        Levels looking(store.table(), 20'000);
        for (const Request& request : next) usable += looking.find(request);
      }
      store.set_frozen(false);
      for (const Request& request : next) alone += one.find(request);
      best += optimum(std::span(all).first(i + 1), next, items);
    }
    std::printf(
        "%zu requests, a store of %llu blocks: %llu blocks found; after restarts %llu, with a "
        "store "
        "that sees all requests %llu, with foresight %llu; %.2f questions per block written\n",
        count, (unsigned long long)items, (unsigned long long)hits, (unsigned long long)usable,
        (unsigned long long)alone, (unsigned long long)best,
        static_cast<double>(store.touches()) / static_cast<double>(store.puts()));
    EXPECT_GE(static_cast<double>(usable), 0.95 * static_cast<double>(alone)) << items;
  }
}

}  // namespace
}  // namespace cache_test::two_levels_test
