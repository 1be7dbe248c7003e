// Writes rows to slots of the caller's memory, and reads them from there.
#pragma once

#include <span>

#include "base/parallel.h"
#include "engine/rows/kv_view.h"
#include "kernels/kernels.h"

namespace pkv::rows {

// Stores a row of k and v in each slot, except rows with PKV_NO_SLOT. `v` is NULL if V is in the
// dims of K. Throws INVALID_ARGUMENT, OUT_OF_RANGE, OVERFLOW and bad_alloc, before it writes
// anything.
void write_slots(Workers& workers, const kernels::Table& kernels, const pkv_kv_view& kv,
                 std::span<const int64_t> slots, const pkv_tensor* k, const pkv_tensor* v);

// Stores the rows of the queries of each sequence at their positions. Throws like write_slots().
void write_sequences(Workers& workers, const kernels::Table& kernels, const pkv_kv_view& kv,
                     const pkv_kv_sequences& sequences, const pkv_tensor* k, const pkv_tensor* v);

// Copies each slot to a row of k and v, either of which may be NULL. Throws like write_slots().
void read_slots(Workers& workers, const kernels::Table& kernels, const pkv_kv_view& kv,
                std::span<const int64_t> slots, const pkv_tensor* k, const pkv_tensor* v);

// Copies the positions of each sequence, as write_sequences() takes them, to rows of k and v,
// either of which may be NULL. Throws like write_slots().
void read_sequences(Workers& workers, const kernels::Table& kernels, const pkv_kv_view& kv,
                    const pkv_kv_sequences& sequences, const pkv_tensor* k, const pkv_tensor* v);

}  // namespace pkv::rows
