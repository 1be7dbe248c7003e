// Makes the bounds of the keys of a group when attention first chooses blocks, and computes them;
// checks what a group keeps.
#include "engine/memory/group.h"

#include <thread>
#include <vector>

#include "base/enums.h"
#include "base/status.h"

namespace pkv::memory {

KeyBounds& Group::make_bounds() {
  if (KeyBounds* const made = bounds()) return *made;
  const std::lock_guard lock(making_bounds_);
  if (!own_bounds_) {
    own_bounds_ =
        std::make_unique<KeyBounds>(layout, shape, block_size, pool.blocks(), memory, huge_pages);
    bounds_.store(own_bounds_.get(), std::memory_order_release);
  }
  return *own_bounds_;
}

void Group::compute_bounds(Workers& workers, const kernels::Table& kernels, uint32_t layer,
                           std::span<const Block> blocks) {
  KeyBounds& bounds = make_bounds();
  std::vector<Block> own;
  own.reserve(blocks.size());
  // Only workers that get a task make room for keys, and the first one, which must not fail below.
  std::vector<std::vector<float>> scratch(workers.threads());
  const auto grow_scratch = [&](unsigned worker) {
    scratch[worker].resize(uint64_t{block_size} * shape.key_dim);
  };
  const auto compute = [&](Block block, unsigned worker) {
    grow_scratch(worker);
    bounds.compute(kernels, slab->data(), block, layer, scratch[worker].data());
  };
  grow_scratch(0);
  for (const Block block : blocks)
    if (bounds.claim(block, layer)) own.push_back(block);
  try {
    workers.for_each(own.size(), [&](size_t i, unsigned worker) { compute(own[i], worker); });
  } catch (...) {  // too little memory, or a caller's runner that left tasks out
    for (const Block block : own) bounds.unclaim(block, layer);
    throw;
  }
  // Other threads compute the rest, or give it up.
  for (const Block block : blocks)
    while (!bounds.has(block, layer)) {
      if (bounds.claim(block, layer))
        compute(block, 0);
      else
        std::this_thread::yield();
    }
}

void retain_table(Group& group, std::span<const Block> table) {
  size_t failed;
  if (group.pool.retain_table(table, &failed) == PKV_OK) return;
  const uint32_t id = block_id(table[failed]);
  fail(PKV_LIMIT_REACHED, "block %u has %u references, which is the limit", id,
       group.pool.references(id));
}

void check_has_rows(const Group& group, const char* who) {
  if (group.has_states())
    fail(PKV_UNSUPPORTED, "%s: the layer keeps a state, and no keys and values", who);
}

void check_keeps_rows(const Group& group, const char* who) {
  check_has_rows(group, who);
  if (group.opaque())
    fail(PKV_UNSUPPORTED, "%s: only the engine can read the blocks of this group, of kind %s", who,
         enum_name(group.shape.kind));
  if (group.storage == PKV_STORAGE_EXTERNAL)
    fail(PKV_UNSUPPORTED, "%s: storage EXTERNAL keeps no keys and values", who);
}

void check_has_states(const Group& group, uint32_t layer) {
  if (!group.has_states())
    fail(PKV_UNSUPPORTED, "layer %u keeps keys and values, and no state", layer);
  if (group.opaque())
    fail(PKV_UNSUPPORTED, "layer %u: only the engine can read the blocks of its group, of kind %s",
         layer, enum_name(group.shape.kind));
  if (group.storage == PKV_STORAGE_EXTERNAL)
    fail(PKV_UNSUPPORTED,
         "layer %u: storage EXTERNAL keeps no states, only the ids of their blocks", layer);
}

}  // namespace pkv::memory
