// A cache with a group of states, through steps, drafts, forks, trims, suspensions, files and the
// prefix index; the first byte chooses the kind. A state follows from the text, so whatever was
// shared, dropped or matched, a session must hold just that one.
#include "../tests/cache/state_play.h"
#include "target.h"

FUZZ_TARGET(const uint8_t* data, size_t size) {
  cache_test::Random random(data, size);
  states::StatePlay play(states::played_kinds[random.below(std::size(states::played_kinds))],
                         random);
  play.run(100);
}
