#include "engine/prefix/index.h"

#include <algorithm>
#include <utility>

#include "base/checked.h"
#include "base/status.h"
#include "base/vectors.h"
#include "engine/prefix/hash.h"

namespace pkv::prefix {

Index::Index(const pkv_prefix_config& config, uint32_t block_size,
             std::span<const std::unique_ptr<memory::Group>> groups, HookMemory& memory)
    : groups_(groups),
      memory_(memory),
      tree_(block_size, static_cast<uint32_t>(groups.size()), memory),
      policy_(Policy::make(config.eviction, memory::largest_pool(groups), memory)),
      spaces_(&memory),
      most_pinned_(config.pinned_blocks != 0 ? config.pinned_blocks
                                             : memory::largest_pool(groups) / 4),
      quota_(config.salt_blocks),
      events_(config.events, memory),
      evictable_(groups.size()),
      unclaimed_(&memory),
      paths_(groups.size(), &memory),
      blocks_(&memory),
      hashes_(&memory),
      histories_(&memory) {}

Index::~Index() = default;  // the pools go with it: nobody is left who could ask for its blocks

// ---- Holds --------------------------------------------------------------------------------------

Index::Hold::Hold(Index& index, std::string_view salt, uint8_t retention) : retention_(retention) {
  const std::lock_guard lock(index.mutex_);
  space_ = &index.space(salt);
  node_ = &space_->root;
  index.attach(*node_);
  index_ = &index;
}

Index::Hold::~Hold() {
  if (index_ == nullptr) return;
  const std::lock_guard lock(index_->mutex_);
  index_->give_up(*this, space_->root);
  index_->detach(*node_, true);
  index_->drop_if_empty(*space_);
}

Index::Hold Index::Hold::copy() const {
  Hold other;
  if (index_ == nullptr) return other;
  const std::lock_guard lock(index_->mutex_);
  index_->attach(*node_);
  other.index_ = index_;
  other.space_ = space_;
  other.node_ = node_;
  other.depth_ = depth_;
  other.retention_ = retention_;
  return other;
}

std::string Index::Hold::salt() const {
  if (index_ == nullptr) return {};
  const std::lock_guard lock(index_->mutex_);
  const auto& spaces = index_->spaces_;
  return std::string(std::find_if(spaces.begin(), spaces.end(), [&](const auto& each) {
                       return &each.second == space_;
                     })->first);
}

void Index::Hold::swap(Hold& other) noexcept {
  std::swap(index_, other.index_);
  std::swap(space_, other.space_);
  std::swap(node_, other.node_);
  std::swap(depth_, other.depth_);
  std::swap(retention_, other.retention_);
}

void Index::Hold::retreat(uint32_t blocks) noexcept {
  if (index_ == nullptr || blocks >= depth_) return;
  const std::lock_guard lock(index_->mutex_);
  Node* node = node_;
  while (node->start > blocks) node = node->parent;
  if (node->end() > blocks) {
    try {
      node = blocks == node->start ? node->parent : &index_->split(*node, blocks - node->start);
    } catch (const std::bad_alloc&) {
      node = node->parent;
    }
  }
  index_->give_up(*this, *node);
}

// A use of the path beyond `end` is over.
void Index::give_up(Hold& hold, Node& end) noexcept {
  const uint32_t blocks = hold.depth_ - end.end();
  if (blocks == 0) return;
  policy_->used(*hold.node_, end.end(), clock_);
  for (Node* node = hold.node_; node != &end; node = node->parent)
    node->retention = std::max(node->retention, hold.retention_);
  move(hold, end);
  clock_ += blocks;
}

// The path to a node is in use once more. Attached before detached, so that what both have in
// common stays in use.
void Index::attach(Node& node) noexcept {
  for (Node* each = &node; each != nullptr; each = each->parent) {
    if (each->users++ > 0) continue;
    withdraw(*each);
    count_evictable(*each, false);
  }
}

// A claim ends. Where it is the last one, but not the last reference, the index keeps it.
void Index::detach(Node& node, bool used) noexcept {
  bool kept = false;
  for (Node* each = &node; each != nullptr; each = each->parent) {
    if (used) each->last_use = clock_;  // until now it was in use
    if (kept || --each->users > 0) continue;
    if (const uint32_t read = count_read(*each); read > 0) {
      kept = true;
      if (&keep(*each, read) == each) continue;
    }
    count_evictable(*each, true);
    if (each->is_candidate()) offer(*each);
  }
}

// How many blocks of a node there are up to the last one that somebody else refers to.
uint32_t Index::count_read(const Node& node) const noexcept {
  for (size_t i = node.blocks.size(); i-- > 0;) {
    const memory::Pool& pool = groups_[i % groups_.size()]->pool;
    if (node.blocks[i] != memory::no_block &&
        pool.references(memory::block_id(node.blocks[i])) != 1)
      return static_cast<uint32_t>(i / groups_.size()) + 1;
  }
  return 0;
}

// The index claims the first blocks of a node that has no claim: as a node of their own, or without
// the memory for that, the whole node.
Node& Index::keep(Node& node, uint32_t blocks) noexcept {
  Node* kept = &node;
  try {
    kept = &split(node, blocks);
  } catch (const std::bad_alloc&) {
  }
  kept->users = 1;
  unclaimed_.push_back(kept);
  return *kept;
}

// What nobody else refers to any more becomes evictable.
void Index::review_unclaimed() noexcept {
  for (size_t i = unclaimed_.size(); i-- > 0;) {
    Node& node = *unclaimed_[i];
    if (node.users == 1 && count_read(node) == node.size) continue;
    unclaimed_[i] = unclaimed_.back();
    unclaimed_.pop_back();
    detach(node, false);
  }
}

// A node becomes a candidate for eviction, or is one no longer.
void Index::offer(Node& node) noexcept {
  policy_->add(node);
  if (space_of(node).quota != 0) space_of(node).own.add(node);
}

void Index::withdraw(Node& node) noexcept {
  policy_->remove(node);
  if (node.parent != nullptr) space_of(node).own.remove(node);
}

void Index::move(Hold& hold, Node& node) noexcept {
  attach(node);
  detach(*std::exchange(hold.node_, &node), true);
  hold.depth_ = node.end();
}

// A node's blocks become evictable, or no longer are.
void Index::count_evictable(Node& node, bool evictable) noexcept {
  for (size_t g = 0; g < groups_.size(); g++) {
    uint64_t count = node.size;
    if (groups_[g]->shape.window != 0) {
      count = 0;
      for (size_t i = g; i < node.blocks.size(); i += groups_.size())
        count += node.blocks[i] != memory::no_block;
    }
    evictable_[g] += evictable ? count : uint64_t{0} - count;
  }
  Figures& figures = space_of(node).figures;
  figures.evictable += evictable ? node.size : uint64_t{0} - node.size;
}

Index::Space& Index::space(std::string_view salt) {
  const auto found = spaces_.find(salt);
  if (found != spaces_.end()) return found->second;
  Node& root = tree_.new_root();
  try {
    NodeHeap own(used_longer_ago, &Node::own_place, memory_);
    Space& made = spaces_
                      .emplace(std::pmr::string(salt, &memory_),
                               Space{root, hash_salt(salt), std::move(own), quota_})
                      .first->second;
    root.owner = &made;
    return made;
  } catch (...) {
    tree_.drop_root(root);
    throw;
  }
}

// What is known of a salt ends with its last block and its last session, or salts that come once
// would add up.
void Index::drop_if_empty(Space& space) noexcept {
  if (space.root.users > 0 || !space.root.children.empty() || space.own_quota) return;
  const auto entry = std::find_if(spaces_.begin(), spaces_.end(),
                                  [&](const auto& each) { return &each.second == &space; });
  gone_.add(space.figures);
  tree_.drop_root(space.root);
  spaces_.erase(entry);
}

// So that one node more, if it becomes a candidate, cannot fail to be told to those who choose.
void Index::reserve_node(Space& space) {
  policy_->reserve(nodes_ + 1);
  if (unclaimed_.capacity() < nodes_ + 1) reserve_more(unclaimed_, nodes_ + 1 - unclaimed_.size());
  if (space.quota != 0) space.own.reserve(space.nodes + 1);
}

Node& Index::split(Node& node, uint32_t inside) {
  if (inside == node.size) return node;
  reserve_node(space_of(node));
  Node& upper = tree_.split(node, inside);
  count_node(space_of(upper));
  return upper;
}

// The node that ends after so many blocks of what was found.
Node& Index::end_after(const Tree::Match& found, uint32_t depth) {
  Node* end = found.node;
  while (end->start >= depth && end->parent != nullptr) end = end->parent;
  return depth > 0 ? split(*end, depth - end->start) : *end;
}

// ---- Matching -----------------------------------------------------------------------------------

void Index::read_path(const Node& end, size_t group, Path& path) const {
  path.resize(end.end());
  const size_t stride = groups_.size();
  for (const Node* node = &end; node->parent != nullptr; node = node->parent)
    for (uint32_t i = 0; i < node->size; i++)
      path[node->start + i] = node->blocks[i * stride + group];
}

// The longest beginning of paths_, no longer than `depth`, of which every window group has its last
// window and its sinks.
uint32_t Index::usable(uint32_t depth) const {
  for (size_t g = 0; g < groups_.size() && depth > 0; g++) {
    const memory::Shape& shape = groups_[g]->shape;
    if (shape.window == 0) continue;
    const uint32_t window = static_cast<uint32_t>(groups_[g]->blocks_for(shape.window)),
                   sinks = static_cast<uint32_t>(groups_[g]->blocks_for(shape.sinks));
    const auto has = [&](uint32_t end) {
      const auto held = [&](uint32_t first, uint32_t last) {
        return std::find(paths_[g].begin() + first, paths_[g].begin() + last, memory::no_block) ==
               paths_[g].begin() + last;
      };
      return held(end - std::min(end, window), end) && held(0, std::min(end, sinks));
    };
    const uint32_t before = depth;
    while (depth > 0 && !has(depth)) depth--;
    if (depth < before) return usable(depth);  // a group before this one may ask for less now
  }
  return depth;
}

uint32_t Index::match(Hold& hold, Tokens text, std::span<memory::Sequence> sequences, Tail* tail) {
  const std::lock_guard lock(mutex_);
  const Tree::Match found = tree_.find(hold.space_->root, text);
  const uint32_t depth = usable_of(found);
  Tail part;
  if (tail != nullptr && depth == found.whole) find_tail(found, part);  // before a split moves it
  Node& end = end_after(found, depth);
  for (size_t g = 0; g < groups_.size(); g++) {
    hide_before_window(paths_[g], g, depth);
    sequences[g].make_room(depth, 0);
  }
  retain_paths(depth);
  for (size_t g = 0; g < groups_.size(); g++)
    sequences[g].append(std::span(paths_[g]).first(depth));
  move(hold, end);
  for (Node* node = &end; node->parent != nullptr; node = node->parent) node->matches++;
  retain(part);
  if (tail != nullptr) *tail = std::move(part);
  return depth;
}

uint32_t Index::cached(std::string_view salt, Tokens text) {
  const std::lock_guard lock(mutex_);
  const auto known = spaces_.find(salt);
  return known != spaces_.end() ? usable_of(tree_.find(known->second.root, text)) : 0;
}

// Leaves the paths to the end of what was found in paths_.
uint32_t Index::usable_of(const Tree::Match& found) {
  for (size_t g = 0; g < groups_.size(); g++) read_path(*found.node, g, paths_[g]);
  return usable(found.whole);
}

void Index::count_matched(const Hold& hold, uint64_t asked, uint64_t matched) noexcept {
  const std::lock_guard lock(mutex_);
  Figures& figures = hold.space_->figures;
  figures.matches++;
  figures.asked_tokens += asked;
  figures.matched_tokens += matched;
  figures.matched_blocks += matched / tree_.block_size();
}

// A session that begins in the middle of a text has of a window group what the next token sees.
void Index::hide_before_window(Path& path, size_t group, uint32_t depth) const {
  const memory::Shape& shape = groups_[group]->shape;
  if (shape.window == 0) return;
  const auto window = std::min<uint64_t>(depth, groups_[group]->blocks_for(shape.window)),
             sinks = groups_[group]->blocks_for(shape.sinks);
  for (uint64_t i = sinks; i < depth - window; i++) path[i] = memory::no_block;
}

void Index::retain_paths(uint32_t depth) const {
  for (size_t g = 0; g < paths_.size(); g++) {
    for (uint32_t i = 0; i < depth; i++) {
      if (paths_[g][i] == memory::no_block || groups_[g]->pool.retain(paths_[g][i]) == PKV_OK)
        continue;
      const uint32_t id = memory::block_id(paths_[g][i]);
      for (size_t done = 0; done <= g; done++)
        for (uint32_t k = 0; k < (done < g ? depth : i); k++)
          if (paths_[done][k] != memory::no_block) groups_[done]->pool.release(paths_[done][k]);
      fail(PKV_REF_LIMIT, "block %u has %u references, which is the limit", id,
           groups_[g]->pool.references(id));
    }
  }
}

// The block of which a match goes on in part.
void Index::find_tail(const Tree::Match& found, Tail& tail) const {
  if (found.common == 0) return;
  const uint32_t inside = found.next == found.node ? found.inside : 0;
  const auto blocks =
      std::span(found.next->blocks).subspan(size_t{inside} * groups_.size(), groups_.size());
  if (std::find(blocks.begin(), blocks.end(), memory::no_block) != blocks.end()) return;
  tail.blocks.assign(blocks.begin(), blocks.end());
  tail.tokens = found.common;
  tail.node = found.next;
}

// So that it lives until it is copied. A split since it was found has left its node begin with it.
void Index::retain(Tail& tail) noexcept {
  for (size_t g = 0; g < tail.blocks.size(); g++) {
    if (groups_[g]->pool.retain(tail.blocks[g]) == PKV_OK) continue;
    while (g-- > 0) groups_[g]->pool.release(tail.blocks[g]);
    tail = {};
    return;
  }
  if (tail.node != nullptr) attach(*tail.node);
}

void Index::release(Tail& tail) noexcept {
  const std::lock_guard lock(mutex_);
  for (size_t g = 0; g < tail.blocks.size(); g++) groups_[g]->pool.release(tail.blocks[g]);
  detach(*tail.node, false);
  tail = {};
}

// ---- Figures ------------------------------------------------------------------------------------

void Figures::add(const Figures& more) {
  matches += more.matches;
  asked_tokens += more.asked_tokens;
  matched_tokens += more.matched_tokens;
  matched_blocks += more.matched_blocks;
  published += more.published;
  evicted += more.evicted;
  expelled += more.expelled;
  cleared += more.cleared;
  cached += more.cached;
  evictable += more.evictable;
  pinned += more.pinned;
}

Figures Index::figures(std::string_view salt) {
  const std::lock_guard lock(mutex_);
  review_unclaimed();
  const auto found = spaces_.find(salt);
  return found != spaces_.end() ? found->second.figures : Figures{};
}

Figures Index::figures() {
  const std::lock_guard lock(mutex_);
  review_unclaimed();
  Figures all = gone_;
  for (const auto& [salt, space] : spaces_) all.add(space.figures);
  return all;
}

size_t Index::read_events(uint64_t& next, std::span<pkv_prefix_event> out,
                          uint64_t& lost) const noexcept {
  const std::lock_guard lock(mutex_);
  return events_.read(next, out, lost);
}

}  // namespace pkv::prefix
