// Scores blocks by their bounds, chooses the best blocks, and makes block tables of them.
#include "engine/attention/chosen_blocks.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/checked.h"
#include "base/file_memory.h"
#include "base/status.h"

namespace pkv::attention {

namespace {

// A block's score lies this fraction of the way from the score of the midpoint of its bounds to the
// highest score within them. No key of a block reaches all of its bounds at once, so 1 prefers
// blocks whose keys differ: see "Ways to choose blocks" in bench/NOTEBOOK.md.
constexpr float extent_share = 0.5f;

// Queries that are summed up at once: enough for one call of a kernel, few enough for a cache.
constexpr uint32_t summed_queries = 32;

}  // namespace

ChosenBlocks::ChosenBlocks(Workers& workers, const kernels::Table& kernels, const AttendCall& call,
                           const Readings& whole, const ChoosingLayer& layer)
    : workers_(workers), kernels_(kernels), call_(call), whole_(whole) {
  list_choosers();
  if (call.params.block_lists != nullptr) {
    check_lists();
  } else {
    count_candidates();
    choose(layer);
  }
  write_tables();
  if (layer.group != nullptr && layer.group->slab->in_file()) read_ahead();
  if (call.outputs.chosen != nullptr) tell_chosen();
}

void ChosenBlocks::list_choosers() {
  for (size_t s = 0; s < call_.sequences.size(); s++) {
    const rows::Sequence& sequence = call_.sequences[s];
    const uint32_t block_size = sequence.kv.block_size;
    first_choosers_.push_back(choosers_.size());
    for (uint32_t first = 0, count; first < sequence.queries; first += count) {
      count = std::min(call_.params.tokens_per_choice, sequence.queries - first);
      const uint64_t begin = sequence.start() + first;
      choosers_.push_back({s, first, count, static_cast<uint32_t>(begin / block_size),
                           static_cast<uint32_t>(ceil_div(begin + count, block_size))});
    }
  }
  first_choosers_.push_back(choosers_.size());
}

void ChosenBlocks::check_lists() const {
  for (size_t t = 0; t < choosers_.size(); t++) {
    const rows::Sequence& sequence = call_.sequences[choosers_[t].sequence];
    const uint64_t blocks = ceil_div(sequence.length, sequence.kv.block_size);
    for (uint32_t head = 0; head < heads(); head++) {
      const std::span<const uint32_t> list = list_of(t, head);
      for (size_t i = 0; i < list.size(); i++) {
        if (list[i] >= blocks)
          fail(PKV_OUT_OF_RANGE,
               "chosen_blocks: list %llu of KV head %u has block %u; the sequence has %llu", llu(t),
               head, list[i], llu(blocks));
        if (i > 0 && list[i] <= list[i - 1])
          fail(PKV_INVALID_ARGUMENT,
               "chosen_blocks: lists must be in ascending order: list %llu of KV head %u has block "
               "%u after %u",
               llu(t), head, list[i], list[i - 1]);
      }
    }
  }
}

template <class Visit>
void ChosenBlocks::visit_candidates(const Choosers& choosers, const Reading& reading,
                                    const Visit& visit) const {
  const SeenBlocks seen(reading, choosers.first, choosers.count);
  const auto blocks = static_cast<uint32_t>(ceil_div(seen.end(), reading.kv.block_size));
  for (uint32_t entry = call_.params.first_blocks; entry < blocks; entry++)
    if (!is_fixed(choosers, entry) && seen[entry]) visit(entry);
}

void ChosenBlocks::count_candidates() {
  choices_.reserve(choosers_.size() * heads());
  candidates_end_.resize(call_.sequences.size());
  for (const Choosers& choosers : choosers_)
    for (uint32_t head = 0; head < heads(); head++) {
      const Reading& reading = whole_.of(choosers.sequence, head);
      if (head > reading.head_begin) {  // all heads of a reading see the same
        choices_.push_back(choices_.back());
        continue;
      }
      uint32_t candidates = 0, end = 0;
      visit_candidates(choosers, reading, [&](uint32_t entry) { candidates++, end = entry + 1; });
      choices_.push_back({candidates, std::min(call_.params.top_blocks, candidates)});
      most_chosen_ = std::max<size_t>(most_chosen_, choices_.back().chosen);
      uint32_t& of_sequence = candidates_end_[choosers.sequence];
      if (choices_.back().by_bounds()) of_sequence = std::max(of_sequence, end);
    }
}

void ChosenBlocks::WorkingMemory::resize(const AttendShape& shape, uint32_t queries,
                                         uint32_t candidates) {
  q.resize(uint64_t{queries} * shape.heads_per_kv_head() * shape.key_dim);
  for (std::vector<float>* sums : {&sum, &size}) sums->resize(shape.key_dim);
  scores.resize(candidates);
  for (std::vector<uint32_t>* list : {&entries, &ids, &order}) list->resize(candidates);
}

void ChosenBlocks::choose(const ChoosingLayer& layer) {
  if (most_chosen_ == 0) return;
  chosen_.resize(choices_.size() * most_chosen_);
  uint32_t candidates = 0;
  bool by_bounds = false;
  for (const Choice& choice : choices_) {
    candidates = std::max(candidates, choice.candidates);
    by_bounds |= choice.by_bounds();
  }
  if (by_bounds) {
    bounds_ = &layer.group->make_bounds();
    compute_bounds(layer);
    compute_step_bounds();
  }
  const uint32_t queries = std::min(summed_queries, call_.params.tokens_per_choice);
  std::vector<WorkingMemory> scratch(workers_.threads());
  // One KV head after the other, because its bounds stay in a cache.
  workers_.for_each(choices_.size(), [&](size_t i, unsigned worker) {
    // Only workers that get a task make room, since there may be many more of them than tasks.
    scratch[worker].resize(call_.shape, queries, candidates);
    choose_for(layer, i % choosers_.size(), static_cast<uint32_t>(i / choosers_.size()),
               scratch[worker]);
  });
}

// Computes the bounds of all candidates from before the step that have none.
void ChosenBlocks::compute_bounds(const ChoosingLayer& layer) {
  std::vector<memory::Block> candidates;
  for (size_t s = 0; s < call_.sequences.size(); s++) {
    const uint32_t end = std::min(candidates_end_[s], step_of(call_.sequences[s]));
    // Blocks that left a window do not exist; blocks that only masks hide may have bounds.
    for (uint32_t entry = call_.params.first_blocks; entry < end; entry++)
      if (memory::is_block(layer.tables[s][entry])) candidates.push_back(layer.tables[s][entry]);
  }
  layer.group->compute_bounds(workers_, kernels_, layer.layer, candidates);
}

void ChosenBlocks::compute_step_bounds() {
  struct Task {
    size_t sequence;
    uint32_t index;
  };
  std::vector<Task> tasks;
  const size_t dims = 2 * size_t{call_.shape.key_dim};
  size_t elements = 0, keys = 0;
  for (size_t s = 0; s < call_.sequences.size(); s++) {
    const uint32_t begin = step_of(call_.sequences[s]), end = std::max(begin, candidates_end_[s]);
    step_bounds_of_.push_back({begin, end - begin, elements});
    elements += (end - begin) * heads() * dims;
    for (uint32_t i = 0; i < end - begin; i++) tasks.push_back({s, i});
    keys = std::max<size_t>(keys, call_.sequences[s].kv.block_size * call_.shape.key_dim);
  }
  if (tasks.empty()) return;
  step_bounds_.resize(elements);
  std::vector<std::vector<float>> scratch(workers_.threads());
  workers_.for_each(tasks.size(), [&](size_t i, unsigned worker) {
    scratch[worker].resize(keys);
    const rows::Sequence& sequence = call_.sequences[tasks[i].sequence];
    const StepBounds& bounds = step_bounds_of_[tasks[i].sequence];
    const uint32_t entry = bounds.begin + tasks[i].index;
    if (sequence.kv.blocks[entry] == PKV_NO_BLOCK_ID) return;
    const uint64_t first = uint64_t{entry} * sequence.kv.block_size;
    const auto count =
        static_cast<uint32_t>(std::min<uint64_t>(sequence.kv.block_size, sequence.length - first));
    for (uint32_t head = 0; head < heads(); head++)
      memory::compute_bounds(
          kernels_, sequence.kv, first, count, head, scratch[worker].data(),
          &step_bounds_[bounds.first + (head * bounds.count + tasks[i].index) * dims]);
  });
}

// Sums up the queries of choosers for one KV head, and their sizes.
void ChosenBlocks::sum_queries(const Choosers& choosers, uint32_t head,
                               WorkingMemory& scratch) const {
  const Reading& reading = whole_.of(choosers.sequence, head);
  const uint32_t dim = call_.shape.key_dim;
  std::fill(scratch.sum.begin(), scratch.sum.end(), 0.0f);
  std::fill(scratch.size.begin(), scratch.size.end(), 0.0f);
  for (uint32_t first = 0, count; first < choosers.count; first += count) {
    count = std::min(summed_queries, choosers.count - first);
    const uint32_t rows = count * call_.shape.heads_per_kv_head();
    kernels_.prepare(query_task(call_, {&reading, choosers.first + first, count, head, head + 1},
                                scratch.q.data(), rows));
    for (uint32_t row = 0; row < rows; row++) {
      const float* const q = &scratch.q[size_t{row} * dim];
      for (uint32_t d = 0; d < dim; d++) {
        scratch.sum[d] += q[d];
        scratch.size[d] += std::abs(q[d]);
      }
    }
  }
}

// Scores the candidates of choosers for one KV head: the scores of the middle between their bounds,
// summed up over the queries, and a share of what the bounds may add to them.
void ChosenBlocks::score(const ChoosingLayer& layer, const Choosers& choosers, uint32_t head,
                         uint32_t candidates, WorkingMemory& scratch) const {
  sum_queries(choosers, head, scratch);
  const uint32_t dim = call_.shape.key_dim;
  for (uint32_t d = 0; d < dim; d++) {  // the sums become the weights of the bounds
    const float middle = scratch.sum[d] / 2, extent = extent_share * scratch.size[d] / 2;
    scratch.sum[d] = middle + extent;
    scratch.size[d] = middle - extent;
  }
  kernels::ScoreTask task{bounds_->of(layer.layer, head),
                          scratch.ids.data(),
                          0,
                          dim,
                          scratch.sum.data(),
                          scratch.size.data(),
                          scratch.scores.data()};
  const StepBounds& step = step_bounds_of_[choosers.sequence];
  while (task.count < candidates && scratch.entries[task.count] < step.begin) task.count++;
  kernels_.score_blocks(task);
  const uint32_t before = task.count;
  for (uint32_t i = before; i < candidates; i++) scratch.ids[i] = scratch.entries[i] - step.begin;
  task.bounds = step_bounds_.data() + step.first + size_t{head} * step.count * 2 * dim;
  task.blocks += before;
  task.count = candidates - before;
  task.scores += before;
  kernels_.score_blocks(task);
}

// Writes the entries of the candidates with the highest scores, in ascending order.
void ChosenBlocks::choose_for(const ChoosingLayer& layer, size_t index, uint32_t head,
                              WorkingMemory& scratch) {
  const Choosers& choosers = choosers_[index];
  const Choice& choice = choices_[index * heads() + head];
  const Reading& reading = whole_.of(choosers.sequence, head);
  uint32_t count = 0;
  visit_candidates(choosers, reading, [&](uint32_t entry) {
    scratch.entries[count] = entry;
    scratch.ids[count++] = reading.kv.blocks[entry];
  });
  const auto order = scratch.order.begin();
  std::iota(order, order + count, 0);
  if (choice.by_bounds()) {
    score(layer, choosers, head, count, scratch);
    const float* const scores = scratch.scores.data();
    std::nth_element(order, order + choice.chosen, order + count, [&](uint32_t a, uint32_t b) {
      return scores[a] != scores[b] ? scores[a] > scores[b] : a < b;
    });
    std::sort(order, order + choice.chosen);
  }
  uint32_t* const chosen = chosen_.data() + chosen_at(index, head);
  for (uint32_t i = 0; i < choice.chosen; i++) chosen[i] = scratch.entries[order[i]];
}

std::span<const uint32_t> ChosenBlocks::list_of(size_t index, uint32_t head) const {
  const AttendParams& params = call_.params;
  const size_t choice = index * heads() + head;
  if (params.block_lists == nullptr)
    return std::span(chosen_).subspan(chosen_at(index, head), choices_[choice].chosen);
  const uint32_t* const list = params.block_lists + choice * params.block_list_size;
  // Indices ascend, so a list that is longer than the number of blocks is wrong.
  const rows::Sequence& sequence = call_.sequences[choosers_[index].sequence];
  const uint64_t blocks = ceil_div(sequence.length, sequence.kv.block_size);
  return {list, std::find(list, list + std::min<uint64_t>(params.block_list_size, blocks + 1),
                          PKV_NO_BLOCK_ID)};
}

void ChosenBlocks::tell_chosen() const {
  const size_t top = call_.params.top_blocks;
  for (size_t i = 0; i < choosers_.size(); i++)
    for (uint32_t head = 0; head < heads(); head++) {
      uint32_t* const out = call_.outputs.chosen + (i * heads() + head) * top;
      const std::span<const uint32_t> list = list_of(i, head);
      std::fill(std::copy(list.begin(), list.end(), out), out + top, PKV_NO_BLOCK_ID);
    }
}

// Returns whether all queries of a sequence read all that they see.
bool ChosenBlocks::reads_all(size_t sequence) const {
  return call_.params.block_lists == nullptr && candidates_end_[sequence] == 0;
}

bool ChosenBlocks::read_the_same(size_t a, size_t b) const {
  const Choosers &one = choosers_[a], &other = choosers_[b];
  if (one.own_begin != other.own_begin || one.own_end != other.own_end) return false;
  for (uint32_t head = 0; head < heads(); head++) {
    const std::span<const uint32_t> list = list_of(a, head), other_list = list_of(b, head);
    if (!std::equal(list.begin(), list.end(), other_list.begin(), other_list.end())) return false;
  }
  return true;
}

void ChosenBlocks::write_tables() {
  for (size_t s = 0; s < call_.sequences.size(); s++) {
    if (reads_all(s)) {
      // The whole sequence, which may share its prefix with others.
      const std::span<const Reading> all = whole_.of(s);
      readings_.insert(readings_.end(), all.begin(), all.end());
      continue;
    }
    for (size_t first = first_choosers_[s], end; first < first_choosers_[s + 1]; first = end) {
      Choosers choosers = choosers_[first];
      for (end = first + 1; end < first_choosers_[s + 1] && read_the_same(first, end); end++)
        choosers.count += choosers_[end].count;
      for (uint32_t head = 0; head < heads(); head++) append(choosers, head, list_of(first, head));
    }
  }
}

// Asks the system to read all chosen blocks from their file at once. When the kernels come to a
// block, it has been read, or is being read.
void ChosenBlocks::read_ahead() const {
  workers_.for_each(readings_.size(), [&](size_t i, unsigned) {
    const Reading& reading = readings_[i];
    if (!reading.excerpt) return;  // it reads all, in order, which the system detects
    const kernels::KvView& kv = reading.kv;
    const bool packed = kv.layout == PKV_LAYOUT_PACKED;
    const uint64_t blocks = ceil_div(reading.length, kv.block_size);
    for (const kernels::SideView* side : {&kv.k, &kv.v}) {
      // V of a packed block lies between its keys; a plain one has the rows of all KV heads.
      if (side->data == nullptr || (packed && side == &kv.v)) continue;
      const unsigned char* const first =
          side->data + (packed ? reading.head_begin * side->head_stride : 0);
      const auto bytes =
          static_cast<size_t>(packed ? side->head_stride : kv.block_size * side->row_stride);
      for (uint64_t b = 0; b < blocks; b++)
        os::read_ahead(first + kv.blocks[b] * side->block_stride, bytes);
    }
  });
}

// Appends the reading of choosers for one KV head.
void ChosenBlocks::append(const Choosers& choosers, uint32_t head, std::span<const uint32_t> list) {
  const Reading& whole = whole_.of(choosers.sequence, head);
  const SeenBlocks seen(whole, choosers.first, choosers.count);
  const auto blocks = static_cast<uint32_t>(ceil_div(seen.end(), whole.kv.block_size));
  entries_.clear();
  auto listed = list.begin();
  for (uint32_t entry = 0; entry < blocks; entry++) {
    while (listed != list.end() && *listed < entry) listed++;
    const bool wanted = is_fixed(choosers, entry) || (listed != list.end() && *listed == entry);
    // Its own blocks are read in any case, so that there is something to read.
    const bool own = entry >= choosers.own_begin && entry < choosers.own_end;
    if (own || (wanted && seen[entry])) entries_.push_back(entry);
  }

  const Excerpt excerpt(entries_, whole.kv.block_size);
  Reading one = whole;
  one.excerpt = true;
  one.head_begin = head;
  one.head_end = head + 1;
  const std::span<uint32_t> table = arrays_.make<uint32_t>(entries_.size());
  for (size_t i = 0; i < table.size(); i++) table[i] = whole.kv.blocks[entries_[i]];
  one.kv.blocks = table.data();
  one.kv.has_holes = false;
  one.length = excerpt.position(seen.end());
  one.sinks = static_cast<uint32_t>(excerpt.position(std::min<uint64_t>(whole.sinks, seen.end())));
  one.queries = choosers.count;
  one.first_query += choosers.first;
  one.q = rows::rows_from(whole.q, choosers.first);
  one.out = rows::rows_from(whole.out, choosers.first);
  const std::span<kernels::QueryView> views = arrays_.make<kernels::QueryView>(choosers.count);
  for (uint32_t i = 0; i < choosers.count; i++) {
    const kernels::QueryView& view = whole.views[choosers.first + i];
    views[i] = excerpt.view(view);
    if (view.mask == nullptr) continue;
    const std::span<uint64_t> words = arrays_.make<uint64_t>(excerpt.mask_words(view));
    excerpt.write_mask(view, words.data());
    views[i].mask = words.data();
  }
  one.views = views.data();
  readings_.push_back(one);
}

}  // namespace pkv::attention
