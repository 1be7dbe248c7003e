// One attention call of any shape, type and variant, over the caller's memory and in a cache: every
// instruction set against textbook attention.
#include "../tests/cache/call_play.h"
#include "target.h"

FUZZ_TARGET(const uint8_t* data, size_t size) {
  cache_test::CallPlay(cache_test::Random(data, size)).run();
}
