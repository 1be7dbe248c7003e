// Writes values to a Redis on a loopback port and reads them back, against as many bytes through a
// bare loopback connection.
#include <arpa/inet.h>
#include <benchmark/benchmark.h>
#include <pagedkv/redis.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "../tests/redis/servers.h"
#include "stored.h"

namespace {

using pkv::bench::seconds_of;
constexpr size_t batch_bytes = 32 << 20;

// The two ends of a TCP connection of this process.
class Loopback {
 public:
  Loopback() {
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* any = reinterpret_cast<sockaddr*>(&address);
    from_ = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, any, size) != 0 || listen(listener, 1) != 0 ||
        getsockname(listener, any, &size) != 0 || connect(from_, any, size) != 0)
      std::abort();
    to_ = accept(listener, nullptr, nullptr);
    close(listener);
  }
  ~Loopback() {
    close(from_);
    close(to_);
  }
  Loopback(const Loopback&) = delete;
  Loopback& operator=(const Loopback&) = delete;

  double seconds(std::vector<char>& bytes) {
    std::vector<char> received(bytes.size());
    return seconds_of([&] {
      std::thread reader([&] {
        const ssize_t got = recv(to_, received.data(), received.size(), MSG_WAITALL);
        if (got != static_cast<ssize_t>(received.size())) std::abort();
      });
      for (size_t at = 0; at < bytes.size();) {
        const ssize_t sent = send(from_, bytes.data() + at, bytes.size() - at, 0);
        if (sent <= 0) std::abort();
        at += static_cast<size_t>(sent);
      }
      reader.join();
    });
  }

 private:
  int from_, to_;
};

pkv_store open_redis(const std::string& address) {
  auto config = made<pkv_redis_config>();
  config.servers = address.c_str();
  config.command_timeout_ms = 20'000;
  pkv_store store = made<pkv_store>();
  if (pkv_redis_open(&config, &store) == PKV_OK) return store;
  std::fprintf(stderr, "%s\n", pkv_redis_last_error());
  std::exit(1);
}

void move(benchmark::State& state, size_t value_bytes, bool writes) {
  const redis_test::Server server;
  pkv_store store = open_redis(server.address());

  std::vector<char> bytes(batch_bytes, 'x');
  std::vector<pkv_store_item> items(batch_bytes / value_bytes);
  for (size_t i = 0; i < items.size(); i++)
    items[i] = {{static_cast<unsigned char>(i), static_cast<unsigned char>(i >> 8)},
                &bytes[i * value_bytes],
                value_bytes};
  const auto expected = static_cast<int64_t>(items.size());
  if (store.put(store.user, items.size(), items.data()) != expected) state.SkipWithError("put");

  Loopback loopback;
  const auto run = [&] {
    const int64_t done = writes ? store.put(store.user, items.size(), items.data())
                                : store.get(store.user, items.size(), items.data());
    if (done != expected) state.SkipWithError("items are missing");
  };
  const auto [ours, bare] =
      pkv::bench::in_turns(state, run, [&] { return loopback.seconds(bytes); });
  pkv::bench::report(state, "GB/s", "loopback_GB/s", batch_bytes / 1e9, ours, bare);
  pkv_store_close(&store);
}

void register_redis_stored() {
  const auto server = std::make_shared<redis_test::Server>();
  const auto loopback = [](std::vector<char>& bytes, size_t) { return Loopback().seconds(bytes); };
  pkv::bench::register_stored("redis", [server] { return open_redis(server->address()); },
                              {loopback, loopback});
}

}  // namespace

int main(int argc, char** argv) {
  if (!redis_test::have_server()) {
    std::fprintf(stderr, "neither redis-server nor valkey-server is installed\n");
    return 1;
  }
  return pkv::bench::run(argc, argv, [] {
    for (const bool writes : {true, false})
      for (const size_t kib : {64, 2048})
        pkv::bench::add((writes ? "redis/put/" : "redis/get/") + std::to_string(kib) + "KiB", move,
                        kib << 10, writes);
    register_redis_stored();
  });
}
