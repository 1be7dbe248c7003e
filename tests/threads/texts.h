// Texts that threads share prefixes of, and the rows that belong to them.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

namespace hostile {

using Text = std::vector<int32_t>;

// A text that shares prefixes with many others: they diverge after 40 and after 90 tokens, inside
// blocks.
inline Text draw_text(std::mt19937& random, size_t length, uint32_t ways) {
  const auto family = static_cast<int32_t>(random() % 3),
             branch = static_cast<int32_t>(random() % ways),
             leaf = static_cast<int32_t>(random() % ways);
  Text text(length);
  for (size_t i = 0; i < text.size(); i++)
    text[i] = i < 40 ? family : i < 90 ? family * 4 + branch : (family * 4 + branch) * 4 + leaf;
  return text;
}

// Rows of `floats` numbers that distinguish a text from all others that diverge from it earlier.
inline std::vector<float> rows_of(const Text& text, size_t first, size_t last, size_t floats) {
  std::vector<float> rows;
  uint32_t state = 0;
  for (size_t i = 0; i < last; i++) {
    state = (state * 31 + static_cast<uint32_t>(text[i]) + 1) & 0xFFFFFF;
    if (i >= first) rows.insert(rows.end(), floats, static_cast<float>(state));
  }
  return rows;
}

}  // namespace hostile
