// Looks at windows and masks block by block.
#include "engine/attention/seen_blocks.h"

#include <algorithm>

#include "base/checked.h"

namespace pkv::attention {

namespace {

// Returns bits [at, at + count) of a mask, at most 64.
uint64_t bits_at(const uint64_t* words, uint64_t at, uint64_t count) {
  const uint64_t shift = at % word_bits;
  uint64_t bits = words[at / word_bits] >> shift;
  if (shift + count > word_bits) bits |= words[at / word_bits + 1] << (word_bits - shift);
  return count == word_bits ? bits : bits & ((uint64_t{1} << count) - 1);
}

// Returns whether a query's mask shows any of the positions [begin, end). It shows all positions
// before its first bit.
bool any_shown(const kernels::QueryView& view, uint64_t begin, uint64_t end) {
  if (begin < std::min(end, view.mask_begin)) return true;
  for (uint64_t at = begin, count; at < end; at += count) {
    count = std::min(end - at, word_bits);
    if (bits_at(view.mask, at - view.mask_begin, count) != 0) return true;
  }
  return false;
}

}  // namespace

SeenBlocks::SeenBlocks(const Reading& reading, uint32_t first, uint32_t count)
    : reading_(reading), views_(reading.views + first, count) {
  begin_ = UINT64_MAX, end_ = 0;
  for (const kernels::QueryView& view : views_) {
    begin_ = std::min(begin_, view.begin);
    end_ = std::max(end_, view.end);
  }
}

bool SeenBlocks::unmasked(uint64_t begin, uint64_t end) const {
  return std::any_of(views_.begin(), views_.end(), [&](const kernels::QueryView& view) {
    const uint64_t seen_end = std::min(end, view.end);
    return any_shown(view, std::max(begin, view.begin), seen_end) ||
           any_shown(view, begin, std::min<uint64_t>(seen_end, reading_.sinks));
  });
}

uint64_t Excerpt::position(uint64_t whole) const {
  const uint64_t entry = whole / block_size_;
  const auto at = std::lower_bound(entries_.begin(), entries_.end(), entry);
  const bool here = at != entries_.end() && *at == entry;
  return static_cast<uint64_t>(at - entries_.begin()) * block_size_ +
         (here ? whole % block_size_ : 0);
}

kernels::QueryView Excerpt::view(const kernels::QueryView& whole) const {
  return {position(whole.position), position(whole.begin), position(whole.end), nullptr,
          whole.mask == nullptr ? 0 : position(whole.mask_begin)};
}

uint64_t Excerpt::mask_words(const kernels::QueryView& whole) const {
  return ceil_div(position(whole.end) - std::min(position(whole.mask_begin), position(whole.end)),
                  word_bits);
}

void Excerpt::write_mask(const kernels::QueryView& whole, uint64_t* words) const {
  uint64_t to = 0;
  const auto first = static_cast<uint32_t>(whole.mask_begin / block_size_);
  for (auto entry = std::lower_bound(entries_.begin(), entries_.end(), first);
       entry != entries_.end(); entry++) {
    const uint64_t end = std::min((uint64_t{*entry} + 1) * block_size_, whole.end);
    for (uint64_t at = std::max(uint64_t{*entry} * block_size_, whole.mask_begin), count; at < end;
         at += count, to += count) {
      // At most the rest of the word.
      count = std::min(end - at, word_bits - to % word_bits);
      words[to / word_bits] |= bits_at(whole.mask, at - whole.mask_begin, count) << to % word_bits;
    }
  }
}

}  // namespace pkv::attention
