// The functions of a table that are the same for sets of instructions that differ only in how they
// read dtypes. Those are compiled once, with the oldest of these sets.
#pragma once

#include "kernels/dtype_ops.hpp"

namespace pkv::kernels {

struct Drivers {
  void (*prepare)(const QueryTask&);
  size_t (*attend_scratch_bytes)(const AttendTask&, const SetOps&);
  void (*attend)(const AttendTask&, const SetOps&);
  void (*finish)(const FinishTask&);
  void (*score_blocks)(const ScoreTask&);
  size_t (*weigh_scratch_bytes)(const WeighTask&, const SetOps&);
  void (*weigh_blocks)(const WeighTask&, const SetOps&);
  void (*merge)(const MergeTask&);
  void (*store)(const CopyTask&, const SetOps&);
  void (*load)(const CopyTask&, const SetOps&);
  void (*transfer)(const TransferTask&, const SetOps&);
};

// The table of a set with these drivers and operations. The type Isa of its file makes its
// functions internal to the file.
template <class Isa, const Drivers& drivers, const SetOps& ops>
constexpr Table make_table(pkv_isa isa) {
  static_assert(ops.dtypes[last_dtype - PKV_F32] != nullptr, "SetOps lacks a dtype");
  return {isa,
          [](const QueryTask& task) { drivers.prepare(task); },
          [](const AttendTask& task) { return drivers.attend_scratch_bytes(task, ops); },
          [](const AttendTask& task) { drivers.attend(task, ops); },
          [](const FinishTask& task) { drivers.finish(task); },
          [](const ScoreTask& task) { drivers.score_blocks(task); },
          [](const WeighTask& task) { return drivers.weigh_scratch_bytes(task, ops); },
          [](const WeighTask& task) { drivers.weigh_blocks(task, ops); },
          [](const MergeTask& task) { drivers.merge(task); },
          [](const CopyTask& task) { drivers.store(task, ops); },
          [](const CopyTask& task) { drivers.load(task, ops); },
          [](const TransferTask& task) { drivers.transfer(task, ops); }};
}

}  // namespace pkv::kernels
