// Scores blocks by their bounds, chooses the best blocks, and makes block tables of them.
#include "engine/attention/chosen_blocks.h"

#include <algorithm>
#include <iterator>
#include <numeric>

#include "base/checked.h"
#include "base/file_memory.h"
#include "base/status.h"

namespace pkv::attention {

ChosenBlocks::ChosenBlocks(Workers& workers, const kernels::Table& kernels, const AttendCall& call,
                           const Readings& whole, const ChoosingLayer& layer)
    : workers_(workers), kernels_(kernels), call_(call), whole_(whole) {
  if (call.params.block_lists != nullptr) {
    check_lists();
  } else {
    list_choosers();
    choose(layer);
  }
  write_tables();
  if (layer.group != nullptr && layer.group->slab->in_file()) read_ahead();
  if (call.params.chosen_blocks != nullptr) tell_chosen();
}

ChosenBlocks::Middle ChosenBlocks::middle_of(const rows::Sequence& sequence) const {
  const AttendParams& params = call_.params;
  // A step may begin inside a block, which then counts as one of the step.
  const auto step = static_cast<uint32_t>(sequence.start() / sequence.kv.block_size);
  const uint32_t first = std::min(params.first_blocks, step);
  return {first, std::max(first, step - std::min(params.last_blocks, step)), step};
}

void ChosenBlocks::check_lists() const {
  for (size_t s = 0; s < call_.sequences.size(); s++) {
    const rows::Sequence& sequence = call_.sequences[s];
    const uint64_t blocks = ceil_div(sequence.length, sequence.kv.block_size);
    for (uint32_t query = 0; query < sequence.queries; query++)
      for (uint32_t head = 0; head < heads(); head++) {
        const std::span<const uint32_t> list = list_of(s, query, head);
        const auto row = llu(sequence.first_query + query);
        for (size_t i = 0; i < list.size(); i++) {
          if (list[i] >= blocks)
            fail(PKV_OUT_OF_RANGE,
                 "chosen_blocks: the list of query %llu and KV head %u has block %u; the sequence "
                 "has %llu",
                 row, head, list[i], llu(blocks));
          if (i > 0 && list[i] <= list[i - 1])
            fail(PKV_INVALID_ARGUMENT,
                 "chosen_blocks: lists must be in ascending order: that of query %llu and KV head "
                 "%u has block %u after %u",
                 row, head, list[i], list[i - 1]);
        }
      }
  }
}

void ChosenBlocks::list_choosers() {
  for (size_t s = 0; s < call_.sequences.size(); s++) {
    const uint32_t queries = call_.sequences[s].queries;
    first_chooser_.push_back(choosers_.size());
    const uint32_t count = call_.params.choose_together ? queries : 1;
    for (uint32_t i = 0; i < queries; i += count) choosers_.push_back({s, i, count});
  }
  choices_.reserve(choosers_.size() * heads());
  for (const Chooser& chooser : choosers_)
    for (uint32_t head = 0; head < heads(); head++) {
      // Without windows and masks, heads and queries of a sequence see the same blocks.
      const AttendParams& params = call_.params;
      const bool as_before = choices_.size() > first_chooser_[chooser.sequence] * heads() &&
                             params.window == Window{} && params.head_windows.empty() &&
                             !whole_.of(chooser.sequence, head).masked();
      const uint32_t candidates =
          as_before ? choices_.back().candidates : count_candidates(chooser, head);
      choices_.push_back({candidates, std::min(call_.params.top_blocks, candidates)});
      most_chosen_ = std::max<size_t>(most_chosen_, choices_.back().chosen);
    }
}

uint32_t ChosenBlocks::count_candidates(const Chooser& chooser, uint32_t head) const {
  const Reading& reading = whole_.of(chooser.sequence, head);
  const SeenBlocks seen(reading, chooser.first, chooser.count);
  const Middle middle = middle_of(reading);
  uint32_t count = 0;
  for (uint32_t entry = middle.first; entry < middle.last; entry++) count += seen[entry];
  return count;
}

void ChosenBlocks::Scratch::resize(const AttendShape& shape, uint32_t candidates) {
  q.resize(uint64_t{shape.heads_per_kv_head()} * shape.key_dim);
  for (std::vector<float>* sums : {&positive, &negative}) sums->resize(shape.key_dim);
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
  }
  std::vector<Scratch> scratch(workers_.threads());
  workers_.for_each(choices_.size(), [&](size_t i, unsigned worker) {
    // Only workers that get a task make room, since there may be many more of them than tasks.
    scratch[worker].resize(call_.shape, candidates);
    choose_for(layer, i / heads(), static_cast<uint32_t>(i % heads()), scratch[worker]);
  });
}

// Computes the bounds of all candidates that have none.
void ChosenBlocks::compute_bounds(const ChoosingLayer& layer) {
  std::vector<memory::Block> candidates;
  for (size_t s = 0; s < call_.sequences.size(); s++) {
    if (reads_all(s)) continue;
    const Middle middle = middle_of(call_.sequences[s]);
    // Blocks that left a window do not exist; blocks that only masks hide may have bounds.
    std::copy_if(layer.tables[s] + middle.first, layer.tables[s] + middle.last,
                 std::back_inserter(candidates), memory::is_block);
  }
  layer.group->compute_bounds(workers_, kernels_, layer.layer, candidates);
}

// Scores the candidates for some queries and the query heads of one KV head.
void ChosenBlocks::score(const ChoosingLayer& layer, const Chooser& chooser, uint32_t head,
                         uint32_t candidates, Scratch& scratch) const {
  const Reading& reading = whole_.of(chooser.sequence, head);
  const uint32_t dim = call_.shape.key_dim, rows = call_.shape.heads_per_kv_head();
  kernels::QueryTask task =
      query_task(call_, {&reading, chooser.first, 1, head, head + 1}, scratch.q.data(), rows);
  std::fill(scratch.positive.begin(), scratch.positive.end(), 0.0f);
  std::fill(scratch.negative.begin(), scratch.negative.end(), 0.0f);
  for (uint32_t query = chooser.first; query < chooser.first + chooser.count; query++) {
    task.rows = rows::rows_from(reading.q, query);
    kernels_.prepare(task);
    for (uint32_t row = 0; row < rows; row++)
      for (uint32_t d = 0; d < dim; d++) {
        const float x = scratch.q[size_t{row} * dim + d];
        (x < 0 ? scratch.negative : scratch.positive)[d] += x;
      }
  }
  kernels_.score_blocks({bounds_->of(layer.layer, head), scratch.ids.data(), candidates, dim,
                         scratch.positive.data(), scratch.negative.data(), scratch.scores.data()});
}

// Writes the entries of the candidates with the highest scores, in ascending order.
void ChosenBlocks::choose_for(const ChoosingLayer& layer, size_t index, uint32_t head,
                              Scratch& scratch) {
  const Chooser& chooser = choosers_[index];
  const Choice& choice = choices_[index * heads() + head];
  const Reading& reading = whole_.of(chooser.sequence, head);
  const SeenBlocks seen(reading, chooser.first, chooser.count);
  const Middle middle = middle_of(reading);
  uint32_t count = 0;
  for (uint32_t entry = middle.first; entry < middle.last; entry++) {
    if (!seen[entry]) continue;
    scratch.entries[count] = entry;
    scratch.ids[count++] = reading.kv.blocks[entry];
  }
  const auto order = scratch.order.begin();
  std::iota(order, order + count, 0);
  if (choice.by_bounds()) {
    score(layer, chooser, head, count, scratch);
    const float* const scores = scratch.scores.data();
    std::nth_element(order, order + choice.chosen, order + count, [&](uint32_t a, uint32_t b) {
      return scores[a] != scores[b] ? scores[a] > scores[b] : a < b;
    });
    std::sort(order, order + choice.chosen);
  }
  uint32_t* const chosen = chosen_.data() + chosen_at(index, head);
  for (uint32_t i = 0; i < choice.chosen; i++) chosen[i] = scratch.entries[order[i]];
}

std::span<const uint32_t> ChosenBlocks::list_of(size_t s, uint32_t query, uint32_t head) const {
  const AttendParams& params = call_.params;
  if (params.block_lists == nullptr) {
    const size_t chooser = chooser_of(s, query);
    return std::span(chosen_).subspan(chosen_at(chooser, head),
                                      choices_[chooser * heads() + head].chosen);
  }
  const uint64_t row = call_.sequences[s].first_query + query;
  const uint32_t* const list = params.block_lists + (row * heads() + head) * params.block_list_size;
  // Indices ascend, so a list that is longer than the number of blocks is wrong.
  const rows::Sequence& sequence = call_.sequences[s];
  const uint64_t blocks = ceil_div(sequence.length, sequence.kv.block_size);
  return {list, std::find(list, list + std::min(params.block_list_size, blocks + 1), PKV_NO_BLOCK)};
}

void ChosenBlocks::tell_chosen() const {
  const size_t top = call_.params.top_blocks;
  for (size_t s = 0; s < call_.sequences.size(); s++)
    for (uint32_t query = 0; query < call_.sequences[s].queries; query++)
      for (uint32_t head = 0; head < heads(); head++) {
        const uint64_t row = call_.sequences[s].first_query + query;
        uint32_t* const out = call_.params.chosen_blocks + (row * heads() + head) * top;
        const std::span<const uint32_t> list = list_of(s, query, head);
        std::fill(std::copy(list.begin(), list.end(), out), out + top, PKV_NO_BLOCK);
      }
}

// Returns whether all queries of a sequence read all that they see.
bool ChosenBlocks::reads_all(size_t sequence) const {
  if (call_.params.block_lists != nullptr) return false;
  const size_t end = chooser_of(sequence, call_.sequences[sequence].queries - 1) + 1;
  const auto first =
      choices_.begin() + static_cast<std::ptrdiff_t>(chooser_of(sequence, 0) * heads());
  return std::none_of(first, choices_.begin() + static_cast<std::ptrdiff_t>(end * heads()),
                      [](const Choice& choice) { return choice.by_bounds(); });
}

bool ChosenBlocks::same_lists(size_t sequence, uint32_t a, uint32_t b) const {
  for (uint32_t head = 0; head < heads(); head++) {
    const std::span<const uint32_t> one = list_of(sequence, a, head),
                                    other = list_of(sequence, b, head);
    if (!std::equal(one.begin(), one.end(), other.begin(), other.end())) return false;
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
    const uint32_t queries = call_.sequences[s].queries;
    for (uint32_t first = 0, end; first < queries; first = end) {
      end = first + 1;
      while (end < queries && same_lists(s, first, end)) end++;
      for (uint32_t head = 0; head < heads(); head++) append(s, head, first, end - first);
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

// Appends the reading of some queries that have the same list, for one KV head.
void ChosenBlocks::append(size_t s, uint32_t head, uint32_t first, uint32_t count) {
  const Reading& whole = whole_.of(s, head);
  const SeenBlocks seen(whole, first, count);
  const Middle middle = middle_of(whole);
  const auto blocks = static_cast<uint32_t>(ceil_div(seen.end(), whole.kv.block_size));
  entries_.clear();
  const auto add = [&](uint32_t entry) {
    if (entry >= middle.step || seen[entry]) entries_.push_back(entry);
  };
  for (uint32_t entry = 0; entry < middle.first; entry++) add(entry);
  for (const uint32_t entry : list_of(s, first, head))
    if (entry >= middle.first && entry < middle.last) add(entry);
  for (uint32_t entry = middle.last; entry < blocks; entry++) add(entry);

  const Excerpt excerpt(entries_, whole.kv.block_size);
  Reading one = whole;
  one.excerpt = true;
  one.head_begin = head;
  one.head_end = head + 1;
  const std::span<uint32_t> table = take<uint32_t>(entries_.size());
  for (size_t i = 0; i < table.size(); i++) table[i] = whole.kv.blocks[entries_[i]];
  one.kv.blocks = table.data();
  one.kv.has_holes = false;
  one.length = excerpt.position(seen.end());
  one.sinks = static_cast<uint32_t>(excerpt.position(std::min<uint64_t>(whole.sinks, seen.end())));
  one.queries = count;
  one.first_query += first;
  one.q = rows::rows_from(whole.q, first);
  one.out = rows::rows_from(whole.out, first);
  const std::span<kernels::QueryView> views = take<kernels::QueryView>(count);
  for (uint32_t i = 0; i < count; i++) {
    const kernels::QueryView& view = whole.views[first + i];
    views[i] = excerpt.view(view);
    if (view.mask == nullptr) continue;
    const std::span<uint64_t> words = take<uint64_t>(excerpt.mask_words(view));
    std::fill(words.begin(), words.end(), 0);
    excerpt.write_mask(view, words.data());
    views[i].mask = words.data();
  }
  one.views = views.data();
  readings_.push_back(one);
}

}  // namespace pkv::attention
