#include "engine/prefix/forecast.h"

#include <algorithm>
#include <utility>

namespace pkv::prefix {

Forecast::Forecast(std::span<const std::unique_ptr<memory::Group>> groups,
                   const memory::Pages* pages, const IndexData* index)
    : groups_(groups),
      index_(index),
      dependents_(groups.size()),
      dropped_(groups.size()),
      expired_(groups.size()) {
  for (size_t g = 0; g < groups.size(); g++)
    free_.push_back(groups[g]->pool.free_count() +
                    (index != nullptr ? index->blocks.evictable(g) : 0));
  if (pages != nullptr) pages_.emplace(*pages);
}

// Adds tails, then contents, then pins until the call fits. What goes only ever makes blocks free
// or copies needless, so a call that does not fit without all of them never fits. Then takes back
// those without which it still fits, the last first: a content of a text that is in use frees
// nothing, nor does a pin above another one.
Price Forecast::price(const Lack& lack, std::span<const Releasable> releasables) {
  releasables_ = releasables;
  begin(lack);
  Price price;
  size_t given = 0;
  bool enough = fits();
  for (; !enough && given < tails_.size() + releasables.size(); enough = fits())
    change_tail_or_releasable(given++, gone);
  if (!enough && !(lack.yields_pins && end_pins(price.pins))) return shortage();
  while (given-- > 0) {
    change_tail_or_releasable(given, back);
    if (fits()) continue;
    change_tail_or_releasable(given, gone);
    if (given < tails_.size())
      price.tails.push_back(given);
    else
      price.releasables.push_back(given - tails_.size());
  }
  return price;
}

// Counts what the call's own sessions can do without.
void Forecast::begin(const Lack& lack) {
  lack_ = &lack;
  const OwnBlocks& own = lack.own;
  wanted_.assign(lack.counts.begin(), lack.counts.end());
  watermark_needs_ = own.watermark_needs;
  tails_.resize(own.tails.size());
  for (size_t i = 0; i < own.tails.size(); i++)
    dependents_[own.tails[i].group][own.tails[i].id].tail = i;
  spares_.resize(own.spares.size());
  for (size_t i = 0; i < own.spares.size(); i++) {
    const auto& [table, group, length, taken] = own.spares[i];
    for (const uint32_t id : table->ids_before_spares(length))
      dependents_[group][id].spares.push_back(i);
    update_spares(i);
  }
  for (const auto& [group, id] : own.expired) change_reference(expired_, group, id, gone);
}

void Forecast::change_tail_or_releasable(size_t i, Change to) {
  if (i >= tails_.size()) return change(releasables_[i - tails_.size()], to);
  tails_[i].gone = to == gone;
  update_tail(i);
}

void Forecast::change(const Releasable& releasable, Change to) {
  for (const auto& [end, tail, tables] : releasable) {
    for (size_t g = 0; g < tables.size(); g++)
      for (const auto& blocks : {tables[g]->blocks(), tables[g]->spare_blocks()})
        for (const memory::Block block : blocks)
          if (memory::is_block(block)) change_reference(dropped_, g, memory::block_id(block), to);
    for (const Node* used : {end, tail})
      if (used != nullptr) change_use(*used, to);
  }
}

// Counts the blocks of nodes whose last use ends or begins again.
void Forecast::change_use(const Node& end, Change to) {
  for (const Node* node = &end; node != nullptr; node = node->parent) {
    uint32_t& ended = uses_[node];
    const auto count_blocks = [&] {
      if (!is_used(*node))
        node->for_each_block([&](uint32_t, size_t group, memory::Block block) {
          if (!index_->blocks.sparse(group) && available(group, memory::block_id(block)))
            count(group, memory::block_id(block), to);
        });
    };
    if (to == back) count_blocks();
    ended = to == gone ? ended + 1 : ended - 1;
    if (to == gone) count_blocks();
  }
}

void Forecast::change_reference(std::vector<memory::GoneCounts>& counts, size_t group, uint32_t id,
                                Change to) {
  const auto is_shared = [&] {
    return memory::references_left(groups_[group]->pool, id, &dropped_[group]) > 1;
  };
  const bool before = available(group, id), shared = is_shared();
  uint32_t& n = counts[group][id];
  n = to == gone ? n + 1 : n - 1;
  if (available(group, id) != before) count(group, id, to);
  const auto found = dependents_[group].find(id);
  if (found == dependents_[group].end()) return;
  if (found->second.tail) update_tail(*found->second.tail);
  if (is_shared() != shared)
    for (const size_t i : found->second.spares) update_spares(i);
}

// Counts one copy less if the index lets go of a tail and nobody else has it, or one more again.
void Forecast::update_tail(size_t i) {
  const OwnBlocks::Tail& tail = lack_->own.tails[i];
  const bool skipped = tails_[i].gone && is_unshared(tail);
  if (std::exchange(tails_[i].skipped, skipped) == skipped) return;
  if (tail.spare != PKV_NO_BLOCK_ID) return count(tail.group, tail.spare, skipped ? gone : back);
  wanted_[tail.group] += skipped ? ~uint64_t{0} : 1;
  if (tail.keeps_watermark) watermark_needs_ += skipped ? ~uint64_t{0} : 1;
}

// Counts the spare blocks that a session does not need as free, from the last one back.
void Forecast::update_spares(size_t i) {
  const auto& [table, group, length, taken] = lack_->own.spares[i];
  const std::span<const memory::Block> all = table->spare_blocks();
  const size_t expired = table->expired_spares(length, taken, &dropped_[group]).size();
  size_t& counted = spares_[i];
  while (counted < expired) count(group, memory::block_id(all[all.size() - ++counted]), gone);
  while (counted > expired) count(group, memory::block_id(all[all.size() - counted--]), back);
}

void Forecast::count(size_t group, uint32_t id, Change to) {
  if (to == gone) {
    free_[group]++;
    if (pages_) pages_->free(group, id);
  } else {
    free_[group]--;
    if (pages_) pages_->use(group, id);
  }
}

// ---- Pins ---------------------------------------------------------------------------------------

// Ends pins until the call fits, and returns those that it needs. Looks at each node once for all
// pins at it and below, and then once more for each pin that is kept: many may lie on one path.
bool Forecast::end_pins(std::vector<Node*>& needed) {
  if (index_ == nullptr) return false;
  std::vector<Node*> pins;
  for (const auto& [until, node] : index_->pins) pins.push_back(node);
  std::vector<size_t> ends;  // by pin: the place of its node
  std::vector<PinnedNode> nodes = nodes_of(pins, ends);
  std::vector<size_t> order(nodes.size());
  for (size_t i = 0; i < order.size(); i++) order[i] = i;
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return nodes[a].last < nodes[b].last; });
  bool enough = false;
  for (size_t next = 0; !enough; enough = fits()) {
    if (next == order.size()) return false;
    const size_t pin = nodes[order[next]].last;
    while (next < order.size() && nodes[order[next]].last == pin)
      change_pinned(nodes[order[next++]], gone);
  }
  for (size_t pin = pins.size(); pin-- > 0;)
    if (nodes[ends[pin]].free && !can_keep(nodes, ends[pin])) needed.push_back(pins[pin]);
  return true;
}

// Returns the nodes that pins keep, and where each pin ends among them.
std::vector<Forecast::PinnedNode> Forecast::nodes_of(std::span<Node* const> pins,
                                                     std::vector<size_t>& ends) {
  std::vector<PinnedNode> nodes;
  std::unordered_map<const Node*, size_t> places;
  for (size_t pin = 0; pin < pins.size(); pin++) {
    size_t below = none;
    for (const Node* node = pins[pin]; node != nullptr; node = node->parent) {
      const auto [place, is_new] = places.try_emplace(node, nodes.size());
      if (is_new) nodes.push_back({node, none, 0, false, false});
      if (below == none)
        ends.push_back(place->second), nodes[place->second].last = pin;
      else
        nodes[below].above = place->second;
      if (!is_new) break;
      below = place->second;
    }
  }
  // Children begin after their parents, so each node is complete before it is passed upwards.
  std::vector<size_t> order(nodes.size());
  for (size_t i = 0; i < order.size(); i++) order[i] = i;
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return nodes[a].node->end() > nodes[b].node->end(); });
  for (const size_t i : order)
    if (nodes[i].above != none)
      nodes[nodes[i].above].last = std::max(nodes[nodes[i].above].last, nodes[i].last);
  return nodes;
}

// Counts the blocks of a node of which all pins end or begin again: those that uses kept, and those
// of sparse groups that pins keep.
void Forecast::change_pinned(PinnedNode& pinned, Change to) {
  const Node& node = *pinned.node;
  const auto count_blocks = [&](Change change) {
    node.for_each_block([&](uint32_t, size_t group, memory::Block block) {
      if (memory::is_block(block) && available(group, memory::block_id(block)))
        count(group, memory::block_id(block), change);
    });
  };
  // Some of the blocks are available either way.
  count_blocks(back);
  if (to == gone)
    unpinned_.insert(&node);
  else
    unpinned_.erase(&node);
  count_blocks(gone);
  pinned.free = to == gone;
  if (tails_.empty()) return;
  node.for_each_block([&](uint32_t, size_t group, memory::Block block) {
    const auto found = dependents_[group].find(memory::block_id(block));
    if (found != dependents_[group].end() && found->second.tail) update_tail(*found->second.tail);
  });
}

// Tries to keep a pin: restores its nodes from the root down while the call still fits. If it does
// not fit with one, it fits with none below, now or later; these are marked `needed` and the pin
// stays ended.
bool Forecast::can_keep(std::vector<PinnedNode>& nodes, size_t end) {
  std::vector<size_t> path;  // upwards
  size_t i = end;
  for (; i != none && nodes[i].free && !nodes[i].needed; i = nodes[i].above) path.push_back(i);
  bool fit = i == none || !nodes[i].needed;
  size_t left = path.size();
  while (fit && left > 0) {
    change_pinned(nodes[path[--left]], back);
    fit = fits();
  }
  if (fit) return true;
  for (size_t at = left; at < path.size(); at++)
    if (!nodes[path[at]].free) change_pinned(nodes[path[at]], gone);
  for (size_t at = 0; at < path.size() && at <= left; at++) nodes[path[at]].needed = true;
  return false;
}

// ---- What is available --------------------------------------------------------------------------

uint32_t Forecast::references(size_t group, uint32_t id) const {
  const memory::Pool& pool = groups_[group]->pool;
  const auto own = expired_[group].find(id);
  return memory::references_left(pool, id, &dropped_[group]) -
         (own != expired_[group].end() ? own->second : 0);
}

bool Forecast::index_has(size_t group, uint32_t id) const {
  return index_ != nullptr && index_->blocks.place_of(group, id).node != nullptr;
}

bool Forecast::index_would_evict(size_t group, uint32_t id) const {
  if (index_->blocks.sparse(group)) return !is_pinned(group, id);
  return !is_used(*index_->blocks.place_of(group, id).node);
}

bool Forecast::is_pinned(size_t group, uint32_t id) const {
  const Node& node = *index_->blocks.place_of(group, id).node;
  if (index_->blocks.sparse(group) && !index_->blocks.kept_by_pin(group, id)) return false;
  return node.pinned > 0 && !unpinned_.contains(&node);
}

bool Forecast::is_used(const Node& node) const {
  const auto ended = uses_.find(&node);
  const uint32_t pins = unpinned_.contains(&node) ? node.pinned : 0;
  return node.users > pins + (ended != uses_.end() ? ended->second : 0);
}

bool Forecast::available(size_t group, uint32_t id) const {
  const uint32_t left = references(group, id);
  return index_has(group, id) ? left == 1 && index_would_evict(group, id) : left == 0;
}

// Returns whether one of the sessions that write to a tail needs no copy once the index has let go
// of it. A user of its node that does not write to it has a reference or is a pin.
bool Forecast::is_unshared(const OwnBlocks::Tail& tail) const {
  const bool lets_go = index_has(tail.group, tail.id) && !is_pinned(tail.group, tail.id);
  return references(tail.group, tail.id) - lets_go == tail.writers;
}

// Returns what the call lacks besides what is available and its own spare blocks.
Price Forecast::shortage() const {
  const uint32_t watermark = watermark_needs_ > 0 ? lack_->watermark : 0;
  std::vector<uint64_t> wanted = wanted_;
  for (uint64_t& blocks : wanted) blocks += blocks == 0 ? 0 : watermark;
  Price shortage;
  if (pages_) {
    const auto [missing, group] = pages_->missing(wanted);
    shortage.missing = missing;
    shortage.group = group;
    return shortage;
  }
  for (uint32_t g = 0; g < wanted.size(); g++) {
    if (wanted[g] <= free_[g]) continue;
    shortage.missing += wanted[g] - free_[g];
    shortage.group = std::min(shortage.group, g);
  }
  return shortage;
}

}  // namespace pkv::prefix
