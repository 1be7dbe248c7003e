// Saves what a stage has, and loads it into another cache.
#pragma once

#include "../store/support.h"
#include "play_sessions.h"

namespace cache_test {

// Sessions that no step uses, and snapshots. The first call asks for the size of the file; no other
// thread changes what is saved.
struct SavedStage {
  std::vector<const Actor*> actors;
  std::vector<pkv_file_item> items;
  store::Bytes bytes;
  uint64_t size = 0;

  explicit SavedStage(const Stage& stage) {
    for (const auto& actor : stage.actors)
      if (!actor->in_batch) {
        actors.push_back(actor.get());
        items.push_back({actor->session, nullptr, items.size()});
      }
    for (const Frozen& frozen : stage.snapshots)
      items.push_back({nullptr, frozen.snapshot, items.size()});
  }
  pkv_status save(pkv_cache cache) {
    pkv_stream to = store::buffer(bytes);
    return pkv_file_save(cache, items.size(), items.data(), nullptr, &to, &size);
  }
};

inline void expect_loaded(const Stage& stage, const SavedStage& saved, Stage& other) {
  pkv_session sessions[16];
  size_t count = 0;
  const pkv_stream from = store::buffer(saved.bytes);
  const pkv_status status = pkv_file_load(other.world.cache, nullptr, &from, std::size(sessions),
                                          sessions, nullptr, &count);
  // Sessions that share a part-filled block each have their own in a file, so a load may need more
  // blocks.
  if (status == PKV_OUT_OF_BLOCKS || status == PKV_TOO_LARGE) return;
  CHECK(status);
  ASSERT_EQ(saved.items.size(), count);
  for (size_t i = 0; i < count; i++) {
    if (i < saved.actors.size()) {
      other.add(sessions[i], saved.actors[i]->naive, saved.actors[i]->priority);
    } else {
      const Frozen& frozen = stage.snapshots[i - saved.actors.size()];
      other.add(sessions[i], frozen.naive, frozen.priority);
    }
  }
  CHECK(pkv_cache_validate(other.world.cache));
  if (stage.world.has_rows()) other.compare_all();
  other.close_all();
}

inline void save_and_load(Stage& stage, Source& draw) {
  const bool refused = draw.chance(50);
  if (!refused) stage.refuse_allocation(0);
  SavedStage saved(stage);
  const auto save = [&] { return saved.save(stage.world.cache); };
  const pkv_status status = stage.run(save, PKV_BUFFER_TOO_SMALL);
  if (status == PKV_OUT_OF_MEMORY && refused) return;
  ASSERT_EQ(PKV_BUFFER_TOO_SMALL, status) << pkv_last_error();
  saved.bytes.resize(saved.size);
  stage.certain(save);
  StagedCache world(stage.world.setup, false);
  Stage other(world, 1);
  expect_loaded(stage, saved, other);
}

}  // namespace cache_test
