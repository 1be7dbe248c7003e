#include "engine/prefix/image.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "base/vectors.h"
#include "engine/prefix/index.h"

namespace pkv::prefix {

namespace {
constexpr uint8_t normal_retention =
    1;  // until those who use a node give it up, it has none of theirs
}

Image::Image(Index& index, std::span<const std::unique_ptr<memory::Group>> groups) : index_(index) {
  for (const auto& group : groups) marks_.emplace_back(group->pool.blocks(), there);
  index.freeze(*this);
}

Image::~Image() { index_.forget(*this); }

void Image::hold(size_t group, std::span<const uint32_t> ids) {
  const std::lock_guard lock(mutex_);
  for (const uint32_t id : ids)
    if (id != PKV_NO_BLOCK) marks_[group][id] = held;
}

void Image::lose(size_t group, std::span<const memory::Block> blocks) noexcept {
  losing_.fetch_add(1, std::memory_order_relaxed);
  {
    const std::lock_guard lock(mutex_);
    for (const memory::Block block : blocks)
      if (unsigned char& mark = marks_[group][memory::block_id(block)]; mark == there) mark = gone;
  }
  losing_.fetch_sub(1, std::memory_order_relaxed);
}

void Index::freeze(Image& image) {
  const std::lock_guard lock(mutex_);
  reserve_more(images_, 1);
  std::vector<std::pair<const Node*, size_t>> rest;  // with the part above
  for (const auto& [salt, space] : spaces_) {
    for (const Node* child : space.root.children) rest.emplace_back(child, Image::no_parent);
    while (!rest.empty()) {
      const auto [node, above] = rest.back();
      rest.pop_back();
      Image::Part& part = image.parts_.emplace_back();
      part.parent = above;
      part.salt = image.salts.size();
      part.leaf = node->children.empty();
      part.last_use = node->users > 0 ? clock_ : node->last_use;
      part.retention =
          node->users > 0 ? std::max<uint8_t>(node->retention, normal_retention) : node->retention;
      part.tokens.assign(node->tokens.begin(), node->tokens.end());
      part.blocks.assign(node->blocks.begin(), node->blocks.end());
      for (const Node* child : node->children) rest.emplace_back(child, image.parts_.size() - 1);
    }
    image.salts.emplace_back(salt);
  }
  images_.push_back(&image);
}

void Index::forget(Image& image) noexcept {
  const std::lock_guard lock(mutex_);
  std::erase(images_, &image);
}

// Gives up references to blocks that belonged to the index.
void Index::release(size_t group, std::span<const memory::Block> blocks) noexcept {
  for (Image* const image : images_) image->lose(group, blocks);
  groups_[group]->pool.release_held(blocks.size(), blocks.data());
}

}  // namespace pkv::prefix
