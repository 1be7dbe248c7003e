// Every call on sessions, steps, snapshots, the prefix index and files of a cache of any kind; the
// first byte chooses the kind. Keys, values and states depend on what a session computed, so
// whatever was shared, dropped, saved or loaded, it must hold exactly these.
#include "../tests/cache/world_play.h"
#include "target.h"

FUZZ_TARGET(const uint8_t* data, size_t size) {
  cache_test::Random random(data, size);
  const cache_test::SmallCache& kind = world::kinds()[random.below(world::kinds().size())];
  world::WorldPlay play(kind, random);
  for (int i = 0; i < 200 && !play.spent(); i++) play.operate();
  play.finish();
}
