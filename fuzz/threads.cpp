// The operations of `sessions` from two or three threads in one cache, each with its own sessions
// and some shared snapshots. The only effect of other threads on a thread's model is that blocks
// may be short. The last byte of a record names its thread.
#include <thread>

#include "../tests/cache/play.h"
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

void live(cache_test::Stage& stage, const std::vector<Source>& records) {
  for (const Source& record : records) {
    cache_test::operate(stage, record);
    stage.compare();
  }
}

}  // namespace

FUZZ_TARGET(const uint8_t* data, size_t size) {
  Source source(data, size), header = source.part(header_bytes);
  const cache_test::Setup& setup = cache_test::setups[header.below(std::size(cache_test::setups))];
  cache_test::StagedCache world(setup, header.chance(80));
  const size_t count = header.between(2, most_threads);
  const bool destroys_open = header.chance(50);

  std::vector<std::vector<Source>> records(count);
  for (size_t at = header_bytes; at + record_bytes <= size; at += record_bytes) {
    auto& own = records[data[at + record_bytes - 1] % count];
    if (own.size() < most_operations) own.emplace_back(data + at, record_bytes - 1);
  }
  std::vector<std::unique_ptr<cache_test::Stage>> stages;
  for (uint32_t i = 0; i < count; i++)
    stages.push_back(std::make_unique<cache_test::Stage>(world, 1 + i * 1000000));
  make_common(world, *stages[0]);

  world.alone = false;
  std::vector<std::thread> threads;
  for (size_t i = 1; i < count; i++) threads.emplace_back([&, i] { live(*stages[i], records[i]); });
  live(*stages[0], records[0]);
  for (std::thread& thread : threads) thread.join();
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
