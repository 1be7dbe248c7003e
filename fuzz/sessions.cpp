// Operations on a whole cache, through the C interface, against a naive model. The header chooses
// storage, layout, dtype, window, sinks, watermark, memory and end; each record is an operation.
// Every invariant is checked after each of them.
#include "../tests/cache/play.h"
#include "records.h"
#include "target.h"

static_assert(cache_test::operation_bytes == record_bytes);

FUZZ_TARGET(const uint8_t* data, size_t size) {
  Source source(data, size), header = source.part(header_bytes);
  const cache_test::Setup& setup = cache_test::setups[header.below(std::size(cache_test::setups))];
  cache_test::Play play(setup, header, source);
  for (int i = 0; i < 250 && !play.spent(); i++) {
    play.operate();
    play.compare();
  }
  play.finish();
}
