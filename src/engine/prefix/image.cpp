#include "engine/prefix/image.h"

#include <algorithm>
#include <utility>

#include "engine/prefix/index.h"

namespace pkv {

namespace {
constexpr uint8_t normal_retention = 1;  // until those who use a node give it up, it has none of theirs
}

PrefixImage::~PrefixImage() {
  for (const Part& part : parts_)
    for (size_t i = 0; i < part.blocks.size(); i++)
      if (part.blocks[i] != no_block) groups_[i % groups_.size()]->pool.release(part.blocks[i]);
  if (!claims_.empty()) index_.release(claims_);
}

PrefixImage::PrefixImage(PrefixImage&& other) noexcept
    : salts(std::move(other.salts)), index_(other.index_), groups_(other.groups_), parts_(std::exchange(other.parts_, {})),
      claims_(std::exchange(other.claims_, {})) {}

void PrefixImage::add(Part part) {
  parts_.push_back(std::move(part));
  std::vector<Block>& blocks = parts_.back().blocks;
  for (size_t i = 0; i < blocks.size(); i++)
    if (blocks[i] != no_block && groups_[i % groups_.size()]->pool.retain(blocks[i]) != PKV_OK) blocks[i] = no_block;
}

PrefixImage PrefixIndex::freeze() {
  PrefixImage image(*this, groups_);
  const std::lock_guard lock(mutex_);
  std::vector<Node*> leaves;
  std::vector<std::pair<Node*, size_t>> rest;  // with the part above
  for (const auto& [salt, space] : spaces_) {
    for (Node* child : space.root.children) rest.emplace_back(child, PrefixImage::no_parent);
    while (!rest.empty()) {
      const auto [node, above] = rest.back();
      rest.pop_back();
      PrefixImage::Part part;
      part.parent = above;
      part.salt = image.salts.size();
      part.leaf = node->children.empty();
      part.last_use = node->users > 0 ? clock_ : node->last_use;
      part.retention = node->users > 0 ? std::max<uint8_t>(node->retention, normal_retention) : node->retention;
      part.tokens.assign(node->tokens.begin(), node->tokens.end());
      part.blocks.assign(node->blocks.begin(), node->blocks.end());
      if (part.leaf) leaves.push_back(node);
      image.add(std::move(part));
      for (Node* child : node->children) rest.emplace_back(child, image.parts().size() - 1);
    }
    image.salts.emplace_back(salt);
  }
  for (Node* const leaf : leaves) attach(*leaf);
  image.claims_ = std::move(leaves);
  return image;
}

void PrefixIndex::release(std::span<Node* const> claims) noexcept {
  const std::lock_guard lock(mutex_);
  for (Node* const node : claims) detach(*node, false);
}

}  // namespace pkv
