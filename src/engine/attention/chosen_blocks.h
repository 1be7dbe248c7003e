// Attention over chosen blocks: each query reads, for each KV head, some blocks of its sequence. To
// the kernels this is a sequence of its own, whose block table has the chosen blocks only. That is
// all there is to it, since neither a score nor a weight depends on where a key lies (what does, is
// refused: see check_params).
#pragma once

#include <vector>

#include "base/parallel.h"
#include "engine/attention/call.h"
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
  // Chooses for all queries of a call, whose sequences have block tables. Writes
  // AttendParams::chosen_blocks if it is given. Throws INVALID_ARGUMENT and OUT_OF_RANGE for lists
  // that are none, bad_alloc; then nothing is written.
  ChosenBlocks(Workers& workers, const kernels::Table& kernels, const AttendCall& call,
               const ChoosingLayer& layer);

  // The sequences to attend to in place of those of the call. They refer to this object.
  std::span<const AttendSequence> sequences() const { return sequences_; }

 private:
  // One query of one sequence. It may choose from the blocks [first, last), and reads those before
  // and behind them, up to the one that has the last token that it sees.
  struct Query {
    size_t sequence;
    uint32_t index;  // in the sequence
    uint64_t row;    // among the queries of all sequences
    uint64_t seen;   // tokens
    uint32_t first, last;
    uint32_t candidates;  // of these blocks, all but those that were dropped
    uint32_t chosen;      // of the candidates, by bounds

    bool chooses() const { return chosen < candidates; }
  };
  // Working memory of a worker.
  struct Scratch {
    std::vector<float> q, positive, negative, scores;
    std::vector<uint32_t> entries, ids;  // of the candidates
    std::vector<uint32_t> order;
  };

  void list_queries();
  void check_lists() const;
  void choose(const ChoosingLayer& layer);
  void compute_bounds(const ChoosingLayer& layer);
  void score(const ChoosingLayer& layer, const Query& query, uint32_t head, Scratch& scratch) const;
  void choose_for(const ChoosingLayer& layer, const Query& query, uint32_t head, Scratch& scratch);
  void tell_chosen() const;
  void write_tables();
  void append_middle(const Query& query, uint32_t head);

  uint32_t heads() const { return call_.shape.kv_heads; }
  const AttendSequence& sequence_of(const Query& query) const {
    return call_.sequences[query.sequence];
  }
  const uint32_t* list_of(const Query& query, uint32_t head) const {
    return call_.params.block_lists + (query.row * heads() + head) * call_.params.block_list_size;
  }
  // Where the chosen blocks of a query are, for one KV head.
  size_t chosen_at(const Query& query, uint32_t head) const {
    return (static_cast<size_t>(&query - queries_.data()) * heads() + head) * most_chosen_;
  }

  Workers& workers_;
  const kernels::Table& kernels_;
  const AttendCall& call_;
  memory::KeyBounds* bounds_ = nullptr;  // if any query chooses by them
  std::vector<Query> queries_;
  size_t most_chosen_ = 0;        // by any query
  std::vector<uint32_t> chosen_;  // see chosen_at()
  std::vector<uint32_t> tables_;  // of sequences_
  std::vector<AttendSequence> sequences_;
};

}  // namespace pkv::attention
