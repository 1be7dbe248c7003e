// The interface of the kernels: a table of function pointers per instruction set. views.h has the
// tasks that the functions take.
#pragma once

#include "kernels/views.h"

namespace pkv::kernels {

struct Table {
  pkv_isa isa;
  // One attention call: prepare() scales the queries, attend() computes partial results over parts
  // of a sequence, finish() merges these into the caller's rows.
  void (*prepare)(const QueryTask&);
  // The size of AttendTask::scratch. It depends only on dtypes, dims, heads, heads_per_kv_head and
  // queries.
  size_t (*attend_scratch_bytes)(const AttendTask&);
  void (*attend)(const AttendTask&);
  void (*finish)(const FinishTask&);

  void (*score_blocks)(const ScoreTask&);  // finds blocks that may matter to a query
  // The weight of blocks in attention. weigh_scratch_bytes() is the size of the scratch memory; it
  // depends on the same fields as attend_scratch_bytes().
  size_t (*weigh_scratch_bytes)(const WeighTask&);
  void (*weigh_blocks)(const WeighTask&);
  void (*merge)(const MergeTask&);        // results of several attention calls into one
  void (*store)(const CopyTask&);         // a caller's rows to a sequence
  void (*load)(const CopyTask&);          // a sequence to a caller's rows
  void (*transfer)(const TransferTask&);  // stored bits of one sequence to another
};

// The last value of each enum. A new value makes `switch` statements over the enum fail to compile
// (element_bits() for a dtype, isa_name() for an instruction set), and moves these ends.
// The dtypes after last_dtype are those of rows that are only read.
inline constexpr pkv_dtype last_dtype = PKV_FP8_E5M2, last_read_dtype = PKV_Q4_0;
inline constexpr pkv_isa last_isa = PKV_ISA_AVX_VNNI;

// Returns whether K and V can be stored in the dtype.
constexpr bool dtype_stored(pkv_dtype dtype) { return dtype >= PKV_F32 && dtype <= last_dtype; }

// Returns whether a caller's rows can have the dtype.
constexpr bool dtype_of_rows(pkv_dtype dtype) { return dtype >= PKV_F32 && dtype <= PKV_BF16; }

// Returns the bytes of the unit in which pkv_kv_view counts strides: an element, or a byte if rows
// have scales.
constexpr unsigned stride_unit(pkv_dtype dtype) {
  return dtype == PKV_F32 ? 4 : dtype <= PKV_BF16 ? 2 : 1;
}

// Returns whether this build has the instruction set and the CPU can run it; true for AUTO.
bool isa_supported(pkv_isa isa);

// Returns the name of an instruction set, such as "avx512", or "unknown".
const char* isa_name(pkv_isa isa);

// Returns the table of an instruction set; for AUTO, of the best one. Throws PKV_UNSUPPORTED if
// isa_supported() is false.
const Table& select(pkv_isa isa);

// Returns a sentence that says why this machine cannot use better kernels than those that AUTO
// chose, or NULL if it uses the best ones.
const char* describe_fall_back(const Table& chosen);

}  // namespace pkv::kernels
