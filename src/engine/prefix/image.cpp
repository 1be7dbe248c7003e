#include "engine/prefix/image.h"

#include "base/vectors.h"

namespace pkv::prefix {

void Images::add(Image& image) {
  const std::lock_guard lock(mutex_);
  reserve_more(images_, 1);
  images_.push_back(&image);
}

void Images::remove(Image& image) noexcept {
  const std::lock_guard lock(mutex_);
  std::erase(images_, &image);
}

void Images::lose(size_t group, std::span<const memory::Block> blocks) noexcept {
  const std::lock_guard lock(mutex_);
  for (Image* const image : images_) image->lose(group, blocks);
}

Image::Image(Images& images, std::span<const uint32_t> pool_sizes) : images_(images) {
  for (const uint32_t blocks : pool_sizes) marks_.emplace_back(blocks, Mark::there);
  images_.add(*this);
}

void Image::hold(size_t group, std::span<const uint32_t> ids) {
  const std::lock_guard lock(mutex_);
  for (const uint32_t id : ids)
    if (id != PKV_NO_BLOCK) marks_[group][id] = Mark::held;
}

void Image::lose(size_t group, std::span<const memory::Block> blocks) noexcept {
  losing_.fetch_add(1, std::memory_order_relaxed);
  {
    const std::lock_guard lock(mutex_);
    for (const memory::Block block : blocks)
      if (Mark& mark = marks_[group][memory::block_id(block)]; mark == Mark::there)
        mark = Mark::gone;
  }
  losing_.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace pkv::prefix
