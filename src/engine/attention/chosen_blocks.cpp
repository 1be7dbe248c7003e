// Scores blocks by their bounds, chooses the best, and makes block tables of them.
#include "engine/attention/chosen_blocks.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <thread>

#include "base/checked.h"
#include "base/status.h"
#include "engine/attention/rows.h"

namespace pkv::attention {

ChosenBlocks::ChosenBlocks(Workers& workers, const kernels::Table& kernels, const AttendCall& call,
                           const ChoosingLayer& layer)
    : workers_(workers), kernels_(kernels), call_(call) {
  list_queries();
  if (call.params.block_lists != nullptr)
    check_lists();
  else
    choose(layer);
  write_tables();
  if (call.params.chosen_blocks != nullptr) tell_chosen();
}

void ChosenBlocks::list_queries() {
  const AttendParams& params = call_.params;
  for (size_t s = 0; s < call_.sequences.size(); s++) {
    const AttendSequence& sequence = call_.sequences[s];
    // A step may begin inside of a block, which then counts as one of the step.
    const auto step = static_cast<uint32_t>(sequence.start() / sequence.kv.block_size);
    const uint32_t first = std::min(params.first_blocks, step),
                   last = std::max(first, step - std::min(params.last_blocks, step));
    const uint32_t* const blocks = sequence.kv.blocks;
    const auto dropped = static_cast<uint32_t>(
        sequence.kv.has_holes ? std::count(blocks + first, blocks + last, PKV_NO_BLOCK) : 0);
    const uint32_t candidates = last - first - dropped,
                   chosen = std::min(params.top_blocks, candidates);
    most_chosen_ = std::max<size_t>(most_chosen_, chosen);
    for (uint32_t i = 0; i < sequence.queries; i++)
      queries_.push_back({s, i, sequence.first_query + i,
                          params.causal ? sequence.start() + i + 1 : sequence.length, first, last,
                          candidates, chosen});
  }
}

void ChosenBlocks::check_lists() const {
  for (const Query& query : queries_) {
    const AttendSequence& sequence = sequence_of(query);
    const uint64_t blocks = ceil_div(sequence.length, sequence.kv.block_size);
    for (uint32_t head = 0; head < heads(); head++) {
      const uint32_t* const list = list_of(query, head);
      for (uint64_t i = 0; i < call_.params.block_list_size && list[i] != PKV_NO_BLOCK; i++) {
        if (list[i] >= blocks)
          fail(PKV_OUT_OF_RANGE,
               "block_lists: query %llu names block %u for KV head %u; its sequence has %llu",
               (unsigned long long)query.row, list[i], head, (unsigned long long)blocks);
        if (i > 0 && list[i] <= list[i - 1])
          fail(PKV_INVALID_ARGUMENT,
               "block_lists: query %llu names block %u after %u for KV head %u; indices must rise",
               (unsigned long long)query.row, list[i], list[i - 1], head);
      }
    }
  }
}

void ChosenBlocks::choose(const ChoosingLayer& layer) {
  if (most_chosen_ == 0) return;
  chosen_.resize(queries_.size() * heads() * most_chosen_);
  uint32_t candidates = 0;
  for (const Query& query : queries_) candidates = std::max(candidates, query.candidates);
  const AttendShape& shape = call_.shape;
  std::vector<Scratch> scratch(workers_.threads());
  for (Scratch& one : scratch) {
    one.q.resize(uint64_t{shape.query_heads} / heads() * shape.key_dim);
    one.positive.resize(shape.key_dim);
    one.negative.resize(shape.key_dim);
    one.scores.resize(candidates);
    one.entries.resize(candidates);
    one.ids.resize(candidates);
    one.order.resize(candidates);
  }
  if (std::any_of(queries_.begin(), queries_.end(), [](const Query& q) { return q.chooses(); })) {
    bounds_ = &layer.group->make_bounds();
    compute_bounds(layer);
  }
  workers_.for_each(queries_.size() * heads(), [&](size_t i, unsigned worker) {
    choose_for(layer, queries_[i / heads()], static_cast<uint32_t>(i % heads()), scratch[worker]);
  });
}

// Computes the bounds of all candidates that have none.
void ChosenBlocks::compute_bounds(const ChoosingLayer& layer) {
  std::vector<memory::Block> candidates;
  for (const Query& query : queries_)
    if (query.index == 0 && query.chooses())
      std::copy_if(layer.tables[query.sequence] + query.first,
                   layer.tables[query.sequence] + query.last, std::back_inserter(candidates),
                   memory::is_block);
  std::vector<memory::Block> own;
  own.reserve(candidates.size());
  const size_t keys = uint64_t{call_.sequences[0].kv.block_size} * call_.shape.key_dim;
  std::vector<std::vector<float>> scratch(workers_.threads(), std::vector<float>(keys));
  const auto compute = [&](memory::Block block, unsigned worker) {
    bounds_->compute(kernels_, layer.group->slab->data(), block, layer.layer,
                     scratch[worker].data());
  };
  for (const memory::Block block : candidates)
    if (bounds_->claim(block, layer.layer)) own.push_back(block);
  try {
    workers_.for_each(own.size(), [&](size_t i, unsigned worker) { compute(own[i], worker); });
  } catch (...) {  // a caller's runner that left tasks out
    for (const memory::Block block : own) bounds_->give_up(block, layer.layer);
    throw;
  }
  // Other threads compute the rest, or give it up.
  for (const memory::Block block : candidates)
    while (!bounds_->has(block, layer.layer)) {
      if (bounds_->claim(block, layer.layer))
        compute(block, 0);
      else
        std::this_thread::yield();
    }
}

// Scores the candidates for one query and the query heads of one KV head.
void ChosenBlocks::score(const ChoosingLayer& layer, const Query& query, uint32_t head,
                         Scratch& scratch) const {
  const AttendSequence& sequence = sequence_of(query);
  const uint32_t dim = call_.shape.key_dim, rows = call_.shape.query_heads / heads();
  kernels::QueryTask prepared{};
  prepared.head_begin = head;
  prepared.head_end = head + 1;
  prepared.heads_per_kv_head = rows;
  prepared.queries = 1;
  prepared.key_dim = dim;
  prepared.scale = call_.params.scale;
  prepared.rotation = sequence.kv.k.rotation;
  prepared.rows = rows_from(call_.q, sequence.q_row + query.index);
  prepared.q = scratch.q.data();
  prepared.head_rows = rows;
  kernels_.prepare(prepared);
  for (uint32_t d = 0; d < dim; d++) {
    scratch.positive[d] = scratch.negative[d] = 0;
    for (uint32_t row = 0; row < rows; row++) {
      const float x = scratch.q[size_t{row} * dim + d];
      (x < 0 ? scratch.negative : scratch.positive)[d] += x;
    }
  }
  kernels_.score_blocks({bounds_->of(layer.layer, head), scratch.ids.data(), query.candidates, dim,
                         scratch.positive.data(), scratch.negative.data(), scratch.scores.data()});
}

// Writes the entries of the candidates with the highest scores, in rising order.
void ChosenBlocks::choose_for(const ChoosingLayer& layer, const Query& query, uint32_t head,
                              Scratch& scratch) {
  const uint32_t* const blocks = sequence_of(query).kv.blocks;
  uint32_t count = 0;
  for (uint32_t entry = query.first; entry < query.last; entry++) {
    if (blocks[entry] == PKV_NO_BLOCK) continue;
    scratch.entries[count] = entry;
    scratch.ids[count++] = blocks[entry];
  }
  const auto order = scratch.order.begin();
  std::iota(order, order + count, 0);
  if (query.chooses()) {
    score(layer, query, head, scratch);
    const float* const scores = scratch.scores.data();
    std::nth_element(order, order + query.chosen, order + count, [&](uint32_t a, uint32_t b) {
      return scores[a] != scores[b] ? scores[a] > scores[b] : a < b;
    });
    std::sort(order, order + query.chosen);
  }
  uint32_t* const chosen = chosen_.data() + chosen_at(query, head);
  for (uint32_t i = 0; i < query.chosen; i++) chosen[i] = scratch.entries[order[i]];
}

void ChosenBlocks::tell_chosen() const {
  const size_t top = call_.params.top_blocks;
  for (const Query& query : queries_)
    for (uint32_t head = 0; head < heads(); head++) {
      uint32_t* const out = call_.params.chosen_blocks + (query.row * heads() + head) * top;
      std::copy_n(chosen_.data() + chosen_at(query, head), query.chosen, out);
      std::fill(out + query.chosen, out + top, PKV_NO_BLOCK);
    }
}

// Appends the candidates that are read.
void ChosenBlocks::append_middle(const Query& query, uint32_t head) {
  if (call_.params.block_lists == nullptr) {
    const auto chosen = chosen_.begin() + static_cast<std::ptrdiff_t>(chosen_at(query, head));
    for (uint32_t i = 0; i < query.chosen; i++)
      tables_.push_back(sequence_of(query).kv.blocks[chosen[i]]);
    return;
  }
  const uint32_t* const list = list_of(query, head);
  for (uint64_t i = 0; i < call_.params.block_list_size && list[i] != PKV_NO_BLOCK; i++)
    if (list[i] >= query.first && list[i] < query.last)
      tables_.push_back(sequence_of(query).kv.blocks[list[i]]);
}

void ChosenBlocks::write_tables() {
  std::vector<size_t> begins;
  for (const Query& query : queries_) {
    const AttendSequence& whole = sequence_of(query);
    if (call_.params.block_lists == nullptr && !query.chooses()) {
      // The sequence as it is, once for its queries, which may share what they read.
      if (query.index == 0) sequences_.push_back(whole), begins.push_back(SIZE_MAX);
      continue;
    }
    const uint32_t* const blocks = whole.kv.blocks;
    const uint64_t size = whole.kv.block_size, end = ceil_div(query.seen, size);
    for (uint32_t head = 0; head < heads(); head++) {
      begins.push_back(tables_.size());
      tables_.insert(tables_.end(), blocks, blocks + query.first);
      append_middle(query, head);
      tables_.insert(tables_.end(), blocks + query.last, blocks + end);
      AttendSequence one = whole;
      const uint64_t left_out = end - (tables_.size() - begins.back());
      one.length = query.seen - left_out * size;
      one.queries = 1;
      one.first_query += query.index;
      one.q_row += query.index;
      one.out_row += query.index;
      one.head_begin = head;
      one.head_end = head + 1;
      sequences_.push_back(one);
    }
  }
  for (size_t i = 0; i < begins.size(); i++)
    if (begins[i] != SIZE_MAX) sequences_[i].kv.blocks = tables_.data() + begins[i];
}

}  // namespace pkv::attention
