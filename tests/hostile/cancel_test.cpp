// A thread is cancelled by pthread_cancel() inside a call. The call ends first, and nothing of it
// is lost.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include <thread>

#include "world.h"

namespace hostile {
namespace {

struct Save {
  pkv_cache cache;
  pkv_session session;
  int descriptor;
  std::atomic<pkv_status> status{PKV_INTERNAL};
  std::atomic<bool> after{false};

  static void* run(void* user) {
    Save& self = *static_cast<Save*>(user);
    auto to = made<pkv_stream>(pkv_stream_init);
    to.kind = PKV_STREAM_DESCRIPTOR;
    to.descriptor = self.descriptor;
    const pkv_file_item item = {self.session, nullptr, 1};
    self.status = pkv_file_save(self.cache, 1, &item, nullptr, &to, nullptr);
    pthread_testcancel();
    self.after = true;
    return nullptr;
  }
};

// Reads all that the pipe has, until its other end is closed.
std::vector<unsigned char> drain(int descriptor) {
  std::vector<unsigned char> bytes;
  unsigned char buffer[4096];
  for (ssize_t n; (n = read(descriptor, buffer, sizeof buffer)) > 0;)
    bytes.insert(bytes.end(), buffer, buffer + n);
  return bytes;
}

TEST(Cancel, ASaveIntoAPipeThatIsFull) {
  const std::string failed = in_child([] {
    World world(PKV_STORAGE_PAGED, 2);
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
    auto from = made<pkv_stream>(pkv_stream_init);
    from.kind = PKV_STREAM_BUFFER;
    from.data = bytes.data();
    from.size = bytes.size();
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
}  // namespace hostile
