#include <map>
#include <memory>
#include <set>
#include <tuple>
#include <utility>

#include "replay.h"

namespace pkv::serve {

namespace {

struct TreeNode {
  TreeNode* parent = nullptr;
  std::vector<uint32_t> blocks;
  std::map<uint32_t, std::unique_ptr<TreeNode>> children;  // by their first block
  uint64_t access = 0, creation = 0, hits = 0;
};

class SglangTree {
 public:
  SglangTree(uint64_t capacity, SglangOrder order) : capacity_(capacity), order_(order) {}

  // Returns how many blocks of a text are cached. What was found is locked until unlock().
  size_t match(std::span<const uint32_t> text) {
    size_t found = 0;
    locked_ = descend(text, found, false);
    remove(*locked_);
    return found;
  }
  // Evicts whole leaves until there is room for `wanted` more blocks.
  void make_room(size_t wanted) {
    while (size_ + wanted > capacity_ && !leaves_.empty()) {
      TreeNode& node = *std::get<3>(*leaves_.begin());
      leaves_.erase(leaves_.begin());
      size_ -= node.blocks.size();
      TreeNode& parent = *node.parent;
      parent.children.erase(node.blocks.front());
      if (&parent != locked_) add(parent);
    }
  }
  void unlock() { locked_ = nullptr; }
  // Counts as a hit of every node on the way.
  void insert(std::span<const uint32_t> text) {
    size_t found = 0;
    TreeNode* node = descend(text, found, true);
    const auto rest = text.subspan(found);
    if (rest.empty()) return;
    remove(*node);
    auto child = std::make_unique<TreeNode>();
    child->parent = node;
    child->blocks.assign(rest.begin(), rest.end());
    child->access = child->creation = ++now_;
    child->hits = 1;
    size_ += rest.size();
    add(*child);
    node->children.emplace(rest.front(), std::move(child));
  }

 private:
  using Key = std::tuple<uint64_t, uint64_t, uint64_t, TreeNode*>;

  Key key_of(TreeNode& node) const {
    uint64_t first = 0, second = node.access;
    if (order_ == SglangOrder::lfu) first = node.hits;
    if (order_ == SglangOrder::slru) first = node.hits >= 2;
    if (order_ == SglangOrder::fifo) second = node.creation;
    return {first, second, node.creation, &node};
  }
  void add(TreeNode& node) {
    if (node.parent != nullptr && node.children.empty()) leaves_.insert(key_of(node));
  }
  void remove(TreeNode& node) { leaves_.erase(key_of(node)); }

  // Returns the node where the cached part of a text ends, and splits a node there.
  TreeNode* descend(std::span<const uint32_t> text, size_t& found, bool hit) {
    const uint64_t time = ++now_;
    TreeNode* node = &root_;
    while (found < text.size()) {
      const auto next = node->children.find(text[found]);
      if (next == node->children.end()) break;
      TreeNode* child = next->second.get();
      size_t common = 0;
      while (common < child->blocks.size() && found + common < text.size() &&
             child->blocks[common] == text[found + common])
        common++;
      if (common < child->blocks.size()) child = &split(*child, common);
      remove(*child);
      child->access = time;
      child->hits += hit;
      if (child != locked_) add(*child);
      found += common;
      node = child;
    }
    return node;
  }
  // Returns the new upper part.
  TreeNode& split(TreeNode& lower, size_t at) {
    remove(lower);
    auto upper = std::make_unique<TreeNode>();
    TreeNode& result = *upper;
    const auto middle = lower.blocks.begin() + static_cast<std::ptrdiff_t>(at);
    upper->parent = lower.parent;
    upper->blocks.assign(lower.blocks.begin(), middle);
    upper->hits = lower.hits;
    upper->access = upper->creation = ++now_;
    auto& place = lower.parent->children.at(upper->blocks.front());
    std::unique_ptr<TreeNode> kept = std::exchange(place, std::move(upper));
    lower.blocks.erase(lower.blocks.begin(), middle);
    lower.parent = &result;
    add(lower);
    result.children.emplace(lower.blocks.front(), std::move(kept));
    return result;
  }

  const uint64_t capacity_;
  const SglangOrder order_;
  TreeNode root_;
  TreeNode* locked_ = nullptr;
  std::set<Key> leaves_;
  uint64_t now_ = 0;
  size_t size_ = 0;
};

}  // namespace

// A request matches its prompt, inserts it when it is computed, and the answer with it at its end.
Saved replay_sglang(const Blocks& blocks, uint64_t capacity, SglangOrder order) {
  SglangTree tree(capacity, order);
  Saved saved;
  for (const Text& text : blocks.texts) {
    const auto all = std::span<const uint32_t>(text.blocks)
                         .first(std::min<size_t>(text.blocks.size(), capacity));
    const auto prompt = all.first(std::min(all.size(), text.asked));
    const size_t found = tree.match(prompt);
    saved.add(found, blocks.tokens);
    tree.make_room(all.size() - found);
    tree.unlock();
    tree.insert(prompt);
    tree.insert(all);
  }
  return saved;
}

}  // namespace pkv::serve
