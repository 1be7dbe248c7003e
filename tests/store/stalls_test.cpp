// Only the call that saves to or loads from a blocked stream waits. Saves and loads are stopped in
// pipes and in callbacks, at each of their calls, while another thread steps sessions of the same
// cache.
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <condition_variable>
#include <future>
#include <mutex>
#include <thread>

#include "../support/sanitizers.h"
#include "support.h"

namespace store::stalls_test {
namespace {

// Long enough for a machine that is busy with other things. A step that hangs never ends.
constexpr std::chrono::seconds patience{30};

// Ends the program if a call does not return, because its threads could not be joined.
template <class Call>
void expect_to_end(const char* what, const Call& call) {
  std::packaged_task<void()> task(call);
  std::future<void> done = task.get_future();
  std::thread thread(std::move(task));
  if (done.wait_for(patience) == std::future_status::timeout) {
    ADD_FAILURE() << what << " does not end while streams stand still";
    fflush(stdout);
    _exit(1);
  }
  thread.join();
  done.get();
}

struct Pipe {
  Pipe() {
    if (pipe(ends) != 0) throw std::runtime_error("pipe");
  }
  ~Pipe() {
    close(ends[0]);
    close(ends[1]);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  pkv_stream end(int which) const {
    pkv_stream made = stream(PKV_STREAM_DESCRIPTOR);
    made.descriptor = ends[which];
    return made;
  }
  // Waits until the pipe is full, so that the next writer waits.
  void wait_until_full() const {
    for (pollfd writable{ends[1], POLLOUT, 0}; poll(&writable, 1, 0) == 1;)
      std::this_thread::yield();
  }
  Bytes drain(size_t size) const {
    Bytes bytes(size);
    for (size_t at = 0; at < size;) {
      const ssize_t n = ::read(ends[0], bytes.data() + at, size - at);
      if (n <= 0) throw std::runtime_error("read");
      at += static_cast<size_t>(n);
    }
    return bytes;
  }
  void fill(const unsigned char* bytes, size_t size) const {
    for (size_t at = 0; at < size;) {
      const ssize_t n = ::write(ends[1], bytes + at, size - at);
      if (n <= 0) throw std::runtime_error("write");
      at += static_cast<size_t>(n);
    }
  }
  int ends[2];
};

// A caller's stream that stops at one of its calls until it is released.
class Stopping {
 public:
  explicit Stopping(size_t stop, Bytes content = {}) : bytes(std::move(content)), stop_(stop) {}

  pkv_stream as_stream() {
    pkv_stream made = stream(PKV_STREAM_CALLBACKS);
    made.read = [](void* user, void* to, uint64_t n) {
      return static_cast<Stopping*>(user)->read(to, n);
    };
    made.write = [](void* user, const void* from, uint64_t n) {
      return static_cast<Stopping*>(user)->write(from, n);
    };
    made.user = this;
    return made;
  }
  // Returns true if it is stopped, and false if all calls were made.
  bool wait_until_stopped() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return stopped_ || ended_; });
    return stopped_;
  }
  void go_on() {
    change([&] { stopped_ = false, gone_on_ = true; });
  }
  void end() {
    change([&] { ended_ = true; });
  }
  Bytes bytes;

 private:
  template <class Change>
  void change(const Change& change) {
    const std::lock_guard lock(mutex_);
    change();
    changed_.notify_all();
  }
  void pass() {
    std::unique_lock lock(mutex_);
    if (calls_++ != stop_) return;
    stopped_ = true;
    changed_.notify_all();
    changed_.wait(lock, [&] { return gone_on_; });
  }
  int64_t read(void* to, uint64_t n) {
    pass();
    n = std::min<uint64_t>(n, bytes.size() - at_);
    std::memcpy(to, bytes.data() + at_, n);
    at_ += n;
    return static_cast<int64_t>(n);
  }
  int64_t write(const void* from, uint64_t n) {
    pass();
    bytes.resize(bytes.size() + n);
    std::memcpy(bytes.data() + bytes.size() - n, from, n);
    return static_cast<int64_t>(n);
  }

  const size_t stop_;
  size_t calls_ = 0, at_ = 0;
  bool stopped_ = false, gone_on_ = false, ended_ = false;
  std::mutex mutex_;
  std::condition_variable changed_;
};

// The caller's threads serve one call at a time, as those of an engine do.
std::mutex runner_in_use;
void run_alone(void*, size_t n, void (*task)(void*, size_t, uint32_t), void* context) {
  const std::lock_guard alone(runner_in_use);
  std::thread other([&] {
    for (size_t i = 1; i < n; i += 2) task(context, i, 1);
  });
  for (size_t i = 0; i < n; i += 2) task(context, i, 0);
  other.join();
}
const pkv_runner one_at_a_time{run_alone, nullptr, 2, 0};

// A cache of 1 or 2 threads, or (0) of a runner's threads, with what is saved and with sessions
// that step.
class Stalls : public testing::TestWithParam<uint32_t> {
 protected:
  static constexpr uint32_t tokens = pkv::test::sanitized ? 1200 : 4000, stepped = 4;

  Stalls() {
    plan_.groups = {
        {.layers = 2, .query_heads = 4, .kv_heads = 2, .key_dim = 64, .dtype = PKV_F16}};
    plan_.blocks = 4096;
    plan_.threads = GetParam();
    if (GetParam() == 0) plan_.runner = &one_at_a_time;
    cache_.emplace(create(plan_));
    saved_.emplace(open(*cache_));
    append(*cache_, *saved_, plan_, tokens, 1);
    file_ = save(*cache_, {{*saved_, nullptr, 1}});
    for (uint32_t i = 0; i < stepped; i++) {
      stepping_.push_back(open(*cache_));
      append(*cache_, stepping_.back(), plan_, 300, 2 + i);
    }
  }

  void step() {
    const Model& model = plan_.groups[0];
    Batch batch =
        begin(*cache_, {stepping_.begin(), stepping_.end()}, std::vector<uint32_t>(stepped, 1));
    KeysValues rows = rows_of(model, stepped);
    Rows q(stepped, model.query_heads, model.key_dim),
        out(stepped, model.query_heads, model.values());
    for (uint32_t layer = 0; layer < model.layers; layer++) {
      write(batch, layer, model, rows);
      attend(batch, layer, q, out);
    }
    commit(batch);
  }
  void steps_end() {
    expect_to_end("a step", [&] {
      for (int i = 0; i < 5; i++) step();
    });
  }
  std::thread saver(const pkv_stream& to, Stopping* told = nullptr) {
    return std::thread([this, to, told] {
      const pkv_file_item item{*saved_, nullptr, 1};
      EXPECT_EQ(PKV_OK, pkv_file_save(*cache_, 1, &item, nullptr, &to, nullptr))
          << pkv_last_error();
      if (told != nullptr) told->end();
    });
  }
  std::thread loader(const pkv_stream& from, Stopping* told = nullptr) {
    return std::thread([this, from, told] {
      EXPECT_EQ(PKV_OK, try_load(*cache_, from)) << pkv_last_error();
      if (told != nullptr) told->end();
    });
  }

  Plan plan_;
  std::optional<Cache> cache_;
  std::optional<Session> saved_;
  Bytes file_;
  std::vector<Session> stepping_;
};

TEST_P(Stalls, NoStepWaitsForPipes) {
  Pipe full[3], empty[2];
  std::vector<std::thread> movers;
  for (const Pipe& pipe : full) movers.push_back(saver(pipe.end(1)));
  for (const Pipe& pipe : empty) movers.push_back(loader(pipe.end(0)));
  for (const Pipe& pipe : full) pipe.wait_until_full();
  steps_end();
  const size_t half = file_.size() / 2;
  for (const Pipe& pipe : empty) pipe.fill(file_.data(), half);
  steps_end();
  for (const Pipe& pipe : full) EXPECT_TRUE(pipe.drain(file_.size()) == file_);
  for (const Pipe& pipe : empty) pipe.fill(file_.data() + half, file_.size() - half);
  for (std::thread& mover : movers) mover.join();
  CHECK(pkv_cache_validate(*cache_));
}

// The engine's only thread steps first and reads what was saved afterwards.
TEST_P(Stalls, WhoeverStepsMayDrainThePipesLater) {
  Pipe pipes[2];
  std::vector<std::thread> movers;
  for (const Pipe& pipe : pipes) movers.push_back(saver(pipe.end(1)));
  for (const Pipe& pipe : pipes) pipe.wait_until_full();
  expect_to_end("a step of the thread that drains", [&] {
    for (int i = 0; i < 5; i++) step();
    for (const Pipe& pipe : pipes) EXPECT_TRUE(pipe.drain(file_.size()) == file_);
  });
  for (std::thread& mover : movers) mover.join();
}

// Streams stop at each call of the caller's functions, with as many saves and loads at once as the
// cache has threads.
TEST_P(Stalls, NoStepWaitsForACallback) {
  bool stopped = true;
  for (size_t stop = 0; stopped; stop++) {
    SCOPED_TRACE(testing::Message() << "call " << stop);
    Stopping saves[2] = {Stopping(stop), Stopping(stop)},
             loads[2] = {Stopping(stop, file_), Stopping(stop, file_)};
    std::vector<std::thread> movers;
    for (Stopping& each : saves) movers.push_back(saver(each.as_stream(), &each));
    for (Stopping& each : loads) movers.push_back(loader(each.as_stream(), &each));
    stopped = false;
    for (Stopping& each : saves) stopped = each.wait_until_stopped() || stopped;
    for (Stopping& each : loads) stopped = each.wait_until_stopped() || stopped;
    expect_to_end("a step", [&] { step(); });
    for (Stopping& each : saves) each.go_on();
    for (Stopping& each : loads) each.go_on();
    for (std::thread& mover : movers) mover.join();
    for (Stopping& each : saves) EXPECT_TRUE(each.bytes == file_);
  }
  CHECK(pkv_cache_validate(*cache_));
}

INSTANTIATE_TEST_SUITE_P(Threads, Stalls, testing::Values(1u, 2u, 0u), [](const auto& test) {
  return test.param == 0 ? std::string("runner") : "threads_" + std::to_string(test.param);
});

}  // namespace
}  // namespace store::stalls_test
