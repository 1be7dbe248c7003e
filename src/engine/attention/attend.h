// Runs one attention call over sequences of different lengths: cuts it into work, runs the kernels
// on the workers and merges their partial results.
#pragma once

#include "base/parallel.h"
#include "engine/attention/call.h"
#include "engine/attention/chosen_blocks.h"
#include "engine/attention/compute.h"

namespace pkv::attention {

// Writes the outputs of all queries. `layer` is needed if blocks are chosen by bounds. Throws what
// check_call() and ChosenBlocks throw, and bad_alloc; then no output is written.
void attend(Workers& workers, ScratchPool& scratch, const kernels::Table& kernels,
            const AttendCall& call, const ChoosingLayer& layer = {});

// Does the same over memory and block tables that the caller owns. There is no cache, so everything
// that a cache would know is checked with each call, and no block id beyond those of the view is
// followed. Throws INVALID_ARGUMENT, OUT_OF_RANGE, OVERFLOW, bad_alloc; then no output is written.
void attend_stateless(Compute& compute, const pkv_kv_view& kv,
                      const pkv_attention_sequences& sequences, const pkv_attention_params* params,
                      const pkv_tensor* q, const pkv_tensor* out);

// Merges `count` results over the same queries, each of some part of the tokens, into one by their
// log-sum-exp. Throws INVALID_ARGUMENT, OUT_OF_RANGE, OVERFLOW, bad_alloc; then nothing is written.
void merge_states(const Compute& compute, size_t count, const pkv_tensor* outs,
                  const float* const* lse, uint64_t rows, uint32_t heads, uint32_t dim,
                  const pkv_tensor* merged, float* merged_lse);

}  // namespace pkv::attention
