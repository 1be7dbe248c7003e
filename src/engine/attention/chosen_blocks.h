// Attention over chosen blocks: queries that choose together (consecutive ones of a sequence; one
// query, if the caller does not ask for more) read, for each KV head, some blocks of their
// sequence. For the kernels this is a sequence of its own, whose block table has only these blocks,
// and whose window and mask are those of the whole sequence without the other blocks. This works
// because no score or weight depends on the position of a key; check_params() rejects parameters
// for which it does. Those of a step that read the same blocks are in one sequence.
#pragma once

#include <vector>

#include "base/parallel.h"
#include "engine/attention/seen_blocks.h"
#include "engine/memory/group.h"
#include "kernels/kernels.h"

namespace pkv::attention {

// The layer whose bounds are used to choose blocks, if the caller gives no lists.
struct ChoosingLayer {
  memory::Group* group;
  uint32_t layer;  // in the group
  // The block tables of the sequences of the call.
  std::vector<const memory::Block*> tables;
};

class ChosenBlocks {
 public:
  // Chooses for all queries of a call, whose sequences have block tables. `whole` has their
  // readings without a choice. The object refers to its arguments as long as it lives. Writes
  // AttendOutputs::chosen if it is given. Throws INVALID_ARGUMENT and OUT_OF_RANGE for
  // invalid lists, and bad_alloc, before it writes anything.
  ChosenBlocks(Workers& workers, const kernels::Table& kernels, const AttendCall& call,
               const Readings& whole, const ChoosingLayer& layer);

  // The readings that replace `whole`. They refer to this object.
  std::span<const Reading> readings() const { return readings_; }

 private:
  // Queries [first, first + count) of a sequence, which choose together.
  struct Choosers {
    size_t sequence;
    uint32_t first, count;
    uint32_t own_begin, own_end;  // the entries of the block table that have their tokens
  };
  // Their choice for one KV head.
  struct Choice {
    uint32_t candidates;
    uint32_t chosen;  // of the candidates
    bool by_bounds() const { return chosen < candidates; }
  };
  // Working memory of a worker.
  struct WorkingMemory {
    std::vector<float> q, sum, size, scores;
    std::vector<uint32_t> entries, ids;  // of the candidates
    std::vector<uint32_t> order;

    void resize(const AttendShape& shape, uint32_t queries, uint32_t candidates);
  };
  // Bounds of blocks with tokens of the step, which are computed for each call, because the step
  // may be aborted, or written again: [sequence][KV head][entries from `begin` on][2][dim].
  struct StepBounds {
    uint32_t begin, count;  // entries of the block table
    size_t first;           // element of step_bounds_
  };

  void list_choosers();
  void check_lists() const;
  void count_candidates();
  void choose(const ChoosingLayer& layer);
  void compute_bounds(const ChoosingLayer& layer);
  void compute_step_bounds();
  void sum_queries(const Choosers& choosers, uint32_t head, WorkingMemory& scratch) const;
  void score(const ChoosingLayer& layer, const Choosers& choosers, uint32_t head,
             uint32_t candidates, WorkingMemory& scratch) const;
  void choose_for(const ChoosingLayer& layer, size_t index, uint32_t head, WorkingMemory& scratch);
  void tell_chosen() const;
  void write_tables();
  bool reads_all(size_t sequence) const;
  bool read_the_same(size_t a, size_t b) const;
  void read_ahead() const;
  void append(const Choosers& choosers, uint32_t head, std::span<const uint32_t> list);

  uint32_t heads() const { return call_.shape.kv_heads; }
  // Returns the entry of the first block with a token of the step. A step may begin inside a block.
  static uint32_t step_of(const rows::Sequence& sequence) {
    return static_cast<uint32_t>(sequence.start() / sequence.kv.block_size);
  }
  // Returns whether choosers read a block in any case, as far as it is seen.
  bool is_fixed(const Choosers& choosers, uint32_t entry) const {
    return entry < call_.params.first_blocks ||
           (uint64_t{entry} + call_.params.last_blocks >= choosers.own_begin &&
            entry < choosers.own_end);
  }
  // Calls visit(entry) for each block that can be chosen.
  template <class Visit>
  void visit_candidates(const Choosers& choosers, const Reading& reading, const Visit& visit) const;
  // Returns the entries that are chosen for one KV head, in ascending order, or those of the
  // caller's list.
  std::span<const uint32_t> list_of(size_t index, uint32_t head) const;
  // Returns the index of a choice in chosen_.
  size_t chosen_at(size_t index, uint32_t head) const {
    return (index * heads() + head) * most_chosen_;
  }

  Workers& workers_;
  const kernels::Table& kernels_;
  const AttendCall& call_;
  const Readings& whole_;
  memory::KeyBounds* bounds_ = nullptr;  // NULL if nothing is chosen by them
  std::vector<uint16_t> step_bounds_;
  std::vector<StepBounds> step_bounds_of_;  // by sequence
  std::vector<Choosers> choosers_;
  std::vector<size_t> first_choosers_;  // by sequence; and their number
  std::vector<Choice> choices_;         // [choosers][heads]
  // By sequence: the end of the blocks among which is chosen by bounds.
  std::vector<uint32_t> candidates_end_;
  size_t most_chosen_ = 0;         // in any choice
  std::vector<uint32_t> chosen_;   // see chosen_at()
  std::vector<uint32_t> entries_;  // of the block table that is being made
  Arrays arrays_;                  // of the readings
  std::vector<Reading> readings_;
};

}  // namespace pkv::attention
