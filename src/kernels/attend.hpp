// Partial attention of some rows over some positions: straight from the tiles where there are few
// rows, by matrix products where there are many.
#pragma once

#include "kernels/attend_direct.hpp"
#include "kernels/attend_matmul.hpp"

namespace pkv::kernels {

template <class Isa>
void attend(const AttendTask& task) {
  Scratch scratch(task.scratch);
  if (uint64_t{task.queries} * task.gqa_group < min_matmul_rows)
    AttendDirect<Isa>(task, scratch).run();
  else
    AttendMatmul<Isa>(task, scratch).run();
}

// Bytes of AttendTask::work; dtypes, dims, heads, group and queries of the task are set.
template <class Isa>
size_t attend_scratch_bytes(const AttendTask& task) {
  Scratch scratch(nullptr);
  if (uint64_t{task.queries} * task.gqa_group < min_matmul_rows)
    AttendDirect<Isa>(task, scratch);
  else
    AttendMatmul<Isa>(task, scratch);
  return scratch.used();
}

}  // namespace pkv::kernels
