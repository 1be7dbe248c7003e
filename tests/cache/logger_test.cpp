// The logger gets a line for everything that works, but worse than the caller may expect.
#include <algorithm>
#include <chrono>
#include <mutex>
#include <thread>

#include "../support/lines.h"
#include "../support/memory_store.h"
#include "../support/portable.h"
#include "prefix_fixture.h"

namespace cache_test::logger_test {
namespace {

// Keeps the lines of a logger, which come from any thread.
const Model model{1, 1, 1, 16};

TEST(Logger, HearsOfMoreMemoryThanTheMachineHas) {
  const uint64_t machine = portable::physical_memory();
  const Model big{32, 8, 8, 256};  // Its blocks are so large that a machine has room for few.
  for (const bool more : {true, false}) {
    Lines lines;
    ModelConfig config = config_of(big, 0);
    config.block_size = 256;
    config.memory_bytes = more ? 2 * machine : machine / 4;
    config.logger = lines.logger();
    pkv_cache cache;
    const pkv_status status = pkv_cache_create(&config, &cache);
    if (status == PKV_OUT_OF_MEMORY) GTEST_SKIP() << "the system promises no more than it has";
    CHECK(status);
    EXPECT_EQ(more ? 1u : 0u, lines.count(PKV_LOG_WARNING, "MiB of memory"));
    CHECK(pkv_cache_destroy(cache));
  }
}

// A scheduler that resumes in the step that preempted never finishes. The third round is logged.
TEST(Logger, HearsOfResumesThatAreInVain) {
  Lines lines;
  ModelConfig config = config_of(model, 4, PKV_STORAGE_EXTERNAL);
  config.logger = lines.logger();
  Cache cache = create(config);
  Session a = open(cache), b = open(cache);
  grow(cache, a, 32);
  grow(cache, b, 32);
  const std::string said = "resume none in the step that preempted";
  const pkv_session both[] = {a, b};
  const uint32_t one_each[] = {1, 1};
  uint64_t length, total;
  pkv_batch batch;
  // Rounds that commit a step between resume and suspend are not in vain.
  for (int i = 0; i < 20; i++) {
    EXPECT_EQ(i >= 13 ? 1u : 0u, lines.count(PKV_LOG_WARNING, said)) << "round " << i;
    if (i < 10)
      grow(cache, a, 0);
    else
      REFUSED(PKV_OUT_OF_BLOCKS, pkv_batch_begin(cache, 2, both, one_each, &batch));
    CHECK(pkv_session_suspend(b));
    CHECK(pkv_session_resume(b, &length, &total));
  }
}

class PrefixLogger : public Prefix {
 protected:
  Lines lines_;
  PrefixLogger() { logger_ = lines_.logger(); }
  ~PrefixLogger() override { cache_.close(); }  // before the lines are destroyed
};

TEST_F(PrefixLogger, HearsOnceThatBlocksAreEvicted) {
  make(8);
  for (int32_t name = 1; name <= 2; name++) serve(text(name, 64));
  EXPECT_EQ(0u, lines_.count(PKV_LOG_INFO, "evicted"));
  for (int32_t name = 3; name <= 20; name++) serve(text(name, 64));
  EXPECT_EQ(1u, lines_.count(PKV_LOG_INFO, "evicted")) << "at most once a minute";
}

class StoreLogger : public PrefixLogger {
 protected:
  MemoryStore memory_;
  pkv_store table_ = memory_.table();
  pkv_store_config config_;

  StoreLogger() {
    config_ = made<pkv_store_config>();
    config_.store = &table_;
    store_ = &config_;
  }
  ~StoreLogger() override {
    memory_.go_on();
    cache_.close();  // before the store is destroyed
  }
  void serve_and_flush(int32_t name) {
    serve(text(name, 64));
    flush_store(cache_);
  }
};

TEST_F(StoreLogger, HearsOfAStoreThatFailsAndWorksAgain) {
  make(16);
  serve_and_flush(1);
  EXPECT_EQ(0u, lines_.count(PKV_LOG_WARNING, "the store failed"));
  memory_.error = EIO;
  serve_and_flush(2);
  EXPECT_EQ(
      1u, lines_.count(PKV_LOG_WARNING, "the store failed to read: Input/output error (errno 5)"));
  EXPECT_EQ(1u, lines_.count(PKV_LOG_WARNING, "the store failed to write: Input/output error"));
  std::this_thread::sleep_for(std::chrono::milliseconds(150));
  serve_and_flush(3);
  EXPECT_EQ(2u, lines_.count(PKV_LOG_WARNING, "the store failed")) << "once a minute for each";
  EXPECT_EQ(0u, lines_.count(PKV_LOG_INFO, "works again"));
  memory_.error = 0;
  for (int32_t name = 4; lines_.count(PKV_LOG_INFO, "works again") < 2 && name < 300; name++) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    serve_and_flush(name);
  }
  EXPECT_EQ(1u, lines_.count(PKV_LOG_INFO, "the store works again: reads"));
  EXPECT_EQ(1u, lines_.count(PKV_LOG_INFO, "the store works again: writes"));
}

// What a store does not take is no silence: it is counted, and logged once a minute.
TEST_F(StoreLogger, HearsOfAStoreThatTakesLess) {
  make(64);
  memory_.capacity = 3;
  serve_and_flush(1);
  auto stats = made<pkv_store_stats>();
  CHECK(pkv_cache_get_store_stats(cache_, &stats));
  EXPECT_EQ(3u, stats.written_items);
  EXPECT_EQ(1u, stats.failures);
  EXPECT_EQ(0u, stats.down) << "it may take others";
  EXPECT_EQ(1u, lines_.count(PKV_LOG_WARNING, "the store failed to write: it took 3 of 8 items"));
  serve_and_flush(2);
  CHECK(pkv_cache_get_store_stats(cache_, &stats));
  EXPECT_EQ(2u, stats.failures);
  EXPECT_EQ(1u, stats.down) << "it took none";
  EXPECT_EQ(1u, lines_.count(PKV_LOG_WARNING, "the store failed"));
  EXPECT_EQ(0u, lines_.count(PKV_LOG_INFO, "works again"));
}

TEST_F(StoreLogger, HearsTheStoresOwnReason) {
  pkv_store table = table_;
  table.last_error = [](void*) -> const char* { return "10.0.0.5:6379: no"; };
  config_.store = &table;
  make(16);
  memory_.error = EIO;
  serve_and_flush(1);
  EXPECT_EQ(1u, lines_.count(PKV_LOG_WARNING, "the store failed to write: 10.0.0.5:6379: no;"));
}

TEST_F(StoreLogger, HearsThatBlocksLeftBeforeTheyWereWritten) {
  config_.max_queued_tokens = 8 * 16;
  make(8);
  memory_.hold();
  for (int32_t name = 1; name <= 3; name++) serve(text(name, 32));
  const std::string said = "dropped before they were written to the store";
  EXPECT_EQ(0u, lines_.count(PKV_LOG_WARNING, said));
  Session greedy = open(cache_);
  CHECK(pkv_session_reserve(greedy, 8 * 16));
  EXPECT_EQ(1u, lines_.count(PKV_LOG_WARNING, said));
}

TEST_F(StoreLogger, HearsNothingWhenWhatWasReadLeaves) {
  config_.buffer_bytes = 1;  // Blocks are read one by one.
  make(8);
  const Text whole = text(1, 64);
  serve_and_flush(1);
  CHECK(pkv_prefix_clear(cache_, nullptr, PKV_ALL_SALTS));
  serve(Text(whole.begin(), whole.begin() + 32));
  uint64_t queued;
  CHECK(pkv_cache_flush_store(cache_, 60000, &queued));
  memory_.hold_gets();
  hint(cache_, PKV_HINT_PREFETCH, whole, "");
  memory_.await_held_call();
  {
    Session greedy = open(cache_);
    CHECK(pkv_session_reserve(greedy, 8 * 16));
    EXPECT_EQ(0u, figures().cached_blocks) << "the reader gave up what it had matched";
  }
  EXPECT_EQ(0u, lines_.count(PKV_LOG_WARNING, "dropped before they were written"));
  memory_.go_on();
}

}  // namespace
}  // namespace cache_test::logger_test
