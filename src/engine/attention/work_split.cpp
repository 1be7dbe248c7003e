// Chooses the cuts: by heads and rows for prompts, by shared prefixes for decode steps, and by
// bytes and FLOPs for both.
#include "engine/attention/work_split.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/checked.h"
#include "kernels/tile_layout.h"

namespace pkv::attention {

namespace {

// A sequence with at least this many new tokens is a prompt. Prompts are cut into chunks of one KV
// head each, which are enough to keep every thread busy.
constexpr uint32_t min_prompt_queries = 16;
// The largest number of rows of one KV head that are multiplied with K and V together. They are
// enough to make unpacking cheap beside the products, and few enough for scores and results to stay
// in the L2 cache.
constexpr uint32_t max_stacked_rows = 288;
// The most work of one split: enough to stream memory, little enough to balance threads.
constexpr uint64_t split_bytes = 4 << 20;
constexpr uint64_t split_flops = 1024 << 20;
// A decode step of one sequence has at least this many splits for its threads, unless they would
// have fewer bytes than this.
constexpr uint64_t min_decode_splits = 4;
constexpr uint64_t min_split_bytes = 256 << 10;
// With more threads than that, a decode step has at least this many tasks for each, unless they
// would have fewer bytes than this: else some threads would wait for others.
constexpr uint64_t tasks_per_thread = 16;
constexpr uint64_t min_task_bytes = 256 << 10;
// Splits end at multiples of this position, so that the cuts do not move while a sequence grows.
constexpr uint64_t cut_tokens = 256;
// A shared prefix with fewer tokens is not worth a merge.
constexpr uint64_t min_shared_tokens = 128;

}  // namespace

WorkSplit::WorkSplit(const AttendCall& call, std::span<const Reading> readings, unsigned threads)
    : call_(call) {
  const std::vector<uint32_t> heads = decode_heads(readings, threads);
  for (size_t i = 0; i < readings.size(); i++) add_chunks(readings[i], heads[i]);
  std::vector<uint32_t> decode_chunks;  // only these may share splits
  for (uint32_t i = 0; i < chunks_.size(); i++) {
    const Reading& reading = *chunks_[i].reading;
    if (reading.queries < min_prompt_queries && !reading.excerpt) {
      decode_chunks.push_back(i);
      chunks_[i].shareable = shareable_tokens(reading);
    } else {
      add_own_splits(i, 0);
    }
  }
  // Only chunks of the same KV heads can read the same.
  const auto head_of = [&](uint32_t i) { return chunks_[i].head_begin; };
  std::sort(decode_chunks.begin(), decode_chunks.end(), [&](uint32_t a, uint32_t b) {
    return head_of(a) != head_of(b) ? head_of(a) < head_of(b) : a < b;
  });
  for (std::span<uint32_t> rest = decode_chunks; !rest.empty();) {
    const auto others = std::find_if(rest.begin(), rest.end(),
                                     [&](uint32_t i) { return head_of(i) != head_of(rest[0]); });
    split_by_prefix(std::span(rest.begin(), others));
    rest = std::span(others, rest.end());
  }
  place_results();
}

// Returns how many KV heads each chunk of a decode step has, so that there are enough tasks for all
// threads.
std::vector<uint32_t> WorkSplit::decode_heads(std::span<const Reading> readings,
                                              unsigned threads) const {
  std::vector<uint32_t> heads(readings.size());
  std::vector<uint64_t> tokens(readings.size());  // of a split
  uint64_t splits = 0;
  for (size_t i = 0; i < readings.size(); i++) {
    const Reading& reading = readings[i];
    if (reading.queries >= min_prompt_queries) continue;
    uint64_t seen = std::max<uint64_t>(reading.length, 1);
    if (reading.window != 0) seen = std::min<uint64_t>(seen, reading.window);
    heads[i] = reading.head_end - reading.head_begin;
    tokens[i] = std::min(seen, split_tokens(reading.queries * call_.shape.heads_per_kv_head(),
                                            heads[i], seen, true));
    splits += (seen + tokens[i] - 1) / tokens[i];
  }
  if (threads <= min_decode_splits || splits == 0) return heads;
  const uint64_t parts = (tasks_per_thread * threads + splits - 1) / splits;
  for (size_t i = 0; i < heads.size(); i++) {
    if (heads[i] == 0) continue;
    const uint64_t least = min_task_bytes / (tokens[i] * bytes_per_head()) + 1;
    heads[i] = static_cast<uint32_t>(
        std::min<uint64_t>(heads[i], std::max((heads[i] + parts - 1) / parts, least)));
  }
  return heads;
}

// Cuts queries, and KV heads into parts of `decode_heads` if they are those of a decode step.
void WorkSplit::add_chunks(const Reading& reading, uint32_t decode_heads) {
  if (reading.queries < min_prompt_queries) {
    for (uint32_t head = reading.head_begin; head < reading.head_end; head += decode_heads)
      chunks_.push_back(
          {{&reading, 0, reading.queries, head, std::min(head + decode_heads, reading.head_end)},
           {},
           {}});
    return;
  }
  const uint32_t queries = std::max(1u, max_stacked_rows / call_.shape.heads_per_kv_head());
  for (uint32_t first = 0; first < reading.queries; first += queries)
    for (uint32_t head = reading.head_begin; head < reading.head_end; head++)
      chunks_.push_back(
          {{&reading, first, std::min(queries, reading.queries - first), head, head + 1}, {}, {}});
}

// Returns the number of first tokens of a decode step's sequence that the chunks of others may read
// with its own: those in whole blocks that all its queries see.
uint64_t WorkSplit::shareable_tokens(const Reading& reading) const {
  if (reading.window != 0) return 0;
  uint64_t seen = reading.positions == nullptr ? reading.start() : reading.length;
  if (reading.masked()) seen = std::min(seen, reading.mask_begin());
  if (reading.positions != nullptr && call_.params.causal)
    for (uint32_t i = 0; i < reading.queries; i++) seen = std::min(seen, reading.position(i) + 1);
  return seen / reading.kv.block_size * reading.kv.block_size;
}

// Returns the number of first tokens of all these chunks that lie in the same blocks. The caller
// knows that the first `compared` tokens do.
uint64_t WorkSplit::common_tokens(std::span<const uint32_t> chunks, uint64_t compared) const {
  const uint32_t* const ids = chunks_[chunks[0]].reading->kv.blocks;
  const uint32_t block_size = chunks_[chunks[0]].reading->kv.block_size;
  uint64_t common = UINT64_MAX;
  for (const uint32_t chunk : chunks) {
    const uint64_t limit = std::min(common, chunks_[chunk].shareable);
    const uint32_t* const other = chunks_[chunk].reading->kv.blocks;
    const uint32_t* const difference =
        std::mismatch(ids + compared / block_size, ids + limit / block_size,
                      other + compared / block_size)
            .first;
    common = static_cast<uint64_t>(difference - ids) * block_size;
  }
  return common;
}

// Adds the splits of chunks whose sequences may begin with the same blocks: first what all chunks
// of a group share, then what smaller groups of them share after that.
void WorkSplit::split_by_prefix(std::span<uint32_t> chunks) {
  std::vector<SharingChunks> groups;  // the last one is next
  add_groups({chunks, 0, 0}, groups);
  while (!groups.empty()) {
    SharingChunks group = groups.back();
    groups.pop_back();
    if (group.chunks.size() == 1) {
      add_own_splits(group.chunks[0], group.covered);
      continue;
    }
    group.compared = common_tokens(group.chunks, group.compared);
    if (group.compared - group.covered >= min_shared_tokens) {
      add_shared_splits(group.chunks, group.covered, group.compared);
      group.covered = group.compared;
    }
    add_groups(group, groups);
  }
}

// Cuts a group into smaller ones whose chunks also have the same next block. A chunk whose next
// block no other one has becomes a group of one.
void WorkSplit::add_groups(const SharingChunks& group, std::vector<SharingChunks>& groups) const {
  // The block at position `compared`, or UINT64_MAX if it cannot be shared.
  const auto next_id = [&](uint32_t chunk) -> uint64_t {
    if (group.compared >= chunks_[chunk].shareable) return UINT64_MAX;
    const kernels::KvView& kv = chunks_[chunk].reading->kv;
    return kv.blocks[group.compared / kv.block_size];
  };
  const std::span<uint32_t> chunks = group.chunks;
  std::sort(chunks.begin(), chunks.end(), [&](uint32_t a, uint32_t b) {
    return std::pair(next_id(a), a) < std::pair(next_id(b), b);
  });
  for (size_t end = chunks.size(), first; end > 0; end = first) {
    const uint64_t id = next_id(chunks[end - 1]);
    first = end - 1;
    while (id != UINT64_MAX && first > 0 && next_id(chunks[first - 1]) == id) first--;
    groups.push_back({chunks.subspan(first, end - first), group.compared, group.covered});
  }
}

// Adds the splits of a shared prefix. The number of chunks that read it together is limited by the
// rows that fit into the L2 cache; more chunks read it several times.
void WorkSplit::add_shared_splits(std::span<const uint32_t> chunks, uint64_t begin, uint64_t end) {
  for (size_t first = 0, last; first < chunks.size(); first = last) {
    uint64_t rows = 0;
    for (last = first; last < chunks.size(); last++) {
      rows += uint64_t{chunks_[chunks[last]].queries} * call_.shape.heads_per_kv_head();
      if (last > first && rows > max_stacked_rows) break;
    }
    add_splits(chunks.subspan(first, last - first), begin, end);
  }
}

// Returns the bytes of K and V that a token has in one KV head.
uint64_t WorkSplit::bytes_per_head() const {
  const AttendShape& shape = call_.shape;
  return kernels::row_bytes(shape.key_dtype, shape.key_dim) +
         kernels::row_bytes(shape.value_dtype, shape.value_dim);
}

// Returns the number of tokens of one split of `all` tokens: bytes limit it if there are few rows,
// FLOPs if there are many. It depends on no other sequence.
uint64_t WorkSplit::split_tokens(uint64_t rows_per_head, uint32_t heads, uint64_t all,
                                 bool decodes) const {
  const AttendShape& shape = call_.shape;
  const uint64_t bytes = heads * bytes_per_head();
  const uint64_t flops = 2 * rows_per_head * heads * (shape.key_dim + shape.value_dim);
  uint64_t tokens = std::min(split_bytes / bytes, split_flops / flops);
  // A power of 2, so that the cuts rarely move while a sequence grows.
  if (decodes)
    tokens = std::min(tokens,
                      std::max(std::bit_floor(all / min_decode_splits), min_split_bytes / bytes));
  return std::max(cut_tokens, tokens / cut_tokens * cut_tokens);
}

// Adds the splits that one chunk reads by itself: sinks, and the positions from `covered` on that
// its queries see.
void WorkSplit::add_own_splits(uint32_t i, uint64_t covered) {
  const SplitChunk& chunk = chunks_[i];
  uint64_t begin = UINT64_MAX, end = 0;
  for (uint32_t query = 0; query < chunk.queries; query++) {
    begin = std::min(begin, chunk.views()[query].begin);
    end = std::max(end, chunk.views()[query].end);
  }
  // If the chunk sees no position of the sequence, one is read nevertheless, so that there is a
  // result.
  if (begin >= end) begin = end - 1;
  const uint64_t sinks = std::min<uint64_t>(chunk.reading->sinks, begin);
  if (sinks > 0) add_splits(std::span(&i, 1), 0, sinks);
  add_splits(std::span(&i, 1), std::max(covered, begin), end);
}

// Adds splits that read positions [begin, end) for all of these chunks at once.
void WorkSplit::add_splits(std::span<const uint32_t> chunks, uint64_t begin, uint64_t end) {
  uint32_t queries = 0;
  for (const uint32_t chunk : chunks) queries += chunks_[chunk].queries;
  const QueryChunk& first = chunks_[chunks[0]];
  const bool decodes = first.reading->queries < min_prompt_queries;
  const uint32_t heads = decodes ? first.reading->head_end - first.reading->head_begin : 1;
  const uint64_t tokens = split_tokens(uint64_t{queries} * call_.shape.heads_per_kv_head(), heads,
                                       end - begin, decodes);
  const kernels::QueryView* views = first.views();
  if (chunks.size() > 1) {  // the kernels need the views of all these chunks in a row
    std::vector<kernels::QueryView>& all = shared_views_.emplace_back();
    for (const uint32_t chunk : chunks)
      all.insert(all.end(), chunks_[chunk].views(),
                 chunks_[chunk].views() + chunks_[chunk].queries);
    views = all.data();
  }
  for (uint64_t at = begin; at < end;) {
    const uint64_t next = std::min(end, (at / tokens + 1) * tokens);
    const auto split = static_cast<uint32_t>(splits_.size());
    splits_.push_back(
        {std::vector(chunks.begin(), chunks.end()), queries, at, next, views, false, 0});
    uint32_t rows = 0;
    for (const uint32_t chunk : chunks) {
      chunks_[chunk].splits.push_back(split);
      chunks_[chunk].first_rows.push_back(rows);
      rows += chunks_[chunk].queries * call_.shape.heads_per_kv_head();
    }
    at = next;
  }
}

// Decides which results need a merge, and gives them places in the merge buffer.
void WorkSplit::place_results() {
  for (KvSplit& split : splits_) {
    split.needs_merge = split.chunks.size() > 1 || chunks_[split.chunks[0]].splits.size() > 1;
    if (!split.needs_merge) continue;
    split.result_offset = merge_floats_;
    merge_floats_ += round_up(result_floats(split), 16);  // whole cache lines
  }
}

}  // namespace pkv::attention
