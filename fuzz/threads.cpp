// The operations of `world` from two or three threads in one cache, each with its own sessions. The
// only effect of other threads on a thread's model is that blocks may be short, and that texts may
// be cached. The last byte of a record names its thread.
#include <thread>

#include "../tests/cache/world_play.h"
#include "records.h"
#include "target.h"

namespace {

constexpr size_t most_threads = 3, most_operations = 60;

// The operations of each thread.
using Records = std::vector<std::vector<cache_test::Random>>;

Records records_of(const uint8_t* data, size_t size, size_t count) {
  Records records(count);
  for (size_t at = header_bytes; at + record_bytes <= size; at += record_bytes) {
    auto& own = records[data[at + record_bytes - 1] % count];
    if (own.size() < most_operations) own.emplace_back(data + at, record_bytes - 1);
  }
  return records;
}

// Calls run(i) for each thread, on all of them at once.
template <class Run>
void on_threads(size_t count, const Run& run) {
  std::vector<std::thread> threads;
  for (size_t i = 1; i < count; i++) threads.emplace_back([&, i] { run(i); });
  run(0);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

FUZZ_TARGET(const uint8_t* data, size_t size) {
  static const std::vector<cache_test::SmallCache> kinds =
      world::kinds_that([](const cache_test::SmallCache& kind) {
        return world::is_scarce(kind) || world::is_crowded(kind);
      });
  Source source(data, size), header = source.part(header_bytes);
  const cache_test::SmallCache& kind = kinds[header.below(kinds.size())];
  const Records records = records_of(data, size, header.between(2, most_threads));
  const auto world = std::make_shared<world::Shared>(kind, false);
  on_threads(records.size(), [&](size_t i) {
    world::WorldPlay play(world, cache_test::Random(1));
    for (const cache_test::Random& record : records[i]) play.operate(record);
    play.finish();
  });
  world::WorldPlay::expect_empty(*world);
}
