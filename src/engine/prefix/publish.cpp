// How blocks come into the index and how they leave it.
#include <algorithm>
#include <utility>

#include "engine/prefix/hash.h"
#include "engine/prefix/index.h"

namespace pkv::prefix {

// ---- Publishing ---------------------------------------------------------------------------------

void Index::publish(Hold& hold, Tokens text, std::span<memory::Sequence> sequences,
                    bool wait) noexcept {
  std::unique_lock lock(mutex_, std::defer_lock);
  if (wait)
    lock.lock();
  else if (!lock.try_lock())
    return;
  try {
    reserve_node(*hold.space_);
    const size_t whole = text.size() / tree_.block_size();
    while (hold.depth_ < whole) {
      const Tokens rest = text.subspan(size_t{hold.depth_} * tree_.block_size(),
                                       (whole - hold.depth_) * tree_.block_size());
      const Tree::Match found = tree_.find(*hold.node_, rest);
      if (found.whole > 0) {
        take_over(hold, split(*found.node, found.inside), sequences);
      } else {
        const uint64_t room = room_in_quota(*hold.space_, whole - hold.depth_);
        if (room == 0) return;
        store(hold, rest.first(room * tree_.block_size()), sequences);
      }
    }
  } catch (const std::bad_alloc&) {
    // What is missing is tried again when more is published.
  }
}

// Another session has cached the same text: one copy is enough, and the older one stays.
void Index::take_over(Hold& hold, Node& end, std::span<memory::Sequence> sequences) noexcept {
  const uint32_t from = hold.depth_;
  move(hold, end);
  for (Node* node = &end; node->end() > from; node = node->parent) {
    for (uint32_t i = 0; i < node->size; i++) {
      const std::span<memory::Block> cached = tree_.blocks_at(*node, i);
      for (size_t g = 0; g < cached.size(); g++) {
        const memory::Block own = sequences[g].blocks()[node->start + i];
        if (own == cached[g] || own == memory::no_block) continue;
        if (cached[g] == memory::no_block) {
          if (groups_[g]->pool.retain(own) == PKV_OK)
            cached[g] = own;  // a window that the index had let go
        } else if (groups_[g]->pool.retain(cached[g]) == PKV_OK) {
          sequences[g].replace(node->start + i, cached[g]);
        }
      }
    }
  }
  let_windows_go(end);
}

void Index::store(Hold& hold, Tokens text, std::span<memory::Sequence> sequences) {
  const size_t count = text.size() / tree_.block_size();
  hashes_.resize(count);
  histories_.assign(count, {});
  hash_blocks(text, hold.node_->parent != nullptr ? hold.node_->hashes.back() : hold.space_->hash,
              hashes_);
  policy_->inserted(hashes_, histories_);
  const std::span<const History> histories = histories_;
  for (size_t first = 0, last = 0; first < count; first = last) {
    const auto differs = [&](const History& history) { return history != histories[first]; };
    last = static_cast<size_t>(std::find_if(histories.begin() + static_cast<std::ptrdiff_t>(first),
                                            histories.end(), differs) -
                               histories.begin());
    reserve_node(*hold.space_);
    store_run(hold,
              {text.subspan(first * tree_.block_size(), (last - first) * tree_.block_size()),
               {},
               std::span(hashes_).subspan(first, last - first),
               histories[first]},
              sequences);
  }
}

// Blocks of one history.
void Index::store_run(Hold& hold, Tree::Run run, std::span<memory::Sequence> sequences) {
  const size_t groups = groups_.size(), from = hold.depth_;
  blocks_.assign(run.hashes.size() * groups, memory::no_block);
  run.blocks = blocks_;
  Node& node = *hold.node_;
  const uint32_t before = static_cast<uint32_t>(from);
  try {
    for (size_t i = 0; i < blocks_.size(); i++) {
      const memory::Block block = sequences[i % groups].blocks()[from + i / groups];
      if (block == memory::no_block) continue;
      if (groups_[i % groups]->pool.retain(block) != PKV_OK)
        throw std::bad_alloc();  // a reference too many: not now
      blocks_[i] = block;
    }
    // A node of our own that nobody else ever used grows; others get a child.
    if (node.parent != nullptr && node.children.empty() && node.users == 1 && node.matches == 0 &&
        node.history == run.history) {
      tree_.extend(node, run);
      hold.depth_ = node.end();
    } else {
      Node& child = tree_.add_child(node, run);
      count_node(*hold.space_);
      child.users = 1;  // the hold moves down to it: the path above stays in use
      hold.node_ = &child;
      hold.depth_ = child.end();
    }
  } catch (...) {
    for (size_t i = 0; i < blocks_.size(); i++)
      if (blocks_[i] != memory::no_block) groups_[i % groups]->pool.release(blocks_[i]);
    throw;
  }
  Figures& figures = hold.space_->figures;
  figures.published += run.hashes.size();
  figures.cached += run.hashes.size();
  tell(PKV_PREFIX_STORED, *hold.node_, before - hold.node_->start);
  let_windows_go(*hold.node_);
}

// Of a window group only the last window before a node's end, and the sinks, can be of use.
void Index::let_windows_go(Node& node) noexcept {
  for (size_t g = 0; g < groups_.size(); g++) {
    const memory::Shape& shape = groups_[g]->shape;
    if (shape.window == 0) continue;
    const uint64_t window = groups_[g]->blocks_for(shape.window),
                   sinks = groups_[g]->blocks_for(shape.sinks);
    for (uint64_t i = node.end() - std::min<uint64_t>(node.end(), window);
         i > std::max<uint64_t>(node.start, sinks); i--) {
      memory::Block& block = node.blocks[(i - 1 - node.start) * groups_.size() + g];
      if (block == memory::no_block) break;
      const memory::Block let_go = std::exchange(block, memory::no_block);
      release(g, std::span(&let_go, 1));
    }
  }
}

// ---- Eviction -----------------------------------------------------------------------------------

// What a victim loses before the next one is chosen: a new choice for each block would be slow, and
// one for all of a long text rash.
constexpr uint32_t tokens_per_choice = 512;
static_assert(tokens_per_choice >= memory::max_block_size);

bool Index::make_free(size_t group, uint64_t blocks) noexcept {
  const std::lock_guard lock(mutex_);
  review_unclaimed();
  const memory::Pool& pool = groups_[group]->pool;
  if (pool.free_count() + evictable_[group] < blocks) return false;
  while (pool.free_count() < blocks) {
    Node* const victim = policy_->victim();
    if (victim == nullptr) return false;
    evict(*victim, blocks - pool.free_count(), PKV_PREFIX_EVICTED);
  }
  return true;
}

// How many of the blocks wanted fit into a salt's quota, once it has lost its own that nobody uses,
// those used longest ago first.
uint64_t Index::room_in_quota(Space& space, uint64_t wanted) noexcept {
  if (space.quota == 0) return wanted;
  const uint64_t& cached = space.figures.cached;
  while (cached + wanted > space.quota) {
    Node* const victim = space.own.first();
    if (victim == nullptr) break;
    evict(*victim, cached + wanted - space.quota, PKV_PREFIX_EXPELLED);
  }
  return std::min(wanted, space.quota - std::min(space.quota, cached));
}

// Some of the last blocks of a candidate.
void Index::evict(Node& victim, uint64_t most, pkv_prefix_event_kind why) noexcept {
  const uint32_t count = static_cast<uint32_t>(
      std::min<uint64_t>({victim.size, tokens_per_choice / tree_.block_size(), most}));
  policy_->evicted(victim, count);
  drop_last(victim, count, why);
}

// Of a candidate.
void Index::drop_last(Node& node, uint32_t count, pkv_prefix_event_kind why) noexcept {
  tell(why, node, node.size - count);
  release_last(node, count);
  Space& space = space_of(node);
  Figures& figures = space.figures;
  (why == PKV_PREFIX_EVICTED    ? figures.evicted
   : why == PKV_PREFIX_EXPELLED ? figures.expelled
                                : figures.cleared) += count;
  figures.cached -= count;
  figures.evictable -= count;
  if (node.size == count) withdraw(node), nodes_--, space.nodes--;
  Node& left = tree_.drop_last(node, count);
  if (&left == &node) return;
  if (left.is_candidate()) offer(left);
  if (left.parent == nullptr) drop_if_empty(space);
}

// Events of the blocks of a node from one inside it on; a block comes after and goes before the one
// that it follows.
void Index::tell(pkv_prefix_event_kind kind, const Node& node, uint32_t from) noexcept {
  if (!events_.kept()) return;
  const uint64_t above = node.parent->parent != nullptr
                             ? node.parent->hashes.back()
                             : static_cast<const Space*>(node.owner)->hash;
  for (uint32_t k = from; k < node.size; k++) {
    const uint32_t i = kind == PKV_PREFIX_STORED ? k : node.size - 1 - (k - from);
    events_.add(kind, uint64_t{node.start + i} * tree_.block_size(), node.hashes[i],
                i > 0 ? node.hashes[i - 1] : above);
  }
}

// Many at once: a pool gives back neighbours together.
void Index::release_last(const Node& node, uint32_t count) noexcept {
  constexpr size_t most = 128;
  memory::Block batch[most];
  for (size_t g = 0; g < groups_.size(); g++) {
    size_t n = 0;
    for (uint32_t i = node.size - count; i < node.size; i++) {
      const memory::Block block = node.blocks[i * groups_.size() + g];
      if (block != memory::no_block) batch[n++] = block;
      if (n < most && i + 1 < node.size) continue;
      release(g, std::span(batch, n));
      evictable_[g] -= n;
      n = 0;
    }
  }
}

uint64_t Index::evictable(size_t group) {
  const std::lock_guard lock(mutex_);
  review_unclaimed();
  return evictable_[group];
}

std::vector<std::vector<bool>> Index::held_with(const Hold& hold,
                                                std::span<const memory::Sequence> sequences) const {
  const std::lock_guard lock(mutex_);
  std::vector<std::vector<bool>> held;
  for (size_t g = 0; g < groups_.size(); g++) {
    Path cached(&memory_);
    if (hold.index_ != nullptr) read_path(*hold.node_, g, cached);
    held.emplace_back(sequences[g].blocks().size());
    for (size_t i = 0; i < cached.size() && i < held[g].size(); i++)
      held[g][i] = cached[i] == sequences[g].blocks()[i];
  }
  return held;
}

void Index::clear(const std::string_view* salt) noexcept {
  const std::lock_guard lock(mutex_);
  review_unclaimed();
  if (salt == nullptr) {
    while (Node* const victim = policy_->victim())
      drop_last(*victim, victim->size, PKV_PREFIX_CLEARED);
    return;
  }
  const auto found = spaces_.find(*salt);
  if (found == spaces_.end()) return;
  const void* const owner = &found->second;
  for (bool again = true; again;) {  // parents become candidates when their children are gone
    again = false;
    for (size_t retention = 0; retention < Policy::retentions; retention++) {
      for (size_t i = policy_->candidates()[retention].size(); i-- > 0;) {
        const std::span<Node* const> candidates = policy_->candidates()[retention];
        if (i >= candidates.size() || candidates[i]->owner != owner) continue;
        drop_last(*candidates[i], candidates[i]->size, PKV_PREFIX_CLEARED);
        again = true;
      }
    }
  }
}

}  // namespace pkv::prefix
