#include "engine/prefix/contents.h"

#include <algorithm>

#include "base/os.h"
#include "engine/prefix/learned_policy.h"
#include "engine/prefix/ordered_policy.h"

namespace pkv::prefix {

namespace {

std::unique_ptr<Policy> make_policy(const pkv_prefix_config& config, uint32_t block_size,
                                    uint64_t capacity, std::pmr::memory_resource& memory) {
  if (config.eviction == PKV_EVICTION_LRU || config.eviction == PKV_EVICTION_LFU)
    return std::make_unique<OrderedPolicy>(config.eviction == PKV_EVICTION_LFU, memory);
  const double weight_per_block =
      config.doubling_depth == 0 ? 0.0 : static_cast<double>(block_size) / config.doubling_depth;
  return std::make_unique<LearnedPolicy>(capacity, weight_per_block, memory);
}

}  // namespace

Contents::Contents(const pkv_prefix_config& config, uint32_t block_size,
                   std::span<const std::unique_ptr<memory::Group>> all_groups, HookMemory& memory)
    : groups(all_groups),
      tree(block_size, static_cast<uint32_t>(groups.size()), memory),
      policy(make_policy(config, block_size, memory::largest_pool(groups), memory)),
      hasher(os::random_number(), config.events > 0),
      spaces(tree, hasher, config.salt_blocks, memory),
      events(config.events, memory),
      full(groups, memory),
      windows(groups, memory) {}

void Contents::add_candidate(Node& node) noexcept {
  policy->add(node);
  if (space_of(node).quota != 0) space_of(node).own.add(node);
}

void Contents::remove_candidate(Node& node) noexcept {
  policy->remove(node);
  if (node.parent != nullptr) space_of(node).own.remove(node);
}

void Contents::add_block(size_t group, memory::Block block, Node& node, uint32_t position,
                         bool passing) noexcept {
  if (windows.has(group))
    windows.add(group, block, node, position, passing);
  else
    full.add(group, block, node, position);
}

void Contents::release(size_t group, std::span<const memory::Block> blocks) noexcept {
  removals++;
  images.lose(group, blocks);
  for (const memory::Block block : blocks)
    windows.has(group) ? windows.remove(group, block) : full.remove(group, block);
  groups[group]->pool.release_held(blocks.size(), blocks.data());
}

namespace {

// Returns how many blocks of a group are cached without a gap directly before a position, at most
// `enough`; `enough` also if there is no gap back to the beginning of the text.
uint32_t run_before(const Node& node, uint32_t inside, size_t group, size_t groups,
                    uint32_t enough) {
  uint32_t run = 0;
  for (const Node* each = &node; each->parent != nullptr; each = each->parent, inside = each->size)
    for (; inside > 0; inside--) {
      if (run == enough) return run;
      if (each->blocks[size_t{inside - 1} * groups + group] == memory::no_block) return run;
      run++;
    }
  return enough;
}

// Returns where the first block of a group with sinks is missing, up to the position after `last`
// blocks of a node.
uint32_t first_missing_sink(const Node& node, uint32_t last, size_t group, size_t groups,
                            uint32_t sinks) {
  uint32_t missing = sinks;
  for (const Node* each = &node; each->parent != nullptr; each = each->parent, last = each->size)
    for (uint32_t i = 0; i < last && each->start + i < sinks; i++)
      if (each->blocks[size_t{i} * groups + group] == memory::no_block)
        missing = std::min(missing, each->start + i);
  return missing;
}

}  // namespace

void Contents::find_ends(const Node& node, uint32_t from, std::span<uint8_t> ends) const noexcept {
  std::fill(ends.begin(), ends.end(), uint8_t{1});
  for (size_t g = 0; g < groups.size(); g++) {
    if (!windows.has(g)) continue;
    const uint32_t window = windows.window(g), sinks = windows.sinks(g),
                   last = from + static_cast<uint32_t>(ends.size()),
                   missing =
                       sinks == 0 ? 0 : first_missing_sink(node, last, g, groups.size(), sinks);
    uint32_t run = run_before(node, from, g, groups.size(), window);
    for (uint32_t i = from; i < last; i++) {
      const bool there = node.blocks[size_t{i} * groups.size() + g] != memory::no_block;
      run = there ? std::min(run + 1, window) : 0;
      if (run < window || (missing < sinks && node.start + i >= missing)) ends[i - from] = 0;
    }
  }
}

void Contents::record(pkv_prefix_event_kind kind, const Node& node, uint32_t inside) noexcept {
  events.add(kind, uint64_t{node.start + inside} * block_size(), node.hashes[inside].event,
             (inside > 0 ? node.hashes[inside - 1] : hash_before(node)).event);
}

void Contents::record_changes(Node& node, uint32_t from, uint32_t last,
                              pkv_prefix_event_kind lost) noexcept {
  if (!events.kept()) return;
  uint64_t to = uint64_t{last} + 1;
  for (size_t g = 0; g < groups.size(); g++) {
    if (!windows.has(g)) continue;
    to = std::max(to, uint64_t{last} + windows.window(g));
    if (node.start + from < windows.sinks(g)) to = ~uint64_t{0};  // whatever follows needs it
  }
  // A path may be as long as a text, so this is no recursion.
  Node* each = &node;
  const uint64_t end = to == ~uint64_t{0} ? to : node.start + to;
  record_range(node, from, end, lost);
  for (;;) {
    if (each->end() < end && !each->children.empty()) {
      each = *each->children.begin();
    } else {
      const auto next_of = [](Node& child) {
        return std::next(child.parent->children.find(&child));
      };
      while (each != &node && next_of(*each) == each->parent->children.end()) each = each->parent;
      if (each == &node) return;
      each = *next_of(*each);
    }
    record_range(*each, 0, end, lost);
  }
}

// Looks at the positions of a node from block number `from` of it on and before `end`, which is
// counted from the beginning of the text.
void Contents::record_range(Node& node, uint32_t from, uint64_t end,
                            pkv_prefix_event_kind lost) noexcept {
  constexpr uint32_t max_batch = 256;
  uint8_t ends[max_batch];
  const auto to = static_cast<uint32_t>(std::min<uint64_t>(end, node.end()) - node.start);
  for (uint32_t first = from; first < to; first += max_batch) {
    const uint32_t count = std::min(max_batch, to - first);
    find_ends(node, first, std::span(ends, count));
    for (uint32_t i = 0; i < count; i++) {
      uint8_t& announced = node.announced[first + i];
      if (announced != ends[i]) record(ends[i] != 0 ? PKV_PREFIX_STORED : lost, node, first + i);
      announced = ends[i];
    }
  }
}

// A position goes before the one that it follows.
void Contents::record_removed(pkv_prefix_event_kind kind, const Node& node,
                              uint32_t from) noexcept {
  if (!events.kept()) return;
  for (uint32_t i = node.size; i-- > from;)
    if (node.announced[i] != 0) record(kind, node, i);
}

}  // namespace pkv::prefix
