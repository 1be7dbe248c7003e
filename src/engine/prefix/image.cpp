#include "engine/prefix/image.h"

#include <algorithm>

#include "base/vectors.h"
#include "engine/prefix/index_data.h"

namespace pkv::prefix {

namespace {

// The retention of a node until a use of it ends and sets its own.
constexpr uint8_t retention_in_use = 1;

}  // namespace

void Images::add(Image& image) {
  const std::lock_guard lock(mutex_);
  reserve_more(images_, 1);
  images_.push_back(&image);
}

void Images::remove(Image& image) noexcept {
  const std::lock_guard lock(mutex_);
  std::erase(images_, &image);
}

void Images::mark_gone(size_t group, std::span<const memory::Block> blocks) noexcept {
  const std::lock_guard lock(mutex_);
  for (Image* const image : images_) image->mark_gone(group, blocks);
}

Image::Image(IndexData& data) : images_(data.images) {
  for (const auto& group : data.groups) marks_.emplace_back(group->pool.blocks(), Mark::cached);
  std::vector<std::pair<const Node*, size_t>> rest;  // with the part above
  for (const auto& [salt, space] : data.spaces.all()) {
    for (const Node* child : space.root.children) rest.emplace_back(child, no_parent);
    while (!rest.empty()) {
      const auto [node, above] = rest.back();
      rest.pop_back();
      const bool in_use = node->users > 0;
      Part& part = parts.emplace_back();
      part.parent = above;
      part.salt = salts.size();
      part.leaf = node->children.empty();
      part.last_use = in_use ? data.clock : node->last_use;
      part.retention = in_use ? std::max(node->base, retention_in_use) : node->base;
      part.tokens.assign(node->tokens.begin(), node->tokens.end());
      // Inner blocks are the first to go, and most files are smaller without them.
      part.blocks.reserve(node->blocks.size());
      node->for_each_block([&](uint32_t position, size_t g, memory::Block block) {
        const bool inner = data.blocks.sparse(g) && data.blocks.is_inner(g, *node, position);
        part.blocks.push_back(inner ? memory::no_block : block);
      });
      for (const Node* child : node->children) rest.emplace_back(child, parts.size() - 1);
    }
    salts.emplace_back(salt);
  }
  images_.add(*this);
}

void Image::mark_referenced(size_t group, std::span<const uint32_t> ids) {
  const std::lock_guard lock(mutex_);
  for (const uint32_t id : ids)
    if (id != PKV_NO_BLOCK) marks_[group][id] = Mark::referenced;
}

void Image::mark_gone(size_t group, std::span<const memory::Block> blocks) noexcept {
  marking_.fetch_add(1, std::memory_order_relaxed);
  {
    const std::lock_guard lock(mutex_);
    for (const memory::Block block : blocks)
      if (Mark& mark = marks_[group][memory::block_id(block)]; mark == Mark::cached)
        mark = Mark::gone;
  }
  marking_.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace pkv::prefix
