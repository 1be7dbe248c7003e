// A store, a runner or a logger that blocks in a call does not block steps of other sessions. Each
// case is played once for every call of its hook, and that call blocks. tests/store/stalls_test.cpp
// does the same with streams.
#include <cerrno>
#include <condition_variable>
#include <future>
#include <optional>
#include <set>
#include <thread>

#include "../cache/prefix_fixture.h"
#include "../support/memory_store.h"
#include "../support/portable.h"

namespace cache_test::stalls_test {
namespace {

constexpr std::chrono::seconds patience(60);

// Stops the k-th call that passes until the gate opens.
class Gate {
 public:
  explicit Gate(uint64_t k) : stops_at_(k) {}

  void pass() {
    std::unique_lock lock(mutex_);
    if (++passed_ != stops_at_) return;
    changed_.notify_all();
    changed_.wait(lock, [&] { return open_; });
  }
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  // Says that the operation has ended, or that no more calls will come.
  void end() {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    changed_.notify_all();
  }
  // Returns true once a call blocks, and false if the operation ended before its k-th call.
  bool wait_for_stop() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return passed_ >= stops_at_ || ended_; });
    return passed_ >= stops_at_;
  }

 private:
  const uint64_t stops_at_;
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t passed_ = 0;
  bool open_ = false, ended_ = false;
};

class Stalls : public Prefix {
 public:
  // Enters a call of the hook, which may block here.
  MemoryStore& enter() {
    if (gate_ != nullptr) gate_->pass();
    return memory_;
  }

 protected:
  static constexpr uint32_t blocks = 40;

  MemoryStore memory_;
  pkv_store inner_ = memory_.table();
  pkv_store table_ = made<pkv_store>();
  pkv_store_config config_{};
  Gate* gate_ = nullptr;  // The gate that the hooks pass.

  ~Stalls() override { cache_.close(); }

  static Stalls& of(void* user) { return *static_cast<Stalls*>(user); }

  void make_with_store() {
    cache_.close();
    table_ = made<pkv_store>();
    table_.user = this;
    table_.put = [](void* user, size_t n, pkv_store_item* items) {
      return of(user).inner_.put(&of(user).enter(), n, items);
    };
    table_.get = [](void* user, size_t n, pkv_store_item* items) {
      return of(user).inner_.get(&of(user).enter(), n, items);
    };
    table_.touch = [](void* user, size_t n, pkv_store_item* items) {
      return of(user).inner_.touch(&of(user).enter(), n, items);
    };
    table_.remove = [](void* user, size_t n, const pkv_store_item* items) {
      return of(user).inner_.remove(&of(user).enter(), n, items);
    };
    table_.close = [](void*) {};
    config_ = made<pkv_store_config>();
    config_.store = &table_;
    config_.buffer_bytes = 1;  // Blocks are moved one at a time.
    store_ = &config_;
    make(blocks);
    alone_ = false;
  }

  // Plays what other threads do meanwhile: sessions match, step, fork, trim, are suspended and end,
  // in a cache that must evict for them.
  void play_others() {
    for (int32_t round = 0; round < 12; round++) {
      const Text whole = text(50 + round % 5, 100);
      Session session = open(cache_);
      uint64_t matched = 0, length = 0, total = 0;
      CHECK(pkv_session_admit(session, whole.size(), whole.data(), 0, &matched));
      extend(session, whole);
      Session child = fork(session);
      CHECK(pkv_session_trim(child, 70));
      extend(child, Text(whole.begin(), whole.begin() + 70) + text(90, 3));
      CHECK(pkv_session_suspend(session));
      CHECK(pkv_session_resume(session, &length, &total));
    }
    // Takes all blocks, so that everything that is cached or waits for the store must be released.
    Session greedy = open(cache_);
    const pkv_status status = pkv_session_reserve(greedy, uint64_t{blocks} * 16);
    EXPECT_TRUE(status == PKV_OK || status == PKV_OUT_OF_BLOCKS) << pkv_last_error();
  }

  void expect_others_to_end(const char* name, uint64_t k) {
    std::future<void> others = std::async(std::launch::async, [this] { play_others(); });
    if (others.wait_for(patience) != std::future_status::ready) {
      std::fprintf(stderr, "others wait while call %llu of \"%s\" stands still\n",
                   static_cast<unsigned long long>(k), name);
      std::abort();  // The threads cannot be joined.
    }
    EXPECT_NO_THROW(others.get()) << "call " << k << " of " << name;
  }

  // Plays one case. `prepare` runs before the hooks can stop, and `operate` afterwards in a thread
  // of its own.
  void play(const char* name, const std::function<void()>& prepare,
            const std::function<void()>& operate) {
    uint64_t stops = 0;
    for (uint64_t k = 1; k < 100; k++) {
      prepare();
      Gate gate(k);
      gate_ = &gate;
      std::thread operation([&] {
        try {
          operate();
        } catch (const std::exception& error) {
          ADD_FAILURE() << name << ": " << error.what();
        }
        gate.end();
      });
      const bool stopped = gate.wait_for_stop();
      if (stopped) {
        stops++;
        expect_others_to_end(name, k);
      }
      gate.open();
      operation.join();
      flush_store();
      gate_ = nullptr;
      CHECK(pkv_cache_validate(cache_));
      if (!stopped) break;
    }
    EXPECT_GT(stops, 0u) << name << ": no call of the hook was made";
  }

  void flush_store() {
    uint64_t queued = 0;
    if (store_ != nullptr) CHECK(pkv_cache_flush_store(cache_, 60000, &queued));
  }
};

TEST_F(Stalls, AStoreThatTakesNoMore) {
  play(
      "touch and put", [&] { make_with_store(); },
      [&] {
        {
          Session session = open(cache_);
          extend(session, text(1, 100));
        }
        flush_store();
      });
}

TEST_F(Stalls, AStoreThatGivesNoMore) {
  const Text whole = text(1, 100);
  const auto fetch = [&] {
    uint64_t cached = 0;
    prefetch(cache_, whole);
    CHECK(pkv_prefetch_wait(cache_, TextArg(whole), 60000, &cached, nullptr));
  };
  const auto store_away = [&] {
    make_with_store();
    {
      Session session = open(cache_);
      extend(session, whole);
    }
    flush_store();
    CHECK(pkv_prefix_clear(cache_, nullptr, PKV_ALL_SALTS));
  };
  play("touch and get", store_away, fetch);
  // Items whose bytes are wrong are removed, one by one.
  play(
      "remove",
      [&] {
        store_away();
        for (auto& [key, value] : memory_.items()) {
          std::vector<unsigned char> wrong = value;
          wrong.at(wrong.size() - 1) ^= 1;
          memory_.replace(key, wrong);
        }
      },
      fetch);
}

// One thread holds up the tasks of a runner inside its own call.
TEST_F(Stalls, ARunnerThatStandsStill) {
  static thread_local bool stops = false;
  static Stalls* self = nullptr;
  self = this;
  const pkv_runner runner = {
      [](void*, size_t n, void (*task)(void*, size_t, uint32_t), void* context) {
        for (size_t i = 0; i < n; i++) {
          if (stops) self->enter();
          task(context, i, 0);
        }
      },
      nullptr, 2, 0};
  runner_ = &runner;
  constexpr uint32_t tokens = 1600;
  make(140);
  alone_ = false;
  play(
      "run", [] {},
      [&] {
        stops = true;
        Rows rows(tokens, model_.kv_heads, model_.key_dim), results = rows;
        Session session = open(cache_);
        Batch batch = begin(cache_, {session}, {tokens});
        for (uint32_t layer = 0; layer < model_.layers; layer++) {
          write(batch, layer, rows, rows);
          const pkv_tensor q = rows.tensor(), out = results.tensor();
          CHECK(pkv_batch_attend(batch, layer, nullptr, &q, &out, nullptr));
        }
        commit(batch);
      });
}

class LoggerStalls : public Stalls {
 protected:
  const pkv_logger entering_{[](void* user, pkv_log_level, const char*) { of(user).enter(); },
                             static_cast<Stalls*>(this)};

  LoggerStalls() { logger_ = &entering_; }
  ~LoggerStalls() override { cache_.close(); }  // before the logger goes

  // The store's own calls do not block here.
  void make_logged() {
    cache_.close();
    make(blocks);
    alone_ = false;
  }
  void make_logged_with_store() {
    cache_.close();
    memory_.error = 0;
    config_ = made<pkv_store_config>();
    table_ = memory_.table();
    config_.store = &table_;
    config_.buffer_bytes = 1;
    store_ = &config_;
    make_logged();
  }
  void compute(const Text& whole) {
    Session session = open(cache_);
    extend(session, whole);
  }
  // Fills the cache with texts that no session uses. Nothing is evicted for them.
  void fill() {
    auto pools = made<pkv_pool_stats>();
    CHECK(pkv_cache_get_pool_stats(cache_, PKV_ALL_GROUPS, &pools));
    for (uint64_t i = 0; i < pools.free_blocks / 2; i++) {  // in each of two groups
      compute(text(static_cast<int32_t>(200 + i), 16));
      flush_store();
    }
  }
};

TEST_F(LoggerStalls, AtAnEviction) {
  play(
      "evict",
      [&] {
        make_logged();
        fill();
      },
      [&] { compute(text(1, 100)); });
}

// The store's reader evicts, too.
TEST_F(LoggerStalls, AtAnEvictionForAPrefetch) {
  const Text whole = text(1, 100);
  play(
      "evict for a prefetch",
      [&] {
        make_logged_with_store();
        compute(whole);
        flush_store();
        CHECK(pkv_prefix_clear(cache_, nullptr, PKV_ALL_SALTS));
        fill();
      },
      [&] {
        uint64_t cached = 0;
        prefetch(cache_, whole);
        CHECK(pkv_prefetch_wait(cache_, TextArg(whole), 60000, &cached, nullptr));
      });
}

TEST_F(LoggerStalls, AtAnEvictionForAFile) {
  std::vector<unsigned char> bytes(1 << 20);
  auto file = made<pkv_stream>({.kind = PKV_STREAM_BUFFER, .data = bytes.data()});
  play(
      "evict for a file",
      [&] {
        make_logged();
        {
          Session session = open(cache_);
          extend(session, text(1, 100));
          const pkv_file_item saved{session, nullptr, 0};
          file.size = bytes.size();
          CHECK(pkv_file_save(cache_, 1, &saved, nullptr, &file, &file.size));
        }
        CHECK(pkv_prefix_clear(cache_, nullptr, PKV_ALL_SALTS));
        fill();
      },
      [&] {
        pkv_session loaded;
        size_t count = 0;
        CHECK(pkv_file_load(cache_, nullptr, &file, 1, &loaded, nullptr, &count));
        CHECK(pkv_session_close(loaded));
      });
}

TEST_F(LoggerStalls, AtASuspensionInVain) {
  play(
      "suspend", [&] { make_logged(); },
      [&] {
        Session session = open(cache_);
        extend(session, text(1, 100));
        uint64_t length = 0, total = 0;
        for (int i = 0; i < 4; i++) {
          CHECK(pkv_session_suspend(session));
          CHECK(pkv_session_resume(session, &length, &total));
        }
      });
}

TEST_F(LoggerStalls, AtAStoreThatFailsAndWorksAgain) {
  play(
      "fail and work again", [&] { make_logged_with_store(); },
      [&] {
        for (const int error : {EIO, 0}) {
          memory_.error = error;
          compute(text(1 + error, 100));
          flush_store();
          std::this_thread::sleep_for(std::chrono::milliseconds(150));  // The pause is over.
        }
      });
}

TEST_F(LoggerStalls, AtBlocksThatLeaveBeforeTheyAreWritten) {
  play(
      "give way", [&] { make_logged_with_store(); },
      [&] {
        memory_.hold();
        compute(text(1, 100));
        compute(text(2, 100));
        {
          Session greedy = open(cache_);
          (void)pkv_session_reserve(greedy, uint64_t{blocks} * 16);
        }
        memory_.go_on();
      });
}

// Another cache works while one with more memory than the machine has is made.
TEST_F(LoggerStalls, WhileACacheIsMade) {
  make_logged();
  Model big{32, 8, 8, 256};
  ModelConfig config = config_of(big, 0);
  config.memory_bytes = 2 * portable::physical_memory();
  config.logger = &entering_;
  pkv_cache probe;
  if (pkv_cache_create(&config, &probe) == PKV_OUT_OF_MEMORY)
    GTEST_SKIP() << "the system promises no more than it has";
  CHECK(pkv_cache_destroy(probe));
  play(
      "create", [] {},
      [&] {
        pkv_cache made;
        CHECK(pkv_cache_create(&config, &made));
        CHECK(pkv_cache_destroy(made));
      });
}

}  // namespace
}  // namespace cache_test::stalls_test
