// Partial attention of some rows over some positions: straight from the tiles where there are few
// rows, by matrix products where there are many.
#pragma once

#include "kernels/product.hpp"
#include "kernels/stream.hpp"

namespace pkv {

template <class Isa>
void attend(const AttendTask& task) {
  Work work(task.work);
  if (uint64_t{task.queries} * task.group < product_rows_least)
    Stream<Isa>(task, work).run();
  else
    Product<Isa>(task, work).run();
}

// Bytes of AttendTask::work; dtypes, dims, heads, group and queries of the task are set.
template <class Isa>
size_t attend_work_bytes(const AttendTask& task) {
  Work work(nullptr);
  if (uint64_t{task.queries} * task.group < product_rows_least)
    Stream<Isa>(task, work);
  else
    Product<Isa>(task, work);
  return work.used();
}

}  // namespace pkv
