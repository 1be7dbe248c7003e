// Operations on a pool of block ids against a naive model, which must agree after each of them.
#include "../tests/pool/replay.h"
#include "target.h"

FUZZ_TARGET(const uint8_t* data, size_t size) { pkv::memory::Replay(Source(data, size)).run(1000); }
