// Attention over a ragged set of sequences: split the work, run the kernels, merge their results.
#pragma once

#include "base/parallel.h"
#include "engine/attention/call.h"
#include "engine/attention/scratch.h"
#include "kernels/kernels.h"

namespace pkv::attention {

// Throws INVALID_ARGUMENT, OUT_OF_RANGE, OVERFLOW (for the mask: see call.h), bad_alloc.
void attend(Workers& workers, ScratchPool& scratch, const kernels::Table& kernels,
            const AttendCall& call);

}  // namespace pkv::attention
