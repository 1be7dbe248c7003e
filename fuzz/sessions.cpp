// Operations on a whole cache, through the C interface, against a naive model. The header chooses
// storage, layout, dtype, window, sinks, watermark, memory and end; each record is an operation.
// Every invariant is checked after each of them.
#include "../tests/systems/play.h"
#include "records.h"
#include "target.h"

static_assert(systems::operation_bytes == record_bytes);

FUZZ_TARGET(const uint8_t* data, size_t size) {
  Source source(data, size), header = source.part(header_bytes);
  const systems::Setup& setup = systems::setups[header.below(std::size(systems::setups))];
  systems::Play play(setup, header, source);
  for (int i = 0; i < 250 && !play.spent(); i++) {
    play.operate();
    play.compare();
  }
  play.finish();
}
