// A thread is cancelled by pthread_cancel() inside a call. The call ends first, and its result is
// complete.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#ifdef WITH_REDIS
#include <pagedkv/redis.h>
#endif

#include "../support/files.h"
#include "matrix.h"

namespace hostile::cancel_test {
namespace {

// Makes a call in a thread that is already being cancelled, so the first cancellation point at
// which cancellation is enabled ends the thread.
class CancelledCall {
 public:
  explicit CancelledCall(std::function<void()> call) : call_(std::move(call)) {
    pthread_t thread;
    HOSTILE_CHECK(pthread_create(&thread, nullptr, run, this) == 0, "no thread");
    void* result = nullptr;
    pthread_join(thread, &result);
    HOSTILE_CHECK(returned_, "the call never returned");
    HOSTILE_CHECK(result == PTHREAD_CANCELED && !went_on_, "the thread was not cancelled after it");
  }

 private:
  static void* run(void* user) {
    CancelledCall& self = *static_cast<CancelledCall*>(user);
    pthread_cancel(pthread_self());
    self.call_();
    self.returned_ = true;
    pthread_testcancel();
    self.went_on_ = true;
    return nullptr;
  }

  const std::function<void()> call_;
  bool returned_ = false, went_on_ = false;
};

// Calls one row with these arguments. The hooks of the cache are cancellation points as well.
void call_cancelled(const Function& function, const std::function<void(World&, Values&)>& prepare,
                    const Wanted& wanted) {
  World world;
  Values values = valid_values(function, world);
  prepare(world, values);
  pkv_status got = PKV_INTERNAL;
  world.hooks.inside = world.hooks.inside_free = pthread_testcancel;
  const CancelledCall call([&] { got = function.call(values); });
  world.hooks.inside = world.hooks.inside_free = nullptr;
  HOSTILE_CHECK(std::find(wanted.begin(), wanted.end(), got) != wanted.end(), "it gave %s: %s",
                pkv_status_name(got), function.library->last_error());
  if (got == PKV_OK && function.undo) function.undo(world, values);
  world.validate();
  world.close();
}

class Cancel : public testing::TestWithParam<const Function*> {};

TEST_P(Cancel, TakesEffectAfterTheCall) {
  const Function& function = *GetParam();
  std::vector<Case> cases = {{"valid", [](World&, Values&) {}, {PKV_OK}}};
  cases.insert(cases.end(), function.cases.begin(), function.cases.end());
  std::vector<std::function<void()>> calls;
  for (const Case& one : cases)
    calls.push_back([&function, &one] { call_cancelled(function, one.apply, one.wanted); });
  const std::vector<std::string> failed = in_children(calls);
  for (size_t i = 0; i < failed.size(); i++)
    if (!failed[i].empty())
      ADD_FAILURE() << function.name << ", " << cases[i].name << ": " << failed[i];
}

INSTANTIATE_TEST_SUITE_P(Functions, Cancel, testing::ValuesIn(row_pointers()), row_name);

// The functions in the table of a store, each in its own thread. `stores`: whether the store
// returns an item.
void use_cancelled(const pkv_store& store, bool stores) {
  unsigned char key[32] = {1}, data[100] = {2}, room[100] = {};
  pkv_store_item item{};
  std::copy_n(key, sizeof key, item.name);
  const auto call = [&](const auto& function, void* at) {
    int64_t done = 0;
    item.data = at;
    item.size = sizeof data;
    const CancelledCall one([&] { done = function(store.user, 1, &item); });
    HOSTILE_CHECK(stores ? done == 1 : done < 0, "it gave %lld", static_cast<long long>(done));
  };
  call(store.put, data);
  call(store.touch, nullptr);
  call(store.get, room);
  HOSTILE_CHECK(!stores || std::equal(room, room + sizeof room, data), "other bytes");
  call(store.remove, nullptr);
  const CancelledCall last([&] { store.close(store.user); });
}

TEST(CancelStore, TheFunctionsOfADirectoryStore) {
  const files::TemporaryDirectory directory;
  const std::string failed = in_child([&] {
    auto config = made<pkv_directory_config>({.path = directory.path().c_str()});
    pkv_store store = made<pkv_store>();
    OK(pkv_store_open_directory(&config, &store));
    use_cancelled(store, true);
  });
  EXPECT_EQ("", failed);
}

#ifdef WITH_REDIS
TEST(CancelStore, TheFunctionsOfARedisStore) {
  const std::string failed = in_child([] {
    auto config = made<pkv_redis_config>({.servers = "127.0.0.1:1", .connect_later = 1});
    pkv_store store = made<pkv_store>();
    OK(pkv_redis_open(&config, &store));
    use_cancelled(store, false);
  });
  EXPECT_EQ("", failed);
}
#endif

struct Save {
  pkv_cache cache;
  pkv_session session;
  int descriptor;
  std::atomic<pkv_status> status{PKV_INTERNAL};
  std::atomic<bool> after{false};

  static void* run(void* user) {
    Save& self = *static_cast<Save*>(user);
    auto to = made<pkv_stream>({.kind = PKV_STREAM_DESCRIPTOR, .descriptor = self.descriptor});
    const pkv_file_item item = {self.session, nullptr, 1};
    self.status = pkv_file_save(self.cache, 1, &item, nullptr, &to, nullptr);
    pthread_testcancel();
    self.after = true;
    return nullptr;
  }
};

// Reads the pipe until its other end is closed.
std::vector<unsigned char> drain(int descriptor) {
  std::vector<unsigned char> bytes;
  unsigned char buffer[4096];
  for (ssize_t n; (n = read(descriptor, buffer, sizeof buffer)) > 0;)
    bytes.insert(bytes.end(), buffer, buffer + n);
  return bytes;
}

TEST(CancelSave, IntoAPipeThatIsFull) {
  const std::string failed = in_child([] {
    World world(PKV_STORAGE_INTERNAL, 2);
    int ends[2];
    HOSTILE_CHECK(pipe(ends) == 0, "no pipe");
    HOSTILE_CHECK(fcntl(ends[1], F_SETPIPE_SZ, 4096) == 4096, "the pipe has another size");
    Save save{world.cache, world.session, ends[1]};
    pthread_t thread;
    HOSTILE_CHECK(pthread_create(&thread, nullptr, Save::run, &save) == 0, "no thread");
    pollfd readable = {ends[0], POLLIN, 0};
    // It is inside the call, which cannot end because the file is longer than the pipe.
    poll(&readable, 1, -1);
    pthread_cancel(thread);
    std::vector<unsigned char> bytes(4096);
    for (size_t got = 0; got < bytes.size();) {
      const ssize_t n = read(ends[0], bytes.data() + got, bytes.size() - got);
      HOSTILE_CHECK(n > 0, "the save was cut short after %zu bytes", got);
      got += static_cast<size_t>(n);
    }
    std::vector<unsigned char> rest;
    {
      std::thread reader([&] { rest = drain(ends[0]); });
      void* result = nullptr;
      pthread_join(thread, &result);
      close(ends[1]);
      reader.join();
      HOSTILE_CHECK(result == PTHREAD_CANCELED && !save.after,
                    "the thread was not cancelled after the call");
    }
    bytes.insert(bytes.end(), rest.begin(), rest.end());
    HOSTILE_CHECK(save.status == PKV_OK, "the save gives %d", static_cast<int>(save.status.load()));
    auto from = buffer_stream(bytes.data(), bytes.size());
    pkv_session loaded = nullptr;
    size_t count = 0;
    OK(pkv_file_load(world.cache, nullptr, &from, 1, &loaded, nullptr, &count));
    OK(pkv_session_close(loaded));
    close(ends[0]);
    world.validate();
    world.close();
  });
  EXPECT_EQ("", failed);
}

}  // namespace
}  // namespace hostile::cancel_test
