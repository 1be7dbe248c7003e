// The memory of K and V of one layer as the C interface describes it (pkv_kv_view), and as the
// kernels read it.
#pragma once

#include <pagedkv/kv.h>

#include "kernels/views.h"

namespace pkv::rows {

// Checks a caller's view and converts its strides to bytes. The block table is left out. Throws
// INVALID_ARGUMENT, OUT_OF_RANGE, OVERFLOW, UNSUPPORTED.
kernels::KvView check_view(const pkv_kv_view& kv);

// Throws UNSUPPORTED if rows of this type are only read, and INVALID_ARGUMENT if two rows (tiles of
// PACKED) of K or of V overlap, because a write to one would change the other. `kv` was checked
// before.
void check_writable(const pkv_kv_view& kv);

// Fills in strides and addresses of a view with one layer in a run of memory, which may be NULL.
// Sets *bytes to the size of that run. Throws INVALID_ARGUMENT, OVERFLOW, UNSUPPORTED.
pkv_kv_view plan_view(const pkv_kv_view& given, uint64_t* bytes);

// Returns the kernels' view as the C interface describes it, with this number of blocks. The caller
// sets the rotation.
pkv_kv_view public_view(const kernels::KvView& view, uint64_t blocks);

}  // namespace pkv::rows
