// Threads run sessions of the same texts in a cache that is too small for them. They match, fork
// and trim into blocks that the prefix index and others have, while pins and other texts come and
// go. Each session holds the keys and values of its own text, and at the end all blocks are free.
#include <gtest/gtest.h>

#include "../support/memory_store.h"
#include "../support/test_clock.h"
#include "storm.h"
#include "texts.h"

namespace hostile::tails_test {
namespace {

struct Kind {
  const char* name;
  bool groups_share_memory, with_store;
  uint32_t watermark;
};

class Tails : public testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    pkv_layer_group groups[2] = {made<pkv_layer_group>(), made<pkv_layer_group>()};
    for (pkv_layer_group& group : groups) {
      group.layers = group.query_heads = group.kv_heads = 1;
      group.key_dim = dim;
      group.blocks = blocks;
    }
    groups[1].window = 40;
    auto prefix = made<pkv_prefix_config>({.max_pinned_blocks = blocks});
    auto config = made<pkv_cache_config>({.group_count = 2,
                                          .groups = groups,
                                          .watermark_blocks = GetParam().watermark,
                                          .threads = 1,
                                          .prefix = &prefix,
                                          .clock = clock_.hook()});
    const pkv_store table = items_.table();
    auto store = made<pkv_store_config>({.store = &table});
    if (GetParam().with_store) config.store = &store;
    if (GetParam().groups_share_memory) {
      pkv_cache_plan plan = made<pkv_cache_plan>();
      OK(pkv_cache_compute_plan(&config, PKV_ALL_GROUPS, &plan));
      config.memory_bytes = plan.memory_bytes;
      for (pkv_layer_group& group : groups) group.blocks = 0;
      config.groups_share_memory = 1;
    }
    OK(pkv_cache_create(&config, &cache_));
  }
  void TearDown() override { OK(pkv_cache_destroy(cache_)); }

  static constexpr uint64_t blocks = 24;
  cache_test::TestClock clock_;
  pkv_cache cache_ = nullptr;
  cache_test::MemoryStore items_;
};

// The sessions of one thread.
class Sessions {
 public:
  Sessions(pkv_cache cache, std::mt19937& random) : cache_(cache), random_(random) {}
  ~Sessions() {
    for (const Held& each : held_) pkv_session_close(each.session);
    if (snapshot_ != nullptr) pkv_snapshot_close(snapshot_);
  }
  Sessions(const Sessions&) = delete;

  void operate() {
    const uint64_t what = random_() % 100;
    if (held_.empty() || (what < 15 && held_.size() < 4)) return open();
    Held& chosen = held_[random_() % held_.size()];
    if (what < 50) return step();
    if (what < 62) return trim(chosen);
    if (what < 70 && held_.size() < 4) return fork(chosen);
    if (what < 76) return reserve(chosen);
    if (what < 80) return suspend(chosen);
    if (what < 84) return take_snapshot(chosen);
    if (what < 92) return hint();
    if (what < 96) return check(chosen);
    close(chosen);
  }

 private:
  struct Held {
    pkv_session session;
    Text text;  // what it will have
    uint64_t length = 0;
  };

  // Returns whether a call found blocks. If not, a session often has to go.
  bool worked(pkv_status status, const char* call) {
    if (status == PKV_OK) return true;
    if (status != PKV_OUT_OF_BLOCKS && status != PKV_TOO_LARGE && status != PKV_BATCH_TOO_LARGE)
      expect(PKV_OK, status, call);
    hostile::operations++;
    if (random_() % 2 == 0 && !held_.empty()) close(held_[random_() % held_.size()]);
    return false;
  }

  void open() {
    Held made{nullptr, draw_text(random_, 130, 3)};
    OK(pkv_session_open(cache_, nullptr, &made.session));
    held_.push_back(made);
    Held& held = held_.back();
    const size_t part = random_() % (held.text.size() + 1);
    if (random_() % 3 != 0) {
      OK(pkv_session_admit(held.session, part, held.text.data(), 0, &held.length));
    } else {
      const pkv_status status = pkv_session_admit(held.session, part, held.text.data(),
                                                  part + random_() % 20, &held.length);
      if (!worked(status, "admit")) return;
    }
    check(held);
  }

  void step() {
    std::vector<pkv_session> sessions;
    std::vector<uint32_t> counts;
    std::vector<Held*> stepped;
    const size_t first = random_() % held_.size();
    for (size_t i = 0; i < held_.size(); i++) {
      Held& held = held_[i];
      if ((i != first && random_() % 2 == 0) || held.length == held.text.size()) continue;
      sessions.push_back(held.session);
      counts.push_back(static_cast<uint32_t>(std::min<uint64_t>(
          1 + random_() % (random_() % 2 == 0 ? 3 : 40), held.text.size() - held.length)));
      stepped.push_back(&held);
    }
    pkv_batch batch = nullptr;
    if (!worked(pkv_batch_begin(cache_, sessions.size(), sessions.data(), counts.data(), &batch),
                "begin"))
      return;
    std::vector<float> rows;
    Text ids;
    for (size_t i = 0; i < stepped.size(); i++) {
      const Held& held = *stepped[i];
      const std::vector<float> more = rows_of(held.text, held.length, held.length + counts[i], dim);
      rows.insert(rows.end(), more.begin(), more.end());
      ids.insert(ids.end(), held.text.begin() + static_cast<ptrdiff_t>(held.length),
                 held.text.begin() + static_cast<ptrdiff_t>(held.length + counts[i]));
    }
    const pkv_tensor kv = tensor(rows.data());
    for (uint32_t layer = 0; layer < 2; layer++) OK(pkv_batch_write(batch, layer, &kv, &kv));
    if (random_() % 6 == 0) return OK(pkv_batch_abort(batch));
    OK(pkv_batch_commit(batch, ids.size(), ids.data()));
    for (size_t i = 0; i < stepped.size(); i++) stepped[i]->length += counts[i];
  }

  void trim(Held& held) {
    const uint64_t length = held.length - std::min<uint64_t>(held.length, random_() % 40);
    const pkv_status status = pkv_session_trim(held.session, length);
    if (status == PKV_OUT_OF_RANGE) return;  // it left the window
    expect(PKV_OK, status, "trim");
    held.length = length;
    if (random_() % 2 == 0) follow_another(held);
  }

  // The session goes on as another text that begins like its own.
  void follow_another(Held& held) {
    Text other = draw_text(random_, 130, 3);
    std::copy_n(held.text.begin(), held.length, other.begin());
    held.text = other;
  }

  void fork(Held& held) {
    Held child{nullptr, held.text, held.length};
    OK(pkv_session_fork(held.session, &child.session));
    if (random_() % 2 == 0) follow_another(child);
    held_.push_back(child);
  }

  void reserve(Held& held) {
    worked(pkv_session_reserve(held.session, held.length + random_() % 40), "reserve");
  }

  void suspend(Held& held) {
    OK(pkv_session_suspend(held.session));
    uint64_t total = 0;
    const pkv_status status = pkv_session_resume(held.session, &held.length, &total);
    if (status == PKV_OK) return check(held);
    if (status != PKV_OUT_OF_BLOCKS && status != PKV_TOO_LARGE) expect(PKV_OK, status, "resume");
    close(held);
  }

  void take_snapshot(Held& held) {
    if (snapshot_ == nullptr) {
      OK(pkv_snapshot_take(held.session, &snapshot_));
      frozen_ = held;
      return;
    }
    if (held_.size() < 4) {
      Held made = frozen_;
      OK(pkv_snapshot_fork(snapshot_, &made.session));
      held_.push_back(made);
    }
    OK(pkv_snapshot_close(snapshot_));
    snapshot_ = nullptr;
  }

  void hint() {
    const Text text = draw_text(random_, 130, 3);
    static constexpr pkv_hint_action actions[] = {PKV_HINT_PIN,    PKV_HINT_PIN,  PKV_HINT_UNPIN,
                                                  PKV_HINT_RETAIN, PKV_HINT_DROP, PKV_HINT_DEMOTE};
    auto given = made<pkv_hint>();
    given.action = actions[random_() % std::size(actions)];
    given.duration_ms = random_() % 5;
    const size_t part = random_() % text.size();
    if (given.action == PKV_HINT_DROP) given.first = random_() % (part + 1);
    OK(pkv_hint_text(cache_, TextArg({text.data(), part}), &given, nullptr));
  }

  void close(Held& held) {
    OK(pkv_session_close(held.session));
    std::swap(held, held_.back());
    held_.pop_back();
  }

  // Compares the full group with the text.
  void check(const Held& held) {
    if (held.length == 0) return;
    std::vector<float> k(held.length * dim), v(held.length * dim);
    const pkv_tensor kt = tensor(k.data()), vt = tensor(v.data());
    OK(pkv_session_read(held.session, 0, 0, held.length, &kt, &vt));
    HOSTILE_CHECK(k == rows_of(held.text, 0, held.length, dim) && v == k,
                  "%llu tokens are not those of the text", (unsigned long long)held.length);
    const uint64_t first = held.length - std::min<uint64_t>(held.length, 39);
    k.resize((held.length - first) * dim), v.resize(k.size());
    OK(pkv_session_read(held.session, 1, first, held.length - first, &kt, &vt));
    HOSTILE_CHECK(k == rows_of(held.text, first, held.length, dim) && v == k,
                  "the window of %llu tokens is not that of the text",
                  (unsigned long long)held.length);
  }

  const pkv_cache cache_;
  std::mt19937& random_;
  std::vector<Held> held_;
  pkv_snapshot snapshot_ = nullptr;
  Held frozen_{};
};

TEST_P(Tails, HoldTheirOwnTextAndLoseNoBlock) {
  const storm::Clock clock(8'000);
  EXPECT_EQ("", storm::run(storm::threads(3), [&](unsigned, std::mt19937& random) {
              Sessions sessions(cache_, random);
              while (clock.running()) {
                sessions.operate();
                if (random() % 10 == 0) clock_.advance(1);
              }
            }));
  uint64_t queued = 0;
  if (GetParam().with_store) OK(pkv_store_flush(cache_, 60'000, &queued));
  OK(pkv_cache_validate(cache_));
  clock_.end();
  OK(pkv_prefix_clear(cache_, nullptr, PKV_ALL_SALTS));
  EXPECT_EQ(0u, stats_of(cache_).used_blocks);
  OK(pkv_cache_validate(cache_));
}

INSTANTIATE_TEST_SUITE_P(Kinds, Tails,
                         testing::Values(Kind{"Pools", false, false, 0},
                                         Kind{"Watermark", false, false, 2},
                                         Kind{"SharedMemory", true, false, 1},
                                         Kind{"Store", false, true, 0},
                                         Kind{"SharedMemoryAndStore", true, true, 2}),
                         [](const auto& kind) { return std::string(kind.param.name); });

}  // namespace
}  // namespace hostile::tails_test
