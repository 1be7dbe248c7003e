#include "engine/prefix/adaptive.h"

#include <bit>

namespace pkv::prefix {

namespace {

constexpr unsigned max_uses = 31, max_fresh = ReturnTimes::fresh_classes - 1;
static_assert(ReturnTimes::unhinted_kinds + hint_never == ReturnTimes::kinds);
// So many candidates are all looked at; of more, some random ones.
constexpr size_t few_candidates = 96, random_candidates = 16;

unsigned width(uint64_t number) { return static_cast<unsigned>(std::bit_width(number)); }

}  // namespace

AdaptivePolicy::AdaptivePolicy(uint64_t capacity, bool adaptive, double weight_per_block,
                               std::pmr::memory_resource& memory)
    : candidates_{Candidates(memory), Candidates(memory), Candidates(memory)},
      times_(capacity, memory),
      judge_(times_, weight_per_block),
      ghosts_(capacity, memory) {
  if (adaptive) miniatures_.emplace(capacity, memory);
}

void AdaptivePolicy::reserve(size_t nodes) {
  for (Candidates& candidates : candidates_) {
    const size_t room = std::max(nodes, candidates.nodes.capacity() * 2);
    if (candidates.nodes.capacity() < nodes) candidates.nodes.reserve(room);
    if (candidates.facts.capacity() < nodes) candidates.facts.reserve(room);
  }
}

void AdaptivePolicy::add(Node& node) noexcept {
  Candidates& candidates = candidates_[node.retention];
  node.place = static_cast<uint32_t>(candidates.nodes.size());
  candidates.nodes.push_back(&node);
  candidates.facts.push_back({node.last_use, node.matches, node.end(), node.kind});
  if (next_ == &node && node.retention == shortlist_retention_)
    shortlist_.offer(&node, candidates.facts.back(),
                     judge_.worth(shortlist_order_, candidates.facts.back(), now_));
}

void AdaptivePolicy::remove(Node& node) noexcept {
  if (next_ == &node) next_ = nullptr;
  if (node.place == Node::no_place) return;
  shortlist_.remove(&node);
  Candidates& candidates = candidates_[node.retention];
  candidates.nodes[node.place] = candidates.nodes.back();
  candidates.facts[node.place] = candidates.facts.back();
  candidates.nodes.back()->place = node.place;
  candidates.nodes.pop_back();
  candidates.facts.pop_back();
  node.place = Node::no_place;
}

Node* AdaptivePolicy::victim() noexcept {
  uint8_t retention = 0;
  while (retention < retentions && candidates_[retention].nodes.empty()) retention++;
  if (retention == retentions) return nullptr;
  if (retention != shortlist_retention_) shortlist_.clear();
  shortlist_retention_ = retention;
  shortlist_order_ = order();
  const Candidates& candidates = candidates_[retention];
  const size_t count = candidates.nodes.size();
  if (count <= few_candidates) return lowest(candidates);
  shortlist_.judge(judge_, shortlist_order_, now_);
  for (size_t i = 0; i < random_candidates; i++) {
    const size_t place = dice_.below(count);
    const Facts& facts = candidates.facts[place];
    shortlist_.offer(candidates.nodes[place], facts, judge_.worth(shortlist_order_, facts, now_));
  }
  return shortlist_.lowest();
}

Node* AdaptivePolicy::lowest(const Candidates& candidates) const noexcept {
  size_t lowest = 0;
  float lowest_worth = judge_.worth(shortlist_order_, candidates.facts[0], now_);
  for (size_t i = 1; i < candidates.nodes.size(); i++) {
    const Facts& facts = candidates.facts[i];
    const float worth = judge_.worth(shortlist_order_, facts, now_);
    if (worth > lowest_worth ||
        (worth == lowest_worth && facts.last_use >= candidates.facts[lowest].last_use))
      continue;
    lowest = i;
    lowest_worth = worth;
  }
  return candidates.nodes[lowest];
}

void AdaptivePolicy::inserted(std::span<const uint64_t> hashes,
                              std::span<History> histories) noexcept {
  constexpr size_t ahead = 16;
  for (size_t i = 0; i < hashes.size(); i++) {
    if (i + ahead < hashes.size()) ghosts_.prefetch(hashes[i + ahead]);
    histories[i] = ghosts_.recall(hashes[i]);
  }
}

void AdaptivePolicy::used(Node& end, uint32_t from, uint8_t hint, uint64_t now) noexcept {
  // The end of the part of the path that was used before, as far as nodes and ghosts remember; the
  // root if no part was.
  const Node* known = &end;
  for (const Node* node = &end; node->parent != nullptr; node = node->parent)
    if (node->history.uses == 0) known = node->parent;
  const uint32_t length = end.end(), old = known->end();
  // A conversation goes on from its last turn: this is the turn of this text, and how much of it is
  // new.
  const uint8_t turn = static_cast<uint8_t>(std::min(known->history.turn + 1u, max_uses));
  const unsigned fresh = std::min(max_fresh, width((length - old) * uint64_t{8} / length));
  // What keeps a part of its path is a session that was trimmed, and goes on.
  const bool whole = miniatures_ && from == 0;
  for (Node* node = &end; node->end() > from; node = node->parent) {
    if (node->start >= old) node->history = {0, turn};
    node->history.uses = static_cast<uint8_t>(std::min(node->history.uses + 1u, max_uses));
    const unsigned often = std::min<unsigned>(
        ReturnTimes::max_often, width(std::max<unsigned>(node->history.uses, turn - 1u)));
    // A hint is of this conversation, and says nothing of blocks that others use as well.
    const bool own = node->history.uses <= turn;
    node->kind =
        static_cast<uint8_t>(hint != 0 && own ? ReturnTimes::unhinted_kinds + hint - 1
                                              : often * ReturnTimes::fresh_classes + fresh);
    times_.used(node->hashes, node->kind, now);
    if (!whole) continue;
    for (uint32_t i = node->size; i-- > 0;)
      if (miniatures_->samples(node->hashes[i]))
        miniatures_->add(node->hashes[i], node->kind, node->start + i + 1);
  }
  now_ = now + (length - from);
  if (whole) miniatures_->play(judge_, now_);
  times_.learn(now_);
}

void AdaptivePolicy::evicted(Node& node, uint32_t count) noexcept {
  const auto hashes = std::span(node.hashes).last(count);
  for (const uint64_t hash : hashes) ghosts_.prefetch(hash);
  for (const uint64_t hash : hashes) ghosts_.remember(hash, node.history);
  next_ = count == node.size && node.parent->parent != nullptr ? node.parent : nullptr;
}

}  // namespace pkv::prefix
