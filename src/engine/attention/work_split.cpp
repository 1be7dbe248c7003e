#include "engine/attention/work_split.h"

#include <algorithm>
#include <utility>

#include "base/checked.h"
#include "kernels/tile_layout.h"

namespace pkv::attention {

namespace {

// From so many new tokens on a sequence is a prompt: it has chunks enough to keep every thread
// busy, one KV head each.
constexpr uint32_t prompt_queries = 16;
// Rows of one KV head that go through K and V together: so many that unpacking is small beside the
// products, and not so many that scores and results leave the L2 cache.
constexpr uint32_t prompt_rows = 288;
// The work of one pass: long enough to stream, short enough to balance.
constexpr uint64_t pass_bytes = 4 << 20;
constexpr uint64_t pass_flops = 512 << 20;
// Passes are cut at multiples of this, counted from position 0, so that cuts stay where they are
// while a sequence grows.
constexpr uint64_t cut_tokens = 256;
// Sharing fewer positions is not worth a merge.
constexpr uint64_t least_shared = 128;

}  // namespace

WorkSplit::WorkSplit(const AttendCall& call)
    : call_(call), group_(call.shape.query_heads / call.shape.kv_heads) {
  for (const AttendSequence& sequence : call.sequences) add_chunks(sequence);
  std::vector<uint32_t> steps;  // chunks that may share what they read
  for (uint32_t i = 0; i < chunks_.size(); i++) {
    if (chunks_[i].sequence->queries < prompt_queries)
      steps.push_back(i);
    else
      add_own_passes(i, 0);
  }
  share(steps, 0, 0);
  give_places();
}

void WorkSplit::add_chunks(const AttendSequence& sequence) {
  if (sequence.queries < prompt_queries) {
    add_chunk(sequence, 0, sequence.queries, 0, call_.shape.kv_heads);
    return;
  }
  const uint32_t queries = std::max(1u, prompt_rows / group_);
  for (uint32_t first = 0; first < sequence.queries; first += queries)
    for (uint32_t head = 0; head < call_.shape.kv_heads; head++)
      add_chunk(sequence, first, std::min(queries, sequence.queries - first), head, head + 1);
}

void WorkSplit::add_chunk(const AttendSequence& sequence, uint32_t first, uint32_t queries,
                          uint32_t head_begin, uint32_t head_end) {
  const bool same_queries = head_begin > 0;  // as the chunk of the head before
  const size_t view = same_queries ? chunks_.back().view : views_.size();
  if (!same_queries) add_views(sequence, first, queries);
  chunks_.push_back({&sequence, first, queries, head_begin, head_end, view, {}, {}});
}

void WorkSplit::add_views(const AttendSequence& sequence, uint32_t first, uint32_t queries) {
  const AttendParams& params = call_.params;
  const uint64_t start = sequence.length - sequence.queries;
  for (uint32_t i = first; i < first + queries; i++) {
    kernels::QueryView view{};
    view.position = start + i;
    view.begin = params.window == 0 || view.position + 1 < params.window
                     ? 0
                     : view.position + 1 - params.window;
    view.end = params.causal && params.mask == nullptr ? view.position + 1 : sequence.length;
    view.mask =
        params.mask == nullptr ? nullptr : params.mask + (sequence.row + i) * params.mask_words;
    view.mask_begin = start;
    views_.push_back(view);
  }
}

// Chunks whose sequences begin with the same memory. Positions before `compared` are known to be
// the same, those before `passed` have their passes already.
void WorkSplit::share(std::span<uint32_t> chunks, uint64_t compared, uint64_t passed) {
  const auto sequence = [&](uint32_t chunk) -> const AttendSequence& {
    return *chunks_[chunk].sequence;
  };
  // What may be shared of a sequence: whole blocks of tokens that were there before the step, seen
  // by all its queries.
  const auto limit = [&](uint32_t chunk) {
    const AttendSequence& s = sequence(chunk);
    if (s.kv.blocks == nullptr || call_.params.window != 0) return uint64_t{0};
    return (s.length - s.queries) / s.kv.block_size * s.kv.block_size;
  };
  const auto next_id = [&](uint32_t chunk) -> uint64_t {
    if (compared >= limit(chunk)) return UINT64_MAX;
    return sequence(chunk).kv.blocks[compared / sequence(chunk).kv.block_size];
  };
  std::sort(chunks.begin(), chunks.end(), [&](uint32_t a, uint32_t b) {
    return std::pair(next_id(a), a) < std::pair(next_id(b), b);
  });

  for (size_t first = 0, end; first < chunks.size(); first = end) {
    const uint64_t id = next_id(chunks[first]);
    end = first + 1;
    while (id != UINT64_MAX && end < chunks.size() && next_id(chunks[end]) == id) end++;
    const std::span<uint32_t> alike = chunks.subspan(first, end - first);
    if (alike.size() == 1) {
      add_own_passes(alike[0], passed);
      continue;
    }
    uint64_t common = UINT64_MAX;
    const uint32_t* const ids = sequence(alike[0]).kv.blocks;
    const uint32_t block_size = sequence(alike[0]).kv.block_size;
    for (const uint32_t chunk : alike) {
      const uint64_t most = std::min(common, limit(chunk));
      const uint32_t* const from = ids + compared / block_size;
      const auto differs = std::mismatch(from, ids + most / block_size,
                                         sequence(chunk).kv.blocks + compared / block_size)
                               .first;
      common = static_cast<uint64_t>(differs - ids) * block_size;
    }
    const bool worth = common - passed >= least_shared;
    if (worth) add_shared_passes(alike, passed, common);
    share(alike, common, worth ? common : passed);
  }
}

// As many chunks at a time as have rows enough: more would not stay in the cache.
void WorkSplit::add_shared_passes(std::span<const uint32_t> chunks, uint64_t begin, uint64_t end) {
  for (size_t first = 0, last; first < chunks.size(); first = last) {
    uint64_t rows = 0;
    for (last = first; last < chunks.size(); last++) {
      rows += uint64_t{chunks_[chunks[last]].queries} * group_;
      if (last > first && rows > prompt_rows) break;
    }
    add_passes(chunks.subspan(first, last - first), begin, end);
  }
}

// Tokens of one pass, by bytes where few rows are attended with, by FLOPs where many are.
uint64_t WorkSplit::part_tokens(uint64_t rows_of_a_head, uint32_t heads) const {
  const AttendShape& shape = call_.shape;
  const uint64_t bytes = uint64_t{heads} * (kernels::row_bytes(shape.key_dtype, shape.key_dim) +
                                            kernels::row_bytes(shape.value_dtype, shape.value_dim));
  const uint64_t flops = 2 * rows_of_a_head * heads * (shape.key_dim + shape.value_dim);
  const uint64_t tokens = std::min(pass_bytes / bytes, pass_flops / flops);
  return std::max(cut_tokens, tokens / cut_tokens * cut_tokens);
}

// What one chunk reads alone, of positions from `passed` on.
void WorkSplit::add_own_passes(uint32_t i, uint64_t passed) {
  const QueryChunk& chunk = chunks_[i];
  const uint64_t begin = views_[chunk.view].begin, end = views_[chunk.view + chunk.queries - 1].end;
  const uint64_t sinks = std::min<uint64_t>(call_.params.sinks, begin);
  if (sinks > 0) add_passes(std::span(&i, 1), 0, sinks);
  add_passes(std::span(&i, 1), std::max(passed, begin), end);
}

void WorkSplit::add_passes(std::span<const uint32_t> chunks, uint64_t begin, uint64_t end) {
  uint32_t queries = 0;
  for (const uint32_t chunk : chunks) queries += chunks_[chunk].queries;
  const QueryChunk& one = chunks_[chunks[0]];
  const uint64_t tokens = part_tokens(uint64_t{queries} * group_, one.head_end - one.head_begin);
  size_t view = one.view;
  if (chunks.size() > 1) {  // the views of all chunks in a row
    view = views_.size();
    for (const uint32_t chunk : chunks)
      for (uint32_t i = 0; i < chunks_[chunk].queries; i++)
        views_.push_back(kernels::QueryView(views_[chunks_[chunk].view + i]));
  }
  for (uint64_t at = begin; at < end;) {
    const uint64_t next = std::min(end, (at / tokens + 1) * tokens);
    const auto pass = static_cast<uint32_t>(passes_.size());
    passes_.push_back(
        {std::vector(chunks.begin(), chunks.end()), queries, at, next, view, false, 0});
    uint32_t rows = 0;
    for (const uint32_t chunk : chunks) {
      chunks_[chunk].passes.push_back(pass);
      chunks_[chunk].rows_before.push_back(rows);
      rows += chunks_[chunk].queries * group_;
    }
    at = next;
  }
}

// Memory for results that are merged later.
void WorkSplit::give_places() {
  for (Pass& pass : passes_) {
    pass.alone = pass.chunks.size() == 1 && chunks_[pass.chunks[0]].passes.size() == 1;
    if (pass.alone) continue;
    pass.result = shared_floats_;
    shared_floats_ += round_up(result_floats(pass), 16);
  }
}

}  // namespace pkv::attention
