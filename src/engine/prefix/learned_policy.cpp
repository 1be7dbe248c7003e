#include "engine/prefix/learned_policy.h"

#include <algorithm>
#include <bit>

#include "base/status.h"

namespace pkv::prefix {

namespace {

constexpr unsigned max_uses = 31, max_fresh = ReturnTimes::fresh_classes - 1;
static_assert(ReturnTimes::unhinted_kinds + hint_never == ReturnTimes::kinds);
// Up to this many candidates are all looked at; of more, some random ones.
constexpr size_t few_candidates = 96, random_candidates = 16;

unsigned width(uint64_t number) { return static_cast<unsigned>(std::bit_width(number)); }

Facts facts_of(const Node& node) { return {node.last_use, node.end(), node.kind}; }

}  // namespace

LearnedPolicy::LearnedPolicy(uint64_t capacity, double weight_per_block,
                             std::pmr::memory_resource& memory)
    : candidates_{Candidates(memory), Candidates(memory), Candidates(memory)},
      times_(capacity, memory),
      weight_per_block_(static_cast<float>(weight_per_block)),
      ghosts_(capacity, memory) {}

void LearnedPolicy::reserve(size_t nodes) {
  for (Candidates& candidates : candidates_) {
    const size_t room = std::max(nodes, candidates.nodes.capacity() * 2);
    if (candidates.nodes.capacity() < nodes) candidates.nodes.reserve(room);
    if (candidates.facts.capacity() < nodes) candidates.facts.reserve(room);
  }
}

float LearnedPolicy::worth(const Facts& facts) const noexcept {
  return times_.worth(facts.kind, now_ - facts.last_use) *
         (1 + weight_per_block_ * static_cast<float>(facts.depth));
}

void LearnedPolicy::offer(const Candidates& candidates, size_t place) noexcept {
  const Facts& facts = candidates.facts[place];
  shortlist_.offer({candidates.nodes[place], facts, worth(facts)});
}

void LearnedPolicy::add(Node& node) noexcept {
  Candidates& candidates = candidates_[node.retention];
  node.place = static_cast<uint32_t>(candidates.nodes.size());
  candidates.nodes.push_back(&node);
  candidates.facts.push_back(facts_of(node));
  if (next_ == &node && node.retention == shortlist_retention_) offer(candidates, node.place);
}

void LearnedPolicy::remove(Node& node) noexcept {
  if (next_ == &node) next_ = nullptr;
  if (node.place == Node::no_place) return;
  shortlist_.remove(node);
  Candidates& candidates = candidates_[node.retention];
  candidates.nodes[node.place] = candidates.nodes.back();
  candidates.facts[node.place] = candidates.facts.back();
  candidates.nodes.back()->place = node.place;
  candidates.nodes.pop_back();
  candidates.facts.pop_back();
  node.place = Node::no_place;
}

Node* LearnedPolicy::victim() noexcept {
  uint8_t retention = 0;
  while (retention < retentions && candidates_[retention].nodes.empty()) retention++;
  if (retention == retentions) return nullptr;
  if (retention != shortlist_retention_) shortlist_.clear();
  shortlist_retention_ = retention;
  const Candidates& candidates = candidates_[retention];
  const size_t count = candidates.nodes.size();
  if (count <= few_candidates) return lowest(candidates);
  shortlist_.judge([&](const Facts& facts) { return worth(facts); });
  for (size_t i = 0; i < random_candidates; i++) offer(candidates, random_below(count));
  return shortlist_.first();
}

Node* LearnedPolicy::lowest(const Candidates& candidates) const noexcept {
  const auto entry = [&](size_t place) {
    const Facts& facts = candidates.facts[place];
    return Shortlist::Candidate{candidates.nodes[place], facts, worth(facts)};
  };
  Shortlist::Candidate lowest = entry(0);
  for (size_t i = 1; i < candidates.nodes.size(); i++)
    if (const Shortlist::Candidate each = entry(i); each.before(lowest)) lowest = each;
  return lowest.node;
}

void LearnedPolicy::validate() const {
  for (size_t retention = 0; retention < retentions; retention++) {
    const auto& [nodes, facts] = candidates_[retention];
    if (nodes.size() != facts.size())
      fail(PKV_INTERNAL, "eviction: %zu candidates, and facts of %zu", nodes.size(), facts.size());
    for (size_t i = 0; i < nodes.size(); i++) {
      if (nodes[i]->place != i || nodes[i]->retention != retention)
        fail(PKV_INTERNAL, "eviction: candidate %zu of retention %zu says that it is %u of %d", i,
             retention, nodes[i]->place, nodes[i]->retention);
      if (facts[i] != facts_of(*nodes[i]) || facts[i].last_use > now_)
        fail(PKV_INTERNAL, "eviction: the facts of candidate %zu are not those of its node", i);
    }
  }
  const auto& [nodes, facts] = candidates_[shortlist_retention_];
  for (const Shortlist::Candidate& entry : shortlist_.entries()) {
    const auto place = std::find(nodes.begin(), nodes.end(), entry.node) - nodes.begin();
    if (static_cast<size_t>(place) == nodes.size() || facts[place] != entry.facts)
      fail(PKV_INTERNAL, "eviction: a node of the shortlist is not a candidate with these facts");
  }
  times_.validate(now_);
}

// Knuth's linear congruential generator, whose upper bits are good.
size_t LearnedPolicy::random_below(size_t n) noexcept {
  random_ = random_ * 6364136223846793005u + 1442695040888963407u;
  return static_cast<size_t>((random_ >> 32) * n >> 32);
}

void LearnedPolicy::inserted(std::span<const BlockHash> hashes,
                             std::span<History> histories) noexcept {
  constexpr size_t ahead = 16;
  for (size_t i = 0; i < hashes.size(); i++) {
    if (i + ahead < hashes.size()) ghosts_.prefetch(hashes[i + ahead].own);
    histories[i] = ghosts_.recall(hashes[i].own);
  }
}

void LearnedPolicy::used(Node& end, uint32_t from, uint8_t hint, uint64_t now) noexcept {
  // The end of the part of the path that was used before, as far as nodes and ghosts remember; the
  // root if no part was.
  const Node* known = &end;
  for (const Node* node = &end; node->parent != nullptr; node = node->parent)
    if (node->history.uses == 0) known = node->parent;
  const uint32_t length = end.end(), old = known->end();
  // A text continues the conversation of its known part: `turn` is the next turn, and `fresh` the
  // class of how much of the text is new.
  const uint8_t turn = static_cast<uint8_t>(std::min(known->history.turn + 1u, max_uses));
  const unsigned fresh = std::min(max_fresh, width((length - old) * uint64_t{8} / length));
  for (Node* node = &end; node->end() > from; node = node->parent) {
    if (node->start >= old) node->history = {0, turn};
    node->history.uses = static_cast<uint8_t>(std::min(node->history.uses + 1u, max_uses));
    const unsigned often = std::min<unsigned>(
        ReturnTimes::max_often, width(std::max<unsigned>(node->history.uses, turn - 1u)));
    // A hint is about this conversation. It does not apply to blocks that others use as well.
    const bool own = node->history.uses <= turn;
    node->kind =
        static_cast<uint8_t>(hint != 0 && own ? ReturnTimes::unhinted_kinds + hint - 1
                                              : often * ReturnTimes::fresh_classes + fresh);
    times_.used(node->hashes, node->kind, now);
  }
  now_ = now + (length - from);
  times_.learn(now_);
}

void LearnedPolicy::evicted(Node& node, uint32_t count) noexcept {
  const auto hashes = std::span(node.hashes).last(count);
  for (const BlockHash& hash : hashes) ghosts_.prefetch(hash.own);
  for (const BlockHash& hash : hashes) ghosts_.remember(hash.own, node.history);
  next_ = count == node.size && node.parent->parent != nullptr ? node.parent : nullptr;
  if (count == node.size) return;
  Candidates& candidates = candidates_[node.retention];
  candidates.facts[node.place].depth -= count;
  if (node.retention == shortlist_retention_) offer(candidates, node.place);
}

}  // namespace pkv::prefix
