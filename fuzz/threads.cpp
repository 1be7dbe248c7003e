// The operations of `sessions` from two or three threads in one cache, each with sessions of its
// own and some snapshots that all see. What the others do changes nothing for a thread's model but
// that blocks may be short. A record belongs to the thread its last byte names.
#include <thread>

#include "../tests/systems/play.h"
#include "records.h"
#include "target.h"

static_assert(systems::operation_bytes == record_bytes);

namespace {

constexpr size_t most_threads = 3, most_operations = 60;

// Snapshots of a few lengths, made while one thread runs.
void make_common(systems::World& world, systems::Stage& stage) {
  for (const size_t length : {5, 20, 48}) {
    if (!world.has_rows()) return;
    const std::vector<uint32_t> rows = stage.fresh_rows(length);
    const systems::Session session = systems::open(world.cache);
    for (uint32_t layer = 0; layer < systems::layers; layer++) {
      systems::Numbers k = systems::rows_of(rows, layer, false),
                       v = systems::rows_of(rows, layer, true);
      const pkv_tensor keys = k.tensor(), values = v.tensor();
      CHECK(pkv_session_prefill(session, layer, length, &keys, &values));
    }
    stage.counts.commits++;
    stage.counts.committed_tokens += length;
    systems::Naive naive;
    naive.extend(rows, std::vector<int32_t>(length, PKV_NO_TOKEN));
    world.common.push_back({systems::freeze(session), naive});
  }
}

void live(systems::Stage& stage, const std::vector<Source>& records) {
  for (const Source& record : records) {
    systems::operate(stage, record);
    stage.compare();
  }
}

}  // namespace

FUZZ_TARGET(const uint8_t* data, size_t size) {
  Source source(data, size), header = source.part(header_bytes);
  const systems::Setup& setup = systems::setups[header.below(std::size(systems::setups))];
  systems::World world(setup, header.chance(80));
  const size_t count = header.between(2, most_threads);
  const bool destroys_open = header.chance(50);

  std::vector<std::vector<Source>> records(count);
  for (size_t at = header_bytes; at + record_bytes <= size; at += record_bytes) {
    auto& own = records[data[at + record_bytes - 1] % count];
    if (own.size() < most_operations) own.emplace_back(data + at, record_bytes - 1);
  }
  std::vector<std::unique_ptr<systems::Stage>> stages;
  for (uint32_t i = 0; i < count; i++)
    stages.push_back(std::make_unique<systems::Stage>(world, 1 + i * 1000000));
  make_common(world, *stages[0]);

  world.alone = false;
  std::vector<std::thread> threads;
  for (size_t i = 1; i < count; i++) threads.emplace_back([&, i] { live(*stages[i], records[i]); });
  live(*stages[0], records[0]);
  for (std::thread& thread : threads) thread.join();
  world.alone = true;

  CHECK(pkv_cache_validate(world.cache));
  systems::compare_stats(world, stages);
  for (const auto& stage : stages) {
    stage->compare_all();
    if (destroys_open)
      stage->forget_all();
    else
      stage->close_all();
  }
  for (systems::Frozen& frozen : world.common) {
    if (destroys_open)
      frozen.snapshot.forget();
    else
      frozen.snapshot.close();
  }
  world.common.clear();
  if (!destroys_open) systems::check_empty(world);
  systems::destroy(world);
  for (const auto& stage : stages) stage->check_dead();
}
