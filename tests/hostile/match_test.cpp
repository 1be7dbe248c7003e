// Events in the middle of a match: memory is refused, the process forks, or another thread changes
// what was found before the session has claimed it. A match finds, makes room and claims, and the
// lock of the index is free between these; each of the three allocates.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "world.h"

namespace hostile::match_test {
namespace {

using Text = std::vector<int32_t>;

constexpr uint32_t blocks = 16, window = 32, cached_tokens = 128, common = 40;

// A cache of two groups, the second one with a window. A text is cached in half of its blocks; the
// other one, which tests match, begins with the same 40 tokens: two blocks and half of the third.
class Stage {
 public:
  Stage() {
    for (int32_t i = 0; i < static_cast<int32_t>(cached_tokens); i++) cached.push_back(i);
    other = first(cached, common);
    for (int32_t i = 0; i < 30; i++) other.push_back(1000 + i);
    pkv_layer_group groups[2];
    for (pkv_layer_group& group : groups) {
      group = made<pkv_layer_group>();
      group.layers = 1;
      group.query_heads = query_heads, group.kv_heads = kv_heads, group.key_dim = dim;
      group.blocks = blocks;
    }
    groups[1].window = window;
    auto config = made<pkv_cache_config>();
    const auto prefix = made<pkv_prefix_config>();
    config.groups = groups;
    config.group_count = 2;
    config.threads = 1;
    config.prefix = &prefix;
    config.allocator = hooks.allocator();
    OK(pkv_cache_create(&config, &cache));
    OK(extend(cached));
    OK(pkv_session_open(cache, nullptr, &session));
  }

  static Text first(const Text& text, size_t n) {
    return {text.begin(), text.begin() + static_cast<std::ptrdiff_t>(n)};
  }

  pkv_status match(uint64_t& matched) {
    return pkv_session_admit(session, other.size(), other.data(), 0, &matched);
  }

  // Computes what is not cached of a text, and closes the session.
  pkv_status extend(const Text& text) const {
    pkv_session own = nullptr;
    pkv_batch batch = nullptr;
    uint64_t matched = 0;
    OK(pkv_session_open(cache, nullptr, &own));
    OK(pkv_session_admit(own, text.size() - 1, text.data(), 0, &matched));
    const Text rest(text.begin() + static_cast<std::ptrdiff_t>(matched), text.end());
    const auto count = static_cast<uint32_t>(rest.size());
    const pkv_status status = pkv_batch_begin(cache, 1, &own, &count, &batch);
    if (status == PKV_OK) {
      const std::vector<float> data = rows_of(rest);
      const pkv_tensor rows = tensor(data.data());
      for (uint32_t layer = 0; layer < layers; layer++)
        OK(pkv_batch_write(batch, layer, &rows, &rows));
      OK(pkv_batch_commit(batch, count, rest.data()));
    }
    OK(pkv_session_close(own));
    return status;
  }

  // Takes all blocks for a moment, so that no unused block stays cached. Returns OUT_OF_BLOCKS if
  // some blocks are in use.
  pkv_status evict() const {
    pkv_session own = nullptr;
    pkv_batch batch = nullptr;
    const uint32_t count = blocks * block_size;
    OK(pkv_session_open(cache, nullptr, &own));
    const pkv_status status = pkv_batch_begin(cache, 1, &own, &count, &batch);
    if (status == PKV_OK) OK(pkv_batch_abort(batch));
    OK(pkv_session_close(own));
    return status;
  }

  // Checks that the session has the first tokens of the text, and their rows.
  void check(uint64_t matched) const {
    const Text want = first(other, matched);
    Text tokens(matched);
    HOSTILE_CHECK(length_of(session) == matched, "%llu tokens instead of %llu",
                  (unsigned long long)length_of(session), (unsigned long long)matched);
    if (matched == 0) return;
    OK(pkv_session_get_tokens(session, 0, matched, tokens.data()));
    HOSTILE_CHECK(tokens == want, "other tokens");
    for (uint32_t layer = 0; layer < layers; layer++) {
      const uint64_t seen = layer == 0 ? matched : std::min<uint64_t>(matched, window - 1);
      std::vector<float> k(seen * kv_floats), v(k.size());
      const pkv_tensor keys = tensor(k.data()), values = tensor(v.data());
      OK(pkv_session_read(session, layer, matched - seen, seen, &keys, &values));
      const std::vector<float> right =
          rows_of({want.end() - static_cast<std::ptrdiff_t>(seen), want.end()});
      HOSTILE_CHECK(k == right && v == right, "other rows in layer %u", layer);
    }
    OK(pkv_cache_validate(cache));
  }

  void close() {
    OK(pkv_cache_destroy(cache));
    HOSTILE_CHECK(hooks.live() == 0 && hooks.sound(), "the allocator's blocks did not come back");
  }

  Hooks hooks;
  Text cached, other;
  pkv_cache cache = nullptr;
  pkv_session session = nullptr;

 private:
  // All elements of a token's rows are its id.
  static std::vector<float> rows_of(const Text& tokens) {
    std::vector<float> rows;
    for (const int32_t token : tokens)
      rows.insert(rows.end(), kv_floats, static_cast<float>(token));
    return rows;
  }
};

// Runs `middle` inside the k-th allocation of a match, for every k, each time on a stage of its
// own, and then `after` with what was matched; it waits for what `middle` has started, as the hooks
// change then. Returns the number of allocations.
uint64_t at_each_allocation(const std::function<void(Stage&)>& middle,
                            const std::function<void(Stage&, uint64_t)>& after) {
  for (uint64_t k = 1;; k++) {
    HOSTILE_CHECK(k < 100, "there is no end to the allocations");
    Stage stage;
    uint64_t calls = 0, matched = 0;
    const std::thread::id matching = std::this_thread::get_id();
    stage.hooks.inside = [&] {
      if (std::this_thread::get_id() == matching && ++calls == k) middle(stage);
    };
    OK(stage.match(matched));
    after(stage, matched);
    stage.hooks.inside = nullptr;
    stage.check(matched);
    stage.close();
    if (calls < k) return k - 1;
  }
}

// Runs `act` in another thread inside each allocation of a match. If the match has the lock, `act`
// waits and runs afterwards. Returns the number of allocations for which `act` ended before the
// match continued. `allowed` checks what the match may then have found.
uint64_t beside_each_allocation(const std::function<void(const Stage&)>& act,
                                const std::function<bool(uint64_t)>& allowed) {
  uint64_t in_time = 0;
  std::thread beside;
  std::atomic<bool> over;
  std::string failed;
  const uint64_t allocations = at_each_allocation(
      [&](const Stage& stage) {
        over = false;
        beside = std::thread([&] {
          try {
            act(stage);
          } catch (const Failure& failure) {
            failed = failure.what();
          }
          over = true;
        });
        for (int i = 0; i < 100 && !over; i++)
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        in_time += over;
      },
      [&](const Stage&, uint64_t matched) {
        if (beside.joinable()) beside.join();
        HOSTILE_CHECK(failed.empty(), "%s", failed.c_str());
        HOSTILE_CHECK(allowed(matched), "%llu tokens matched", (unsigned long long)matched);
      });
  HOSTILE_CHECK(allocations >= 3, "a match makes %llu allocations",
                (unsigned long long)allocations);
  return in_time;
}

TEST(Match, WithEachAllocationRefused) {
  EXPECT_EQ(in_child([] {
              for (const bool hooks : {true, false})
                for (uint64_t k = 1, refused = 0;; k++) {
                  HOSTILE_CHECK(k < 100, "there is no end to the allocations");
                  Stage stage;
                  uint64_t matched = 0;
                  pkv_status status;
                  bool struck;
                  if (hooks) {
                    stage.hooks.fail_at = k;
                    status = stage.match(matched);
                    stage.hooks.fail_at = 0;
                    struck = stage.hooks.struck;
                  } else {
                    FailingNew failing(k);
                    status = stage.match(matched);
                    struck = failing.struck();
                  }
                  refused += status == PKV_OUT_OF_MEMORY;
                  if (status == PKV_OUT_OF_MEMORY) {
                    HOSTILE_CHECK(struck, "nothing was refused");
                    stage.check(0);
                    status = stage.match(matched);
                  }
                  OK(status);
                  HOSTILE_CHECK(matched == common, "%llu tokens", (unsigned long long)matched);
                  stage.check(matched);
                  stage.close();
                  if (struck) continue;
                  // All memory is from the cache's allocator.
                  HOSTILE_CHECK(hooks ? refused >= 3 : refused == 0, "%llu were refused",
                                (unsigned long long)refused);
                  break;
                }
            }),
            "");
}

// Another thread forks, so its child has half of a match, and locks that no thread of the child
// holds.
TEST(Match, WithAForkAtEachAllocation) {
  SKIP_WITHOUT_FORK();
  EXPECT_EQ(
      in_child([] {
        const uint64_t in_time = beside_each_allocation(
            [](const Stage& stage) {
              const std::string failed = in_child(
                  [&] {
                    uint64_t matched = 0;
                    WANT(PKV_WRONG_PROCESS,
                         pkv_session_admit(stage.session, common, stage.other.data(), 0, &matched));
                    OK(pkv_cache_destroy(stage.cache));
                    WANT(PKV_STALE_HANDLE, pkv_session_close(stage.session));
                    Stage own;
                    OK(own.match(matched));
                    own.check(matched);
                    own.close();
                  },
                  20);
              HOSTILE_CHECK(failed.empty(), "in the child: %s", failed.c_str());
            },
            [](uint64_t matched) { return matched == common; });
        HOSTILE_CHECK(in_time > 0, "no child was over in time");
      }),
      "");
}

// All that was found is gone when it is claimed, so that there is nothing to claim.
TEST(Match, WhileAnotherThreadEvictsWhatWasFound) {
  EXPECT_EQ(in_child([] {
              std::atomic<int> evicted{0};
              const uint64_t in_time = beside_each_allocation(
                  [&](const Stage& stage) {
                    const pkv_status status = stage.evict();
                    evicted += status == PKV_OK;
                    if (status != PKV_OK) WANT(PKV_OUT_OF_BLOCKS, status);
                  },
                  [](uint64_t matched) { return matched == 0 || matched == common; });
              HOSTILE_CHECK(in_time > 0 && evicted > 0, "nothing was evicted in time");
            }),
            "");
}

// The node that was found is split or extended before it is claimed.
TEST(Match, WhileAnotherThreadCachesMoreOfTheText) {
  EXPECT_EQ(in_child([] {
              Text split, longer;
              {
                const Stage stage;
                split = stage.other;
                longer = stage.cached;
                longer.insert(longer.end(), 20, 2000);
              }
              for (const Text& text : {split, longer}) {
                const uint64_t in_time = beside_each_allocation(
                    [&](const Stage& stage) { OK(stage.extend(text)); },
                    // The whole text has four full blocks and six tokens more.
                    [&](uint64_t matched) { return matched == common || matched == 64; });
                HOSTILE_CHECK(in_time > 0, "nothing was cached in time");
              }
            }),
            "");
}

}  // namespace
}  // namespace hostile::match_test
