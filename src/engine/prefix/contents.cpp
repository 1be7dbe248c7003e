#include "engine/prefix/contents.h"

#include "engine/prefix/ordered_policy.h"
#include "engine/prefix/return_time.h"

namespace pkv::prefix {

namespace {

std::unique_ptr<Policy> make_policy(pkv_eviction kind, uint64_t capacity,
                                    std::pmr::memory_resource& memory) {
  if (kind == PKV_EVICTION_DEFAULT) return std::make_unique<ReturnTimePolicy>(capacity, memory);
  return std::make_unique<OrderedPolicy>(kind == PKV_EVICTION_LFU, memory);
}

}  // namespace

Contents::Contents(const pkv_prefix_config& config, uint32_t block_size,
                   std::span<const std::unique_ptr<memory::Group>> all_groups, HookMemory& memory)
    : groups(all_groups),
      tree(block_size, static_cast<uint32_t>(groups.size()), memory),
      policy(make_policy(config.eviction, memory::largest_pool(groups), memory)),
      spaces(tree, config.salt_blocks, memory),
      events(config.events, memory),
      evictable(groups.size()) {}

void Contents::add_candidate(Node& node) noexcept {
  policy->add(node);
  if (space_of(node).quota != 0) space_of(node).own.add(node);
}

void Contents::remove_candidate(Node& node) noexcept {
  policy->remove(node);
  if (node.parent != nullptr) space_of(node).own.remove(node);
}

void Contents::release(size_t group, std::span<const memory::Block> blocks) noexcept {
  images.lose(group, blocks);
  groups[group]->pool.release_held(blocks.size(), blocks.data());
}

// A block is stored after the one that it follows, and removed before it.
void Contents::record(pkv_prefix_event_kind kind, const Node& node, uint32_t from) noexcept {
  if (!events.kept()) return;
  const uint64_t before = hash_before(node);
  for (uint32_t k = from; k < node.size; k++) {
    const uint32_t i = kind == PKV_PREFIX_STORED ? k : node.size - 1 - (k - from);
    events.add(kind, uint64_t{node.start + i} * block_size(), node.hashes[i],
               i > 0 ? node.hashes[i - 1] : before);
  }
}

}  // namespace pkv::prefix
