// Partial attention of some rows over some positions. With few rows, K and V are multiplied as they
// are stored in tiles; with many rows, they are unpacked and multiplied as matrices.
#pragma once

#include "kernels/attend_direct.hpp"
#include "kernels/attend_matmul.hpp"

namespace pkv::kernels {

template <class Isa>
void attend(const AttendTask& task, const SetOps& ops) {
  Scratch scratch(task.scratch);
  if (uint64_t{task.queries} * task.heads_per_kv_head < min_matmul_rows)
    AttendDirect<Isa>(task, ops, scratch).run();
  else
    AttendMatmul<Isa>(task, ops, scratch).run();
}

// Returns the bytes that AttendTask::scratch needs. They depend only on the task's dtypes, dims,
// heads, heads_per_kv_head and queries.
template <class Isa>
size_t attend_scratch_bytes(const AttendTask& task, const SetOps& ops) {
  Scratch scratch(nullptr);
  if (uint64_t{task.queries} * task.heads_per_kv_head < min_matmul_rows)
    AttendDirect<Isa>(task, ops, scratch);
  else
    AttendMatmul<Isa>(task, ops, scratch);
  return scratch.used();
}

}  // namespace pkv::kernels
