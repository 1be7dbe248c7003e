// A copy of what a prefix index contains at one moment, for somebody who saves it while the index
// goes on. The image keeps nothing in use: a step that needs blocks takes them from the index as
// ever, and the index tells its images. What goes before it was read is missing in what is saved.
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

// The images that are being read.
class Images {
 public:
  // Throws bad_alloc.
  void add(Image& image);
  void remove(Image& image) noexcept;
  // The index is about to release blocks of a group.
  void lose(size_t group, std::span<const memory::Block> blocks) noexcept;

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
                                        // has let a block go
  };

  // An empty image, which the index fills. pool_sizes: blocks by group. Throws bad_alloc.
  Image(Images& images, std::span<const uint32_t> pool_sizes);
  ~Image() { images_.remove(*this); }
  Image(const Image&) = delete;
  Image& operator=(const Image&) = delete;

  std::vector<Part> parts;
  std::vector<std::string> salts;

  // The caller holds these blocks of a group for as long as the image lives, so that they stay.
  void hold(size_t group, std::span<const uint32_t> ids);
  // Calls visit() while the block stays what it was; returns false if it has gone. Several threads
  // may read at once.
  template <class Visit>
  bool read(size_t group, uint32_t id, const Visit& visit) {
    while (losing_.load(std::memory_order_relaxed) > 0)
      std::this_thread::yield();  // otherwise readers would keep lose() waiting
    const std::shared_lock lock(mutex_);
    if (marks_[group][id] == Mark::gone) return false;
    visit();
    return true;
  }
  // The index is about to release blocks of a group.
  void lose(size_t group, std::span<const memory::Block> blocks) noexcept;

 private:
  enum class Mark : unsigned char { there, held, gone };

  Images& images_;
  std::shared_mutex mutex_;
  std::atomic<unsigned> losing_{0};       // threads in lose(), which go before readers
  std::vector<std::vector<Mark>> marks_;  // by group and block id
};

}  // namespace pkv::prefix
