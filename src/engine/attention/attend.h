// Runs one attention call over sequences of different lengths: cuts it into work, runs the kernels
// on the workers and merges their partial results.
#pragma once

#include "base/parallel.h"
#include "engine/attention/call.h"
#include "engine/attention/chosen_blocks.h"
#include "engine/attention/compute.h"

namespace pkv::attention {

// Writes the outputs of all queries. `layer` is needed if blocks are chosen by bounds. Throws the
// exceptions of check_call() and ChosenBlocks, and bad_alloc, before it writes any output.
void attend(Workers& workers, ScratchPool& scratch, const kernels::Table& kernels,
            const AttendCall& call, const ChoosingLayer& layer = {});

// Does the same with memory and block tables that the caller owns. Each call checks everything that
// a cache would know, and block ids that the view does not have are never used. Throws
// INVALID_ARGUMENT, OUT_OF_RANGE, OVERFLOW and bad_alloc, before it writes any output.
void attend_stateless(Compute& compute, const pkv_kv_view& kv, const pkv_kv_sequences& sequences,
                      const pkv_attention_params* params, const pkv_tensor* q,
                      const pkv_tensor* out, const pkv_attention_outputs* outputs);

// Merges `count` results of the same queries, each over a part of the tokens, by their log-sum-exp.
// Throws INVALID_ARGUMENT, OUT_OF_RANGE, OVERFLOW and bad_alloc, before it writes anything.
void merge_results(const Compute& compute, size_t count, const pkv_tensor* outs,
                   const float* const* lse, uint64_t rows, uint32_t heads, uint32_t dim,
                   const pkv_tensor* merged, float* merged_lse);

}  // namespace pkv::attention
