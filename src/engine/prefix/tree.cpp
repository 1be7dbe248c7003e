#include "engine/prefix/tree.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "base/vectors.h"

namespace pkv::prefix {

namespace {

bool before(Tokens a, Tokens b) {
  return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end());
}

uint32_t common_length(Tokens a, Tokens b) {
  const size_t n = std::min(a.size(), b.size());
  constexpr size_t piece = 64;  // tokens; memcmp compares many at once
  size_t same = 0;
  while (n - same >= piece &&
         std::memcmp(a.data() + same, b.data() + same, piece * sizeof a[0]) == 0)
    same += piece;
  while (same < n && a[same] == b[same]) same++;
  return static_cast<uint32_t>(same);
}

}  // namespace

bool ByFirstBlock::operator()(const Node* a, const Node* b) const {
  return (*this)(a, Tokens(b->tokens).first(block_size));
}
bool ByFirstBlock::operator()(const Node* a, Tokens b) const {
  return before(Tokens(a->tokens).first(block_size), b);
}
bool ByFirstBlock::operator()(Tokens a, const Node* b) const {
  return before(a, Tokens(b->tokens).first(block_size));
}

Tree::Tree(uint32_t block_size, uint32_t groups, std::pmr::memory_resource& memory)
    : block_size_(block_size), groups_(groups), memory_(memory), roots_(&memory) {}

Tree::~Tree() {
  for (Node* const root : roots_) {
    free_below(*root);
    free(root);
  }
}

Node& Tree::make(Node* parent, uint32_t start) {
  void* const at = memory_.allocate(sizeof(Node), alignof(Node));
  return *new (at) Node(parent, start, block_size_, groups_, &memory_);
}

void Tree::free(Node* node) noexcept {
  node->~Node();
  memory_.deallocate(node, sizeof(Node), alignof(Node));
}

// Frees without recursion, because a path may be as long as a text.
void Tree::free_below(Node& top) noexcept {
  Node* node = &top;
  while (node != &top || !node->children.empty()) {
    if (!node->children.empty()) {
      node = *node->children.begin();
      continue;
    }
    Node* const parent = node->parent;
    parent->children.erase(parent->children.begin());
    free(node);
    node = parent;
  }
}

Node& Tree::new_root() {
  Node& root = make(nullptr, 0);
  try {
    roots_.insert(&root);
  } catch (...) {
    free(&root);
    throw;
  }
  return root;
}

void Tree::drop_root(Node& root) noexcept {
  roots_.erase(&root);
  free(&root);
}

Node& Tree::first_below(Node& node) noexcept {
  Node* first = &node;
  while (!first->children.empty()) first = *first->children.begin();
  return *first;
}

Node& Tree::next_upwards(const Node& node) noexcept {
  const auto& siblings = node.parent->children;
  const auto next = std::next(siblings.find(&node));
  return next != siblings.end() ? first_below(**next) : *node.parent;
}

Tree::Found Tree::find(Node& from, Tokens text) const {
  Found found{&from, from.size, 0};
  for (Tokens rest = text;;) {
    Node& node = *found.node;
    if (rest.size() < block_size_) {
      find_common(node, node.size, rest, found);
      return found;
    }
    const auto child = node.children.find(rest.first(block_size_));
    if (child == node.children.end()) {
      find_common(node, node.size, rest, found);
      return found;
    }
    const uint32_t whole = common_length(rest, (*child)->tokens) / block_size_;
    found = {*child, whole, found.whole + whole};
    rest = rest.subspan(size_t{whole} * block_size_);
    if (whole == (*child)->size) continue;
    find_common(**child, whole, rest, found);
    return found;
  }
}

// Finds the block after `inside` blocks of a node that has the longest common beginning with
// `rest`.
void Tree::find_common(Node& node, uint32_t inside, Tokens rest, Found& found) const {
  const auto consider = [&](Node& next, uint32_t block) {
    const uint32_t common = common_length(rest, block_tokens(next, block));
    if (common <= found.common) return;
    found.next = &next;
    found.common = common;
  };
  if (rest.empty()) return;
  if (inside < node.size) return consider(node, inside);
  const auto after = node.children.lower_bound(rest);
  if (after != node.children.end()) consider(**after, 0);
  if (after != node.children.begin()) consider(**std::prev(after), 0);
}

// Calls visit(list, its elements per block) for each list of a node, given as a member pointer.
template <class Visit>
void Tree::for_each_list(const Visit& visit) const {
  visit(&Node::tokens, block_size_);
  visit(&Node::blocks, groups_);
  visit(&Node::hashes, 1);
  visit(&Node::announced, 1);
}

Node& Tree::split(Node& node, uint32_t inside) {
  if (inside == node.size) return node;
  // The new node is the upper one, so that uses of the end of this one stay where they are.
  Node& upper = make(node.parent, node.start);
  try {
    for_each_list([&](auto list, size_t per_block) {
      const auto first = (node.*list).begin();
      (upper.*list).assign(first, first + static_cast<std::ptrdiff_t>(inside * per_block));
    });
    upper.children.insert(&node);
  } catch (...) {
    free(&upper);
    throw;
  }
  upper.size = inside;
  upper.users = node.users;
  upper.pinned = node.pinned;
  upper.retention = node.retention;
  upper.base = node.base;
  upper.retained_until = node.retained_until;
  upper.last_use = node.last_use;
  upper.matches = node.matches;
  upper.history = node.history;
  upper.kind = node.kind;
  upper.space = node.space;
  auto entry = node.parent->children.extract(&node);
  entry.value() = &upper;
  node.parent->children.insert(std::move(entry));
  for_each_list([&](auto list, size_t per_block) {
    const auto first = (node.*list).begin();
    (node.*list).erase(first, first + static_cast<std::ptrdiff_t>(inside * per_block));
  });
  node.parent = &upper;
  node.start += inside;
  node.size -= inside;
  return upper;
}

Node& Tree::add_child(Node& node, const NewBlocks& more) {
  Node& child = make(&node, node.end());
  child.space = node.space;
  child.history = more.history;
  try {
    extend(child, more);
    node.children.insert(&child);
  } catch (...) {
    free(&child);
    throw;
  }
  return child;
}

void Tree::extend(Node& node, const NewBlocks& more) {
  const size_t count = more.hashes.size();
  for_each_list([&](auto list, size_t per_block) { reserve_more(node.*list, count * per_block); });
  node.tokens.insert(node.tokens.end(), more.text.begin(), more.text.end());
  node.blocks.insert(node.blocks.end(), more.blocks.begin(), more.blocks.end());
  node.hashes.insert(node.hashes.end(), more.hashes.begin(), more.hashes.end());
  node.size += static_cast<uint32_t>(count);
  node.announced.resize(node.size);
}

Node& Tree::drop_last(Node& node, uint32_t count) noexcept {
  if (node.size > count) {
    node.size -= count;
    for_each_list([&](auto list, size_t per_block) { (node.*list).resize(node.size * per_block); });
    return node;
  }
  Node& parent = *node.parent;
  parent.children.erase(&node);
  free(&node);
  return parent;
}

}  // namespace pkv::prefix
