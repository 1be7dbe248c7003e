// One attention call of any shape, type and variant: every instruction set against the scalar one.
#include "../tests/support/attention_play.h"
#include "target.h"

FUZZ_TARGET(const uint8_t* data, size_t size) { AttentionPlay(Source(data, size)).run(); }
