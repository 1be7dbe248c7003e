// Makes words of parents and of bytes.
#include "engine/attention/masks.h"

#include <algorithm>
#include <cstring>

#include "base/checked.h"

namespace pkv::attention {

namespace {

// Gives a bit for each of `count` bytes, at most 64, that is not 0.
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

// The bool mask of one sequence: where the row of its first query begins, and how many rows and
// columns of it are of use.
struct Bools {
  const uint8_t* data;
  uint64_t rows, columns;
};

// Leaves out the columns that stand for no position. Sets *begin to the position of the first one
// that is left.
Bools bools_of(const BoolMask& mask, const AttendSequence& sequence, uint64_t* begin) {
  const int64_t first = mask.first_position(sequence.index);
  *begin = std::min(sequence.length, static_cast<uint64_t>(std::max<int64_t>(first, 0)));
  const uint64_t skipped = first < 0 ? static_cast<uint64_t>(-first) : 0;
  const uint8_t* const data = mask.data + static_cast<int64_t>(sequence.index) * mask.batch_stride +
                              static_cast<int64_t>(sequence.mask_row) * mask.row_stride + skipped;
  // Queries that share a row share its words.
  return {data, mask.row_stride == 0 ? 1 : sequence.queries, sequence.length - *begin};
}

}  // namespace

Masks::Masks(Workers& workers, const AttendCall& call, std::span<AttendSequence> sequences)
    : sequences_(sequences) {
  if (call.params.mask != nullptr) add_words(call);
  if (call.params.parents != nullptr) add_trees(call);
  if (call.params.bool_mask.data != nullptr) add_bools(workers, call);
}

void Masks::add_words(const AttendCall& call) {
  const uint64_t words = call.params.mask_words;
  for (AttendSequence& sequence : sequences_)
    sequence.mask = {call.params.mask + sequence.first_query * words, words, sequence.start()};
}

void Masks::add_trees(const AttendCall& call) {
  uint64_t total = 0;
  for (const AttendSequence& sequence : sequences_)
    total += sequence.queries * ceil_div(sequence.queries, word_bits);
  words_.resize(total);
  uint64_t* at = words_.data();
  for (AttendSequence& sequence : sequences_) {
    const uint64_t stride = ceil_div(sequence.queries, word_bits);
    sequence.mask = {at, stride, sequence.start()};
    for (uint64_t i = 0; i < sequence.queries; i++, at += stride) {
      // A parent comes before its children, so its row is complete.
      const int32_t parent = call.params.parents[sequence.first_query + i];
      if (parent >= 0)
        std::copy_n(sequence.mask.words + static_cast<uint64_t>(parent) * stride, stride, at);
      at[i / word_bits] |= uint64_t{1} << i % word_bits;
    }
  }
}

void Masks::add_bools(Workers& workers, const AttendCall& call) {
  const BoolMask& mask = call.params.bool_mask;
  // Rows of one sequence that one task packs.
  struct Part {
    const uint8_t* from;
    uint64_t rows, columns;
    uint64_t first_word;
  };
  constexpr uint64_t part_bytes = 64 << 10;
  std::vector<Part> parts;
  uint64_t total = 0;
  for (AttendSequence& sequence : sequences_) {
    uint64_t begin = 0;
    const Bools bools = bools_of(mask, sequence, &begin);
    const uint64_t stride = ceil_div(bools.columns, word_bits);
    sequence.mask = {nullptr, mask.row_stride == 0 ? 0 : stride, begin};
    const uint64_t part_rows = std::max<uint64_t>(1, part_bytes / (bools.columns + 1));
    for (uint64_t row = 0; row < bools.rows; row += part_rows)
      parts.push_back({bools.data + static_cast<int64_t>(row) * mask.row_stride,
                       std::min(part_rows, bools.rows - row), bools.columns, total + row * stride});
    total = checked_add(total, checked_mul(bools.rows, stride, "mask"), "mask");
  }
  words_.resize(total + 1);  // a sequence without columns has a pointer, too
  uint64_t first_word = 0;
  for (AttendSequence& sequence : sequences_) {
    sequence.mask.words = words_.data() + first_word;
    const uint64_t rows = mask.row_stride == 0 ? 1 : sequence.queries;
    first_word += rows * ceil_div(sequence.length - sequence.mask.begin, word_bits);
  }
  workers.for_each(parts.size(), [&](size_t i, unsigned) {
    const Part& part = parts[i];
    uint64_t* to = words_.data() + part.first_word;
    for (uint64_t row = 0; row < part.rows; row++)
      for (uint64_t column = 0; column < part.columns; column += word_bits)
        *to++ = pack_bytes(part.from + static_cast<int64_t>(row) * mask.row_stride + column,
                           std::min(word_bits, part.columns - column));
  });
}

}  // namespace pkv::attention
