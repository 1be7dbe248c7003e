// Resolves windows and masks, and converts parents and bytes to words of bits.
#include "engine/attention/reading.h"

#include <algorithm>
#include <cstring>

#include "base/checked.h"

namespace pkv::attention {

namespace {

// The mask of a sequence: the bits of query i begin at words + i * stride, one for each position
// from `begin` on. `words` is NULL without a mask.
struct MaskRows {
  const uint64_t* words = nullptr;
  uint64_t stride = 0;
  uint64_t begin = 0;
};

// Returns a word with a bit set for each of `count` bytes, at most 64, that is not 0.
uint64_t pack_bytes(const uint8_t* bytes, uint64_t count) {
  uint64_t word = 0;
  uint64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    uint64_t eight;
    std::memcpy(&eight, bytes + i, sizeof eight);
    // Bit 0 of each byte becomes the OR of all its bits; a product then moves the eight bits into
    // the highest byte, that of the first byte to its lowest bit.
    eight |= eight >> 4;
    eight |= eight >> 2;
    eight |= eight >> 1;
    eight &= 0x0101010101010101;
    word |= (eight * 0x0102040810204080 >> 56) << i;
  }
  for (; i < count; i++) word |= uint64_t{bytes[i] != 0} << i;
  return word;
}

// The useful part of the bool mask of one sequence: the row of its first query, and the number of
// rows and columns.
struct Bools {
  const uint8_t* data;
  uint64_t rows, columns;
};

// Leaves out the columns that have no position. Sets *begin to the position of the first remaining
// column.
Bools bools_of(const AttendCall& call, const rows::Sequence& sequence, uint64_t* begin) {
  const BoolMask& mask = call.params.bool_mask;
  const int64_t first = mask.first_position(sequence.index);
  *begin = std::min(sequence.length, static_cast<uint64_t>(std::max<int64_t>(first, 0)));
  const uint64_t skipped = first < 0 ? static_cast<uint64_t>(-first) : 0;
  const uint8_t* const data = mask.data + static_cast<int64_t>(sequence.index) * mask.batch_stride +
                              static_cast<int64_t>(call.mask_row(sequence)) * mask.row_stride +
                              skipped;
  // Queries that share a row share its words.
  return {data, mask.row_stride == 0 ? 1 : sequence.queries, sequence.length - *begin};
}

// The functions below return the masks of all sequences. If they make words, they put them into
// `made`.

std::vector<MaskRows> masks_of_words(const AttendCall& call) {
  const uint64_t words = call.params.mask_words;
  std::vector<MaskRows> result;
  for (const rows::Sequence& sequence : call.sequences)
    result.push_back({call.params.mask + sequence.first_query * words, words, sequence.start()});
  return result;
}

std::vector<MaskRows> masks_of_trees(const AttendCall& call, std::vector<uint64_t>& made) {
  uint64_t total = 0;
  for (const rows::Sequence& sequence : call.sequences)
    total += sequence.queries * ceil_div(sequence.queries, word_bits);
  made.resize(total);
  uint64_t* at = made.data();
  std::vector<MaskRows> result;
  for (const rows::Sequence& sequence : call.sequences) {
    const uint64_t stride = ceil_div(sequence.queries, word_bits);
    const MaskRows& mask = result.emplace_back(at, stride, sequence.start());
    for (uint64_t i = 0; i < sequence.queries; i++, at += stride) {
      // A parent comes before its children, so its row is complete.
      const int32_t parent = call.params.parents[sequence.first_query + i];
      if (parent >= 0) std::copy_n(mask.words + static_cast<uint64_t>(parent) * stride, stride, at);
      at[i / word_bits] |= uint64_t{1} << i % word_bits;
    }
  }
  return result;
}

std::vector<MaskRows> masks_of_bools(Workers& workers, const AttendCall& call,
                                     std::vector<uint64_t>& made) {
  const BoolMask& mask = call.params.bool_mask;
  // Rows of one sequence that one task converts.
  struct Part {
    const uint8_t* from;
    uint64_t rows, columns;
    uint64_t first_word;
  };
  constexpr uint64_t part_bytes = 64 << 10;
  std::vector<Part> parts;
  std::vector<MaskRows> result;
  std::vector<uint64_t> first_words;  // by sequence
  uint64_t total = 0;
  for (const rows::Sequence& sequence : call.sequences) {
    uint64_t begin = 0;
    const Bools bools = bools_of(call, sequence, &begin);
    const uint64_t stride = ceil_div(bools.columns, word_bits);
    result.emplace_back(nullptr, mask.row_stride == 0 ? 0 : stride, begin);
    first_words.push_back(total);
    const uint64_t part_rows = std::max<uint64_t>(1, part_bytes / (bools.columns + 1));
    for (uint64_t row = 0; row < bools.rows; row += part_rows)
      parts.push_back({bools.data + static_cast<int64_t>(row) * mask.row_stride,
                       std::min(part_rows, bools.rows - row), bools.columns, total + row * stride});
    total = checked_add(total, checked_mul(bools.rows, stride, "mask"), "mask");
  }
  made.resize(total + 1);  // a sequence without columns has a pointer, too
  for (size_t i = 0; i < result.size(); i++) result[i].words = made.data() + first_words[i];
  workers.for_each(parts.size(), [&](size_t i, unsigned) {
    const Part& part = parts[i];
    uint64_t* to = made.data() + part.first_word;
    for (uint64_t row = 0; row < part.rows; row++)
      for (uint64_t column = 0; column < part.columns; column += word_bits)
        *to++ = pack_bytes(part.from + static_cast<int64_t>(row) * mask.row_stride + column,
                           std::min(word_bits, part.columns - column));
  });
  return result;
}

// Returns nothing if the call has no mask.
std::vector<MaskRows> masks_of(Workers& workers, const AttendCall& call,
                               std::vector<uint64_t>& made) {
  if (call.params.mask != nullptr) return masks_of_words(call);
  if (call.params.parents != nullptr) return masks_of_trees(call, made);
  if (call.params.bool_mask.data != nullptr) return masks_of_bools(workers, call, made);
  return {};
}

// Returns what a query of a sequence sees.
kernels::QueryView view_of(const AttendParams& params, const rows::Sequence& sequence,
                           uint32_t window, const MaskRows& mask, uint32_t query) {
  // A mask of words or a tree decides alone which new tokens are seen.
  const bool causal = params.causal && params.mask == nullptr && params.parents == nullptr;
  kernels::QueryView view{};
  view.position = sequence.position(query);
  view.begin = window == 0 || view.position + 1 < window ? 0 : view.position + 1 - window;
  view.end = causal ? std::min(view.position + 1, sequence.length) : sequence.length;
  view.mask = mask.words == nullptr ? nullptr : mask.words + query * mask.stride;
  view.mask_begin = mask.begin;
  return view;
}

// Returns the end of the run of KV heads that have the same window as `head`.
uint32_t end_of_run(const AttendCall& call, uint32_t head) {
  const Window window = call.params.window_of(head);
  while (++head < call.shape.kv_heads && call.params.window_of(head) == window) {
  }
  return head;
}

}  // namespace

Readings::Readings(Workers& workers, const AttendCall& call) : runs_(0) {
  for (uint32_t head = 0; head < call.shape.kv_heads; head = end_of_run(call, head)) runs_++;
  const std::vector<MaskRows> masks = masks_of(workers, call, words_);
  uint64_t queries = 0;
  for (const rows::Sequence& sequence : call.sequences) queries += sequence.queries;
  views_.reserve(queries * runs_);  // readings point into it
  all_.reserve(call.sequences.size() * runs_);
  for (size_t s = 0; s < call.sequences.size(); s++) {
    const rows::Sequence& sequence = call.sequences[s];
    for (uint32_t head = 0, end; head < call.shape.kv_heads; head = end) {
      end = end_of_run(call, head);
      const Window window = call.params.window_of(head);
      all_.push_back({sequence, rows::rows_at(call.q.view, call.q.begin(call.rows, sequence)),
                      rows::rows_at(call.out.view, call.out.begin(call.rows, sequence)), head, end,
                      window.window, window.sinks, views_.data() + views_.size()});
      for (uint32_t i = 0; i < sequence.queries; i++)
        views_.push_back(view_of(call.params, sequence, window.window,
                                 masks.empty() ? MaskRows{} : masks[s], i));
    }
  }
}

kernels::QueryTask query_task(const AttendCall& call, const QueryChunk& chunk, float* q,
                              uint64_t head_rows) {
  kernels::QueryTask task{};
  task.head_begin = chunk.head_begin;
  task.head_end = chunk.head_end;
  task.heads_per_kv_head = call.shape.heads_per_kv_head();
  task.queries = chunk.queries;
  task.key_dim = call.shape.key_dim;
  task.scale = call.params.scale;
  task.rotation = chunk.reading->kv.k.rotation;
  task.rows = rows::rows_from(chunk.reading->q, chunk.first);
  task.q = q;
  task.head_rows = head_rows;
  return task;
}

kernels::AttendTask attend_task(const AttendCall& call, const QueryChunk& chunk, uint64_t begin,
                                uint64_t end) {
  kernels::AttendTask task{};
  task.kv = chunk.reading->kv;
  task.head_begin = chunk.head_begin;
  task.head_end = chunk.head_end;
  task.heads_per_kv_head = call.shape.heads_per_kv_head();
  task.queries = chunk.queries;
  task.query = chunk.views();
  task.begin = begin;
  task.end = end;
  task.sinks = chunk.reading->sinks;
  task.scale = call.params.scale;
  task.results = call.out.view.dtype;
  task.transform = call.params.transform;
  return task;
}

}  // namespace pkv::attention
