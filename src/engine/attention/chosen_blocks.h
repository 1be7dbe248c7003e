// Attention over chosen blocks: each query reads, for each KV head, some blocks of its sequence.
// For the kernels this is a sequence of its own, whose block table has only these blocks, and whose
// window and mask are those of the whole sequence without the other blocks. This works because no
// score or weight depends on the position of a key; check_params() rejects parameters for which it
// does. Queries of a step that read the same blocks are in one sequence.
#pragma once

#include <memory_resource>
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
  // AttendParams::chosen_blocks if it is given. Throws INVALID_ARGUMENT and OUT_OF_RANGE for
  // invalid lists, and bad_alloc, before it writes anything.
  ChosenBlocks(Workers& workers, const kernels::Table& kernels, const AttendCall& call,
               const Readings& whole, const ChoosingLayer& layer);

  // The readings that replace `whole`. They refer to this object.
  std::span<const Reading> readings() const { return readings_; }

 private:
  // The blocks of a sequence that can be chosen: entries [first, last) of its block table. Blocks
  // before and after them are always read, as far as they are seen.
  struct Middle {
    uint32_t first, last;
    uint32_t step;  // the entry of the first block with a token of the step
  };
  // Queries of one sequence that choose together.
  struct Chooser {
    size_t sequence;
    uint32_t first, count;
  };
  // Their choice for one KV head.
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

    void resize(const AttendShape& shape, uint32_t candidates);
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
  // Returns the entries of the middle that a query reads for one KV head, in ascending order.
  std::span<const uint32_t> list_of(size_t sequence, uint32_t query, uint32_t head) const;
  size_t chooser_of(size_t sequence, uint32_t query) const {
    return first_chooser_[sequence] + (call_.params.choose_together ? 0 : query);
  }
  // Returns the index of a choice in chosen_.
  size_t chosen_at(size_t chooser, uint32_t head) const {
    return (chooser * heads() + head) * most_chosen_;
  }
  // Returns an array that lives as long as this object.
  template <class T>
  std::span<T> take(size_t count) {
    return {std::pmr::polymorphic_allocator<T>(&memory_).allocate(count), count};
  }

  Workers& workers_;
  const kernels::Table& kernels_;
  const AttendCall& call_;
  const Readings& whole_;
  memory::KeyBounds* bounds_ = nullptr;  // NULL if no query chooses by them
  std::vector<Chooser> choosers_;
  std::vector<size_t> first_chooser_;  // by sequence
  std::vector<Choice> choices_;        // [choosers][heads]
  size_t most_chosen_ = 0;             // by any of them
  std::vector<uint32_t> chosen_;       // see chosen_at()
  std::vector<uint32_t> entries_;      // of the block table that is being made
  std::pmr::monotonic_buffer_resource memory_;
  std::vector<Reading> readings_;
};

}  // namespace pkv::attention
