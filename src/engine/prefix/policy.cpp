#include "engine/prefix/policy.h"

#include "engine/prefix/return_time.h"

namespace pkv {

std::unique_ptr<Policy> Policy::make(pkv_eviction kind, uint64_t capacity, std::pmr::memory_resource& memory) {
  if (kind == PKV_EVICTION_DEFAULT) return std::make_unique<ReturnTimePolicy>(capacity, memory);
  return std::make_unique<OrderedPolicy>(kind == PKV_EVICTION_LFU, memory);
}

bool OrderedPolicy::sooner(const Node& a, const Node& b) const {
  if (by_frequency_ && a.matches != b.matches) return a.matches < b.matches;
  return a.last_use < b.last_use;
}

void OrderedPolicy::rise(size_t place) noexcept {
  Node* const node = candidates_[place];
  for (; place > 0 && sooner(*node, *candidates_[(place - 1) / 2]); place = (place - 1) / 2) put(candidates_[(place - 1) / 2], place);
  put(node, place);
}

void OrderedPolicy::sink(size_t place) noexcept {
  Node* const node = candidates_[place];
  for (;;) {
    size_t child = 2 * place + 1;
    if (child >= candidates_.size()) break;
    if (child + 1 < candidates_.size() && sooner(*candidates_[child + 1], *candidates_[child])) child++;
    if (!sooner(*candidates_[child], *node)) break;
    put(candidates_[child], place);
    place = child;
  }
  put(node, place);
}

void OrderedPolicy::add(Node& node) noexcept {
  candidates_.push_back(&node);
  rise(candidates_.size() - 1);
}

void OrderedPolicy::remove(Node& node) noexcept {
  const uint32_t place = node.place;
  if (place == Node::no_place) return;
  Node* const last = candidates_.back();
  candidates_.pop_back();
  node.place = Node::no_place;
  if (last == &node) return;
  put(last, place);
  rise(place);
  sink(last->place);
}

}  // namespace pkv
