#include "engine/prefix/miniatures.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace pkv::prefix {

namespace {

// Times are in capacities, as in return_time.cpp.
// What was seen in the beginning does not count, since the learned order has to learn first.
constexpr double warm_up_capacities = 4;
constexpr double seen_capacities = 16;  // what was seen loses half its weight in this time
constexpr double verdict_capacities = 0.125;
constexpr uint64_t min_verdict = 64;
// An order takes over when it is ahead by so many standard deviations of the difference. The
// learned one is the best on most traffic, so that it takes more to leave it than to come back.
constexpr double confidence = 2, confidence_in_learned = 1;
// So many leaves are all looked at; of more, some random ones.
constexpr size_t few_leaves = 32, random_leaves = 12;

}  // namespace

Miniatures::Miniatures(uint64_t capacity, std::pmr::memory_resource& memory)
    : capacity_(capacity),
      miniatures_{Miniature(memory), Miniature(memory), Miniature(memory)},
      blocks_(&memory),
      buckets_(&memory),
      text_(&memory),
      path_(&memory) {
  while ((capacity / (mask_ + 1)) > max_size) mask_ = mask_ << 1 | 1;
  size_ = static_cast<size_t>(std::max<uint64_t>(capacity / (mask_ + 1), 1));
  for (Miniature& miniature : miniatures_) miniature.leaves.reserve(size_ + 1);
  // While a text is played, its blocks are there beside what the miniatures have.
  blocks_.resize(size_ * (order_count + 1));
  for (size_t i = blocks_.size(); i-- > 0;)
    blocks_[i].next = std::exchange(unused_, static_cast<Place>(i));
  buckets_.resize(blocks_.size(), none);
  text_.reserve(2 * size_ + 64);
  path_.reserve(2 * size_ + 64);
}

void Miniatures::add(uint64_t hash, uint8_t kind, uint32_t depth) noexcept {
  if (text_.size() < text_.capacity())
    text_.push_back({hash, depth, kind});
  else
    too_long_ = true;
}

Facts Miniatures::facts_of(const Block& block, size_t order) const {
  return {block.last_use, block.in[order].matches, block.depth, block.kind};
}

Miniatures::Place Miniatures::find_or_make(const Sampled& sampled, Place parent) noexcept {
  Place& first = bucket(sampled.hash);
  for (Place place = first; place != none; place = blocks_[place].next)
    if (blocks_[place].hash == sampled.hash) return place;
  const Place place = unused_;
  Block& block = blocks_[place];
  unused_ = block.next;
  block = {sampled.hash, 0, 0, sampled.depth, parent, first, sampled.kind, {}};
  first = place;
  return place;
}

void Miniatures::drop(Place place) noexcept {
  Block& block = blocks_[place];
  Place* at = &bucket(block.hash);
  while (*at != place) at = &blocks_[*at].next;
  *at = block.next;
  block.next = std::exchange(unused_, place);
}

void Miniatures::add_leaf(Place place, size_t order) noexcept {
  auto& leaves = miniatures_[order].leaves;
  blocks_[place].in[order].leaf = static_cast<Place>(leaves.size());
  leaves.push_back(place);
}

void Miniatures::remove_leaf(Place place, size_t order) noexcept {
  Place& leaf = blocks_[place].in[order].leaf;
  if (leaf == none) return;
  Miniature& miniature = miniatures_[order];
  miniature.shortlist.remove(place);
  const Place last = miniature.leaves.back();
  miniature.leaves[leaf] = last;
  blocks_[last].in[order].leaf = leaf;
  miniature.leaves.pop_back();
  leaf = none;
}

void Miniatures::evict(Place place, size_t order) noexcept {
  remove_leaf(place, order);
  Block& block = blocks_[place];
  block.in[order] = {};
  miniatures_[order].size--;
  if (block.parent != none) {
    Block& parent = blocks_[block.parent];
    if (--parent.in[order].children == 0 && parent.text != texts_) add_leaf(block.parent, order);
  }
  for (const Block::State& state : block.in)
    if (state.cached) return;
  drop(place);
}

void Miniatures::make_room(size_t order, size_t wanted, const Judge& judge, uint64_t now) noexcept {
  Miniature& miniature = miniatures_[order];
  const auto kind = static_cast<Order>(order);
  if (miniature.size + wanted > size_) miniature.shortlist.judge(judge, kind, now);
  while (miniature.size + wanted > size_ && !miniature.leaves.empty()) {
    const size_t count = miniature.leaves.size();
    for (size_t i = 0; i < (count <= few_leaves ? count : random_leaves); i++) {
      const Place leaf = miniature.leaves[count <= few_leaves ? i : dice_.below(count)];
      const Facts facts = facts_of(blocks_[leaf], order);
      miniature.shortlist.offer(leaf, facts, judge.worth(kind, facts, now));
    }
    const Place victim = miniature.shortlist.lowest(), left = blocks_[victim].parent;
    evict(victim, order);
    if (left == none || blocks_[left].in[order].leaf == none) continue;
    // What the victim leaves is likely as good a choice, and the cache looks at it next, too.
    const Facts facts = facts_of(blocks_[left], order);
    miniature.shortlist.offer(left, facts, judge.worth(kind, facts, now));
  }
}

// Counts what a miniature has of the text, and adds the rest.
void Miniatures::play_in(size_t order, const Judge& judge, uint64_t now) noexcept {
  Miniature& miniature = miniatures_[order];
  hits_[order] = 0;
  size_t found = 0;
  for (; found < path_.size() && blocks_[path_[found]].in[order].cached; found++) {
    const Block& block = blocks_[path_[found]];
    hits_[order] += static_cast<double>(judge.weight(block.depth));
    blocks_[path_[found]].in[order].matches++;
  }
  if (found > 0) remove_leaf(path_[found - 1], order);
  make_room(order, path_.size() - found, judge, now);
  for (size_t i = found; i < path_.size(); i++) {
    blocks_[path_[i]].in[order].cached = true;
    if (i > 0) blocks_[path_[i - 1]].in[order].children++;
    miniature.size++;
  }
}

void Miniatures::play(const Judge& judge, uint64_t now) noexcept {
  const bool usable = !too_long_ && !text_.empty() && text_.size() <= size_;
  too_long_ = false;
  if (usable) {
    texts_++;
    path_.clear();
    for (size_t i = text_.size(); i-- > 0;) {
      const Place place = find_or_make(text_[i], path_.empty() ? none : path_.back());
      blocks_[place].text = texts_;
      path_.push_back(place);
    }
    for (size_t order = 0; order < order_count; order++) play_in(order, judge, now);
    for (size_t i = 0; i < path_.size(); i++) {
      Block& block = blocks_[path_[i]];
      block.last_use = now;
      block.kind = text_[path_.size() - 1 - i].kind;
    }
    const Place end = path_.back();
    for (size_t order = 0; order < order_count; order++)
      if (blocks_[end].in[order].children == 0) add_leaf(end, order);
    compare();
  }
  text_.clear();
  if (now >= next_) decide(now);
}

void Miniatures::compare() noexcept {
  for (size_t a = 0; a < order_count; a++) {
    miniatures_[a].hits += hits_[a];
    for (size_t b = 0; b < order_count; b++) {
      const double apart = hits_[a] - hits_[b];
      spread_[a][b] += apart * apart;
    }
  }
}

void Miniatures::decide(uint64_t now) noexcept {
  const auto interval = static_cast<double>(std::max(
      min_verdict, static_cast<uint64_t>(verdict_capacities * static_cast<double>(capacity_))));
  next_ = now + static_cast<uint64_t>(interval);
  if (!warm_ && static_cast<double>(now) >= warm_up_capacities * static_cast<double>(capacity_)) {
    warm_ = true;
    for (Miniature& miniature : miniatures_) miniature.hits = 0;
    spread_ = {};
  }
  size_t best = static_cast<size_t>(best_);
  for (size_t order = 0; order < order_count; order++) {
    const double ahead = miniatures_[order].hits - miniatures_[best].hits;
    const double needed =
        static_cast<Order>(order) == Order::learned ? confidence_in_learned : confidence;
    if (warm_ && ahead > needed * std::sqrt(spread_[order][best])) best = order;
  }
  best_ = static_cast<Order>(best);
  const double kept = std::exp2(-interval / (seen_capacities * static_cast<double>(capacity_)));
  for (Miniature& miniature : miniatures_) miniature.hits *= kept;
  for (auto& row : spread_)
    for (double& number : row) number *= kept;
}

}  // namespace pkv::prefix
