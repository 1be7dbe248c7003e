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

void Images::split(const Node& upper, const Node& node) noexcept {
  const std::lock_guard lock(mutex_);
  for (Image* const image : images_) image->split(upper, node);
}

void Images::shorten(const Node& node, uint32_t count) noexcept {
  const std::lock_guard lock(mutex_);
  for (Image* const image : images_) image->shorten(node, count);
}

Image::Image(IndexData& data) : data_(data), images_(data.images) {
  for (const auto& group : data.groups) marks_.emplace_back(group->pool.blocks(), Mark::cached);
  images_.add(*this);
}

bool Image::copy_more(uint32_t most) {
  for (uint32_t copied = 0; copied < most;) {
    if (next_ == nullptr) {
      if (!begin_next_salt()) return false;
      copied++;
      continue;
    }
    const uint32_t blocks = std::min(most - copied, next_->end() - at_);
    if (blocks > 0) copy(blocks);
    copied += std::max(blocks, 1u);
    if (at_ == next_->end()) descend();
  }
  return true;
}

bool Image::begin_next_salt() {
  const auto& spaces = data_.spaces.all();
  const auto entry = begun_ ? spaces.upper_bound(std::string_view(salt_)) : spaces.begin();
  if (entry == spaces.end()) return false;
  salt_ = entry->first;
  begun_ = true;
  const Node& root = entry->second.root;
  if (root.children.empty()) return true;
  salts.push_back(salt_);
  next_ = *root.children.begin();
  at_ = 0;
  part_ = no_parent;
  return true;
}

// Copies the next blocks of the next node into a part.
void Image::copy(uint32_t blocks) {
  const Node& node = *next_;
  const size_t first = at_ - node.start, block_size = data_.block_size();
  const bool in_use = node.users > 0;
  Part part;
  part.parent = part_ != no_parent || above_.empty() ? part_ : above_.back().part;
  part.salt = salts.size() - 1;
  part.last_use = in_use ? data_.clock : node.last_use;
  part.retention = in_use ? std::max(node.base, retention_in_use) : node.base;
  const auto tokens = Tokens(node.tokens).subspan(first * block_size, blocks * block_size);
  part.tokens.assign(tokens.begin(), tokens.end());
  // Inner blocks are the first to go, and most files are smaller without them.
  part.blocks.reserve(blocks * node.groups);
  for (uint32_t position = at_; position < at_ + blocks; position++)
    for (uint32_t g = 0; g < node.groups; g++) {
      const bool inner = data_.blocks.sparse(g) && data_.blocks.is_inner(g, node, position);
      part.blocks.push_back(inner ? memory::no_block : node.blocks_at(position)[g]);
    }
  parts.push_back(std::move(part));
  if (const size_t above = parts.back().parent; above != no_parent) parts[above].leaf = false;
  part_ = parts.size() - 1;
  at_ += blocks;
}

// Goes on after the end of the next node.
void Image::descend() {
  if (next_->children.empty()) return leave(*next_);
  above_.push_back({next_, part_});
  next_ = *next_->children.begin();
  at_ = next_->start;
  part_ = no_parent;
}

// Goes on with what comes after a node and all below it.
void Image::leave(const Node& node) noexcept {
  for (const Node* each = &node; each->parent != nullptr; each = each->parent) {
    if (!above_.empty() && above_.back().node == each) above_.pop_back();
    const Node& parent = *each->parent;
    if (parent.parent != nullptr && (above_.empty() || above_.back().node != &parent))
      continue;  // the upper part of a node that was split since
    const auto sibling = std::next(parent.children.find(each));
    if (sibling == parent.children.end()) continue;
    next_ = *sibling;
    at_ = next_->start;
    part_ = no_parent;
    return;
  }
  next_ = nullptr;
}

// What was copied of a node is of its upper part, unless that has no more.
void Image::split(const Node& upper, const Node& node) noexcept {
  if (next_ == &node && at_ < node.start) next_ = &upper;
}

void Image::shorten(const Node& node, uint32_t count) noexcept {
  if (next_ == &node && (count == node.size || node.end() - count < at_)) leave(node);
}

void Image::mark_referenced(size_t group, std::span<const uint32_t> ids) {
  const std::lock_guard lock(mutex_);
  for (const uint32_t id : ids)
    if (id != PKV_NO_BLOCK_ID) marks_[group][id] = Mark::referenced;
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
