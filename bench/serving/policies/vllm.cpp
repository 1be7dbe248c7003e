#include <list>

#include "replay.h"

namespace pkv::serve {

Saved replay_vllm(const Blocks& blocks, uint64_t capacity) {
  std::list<uint32_t> queue;  // cached blocks in the order in which they go
  std::vector<std::list<uint32_t>::iterator> place(blocks.distinct, queue.end());
  const uint64_t usable = capacity - 1;  // block 0 is never used
  Saved saved;
  for (const Text& text : blocks.texts) {
    const size_t length = std::min<size_t>(text.blocks.size(), usable);
    size_t hits = 0;
    while (hits < std::min(length, text.asked) && place[text.blocks[hits]] != queue.end()) hits++;
    saved.add(hits, blocks.tokens);
    for (size_t i = 0; i < hits; i++) {
      queue.erase(place[text.blocks[i]]);
      place[text.blocks[i]] = queue.end();
    }
    while (queue.size() + length > usable) {
      place[queue.front()] = queue.end();
      queue.pop_front();
    }
    for (size_t i = length; i-- > 0;) {
      // A block behind a gap may still be cached. vLLM keeps the older copy, which is never found
      // and leaves sooner than the new one would have.
      if (place[text.blocks[i]] != queue.end()) queue.erase(place[text.blocks[i]]);
      place[text.blocks[i]] = queue.insert(queue.end(), text.blocks[i]);
    }
  }
  return saved;
}

}  // namespace pkv::serve
