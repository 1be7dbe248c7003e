#include "engine/prefix/index_data.h"

#include <algorithm>

#include "base/os.h"
#include "engine/prefix/learned_policy.h"

namespace pkv::prefix {

namespace {

std::unique_ptr<Policy> make_policy(const IndexOptions& options, uint64_t capacity,
                                    std::pmr::memory_resource& memory) {
  if (options.eviction == PKV_EVICTION_LRU) return std::make_unique<NodeHeap>(&Node::place, memory);
  return std::make_unique<LearnedPolicy>(
      capacity, options.weight_per_token * static_cast<double>(options.block_size), memory);
}

}  // namespace

IndexData::IndexData(const IndexOptions& options,
                     std::span<const std::unique_ptr<memory::Group>> all_groups,
                     HookMemory& hook_memory)
    : memory(hook_memory),
      groups(all_groups),
      tree(options.block_size, static_cast<uint32_t>(groups.size()), memory),
      policy(make_policy(options, memory::largest_pool(groups), memory)),
      hasher(os::random_number(), options.max_events > 0),
      spaces(tree, hasher, options.quota, memory),
      events(options.max_events, os::random_number(), memory),
      blocks(groups, memory),
      time(options.clock),
      retained(&memory),
      pins(&memory) {}

void IndexData::add_candidate(Node& node) noexcept {
  policy->add(node);
  if (space_of(node).quota != 0) space_of(node).candidates.add(node);
}

void IndexData::remove_candidate(Node& node) noexcept {
  policy->remove(node);
  if (node.parent != nullptr) space_of(node).candidates.remove(node);
}

// The policies order candidates by their retention.
void IndexData::change_retention(Node& node, uint8_t retention) noexcept {
  if (node.retention == retention) return;
  const bool candidate = node.place != Node::no_place;
  if (candidate) remove_candidate(node);
  node.retention = retention;
  if (candidate) add_candidate(node);
}

void IndexData::retain_until(Node& node, uint8_t retention, uint64_t until) {
  if (retention <= node.base) return;
  if (node.retained_until == 0) {
    retained.emplace(until, &node);
  } else {
    retention = std::max(retention, node.retention);
    until = std::max(until, node.retained_until);
    auto entry = retained.extract({node.retained_until, &node});
    entry.value().first = until;
    retained.insert(std::move(entry));
  }
  node.retained_until = until;
  change_retention(node, retention);
}

void IndexData::end_retention(Node& node) noexcept {
  if (node.retained_until == 0) return;
  retained.erase({std::exchange(node.retained_until, 0), &node});
  change_retention(node, node.base);
}

void IndexData::release(size_t group, std::span<const memory::Block> released) noexcept {
  removals++;
  images.mark_gone(group, released);
  for (const memory::Block block : released) blocks.remove(group, block);
  groups[group]->pool.release_held(released);
}

void IndexData::find_ends(const Node& node, uint32_t from, std::span<uint8_t> ends) const noexcept {
  std::fill(ends.begin(), ends.end(), uint8_t{1});
  for (size_t g = 0; g < groups.size(); g++) {
    if (!blocks.sparse(g)) continue;
    const Node* each = &node;
    const auto present = [&](uint64_t position) {
      if (position >= each->end()) each = &node;
      while (position < each->start) each = each->parent;
      return each->blocks_at(position)[g] != memory::no_block;
    };
    memory::UsableEnds usable(blocks.coverage(g), uint64_t{node.start} + from, present);
    for (uint8_t& end : ends) {
      const size_t inside = from + static_cast<size_t>(&end - ends.data());
      if (!usable.next(present(node.start + inside))) end = 0;
    }
  }
}

void IndexData::record(pkv_prefix_event_kind kind, const Node& node, uint32_t inside) noexcept {
  events.add(kind, uint64_t{node.start + inside} * block_size(), node.hashes[inside].event,
             (inside > 0 ? node.hashes[inside - 1] : hash_before(node)).event);
}

void IndexData::record_changes(Node& node, uint32_t from, uint32_t last,
                               pkv_prefix_event_kind lost) noexcept {
  if (!events.kept()) return;
  uint64_t to = uint64_t{last} + 1;
  for (size_t g = 0; g < groups.size(); g++) {
    if (!blocks.sparse(g)) continue;
    const memory::Coverage coverage = blocks.coverage(g);
    to = std::max(to, last + coverage.window);
    if (node.start + from < coverage.sinks) to = ~uint64_t{0};  // whatever follows needs it
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
void IndexData::record_range(Node& node, uint32_t from, uint64_t end,
                             pkv_prefix_event_kind lost) noexcept {
  constexpr uint32_t max_batch = 256;
  uint8_t ends[max_batch];
  const auto to = static_cast<uint32_t>(std::min<uint64_t>(end, node.end()) - node.start);
  for (uint32_t first = from; first < to; first += max_batch) {
    const uint32_t count = std::min(max_batch, to - first);
    find_ends(node, first, std::span(ends, count));
    for (uint32_t i = 0; i < count; i++) {
      uint8_t& announced = node.announced[first + i];
      if (announced != ends[i])
        record(ends[i] != 0 ? PKV_PREFIX_EVENT_PUBLISHED : lost, node, first + i);
      announced = ends[i];
    }
  }
}

// A position goes before the one that it follows.
void IndexData::record_removed(pkv_prefix_event_kind kind, const Node& node,
                               uint32_t from) noexcept {
  if (!events.kept()) return;
  for (uint32_t i = node.size; i-- > from;)
    if (node.announced[i] != 0) record(kind, node, i);
}

}  // namespace pkv::prefix
