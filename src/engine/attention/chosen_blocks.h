// Attention over chosen blocks: each query reads, for each KV head, some blocks of its sequence. To
// the kernels this is a sequence of its own, whose block table has these blocks only, and whose
// window and mask are those of the whole sequence without the blocks that are left out. This
// suffices because no score or weight depends on where a key lies; parameters for which one does
// are rejected (see check_params). Queries of a step that read the same blocks are in one sequence.
#pragma once

#include <memory_resource>
#include <vector>

#include "base/parallel.h"
#include "engine/attention/seen_blocks.h"
#include "engine/memory/group.h"
#include "kernels/kernels.h"

namespace pkv::attention {

// Whose bounds blocks are chosen by, where the caller has no lists.
struct ChoosingLayer {
  memory::Group* group;
  uint32_t layer;  // in the group
  // The block tables of the sequences of the call.
  std::vector<const memory::Block*> tables;
};

class ChosenBlocks {
 public:
  // Chooses for all queries of a call, whose sequences have block tables. `whole` is what they read
  // without a choice. Refers to all of these as long as it lives. Writes
  // AttendParams::chosen_blocks if it is given. Throws INVALID_ARGUMENT and OUT_OF_RANGE for lists
  // that are none, bad_alloc; then nothing is written.
  ChosenBlocks(Workers& workers, const kernels::Table& kernels, const AttendCall& call,
               const Readings& whole, const ChoosingLayer& layer);

  // What the queries read instead. It refers to this object.
  std::span<const Reading> readings() const { return readings_; }

 private:
  // Where a sequence has the blocks that can be chosen: at entries [first, last) of its block
  // table. Those before and behind are read in any case, as far as they are seen.
  struct Middle {
    uint32_t first, last;
    uint32_t step;  // the entry of the first block with a token of the step
  };
  // Queries of one sequence that choose together.
  struct Chooser {
    size_t sequence;
    uint32_t first, count;
  };
  // What they choose for one KV head.
  struct Choice {
    uint32_t candidates;
    uint32_t chosen;  // of the candidates
    bool by_bounds() const { return chosen < candidates; }
  };
  // Working memory of a worker.
  struct Scratch {
    std::vector<float> q, positive, negative, scores;
    std::vector<uint32_t> entries, ids;  // of the candidates
    std::vector<uint32_t> order;
  };

  void check_lists() const;
  void list_choosers();
  uint32_t count_candidates(const Chooser& chooser, uint32_t head) const;
  void choose(const ChoosingLayer& layer);
  void compute_bounds(const ChoosingLayer& layer);
  void score(const ChoosingLayer& layer, const Chooser& chooser, uint32_t head, uint32_t candidates,
             Scratch& scratch) const;
  void choose_for(const ChoosingLayer& layer, size_t chooser, uint32_t head, Scratch& scratch);
  void tell_chosen() const;
  void write_tables();
  bool reads_all(size_t sequence) const;
  bool same_lists(size_t sequence, uint32_t a, uint32_t b) const;
  void read_ahead() const;
  void append(size_t sequence, uint32_t head, uint32_t first, uint32_t count);

  uint32_t heads() const { return call_.shape.kv_heads; }
  Middle middle_of(const rows::Sequence& sequence) const;
  // The entries that a query reads of the middle for one KV head, rising: given, or chosen.
  std::span<const uint32_t> list_of(size_t sequence, uint32_t query, uint32_t head) const;
  size_t chooser_of(size_t sequence, uint32_t query) const {
    return first_chooser_[sequence] + (call_.params.choose_together ? 0 : query);
  }
  // Where the blocks are that were chosen.
  size_t chosen_at(size_t chooser, uint32_t head) const {
    return (chooser * heads() + head) * most_chosen_;
  }
  // An array that lives as long as this object.
  template <class T>
  std::span<T> take(size_t count) {
    return {std::pmr::polymorphic_allocator<T>(&memory_).allocate(count), count};
  }

  Workers& workers_;
  const kernels::Table& kernels_;
  const AttendCall& call_;
  const Readings& whole_;
  memory::KeyBounds* bounds_ = nullptr;  // if anybody chooses by them
  std::vector<Chooser> choosers_;
  std::vector<size_t> first_chooser_;  // by sequence
  std::vector<Choice> choices_;        // [choosers][heads]
  size_t most_chosen_ = 0;             // by any of them
  std::vector<uint32_t> chosen_;       // see chosen_at()
  std::vector<uint32_t> entries_;      // of one block table in the making
  std::pmr::monotonic_buffer_resource memory_;
  std::vector<Reading> readings_;
};

}  // namespace pkv::attention
