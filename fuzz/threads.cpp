// The operations of `sessions` or of `world` from two or three threads in one cache, each with its
// own sessions, and for `sessions` some shared snapshots. The only effect of other threads on a
// thread's model is that blocks may be short, and that texts may be cached. The last byte of a
// record names its thread.
#include <thread>

#include "../tests/cache/play.h"
#include "../tests/cache/world_play.h"
#include "records.h"
#include "target.h"

static_assert(cache_test::operation_bytes == record_bytes);

namespace {

constexpr size_t most_threads = 3, most_operations = 60;

// Snapshots of a few lengths, made while one thread runs.
void make_common(cache_test::StagedCache& world, cache_test::Stage& stage) {
  for (const size_t length : {5, 20, 48}) {
    if (!world.has_rows()) return;
    const std::vector<uint32_t> rows = stage.fresh_rows(length);
    const cache_test::Session session = cache_test::open(world.cache);
    cache_test::Batch batch =
        cache_test::begin(world.cache, {session}, {static_cast<uint32_t>(length)});
    for (uint32_t layer = 0; layer < cache_test::layers; layer++) {
      cache_test::Numbers k = cache_test::rows_of(rows, layer, false),
                          v = cache_test::rows_of(rows, layer, true);
      const pkv_tensor keys = k.tensor(), values = v.tensor();
      CHECK(pkv_batch_write(batch, layer, &keys, &values));
    }
    cache_test::commit(batch);
    stage.counts.commits++;
    stage.counts.committed_tokens += length;
    cache_test::Naive naive;
    naive.extend(rows, std::vector<int32_t>(length, PKV_NO_TOKEN));
    world.common.push_back({cache_test::freeze(session), naive});
  }
}

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

void play_sessions(cache_test::StagedCache& world, const Records& records, bool destroys_open) {
  std::vector<std::unique_ptr<cache_test::Stage>> stages;
  for (uint32_t i = 0; i < records.size(); i++)
    stages.push_back(std::make_unique<cache_test::Stage>(world, 1 + i * 1000000));
  make_common(world, *stages[0]);

  world.alone = false;
  on_threads(records.size(), [&](size_t i) {
    for (const Source& record : records[i]) {
      cache_test::operate(*stages[i], record);
      stages[i]->compare();
    }
  });
  world.alone = true;

  CHECK(pkv_cache_validate(world.cache));
  cache_test::compare_stats(world, stages);
  for (const auto& stage : stages) {
    stage->compare_all();
    if (destroys_open)
      stage->forget_all();
    else
      stage->close_all();
  }
  for (cache_test::Frozen& frozen : world.common) {
    if (destroys_open)
      frozen.snapshot.forget();
    else
      frozen.snapshot.close();
  }
  world.common.clear();
  if (!destroys_open) cache_test::check_empty(world);
  cache_test::destroy(world);
  for (const auto& stage : stages) stage->check_dead();
}

void play_world(const cache_test::SmallCache& kind, const Records& records) {
  const auto world = std::make_shared<world::Shared>(kind, false);
  on_threads(records.size(), [&](size_t i) {
    world::WorldPlay play(world, cache_test::Random(1));
    for (const cache_test::Random& record : records[i]) play.operate(record);
    play.finish();
  });
  world::WorldPlay::expect_empty(*world);
}

}  // namespace

FUZZ_TARGET(const uint8_t* data, size_t size) {
  using cache_test::setups;
  static const std::vector<cache_test::SmallCache> kinds = world::crowded_kinds();
  Source source(data, size), header = source.part(header_bytes);
  const size_t choice = header.below(std::size(setups) + kinds.size());
  const bool hooks = header.chance(80);
  const Records records = records_of(data, size, header.between(2, most_threads));
  if (choice >= std::size(setups)) return play_world(kinds[choice - std::size(setups)], records);
  cache_test::StagedCache world(setups[choice], hooks);
  play_sessions(world, records, header.chance(50));
}
