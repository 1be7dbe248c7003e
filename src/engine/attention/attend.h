// Runs one attention call over sequences of different lengths: cuts it into work, runs the kernels
// on the workers and merges their partial results.
#pragma once

#include "base/parallel.h"
#include "engine/attention/call.h"
#include "engine/attention/chosen_blocks.h"
#include "engine/attention/scratch.h"
#include "kernels/kernels.h"

namespace pkv::attention {

// Writes the outputs of all queries. `layer` is needed if blocks are chosen by bounds. Throws what
// check_call() and ChosenBlocks throw, and bad_alloc; then no output is written.
void attend(Workers& workers, ScratchPool& scratch, const kernels::Table& kernels,
            const AttendCall& call, const ChoosingLayer& layer = {});

}  // namespace pkv::attention
