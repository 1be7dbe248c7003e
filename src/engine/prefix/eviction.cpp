#include "engine/prefix/eviction.h"

#include <algorithm>
#include <new>
#include <utility>

namespace pkv::prefix {

namespace {

// How many tokens a victim loses before the next one is chosen. A new choice for each block would
// be slow, and one choice for all of a long text would be rash.
constexpr uint32_t tokens_per_choice = 512;
static_assert(tokens_per_choice >= memory::max_block_size);

Count Figures::* count_of(pkv_prefix_event_kind why) {
  return why == PKV_PREFIX_EVENT_EVICTED    ? &Figures::evicted
         : why == PKV_PREFIX_EVENT_EXPELLED ? &Figures::expelled
                                            : &Figures::cleared;
}

}  // namespace

bool Eviction::evict_until_free(std::span<const uint64_t> wanted) noexcept {
  for (size_t g = 0; g < wanted.size(); g++)
    if (!has(g, wanted[g])) return false;
  for (size_t g = 0; g < wanted.size(); g++)
    if (!evict_until_free(g, wanted[g])) return false;
  return true;
}

// Returns whether enough blocks of a group are free or evictable.
bool Eviction::has(size_t group, uint64_t wanted) noexcept {
  const memory::Pool& pool = data_.groups[group]->pool;
  if (pool.free_count() >= wanted) return true;
  uses_.review(group);
  return pool.free_count() + data_.blocks.evictable(group) >= wanted;
}

bool Eviction::evict_until_free(size_t group, uint64_t wanted) noexcept {
  const memory::Pool& pool = data_.groups[group]->pool;
  // Other threads release blocks meanwhile, so the count is read once.
  for (uint64_t free; (free = pool.free_count()) < wanted;) {
    if (evict_sparse_block(group, CachedBlocks::inner)) continue;
    if (Node* const victim = data_.policy->victim())
      evict(*victim, wanted - free, PKV_PREFIX_EVENT_EVICTED);
    else if (!evict_sparse_block(group, CachedBlocks::edge))
      return false;
  }
  return true;
}

bool Eviction::evict_for_pages(memory::Pages& pages, std::span<const uint64_t> wanted) noexcept {
  uses_.review();
  if (!pages.suffice(wanted)) return false;
  while (!pages.provide(wanted))
    if (!evict_some()) return false;
  return true;
}

// Evicts the next blocks in eviction order, of any group. Takes enough at once to make the
// following search for free pages cheap in comparison. Returns false if nothing is left.
bool Eviction::evict_some() noexcept {
  if (evict_sparse_blocks(CachedBlocks::inner)) return true;
  if (Node* const victim = data_.policy->victim())
    return evict(*victim, victim->size, PKV_PREFIX_EVENT_EVICTED), true;
  return evict_sparse_blocks(CachedBlocks::edge);
}

bool Eviction::evict_sparse_blocks(CachedBlocks::List list) noexcept {
  bool evicted = false;
  for (size_t g = 0; g < data_.groups.size(); g++)
    for (uint32_t tokens = 0; tokens < tokens_per_choice; tokens += data_.block_size()) {
      if (!evict_sparse_block(g, list)) break;
      evicted = true;
    }
  return evicted;
}

// Takes the next block of a sparse group to evict. Its position stays cached in other groups.
bool Eviction::evict_sparse_block(size_t group, CachedBlocks::List list) noexcept {
  const auto place = data_.blocks.first(group, list);
  if (!place) return false;
  evict_sparse_block(group, *place);
  return true;
}

void Eviction::evict_sparse_block(size_t group, CachedBlocks::Place place) noexcept {
  Node& node = *place.node;
  const uint32_t inside = place.position - node.start;
  const memory::Block evicted =
      std::exchange(node.blocks_at(place.position)[group], memory::no_block);
  data_.release(group, std::span(&evicted, 1));
  data_.record_changes(node, inside, inside, PKV_PREFIX_EVENT_EVICTED);
}

void Eviction::let_go(size_t group, uint32_t id) noexcept {
  if (!data_.blocks.has_unpinned(group, id)) return;
  const CachedBlocks::Place place = data_.blocks.place_of(group, id);
  if (data_.blocks.sparse(group)) return evict_sparse_block(group, place);
  if (place.node->users != 0) return;
  Tree::for_each_below(*place.node,
                       [&](Node& node) { drop_last(node, node.size, PKV_PREFIX_EVENT_EVICTED); });
  drop_last(*place.node, place.node->end() - place.position, PKV_PREFIX_EVENT_EVICTED);
}

uint64_t Eviction::make_room_in_quota(Space& space, uint64_t wanted) noexcept {
  if (space.quota == 0) return wanted;
  const Count& cached = space.figures.cached;
  while (cached + wanted > space.quota) {
    Node* const victim = space.candidates.victim();
    if (victim == nullptr) break;
    evict(*victim, cached + wanted - space.quota, PKV_PREFIX_EVENT_EXPELLED);
  }
  return std::min(wanted, space.quota - std::min<uint64_t>(space.quota, cached));
}

bool Eviction::may_have_room_in_quota(Space& space) const noexcept {
  return space.quota == 0 || space.figures.cached < space.quota ||
         space.candidates.victim() != nullptr;
}

void Eviction::set_quota(std::string_view salt, std::optional<uint64_t> blocks) {
  Space& space = data_.spaces.at(salt);
  const uint64_t quota = blocks.value_or(data_.spaces.default_quota());
  if (quota != 0 && space.quota == 0) {
    try {
      space.candidates.reserve(space.nodes + 1);
    } catch (...) {
      data_.spaces.drop_if_empty(space);
      throw;
    }
    Tree::for_each_below(space.root, [&](Node& node) {
      if (node.is_candidate()) space.candidates.add(node);
    });
  } else if (quota == 0) {
    space.candidates.clear();
  }
  space.quota = quota;
  space.has_own_quota = blocks.has_value();
  make_room_in_quota(space, 0);
  data_.spaces.drop_if_empty(space);
}

void Eviction::clear() noexcept {
  auto& all = data_.spaces.all();
  for (auto entry = all.begin(); entry != all.end();) clear((entry++)->second);
}

// Children go before their parents, which they would keep.
void Eviction::clear(Space& space) noexcept {
  space.root.users++;  // so that the space is not dropped with its last block
  Tree::for_each_below(space.root, [&](Node& node) {
    if (node.users == 0 && node.children.empty())
      drop_last(node, node.size, PKV_PREFIX_EVENT_CLEARED);
  });
  space.root.users--;
  data_.spaces.drop_if_empty(space);
}

void Eviction::withdraw(Node& node, const Node& above) noexcept {
  for (Node* each = &node; each != &above;) {
    Node* const parent = each->parent;
    if (!each->is_candidate()) return;
    drop_last(*each, each->size, PKV_PREFIX_EVENT_CLEARED);
    each = parent;
  }
}

// Splits nodes first, so that it drops whole ones. Throws bad_alloc; then nothing has changed.
std::pair<uint32_t, uint32_t> Eviction::drop(Space& space, Tokens text, uint32_t first) {
  const Tree::Found found = data_.tree.find(space.root, text);
  const uint32_t before = found.whole;
  Node* node = &uses_.end_after(found, before);
  if (first < before) uses_.end_after({node, node->size, before}, first);
  space.root.users++;  // so that the space is not dropped with its last block
  uint32_t end = before;
  while (end > first && node->is_candidate()) {
    Node* const parent = node->parent;
    end = node->start;
    drop_last(*node, node->size, PKV_PREFIX_EVENT_CLEARED);
    node = parent;
  }
  space.root.users--;
  data_.spaces.drop_if_empty(space);
  return {before, end};
}

// Takes some of the last blocks from a candidate.
void Eviction::evict(Node& victim, uint64_t max_blocks, pkv_prefix_event_kind why) noexcept {
  drop_last(victim,
            static_cast<uint32_t>(std::min<uint64_t>(
                {victim.size, tokens_per_choice / data_.block_size(), max_blocks})),
            why);
}

// Takes the last `count` blocks from a candidate; a node that loses all of them is deleted. CLEARED
// removes whole nodes, and does not train the policy.
void Eviction::drop_last(Node& node, uint32_t count, pkv_prefix_event_kind why) noexcept {
  if (why != PKV_PREFIX_EVENT_CLEARED) data_.policy->evicted(node, count);
  data_.record_removed(why, node, node.size - count);
  data_.images.shorten(node, count);
  Space& space = space_of(node);
  const uint32_t shared = node.shared;
  release_last(node, count);
  const uint32_t evictable = count - (shared - node.shared);
  data_.spaces.count(space, count_of(why), count);
  data_.spaces.count(space, &Figures::cached, uint64_t{0} - count);
  data_.spaces.count(space, &Figures::evictable, uint64_t{0} - evictable);
  if (node.size == count) {
    data_.end_retention(node);
    data_.remove_candidate(node);
    data_.nodes--;
    space.nodes--;
  }
  Node& left = data_.tree.drop_last(node, count);
  if (&left == &node) return;
  if (left.is_candidate()) data_.add_candidate(left);
  if (left.parent == nullptr) data_.spaces.drop_if_empty(space);
}

// Releases many blocks at once, because a pool takes neighbours back together.
void Eviction::release_last(const Node& node, uint32_t count) noexcept {
  constexpr size_t max_batch = 128;
  memory::Block batch[max_batch];
  for (size_t g = 0; g < data_.groups.size(); g++) {
    size_t n = 0;
    for (uint32_t position = node.end() - count; position < node.end(); position++) {
      const memory::Block block = node.blocks_at(position)[g];
      if (block != memory::no_block) batch[n++] = block;
      if (n < max_batch && position + 1 < node.end()) continue;
      data_.release(g, std::span(batch, n));
      n = 0;
    }
  }
}

}  // namespace pkv::prefix
