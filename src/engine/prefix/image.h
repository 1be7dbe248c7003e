// A copy of the contents of a prefix index at one moment, for saving them while the index continues
// to change. The image keeps no blocks in use: a step that needs blocks still evicts them, and the
// index marks them as gone in its images. A block that goes before it was read is not saved.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <shared_mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "engine/memory/block_state.h"

namespace pkv::prefix {

class Image;
struct IndexData;

// The images that are being read.
class Images {
 public:
  // Throws bad_alloc.
  void add(Image& image);
  void remove(Image& image) noexcept;
  // Marks blocks of a group as gone in all images, before the index releases them.
  void mark_gone(size_t group, std::span<const memory::Block> blocks) noexcept;

 private:
  std::mutex mutex_;
  std::vector<Image*> images_;
};

class Image {
 public:
  static constexpr size_t no_parent = ~size_t{0};

  // A run of blocks that follows the end of another part, which comes before it in the list.
  struct Part {
    size_t parent = no_parent;
    size_t salt = 0;        // its index in salts
    bool leaf = false;      // no other part follows it
    uint64_t last_use = 0;  // parts that were used later have larger numbers
    uint8_t retention = 0;
    std::vector<int32_t> tokens;        // in whole blocks
    std::vector<memory::Block> blocks;  // by position, then by group; no_block where a window group
                                        // has evicted the block
  };

  // Makes an image of all that an index has, under the lock of the index. Throws bad_alloc.
  explicit Image(IndexData& data);
  ~Image() { images_.remove(*this); }
  Image(const Image&) = delete;
  Image& operator=(const Image&) = delete;

  std::vector<Part> parts;
  std::vector<std::string> salts;

  // Notes that the caller references these blocks of a group while the image lives, so that their
  // bytes stay even if the index releases them.
  void mark_referenced(size_t group, std::span<const uint32_t> ids);
  // Calls visit() while the block cannot go, and returns true; returns false if it is gone. Several
  // threads may read at once.
  template <class Visit>
  bool read(size_t group, uint32_t id, const Visit& visit) {
    while (marking_.load(std::memory_order_relaxed) > 0)
      std::this_thread::yield();  // otherwise readers would keep mark_gone() waiting
    const std::shared_lock lock(mutex_);
    if (marks_[group][id] == Mark::gone) return false;
    visit();
    return true;
  }
  // See Images::mark_gone.
  void mark_gone(size_t group, std::span<const memory::Block> blocks) noexcept;

 private:
  enum class Mark : unsigned char { cached, referenced, gone };

  Images& images_;
  std::shared_mutex mutex_;
  std::atomic<unsigned> marking_{0};      // threads in mark_gone(), which go before readers
  std::vector<std::vector<Mark>> marks_;  // by group and block id
};

}  // namespace pkv::prefix
