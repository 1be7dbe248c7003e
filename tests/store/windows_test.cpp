// Files of many pieces, which several threads move. Whatever the threads, the streams and the sizes
// are, the bytes are the same, and a wrong byte anywhere is found.
#include <unistd.h>

#include <atomic>
#include <thread>

#include "support.h"

namespace store::windows_test {
namespace {

constexpr uint64_t piece = 262144;  // As in FORMAT.md.

// Shapes whose tiles lie across pieces, and across windows of pieces.
struct Size {
  const char* name;
  Model model;
  uint32_t tokens;
};
const Size sizes[] = {
    {"tiles_of_a_few_pieces",
     {.layers = 3, .query_heads = 5, .kv_heads = 5, .key_dim = 144, .dtype = PKV_F16},
     600},
    {"tiles_longer_than_a_window",
     {.layers = 1, .query_heads = 40, .kv_heads = 40, .key_dim = 576, .dtype = PKV_BF16},
     70},
    {"small_tiles",
     {.layers = 2,
      .query_heads = 1,
      .kv_heads = 1,
      .key_dim = 48,
      .dtype = PKV_INT8,
      .value_dtype = PKV_INT4},
     20000},
};

// Runs tasks in the order last to first, in two threads.
void run_backwards(void* calls, size_t n, void (*task)(void*, size_t, uint32_t), void* context) {
  static_cast<std::atomic<int>*>(calls)->fetch_add(1);
  std::thread other([&] {
    for (size_t i = n; i-- > 0;)
      if (i % 2 == 1) task(context, i, 1);
  });
  for (size_t i = n; i-- > 0;)
    if (i % 2 == 0) task(context, i, 0);
  other.join();
}

// A caller's stream that must be called by the thread that called the library. It moves as many
// bytes as it likes.
struct OneThread {
  Bytes bytes;
  size_t at = 0;
  std::thread::id thread = std::this_thread::get_id();

  static int64_t read(void* user, void* to, uint64_t n) {
    auto& self = *static_cast<OneThread*>(user);
    EXPECT_EQ(self.thread, std::this_thread::get_id());
    const size_t count = std::min<size_t>({n, self.bytes.size() - self.at, 100000});
    std::copy_n(self.bytes.begin() + static_cast<std::ptrdiff_t>(self.at), count,
                static_cast<unsigned char*>(to));
    self.at += count;
    return static_cast<int64_t>(count);
  }
  static int64_t write(void* user, const void* from, uint64_t n) {
    auto& self = *static_cast<OneThread*>(user);
    EXPECT_EQ(self.thread, std::this_thread::get_id());
    const uint64_t count = std::min<uint64_t>(n, 100000);
    const auto* bytes = static_cast<const unsigned char*>(from);
    self.bytes.insert(self.bytes.end(), bytes, bytes + count);
    return static_cast<int64_t>(count);
  }
  pkv_stream as_stream() {
    pkv_stream made = stream(PKV_STREAM_CALLBACKS);
    made.read = read;
    made.write = write;
    made.user = this;
    return made;
  }
};

class Windows : public testing::TestWithParam<Size> {
 protected:
  Windows() {
    plan_.groups = {GetParam().model};
    plan_.blocks = 2 * GetParam().tokens / 16 + 20;
    cache_.emplace(create(plan_));
    session_.emplace(open_salted(*cache_, ""));
    append(*cache_, *session_, plan_, GetParam().tokens, 7);
    file_ = save(*cache_, {*session_});
  }
  Plan plan_;
  std::optional<Cache> cache_;
  std::optional<Session> session_;
  Bytes file_;
};

TEST_P(Windows, AnyNumberOfThreadsWritesAndReadsTheSame) {
  ASSERT_GT(file_.size(), 8 * piece) << "of one or two windows: too small to show anything";
  std::atomic<int> calls{0};
  const pkv_runner runner{run_backwards, &calls, 2, 0};
  for (const uint32_t threads : {1u, 2u, 4u, 0u}) {
    SCOPED_TRACE(testing::Message() << threads << " threads (0: a runner)");
    Plan other = plan_;
    other.threads = threads;
    if (threads == 0) other.runner = &runner;
    const Cache cache = create(other);
    const std::vector<Session> sessions = load(cache, file_);
    ASSERT_EQ(1u, sessions.size());
    expect_same(*session_, sessions[0], other);
    EXPECT_TRUE(save(cache, {{sessions[0], nullptr, 100}}) == file_);
    CHECK(pkv_cache_validate(cache));
  }
  EXPECT_GT(calls, 4);
}

TEST_P(Windows, AnyStreamMovesTheSame) {
  plan_.threads = 2;
  const Cache cache = create(plan_);
  const std::vector<Session> sessions = load(cache, file_);
  const std::vector<pkv_file_item> items{{sessions[0], nullptr, 100}};

  OneThread own;
  const pkv_stream callbacks = own.as_stream();
  CHECK(pkv_file_save(cache, 1, items.data(), nullptr, &callbacks, nullptr));
  EXPECT_TRUE(own.bytes == file_);
  expect_same(*session_, load(cache, callbacks)[0], plan_);

#ifndef _WIN32  // where descriptors are not the system's own
  char path[] = "pagedkv-windows-XXXXXX";
  const int descriptor = mkstemp(path);
  ASSERT_GE(descriptor, 0);
  pkv_stream to = stream(PKV_STREAM_DESCRIPTOR);
  to.descriptor = descriptor;
  CHECK(pkv_file_save(cache, 1, items.data(), nullptr, &to, nullptr));
  EXPECT_EQ(static_cast<off_t>(file_.size()), lseek(descriptor, 0, SEEK_END));
  expect_same(*session_, load(cache, at_path(path))[0], plan_);
  close(descriptor);
  unlink(path);
#endif
}

// A wrong byte is found in every piece, also with a key, whichever thread checks it. Nothing is
// kept.
TEST_P(Windows, AWrongByteIsFoundInEveryPiece) {
  plan_.threads = 2;
  const Cache cache = create(plan_);
  const State before = state_of(cache);
  for (const bool keyed : {false, true}) {
    if (keyed && !keys_work()) continue;
    auto config = made<pkv_file_config>();
    if (keyed) config.secret_key = "a key of 24 secret bytes", config.secret_key_size = 24;
    Bytes file = keyed ? save(*cache_, {*session_}, &config) : file_;
    for (size_t at = 70; at < file.size(); at += piece - 1000) {
      file[at] ^= 16;
      ASSERT_EQ(PKV_CORRUPT, try_load(cache, buffer(file), &config))
          << "byte " << at << " of " << file.size();
      file[at] ^= 16;
      ASSERT_TRUE(before == state_of(cache));
    }
    ASSERT_EQ(PKV_OK, try_load(cache, buffer(file), &config)) << pkv_last_error();
  }
}

// A pipe cannot be asked for its size.
TEST_P(Windows, AStreamThatEndsIsFoundAtEveryPiece) {
  plan_.threads = 2;
  const Cache cache = create(plan_);
  const State before = state_of(cache);
  for (size_t size = 70; size < file_.size(); size += piece - 1000) {
    OneThread cut;
    cut.bytes.assign(file_.begin(), file_.begin() + static_cast<std::ptrdiff_t>(size));
    ASSERT_EQ(PKV_CORRUPT, try_load(cache, cut.as_stream()))
        << size << " of " << file_.size() << " bytes";
    ASSERT_TRUE(before == state_of(cache));
  }
}

// Two pieces are sound by themselves but stand in each other's place.
TEST_P(Windows, PiecesInAnotherOrderAreFound) {
  Bytes file = file_;
  const auto tagged = static_cast<std::ptrdiff_t>(piece + 16),
             first = std::ptrdiff_t{64} + 2 * tagged;
  std::swap_ranges(file.begin() + first, file.begin() + first + tagged,
                   file.begin() + first + tagged);
  plan_.threads = 2;
  const Cache cache = create(plan_);
  EXPECT_EQ(PKV_CORRUPT, try_load(cache, buffer(file)));
}

INSTANTIATE_TEST_SUITE_P(Sizes, Windows, testing::ValuesIn(sizes),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace store::windows_test
