// Replies of a hostile server, twice as long each time. The client's memory and work grow no faster
// than the replies, and end at a limit. They are measured as allocations and their bytes, in the
// thread that calls.
#include <dlfcn.h>
#include <malloc.h>

#include <algorithm>

#include "fake.h"
#include "support.h"

namespace {

struct Cost {
  uint64_t calls = 0, bytes = 0, live = 0, peak = 0;
};
thread_local Cost cost;

void* counted(void* memory) {
  if (memory == nullptr) return nullptr;
  const size_t size = malloc_usable_size(memory);
  cost.calls++;
  cost.bytes += size;
  cost.live += size;
  cost.peak = std::max(cost.peak, cost.live);
  return memory;
}

// Memory of another thread may be freed here. Then the figure stays at 0.
void forget(void* memory) {
  cost.live -= std::min<uint64_t>(cost.live, malloc_usable_size(memory));
}

}  // namespace

extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void __libc_free(void*);

#define SEEN __attribute__((visibility("default")))
SEEN void* malloc(size_t size) { return counted(__libc_malloc(size)); }
SEEN void* calloc(size_t count, size_t size) { return counted(__libc_calloc(count, size)); }
SEEN void* realloc(void* memory, size_t size) {
  if (memory != nullptr) forget(memory);
  return counted(__libc_realloc(memory, size));
}
SEEN void free(void* memory) {
  if (memory != nullptr) forget(memory);
  __libc_free(memory);
}
}

namespace redis_test::limits_test {
namespace {

std::string repeated(const std::string& text, size_t n) {
  std::string all;
  all.reserve(text.size() * n);
  for (size_t i = 0; i < n; i++) all += text;
  return all;
}

std::string value(const std::string& text) {
  return std::string("$")
      .append(std::to_string(text.size()))
      .append("\r\n")
      .append(text)
      .append("\r\n");
}

std::string array(size_t n) { return std::string("*").append(std::to_string(n)).append("\r\n"); }

// Makes n ranges of one slot each. Every range has a master of its own and a replica, and names of
// both.
std::string many_ranges(size_t n) {
  std::string map = array(n);
  for (size_t i = 0; i < n; i++) {
    const std::string slot = std::string(":") + std::to_string(i % 16384) + "\r\n";
    map += "*4\r\n" + slot + slot;
    for (int node = 0; node < 2; node++)
      map +=
          array(4) +
          value(std::string("127.0.") + std::to_string(i / 250) + "." + std::to_string(i % 250)) +
          ":7000\r\n" + value(std::string(40, 'f')) + array(2) + value("hostname") +
          value(std::string("node") + std::to_string(i));
  }
  return map;
}

struct Hostile {
  const char* what;
  // The command that is answered.
  const char* command;
  // An answer of about n times 100 bytes.
  std::string (*answer)(size_t n);
};

const Hostile all_hostile[] = {
    {"arrays in arrays", "CLUSTER", [](size_t n) { return repeated("*1\r\n", n * 25); }},
    {"arrays in arrays", "GETRANGE", [](size_t n) { return repeated("*1\r\n", n * 25); }},
    {"arrays beside arrays", "CLUSTER",
     [](size_t n) { return array(n * 10) + repeated("*1\r\n:1\r\n", n * 10); }},
    {"arrays that announce much", "CLUSTER",
     [](size_t n) { return array(n) + repeated("*10000\r\n", n); }},
    {"a map of many servers", "CLUSTER", many_ranges},
    {"a map of one range again and again", "CLUSTER",
     [](size_t n) {
       return array(n) + repeated("*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:7000\r\n", n);
     }},
    {"a value", "GETRANGE", [](size_t n) { return value(std::string(n * 100, 'x')); }},
    {"a value that is too long", "GETRANGE",
     [](size_t n) { return value(std::string(n * 200, 'x')); }},
    {"a value that announces more", "GETRANGE",
     [](size_t n) {
       return std::string("$") + std::to_string(n * 1000) + "\r\n" + std::string(n * 100, 'x');
     }},
    {"the line of an error", "GETRANGE",
     [](size_t n) { return std::string("-ERR ") + std::string(n * 100, 'x'); }},
    {"the line of an error", "PING",
     [](size_t n) { return std::string("-ERR ") + std::string(n * 100, 'x'); }},
    {"the line of a number", "GETRANGE",
     [](size_t n) { return std::string(":") + std::string(n * 100, '1'); }},
    {"the line of a length", "GETRANGE",
     [](size_t n) { return std::string("$") + std::string(n * 100, '0'); }},
};

// Measures the cost of opening and reading once, if the answer is `hostile`.
Cost cost_of(const Hostile& hostile, size_t n) {
  const std::string answer = hostile.answer(n);
  const FakeServer server(
      [&](const Command& command) {
        if (command[0] == hostile.command) return Answer{answer, true};
        if (command[0] == "CLUSTER")
          return Answer{"-ERR This instance has cluster support disabled\r\n"};
        return Answer{command[0] == "PING" ? "+PONG\r\n" : "$-1\r\n"};
      },
      false);
  Batch batch;
  batch.room(1, n * 100);
  Store store(server.address(), [](pkv_redis_config& config) { config.connect_later = 1; });
  cost = {};
  store.get(batch);
  return cost;
}

TEST(RedisLimits, CostsGrowNoFasterThanReplies) {
  for (const Hostile& hostile : all_hostile) {
    SCOPED_TRACE(std::string(hostile.what) + " in answer to " + hostile.command);
    // Each answer is below the limits, or always refused.
    Cost before = cost_of(hostile, 1000);
    ASSERT_GT(before.bytes, 0u) << "nothing is counted";
    for (const size_t n : {2000, 4000, 8000}) {
      const Cost now = cost_of(hostile, n);
      EXPECT_LE(now.calls, before.calls * 22 / 10 + 100) << n;
      EXPECT_LE(now.bytes, before.bytes * 22 / 10 + (256 << 10)) << n;
      EXPECT_LE(now.peak, before.peak * 22 / 10 + (256 << 10)) << n;
      before = now;
    }
    EXPECT_LE(before.peak, 64u << 20);
  }
}

// A reply could announce as many elements as it has bytes, which would take a hundred times its
// length.
TEST(RedisLimits, ARepliesElementsHaveALimit) {
  const Hostile elements = {"", "CLUSTER", [](size_t n) {
                              return array(n) + repeated(array(1000) + repeated(":1\r\n", 1000), n);
                            }};
  for (const size_t n : {100, 1000, 4000}) EXPECT_LE(cost_of(elements, n).peak, 96u << 20) << n;
}

// A line has a limit of its own, however many replies are expected. Otherwise every byte that
// arrives would start another search for the end of the line.
TEST(RedisLimits, ALineHasALimit) {
  for (const char* begin : {"-ERR ", "+", ":1", "$1", "*1"}) {
    const FakeServer server([&](const Command&) { return Answer{begin + std::string(8192, '1')}; });
    Store store(server.address());
    Batch batch;
    for (uint64_t i = 0; i < 4000; i++) batch.room(i, 1);
    EXPECT_EQ(store.get(batch), -EPROTO) << begin;
  }
}

}  // namespace
}  // namespace redis_test::limits_test
