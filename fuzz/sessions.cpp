// Operations on a whole cache, through the C interface, against a naive model; the first byte chooses storage, layout, dtype and window.
// Every invariant is checked after each operation.
#include "../tests/systems/play.h"
#include "target.h"

FUZZ_TARGET(const uint8_t* data, size_t size) {
  systems::Random random(data, size);
  const systems::Setup& setup = systems::setups[random.below(std::size(systems::setups))];
  systems::Play play(setup, random);
  for (int i = 0; i < 250 && !play.spent(); i++) {
    play.operate();
    play.compare();
  }
  play.finish();
}
