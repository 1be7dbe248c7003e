// All that a prefix index has at one moment, for somebody who writes it down while the index goes
// on. The image keeps nothing in use: a step that needs blocks takes them from the index as ever,
// which tells its images. What goes before it was read is missing in what is written.
#pragma once

#include <atomic>
#include <memory>
#include <shared_mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "engine/memory/group.h"

namespace pkv::prefix {

class Index;

class Image {
 public:
  static constexpr size_t no_parent = ~size_t{0};

  // A run of blocks that follows the end of another one, which comes before it in the list.
  struct Part {
    size_t parent = no_parent;
    size_t salt = 0;        // in salts
    bool leaf = false;      // no other one follows it
    uint64_t last_use = 0;  // later ones are larger
    uint8_t retention = 0;
    std::vector<int32_t> tokens;  // in whole blocks
    std::vector<memory::Block>
        blocks;  // by position, then group; no_block where a window group has let go
  };

  // Throws bad_alloc.
  Image(Index& index, std::span<const std::unique_ptr<memory::Group>> groups);
  ~Image();
  Image(const Image&) = delete;
  Image& operator=(const Image&) = delete;

  const std::vector<Part>& parts() const { return parts_; }
  std::vector<std::string> salts;

  // Somebody else holds these blocks of a group for as long as the image lives: they stay.
  void hold(size_t group, std::span<const uint32_t> ids);
  // Calls visit() while the block stays what it was; false if it has gone. For several threads at
  // once.
  template <class Visit>
  bool read(size_t group, uint32_t id, const Visit& visit) {
    while (losing_.load(std::memory_order_relaxed) > 0)
      std::this_thread::yield();  // or readers would keep it out
    const std::shared_lock lock(mutex_);
    if (marks_[group][id] == gone) return false;
    visit();
    return true;
  }

 private:
  friend class Index;
  enum Mark : unsigned char { there, held, gone };

  // The index is about to give up blocks of a group.
  void lose(size_t group, std::span<const memory::Block> blocks) noexcept;

  Index& index_;
  std::vector<Part> parts_;
  std::shared_mutex mutex_;
  std::atomic<unsigned> losing_{0};                // threads in lose(), who go before readers
  std::vector<std::vector<unsigned char>> marks_;  // by group and block id
};

}  // namespace pkv::prefix
