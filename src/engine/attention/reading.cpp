// Resolves windows and masks, and converts parents, bytes and numbers to words of bits.
#include "engine/attention/reading.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "base/checked.h"

namespace pkv::attention {

namespace {

// What a mask says of one sequence.
struct SequenceMask {
  bool causal;  // queries see nothing after their positions
  // NULL, or the bits of query i begin at words + i * stride, one for each token from `begin` on.
  const uint64_t* words = nullptr;
  uint64_t stride = 0;
  uint64_t begin = 0;
  // The positions of new tokens that are not where their rows are, as in a tree; or NULL.
  const int64_t* positions = nullptr;
  // NULL, or where the bias of each row of words begins, NULL for those that need none.
  const unsigned char* const* biases = nullptr;
};

// Returns a word with a bit set for each of `count` bytes, at most 64, that is not 0.
uint64_t pack_bytes(const unsigned char* bytes, uint64_t count) {
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

// Returns a word with a bit set for each of `count` numbers, at most 64, that is not -infinity.
// Sets *adds if one of them is neither that nor 0.
template <class Bits, Bits minus_infinity>
uint64_t pack_numbers(const unsigned char* from, uint64_t count, bool* adds) {
  constexpr uint32_t magnitude = std::numeric_limits<Bits>::max() >> 1;
  std::array<Bits, word_bits> numbers{};
  std::memcpy(numbers.data(), from, count * sizeof(Bits));
  uint32_t hidden = 0, added = 0;
  for (const uint32_t number : numbers) {
    const uint32_t hides = number == minus_infinity;
    hidden |= hides;
    added |= hides != 0 ? 0 : number & magnitude;
  }
  *adds |= added != 0;
  if (hidden == 0) return ~uint64_t{0} >> (word_bits - count);
  uint64_t word = 0;
  for (uint64_t i = 0; i < count; i++) word |= uint64_t{numbers[i] != minus_infinity} << i;
  return word;
}

uint64_t pack_elements(pkv_mask_kind kind, const unsigned char* from, uint64_t count, bool* adds) {
  if (kind == PKV_MASK_F16) return pack_numbers<uint16_t, 0xFC00>(from, count, adds);
  if (kind == PKV_MASK_F32) return pack_numbers<uint32_t, 0xFF800000>(from, count, adds);
  return pack_bytes(from, count);
}

// The useful part of the mask of one sequence: the row of its first query, and the number of rows
// and columns.
struct Elements {
  const unsigned char* data;
  uint64_t rows, columns;
};

// Leaves out the columns that have no position. Sets *begin to the position of the first remaining
// column.
Elements elements_of(const AttendCall& call, const rows::Sequence& sequence, uint64_t* begin) {
  const ColumnMask& mask = call.params.column_mask;
  const int64_t first = mask.first_position(sequence.index);
  *begin = std::min(sequence.length, static_cast<uint64_t>(std::max<int64_t>(first, 0)));
  const int64_t skipped = std::max<int64_t>(-first, 0);
  const int64_t at = static_cast<int64_t>(sequence.index) * mask.batch_stride +
                     static_cast<int64_t>(call.mask_row(sequence)) * mask.row_stride + skipped;
  // Queries that share a row share its words.
  return {mask.data + at * mask.element_bytes(), mask.row_stride == 0 ? 1 : sequence.queries,
          sequence.length - *begin};
}

// The functions below return the masks of all sequences, and put what they make into `arrays`.

std::vector<SequenceMask> masks_of_words(const AttendCall& call) {
  const uint64_t words = call.params.mask_words;
  std::vector<SequenceMask> result;
  for (const rows::Sequence& sequence : call.sequences) {
    const int64_t* const positions = call.params.mask_positions;
    result.push_back(
        {false, call.params.mask + sequence.first_query * words, words, sequence.start(),
         positions != nullptr ? positions + sequence.first_query : sequence.positions});
  }
  return result;
}

// Returns whether each token has the one before it as its parent.
bool is_chain(const int32_t* parents, uint32_t tokens) {
  for (uint32_t i = 0; i < tokens; i++)
    if (int64_t{parents[i]} + 1 != i) return false;
  return true;
}

SequenceMask mask_of_tree(const rows::Sequence& sequence, const int32_t* parents, Arrays& arrays) {
  // The text of a chain is what the causal rule shows, which costs less than a mask.
  if (sequence.positions == nullptr && is_chain(parents, sequence.queries)) return {true};
  const uint64_t stride = ceil_div(sequence.queries, word_bits);
  uint64_t* const words = arrays.make<uint64_t>(sequence.queries * stride).data();
  int64_t* const positions = arrays.make<int64_t>(sequence.queries).data();
  for (uint32_t i = 0; i < sequence.queries; i++) {
    // A parent comes before its children, so its row is complete.
    uint64_t* const row = words + i * stride;
    if (parents[i] >= 0)
      std::copy_n(words + static_cast<uint64_t>(parents[i]) * stride, stride, row);
    row[i / word_bits] |= uint64_t{1} << i % word_bits;
    positions[i] =
        parents[i] >= 0 ? positions[parents[i]] + 1 : static_cast<int64_t>(sequence.start());
  }
  return {false, words, stride, sequence.start(),
          sequence.positions != nullptr ? sequence.positions : positions};
}

std::vector<SequenceMask> masks_of_trees(const AttendCall& call, Arrays& arrays) {
  std::vector<SequenceMask> result;
  for (const rows::Sequence& sequence : call.sequences)
    result.push_back(mask_of_tree(sequence, call.params.parents + sequence.first_query, arrays));
  return result;
}

std::vector<SequenceMask> masks_of_columns(Workers& workers, const AttendCall& call,
                                           Arrays& arrays) {
  const ColumnMask& mask = call.params.column_mask;
  // The stride of a single row may be any number.
  const auto row_at = [&](const unsigned char* from, uint64_t row) {
    return from + static_cast<int64_t>(row) * mask.row_stride * mask.element_bytes();
  };
  // Rows of one sequence that one task converts.
  struct RowRange {
    const unsigned char* from;
    uint64_t rows, columns;
    uint64_t first_word, first_row;
  };
  constexpr uint64_t part_bytes = 64 << 10;
  std::vector<RowRange> parts;
  std::vector<SequenceMask> result;
  std::vector<uint64_t> first_words, first_rows;  // by sequence
  uint64_t total = 0, rows = 0;
  for (const rows::Sequence& sequence : call.sequences) {
    uint64_t begin = 0;
    const Elements elements = elements_of(call, sequence, &begin);
    const uint64_t stride = ceil_div(elements.columns, word_bits);
    result.push_back({call.params.causal, nullptr, mask.row_stride == 0 ? 0 : stride, begin});
    first_words.push_back(total);
    first_rows.push_back(rows);
    const uint64_t part_rows =
        std::max<uint64_t>(1, part_bytes / (elements.columns * mask.element_bytes() + 1));
    for (uint64_t row = 0; row < elements.rows; row += part_rows)
      parts.push_back({row_at(elements.data, row), std::min(part_rows, elements.rows - row),
                       elements.columns, total + row * stride, rows + row});
    total = checked_add(total, checked_mul(elements.rows, stride, "mask"), "mask");
    rows += elements.rows;
  }
  // A sequence without columns has a pointer, too.
  uint64_t* const words = arrays.make<uint64_t>(total + 1).data();
  const auto biases = arrays.make<const unsigned char*>(mask.additive() ? rows : 0);
  workers.for_each(parts.size(), [&](size_t i, unsigned) {
    const RowRange& part = parts[i];
    uint64_t* to = words + part.first_word;
    for (uint64_t row = 0; row < part.rows; row++) {
      const unsigned char* const from = row_at(part.from, row);
      bool adds = false;
      for (uint64_t column = 0; column < part.columns; column += word_bits)
        *to++ = pack_elements(mask.kind, from + column * mask.element_bytes(),
                              std::min(word_bits, part.columns - column), &adds);
      if (adds) biases[part.first_row + row] = from;
    }
  });
  const bool biased = std::any_of(biases.begin(), biases.end(),
                                  [](const unsigned char* bias) { return bias != nullptr; });
  for (size_t i = 0; i < result.size(); i++) {
    result[i].words = words + first_words[i];
    if (biased) result[i].biases = &biases[first_rows[i]];
  }
  return result;
}

std::vector<SequenceMask> masks_of(Workers& workers, const AttendCall& call, Arrays& arrays) {
  if (call.params.mask != nullptr) return masks_of_words(call);
  if (call.params.parents != nullptr) return masks_of_trees(call, arrays);
  if (call.params.column_mask.data != nullptr) return masks_of_columns(workers, call, arrays);
  return std::vector<SequenceMask>(call.sequences.size(), {call.params.causal});
}

// Returns the mask for KV heads with a window. New tokens lie where their rows are, so the kernels
// cannot tell which of them left the window; then the words of the result hide these.
SequenceMask mask_in_window(const SequenceMask& mask, uint32_t queries, const Window& window,
                            bool causal, Arrays& arrays) {
  if (mask.positions == nullptr || window.window == 0) return mask;
  const auto [first, last] = std::minmax_element(mask.positions, mask.positions + queries);
  if (*last - *first < window.window) return mask;
  SequenceMask result = mask;
  result.stride = ceil_div(queries, word_bits);
  uint64_t* row = arrays.make<uint64_t>(queries * result.stride).data();
  result.words = row;
  for (uint32_t i = 0; i < queries; i++, row += result.stride)
    for (uint32_t j = 0; j < queries; j++) {
      const int64_t behind = mask.positions[i] - mask.positions[j],
                    apart = causal ? behind : std::abs(behind);
      const bool shown = apart < window.window || mask.positions[j] < window.sinks;
      const uint64_t bit = uint64_t{shown} << j % word_bits;
      row[j / word_bits] |= mask.words[i * mask.stride + j / word_bits] & bit;
    }
  return result;
}

// Returns the end of what a query at a position sees. With a mask of new tokens, the query sees all
// tokens before these, and the mask says which of these are in the window.
uint64_t end_of_view(const Reading& reading, const SequenceMask& mask, uint64_t position) {
  if (mask.causal) return std::min(position + 1, reading.length);
  if (reading.window == 0 || mask.positions != nullptr) return reading.length;
  return std::min(std::max<uint64_t>(position + reading.window, reading.sinks), reading.length);
}

// Returns what a query of a reading sees.
kernels::QueryView view_of(const Reading& reading, const SequenceMask& mask, uint32_t query) {
  kernels::QueryView view{};
  view.position = reading.position(query);
  view.begin = reading.window == 0 || view.position + 1 < reading.window
                   ? 0
                   : view.position + 1 - reading.window;
  // The mask says which new tokens left the window.
  if (mask.positions != nullptr) view.begin = std::min(view.begin, mask.begin);
  view.end = end_of_view(reading, mask, view.position);
  view.mask = mask.words == nullptr ? nullptr : mask.words + query * mask.stride;
  view.mask_begin = mask.begin;
  // Queries that share a row of words share its bias.
  if (mask.biases != nullptr) view.bias = mask.biases[mask.stride == 0 ? 0 : query];
  return view;
}

// Returns whether a result could be written over queries that are still to be read. Results that
// lie exactly where their queries do are harmless: a task reads its queries before it writes their
// results. But the mass of blocks, which is computed last, needs the queries once more.
bool overwrites_queries(const AttendCall& call) {
  const uint32_t heads = call.shape.query_heads, key_dim = call.shape.key_dim,
                 value_dim = call.shape.value_dim;
  const auto [q_begin, q_end] = rows::extent_of(call.q, call.rows, heads, key_dim);
  const auto [out_begin, out_end] = rows::extent_of(call.out, call.rows, heads, value_dim);
  if (q_end <= out_begin || out_end <= q_begin) return false;
  const kernels::RowsView &q = call.q.view, &out = call.out.view;
  const bool in_place = q.data == out.data && q.dtype == out.dtype && key_dim == value_dim &&
                        q.row_stride == out.row_stride && q.head_stride == out.head_stride &&
                        call.q.batch_stride == call.out.batch_stride;
  return !in_place || call.outputs.masses != nullptr;
}

// Returns a dense copy of the queries of a sequence.
kernels::RowsView copied_queries(const AttendCall& call, const rows::Sequence& sequence,
                                 Arrays& arrays) {
  const uint32_t heads = call.shape.query_heads, dim = call.shape.key_dim;
  const kernels::RowsView from = rows::rows_at(call.q.view, call.q.begin(call.rows, sequence));
  const size_t element = kernels::dtype_bytes(from.dtype), bytes = dim * element;
  const std::span<unsigned char> copy =
      arrays.make<unsigned char>(sequence.queries * size_t{heads} * bytes);
  for (size_t row = 0; row < sequence.queries; row++)
    for (uint32_t head = 0; head < heads; head++)
      std::memcpy(&copy[(row * heads + head) * bytes],
                  from.data + (row * static_cast<size_t>(from.row_stride) +
                               head * static_cast<size_t>(from.head_stride)) *
                                  element,
                  bytes);
  return {copy.data(), from.dtype, int64_t{heads} * dim, dim};
}

// Returns how far the positions of new tokens are from where their rows are, for whole tiles.
const float* shifts_of(const rows::Sequence& sequence, const int64_t* positions, Arrays& arrays) {
  const uint64_t begin = sequence.start() / kernels::tile_tokens * kernels::tile_tokens;
  const std::span<float> shifts =
      arrays.make<float>(round_up(sequence.length, kernels::tile_tokens) - begin);
  for (uint32_t i = 0; i < sequence.queries; i++)
    shifts[sequence.start() - begin + i] =
        static_cast<float>(positions[i] - static_cast<int64_t>(sequence.start() + i));
  return shifts.data();
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
  const std::vector<SequenceMask> masks = masks_of(workers, call, arrays_);
  uint64_t queries = 0;
  for (const rows::Sequence& sequence : call.sequences) queries += sequence.queries;
  views_.reserve(queries * runs_);  // readings point into it
  all_.reserve(call.sequences.size() * runs_);
  const bool copies = overwrites_queries(call);
  for (size_t s = 0; s < call.sequences.size(); s++) {
    rows::Sequence sequence = call.sequences[s];
    const kernels::RowsView q = copies
                                    ? copied_queries(call, sequence, arrays_)
                                    : rows::rows_at(call.q.view, call.q.begin(call.rows, sequence));
    const float* shifts = nullptr;
    if (masks[s].positions != nullptr) {
      sequence.positions = masks[s].positions;
      if (call.params.transform.alibi_slopes != nullptr)
        shifts = shifts_of(sequence, sequence.positions, arrays_);
    }
    for (uint32_t head = 0, end; head < call.shape.kv_heads; head = end) {
      end = end_of_run(call, head);
      const Window window = call.params.window_of(head);
      const SequenceMask mask =
          mask_in_window(masks[s], sequence.queries, window, call.params.causal, arrays_);
      all_.push_back({sequence, q,
                      rows::rows_at(call.out.view, call.out.begin(call.rows, sequence)), head, end,
                      window.window, window.sinks, views_.data() + views_.size(), shifts,
                      masks[s].biases != nullptr});
      for (uint32_t i = 0; i < sequence.queries; i++)
        views_.push_back(view_of(all_.back(), mask, i));
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
  task.transform.biased = chunk.reading->biased;
  if (chunk.reading->key_shifts != nullptr) {
    task.transform.key_shifts = chunk.reading->key_shifts;
    task.transform.shifts_begin =
        chunk.reading->start() / kernels::tile_tokens * kernels::tile_tokens;
  }
  return task;
}

}  // namespace pkv::attention
