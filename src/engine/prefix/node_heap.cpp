#include "engine/prefix/node_heap.h"

#include "base/status.h"

namespace pkv::prefix {

namespace {

// Returns whether a is evicted before b.
bool sooner(const Node& a, const Node& b) {
  return a.retention != b.retention ? a.retention < b.retention : a.last_use < b.last_use;
}

}  // namespace

void NodeHeap::put(Node* node, size_t place) noexcept {
  nodes_[place] = node;
  node->*place_ = static_cast<uint32_t>(place);
}

void NodeHeap::rise(size_t place) noexcept {
  Node* const node = nodes_[place];
  for (; place > 0 && sooner(*node, *nodes_[(place - 1) / 2]); place = (place - 1) / 2)
    put(nodes_[(place - 1) / 2], place);
  put(node, place);
}

void NodeHeap::sink(size_t place) noexcept {
  Node* const node = nodes_[place];
  for (;;) {
    size_t child = 2 * place + 1;
    if (child >= nodes_.size()) break;
    if (child + 1 < nodes_.size() && sooner(*nodes_[child + 1], *nodes_[child])) child++;
    if (!sooner(*nodes_[child], *node)) break;
    put(nodes_[child], place);
    place = child;
  }
  put(node, place);
}

void NodeHeap::add(Node& node) noexcept {
  nodes_.push_back(&node);
  rise(nodes_.size() - 1);
}

void NodeHeap::remove(Node& node) noexcept {
  const uint32_t place = node.*place_;
  if (place == Node::no_place) return;
  Node* const last = nodes_.back();
  nodes_.pop_back();
  node.*place_ = Node::no_place;
  if (last == &node) return;
  put(last, place);
  rise(place);
  sink(last->*place_);
}

void NodeHeap::validate() const {
  for (size_t i = 0; i < nodes_.size(); i++) {
    if (nodes_[i]->*place_ != i)
      fail(PKV_INTERNAL, "heap: the node at place %zu says that it is at %u", i,
           nodes_[i]->*place_);
    if (i > 0 && sooner(*nodes_[i], *nodes_[(i - 1) / 2]))
      fail(PKV_INTERNAL, "heap: the node at place %zu goes before the one above it", i);
  }
}

void NodeHeap::clear() noexcept {
  for (Node* const node : nodes_) node->*place_ = Node::no_place;
  nodes_.clear();
}

}  // namespace pkv::prefix
