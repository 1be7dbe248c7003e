#include "engine/prefix/policy.h"

namespace pkv {

bool Policy::sooner(const Node& a, const Node& b) const {
  if (kind_ == PKV_EVICTION_LFU && a.uses != b.uses) return a.uses < b.uses;
  return a.last_use < b.last_use;
}

void Policy::put(Node* node, uint32_t place) noexcept {
  heap_[place] = node;
  node->place = place;
}

void Policy::rise(uint32_t place) noexcept {
  Node* const node = heap_[place];
  for (; place > 0 && sooner(*node, *heap_[(place - 1) / 2]); place = (place - 1) / 2) put(heap_[(place - 1) / 2], place);
  put(node, place);
}

void Policy::sink(uint32_t place) noexcept {
  Node* const node = heap_[place];
  for (;;) {
    uint32_t child = 2 * place + 1;
    if (child >= heap_.size()) break;
    if (child + 1 < heap_.size() && sooner(*heap_[child + 1], *heap_[child])) child++;
    if (!sooner(*heap_[child], *node)) break;
    put(heap_[child], place);
    place = child;
  }
  put(node, place);
}

void Policy::add(Node& node) noexcept {
  heap_.push_back(&node);
  rise(static_cast<uint32_t>(heap_.size() - 1));
}

void Policy::remove(Node& node) noexcept {
  const uint32_t place = node.place;
  if (place == Node::no_place) return;
  Node* const last = heap_.back();
  heap_.pop_back();
  node.place = Node::no_place;
  if (last == &node) return;
  put(last, place);
  rise(place);
  sink(last->place);
}

}  // namespace pkv
