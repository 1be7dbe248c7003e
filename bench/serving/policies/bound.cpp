#include <set>
#include <tuple>

#include "replay.h"

namespace pkv::serve {

// Evicts the block that is asked for last, or never again (Belady 1966). A request for a block also
// asks for all blocks before it, so if ties go to the longer text, the evicted block is always the
// last one of a text.
Saved find_bound(const Blocks& blocks, uint64_t capacity) {
  constexpr size_t never = SIZE_MAX;
  std::vector<std::vector<size_t>> uses(
      blocks.distinct);  // requests that ask for a block, last first
  for (size_t r = blocks.texts.size(); r-- > 0;)
    for (const uint32_t block : blocks.texts[r].prompt()) uses[block].push_back(r);
  using Key = std::tuple<size_t, size_t, uint32_t>;  // next use, depth, block
  std::set<Key> cached;
  std::vector<size_t> next(blocks.distinct, never);
  std::vector<bool> present(blocks.distinct, false);
  Saved saved;
  for (size_t r = 0; r < blocks.texts.size(); r++) {
    const Text& text = blocks.texts[r];
    size_t hits = 0;
    while (hits < text.asked && present[text.blocks[hits]]) hits++;
    saved.add(hits, blocks.tokens);
    for (size_t i = 0; i < text.blocks.size(); i++) {
      const uint32_t block = text.blocks[i];
      if (present[block]) cached.erase({next[block], i, block});
      while (!uses[block].empty() && uses[block].back() <= r) uses[block].pop_back();
      next[block] = uses[block].empty() ? never : uses[block].back();
      cached.insert({next[block], i, block});
      present[block] = true;
    }
    for (; cached.size() > capacity; cached.erase(std::prev(cached.end())))
      present[std::get<2>(*cached.rbegin())] = false;
  }
  return saved;
}

}  // namespace pkv::serve
