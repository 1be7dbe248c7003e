// A copy of the contents of a prefix index, for saving them while the index continues to change. It
// is made in pieces, each under the lock of the index, so that nobody waits for all of it. It has
// all that stays in the index from beginning to end. The image keeps no blocks in use: a step that
// needs blocks still evicts them, and the index marks them as gone in its images. A block that goes
// before it was read is not saved.
//
// The copy goes through the tree from parents to children. Nodes change between pieces, and the
// index says so where that matters: when a node is split, or loses blocks. Of the nodes on the way
// to the copy's place, only the last can lose blocks, since those above it have children. What is
// new above it is skipped: other texts that begin like those that were copied.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
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
struct Node;

// The images that are being read.
class Images {
 public:
  // Throws bad_alloc.
  void add(Image& image);
  void remove(Image& image) noexcept;
  // Marks blocks of a group as gone in all images, before the index releases them.
  void mark_gone(size_t group, std::span<const memory::Block> blocks) noexcept;
  // A node was split, which left it the part after `upper`.
  void split(const Node& upper, const Node& node) noexcept;
  // A node is about to lose its last blocks; if these are all, it is deleted.
  void shorten(const Node& node, uint32_t count) noexcept;

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
    bool leaf = true;       // no other part follows it
    uint64_t last_use = 0;  // parts that were used later have larger numbers
    uint8_t retention = 0;
    std::vector<int32_t> tokens;        // in whole blocks
    std::vector<memory::Block> blocks;  // by position, then by group; no_block where a window group
                                        // has evicted the block
  };

  static constexpr uint32_t blocks_per_piece = 256;
  // Begins an image, which is empty. Throws bad_alloc.
  explicit Image(IndexData& data);
  ~Image() { images_.remove(*this); }
  Image(const Image&) = delete;
  Image& operator=(const Image&) = delete;

  // Copies up to `most` blocks, or looks at as many texts and salts. The caller has the lock of the
  // index, which may be shared. Returns false when all is copied. Throws bad_alloc.
  bool copy_more(uint32_t most);

  std::deque<Part> parts;  // a deque moves nothing when it grows
  std::deque<std::string> salts;

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

  // See Images.
  void split(const Node& upper, const Node& node) noexcept;
  void shorten(const Node& node, uint32_t count) noexcept;

 private:
  bool begin_next_salt();
  void copy(uint32_t blocks);
  void descend();
  void leave(const Node& node) noexcept;

  enum class Mark : unsigned char { cached, referenced, gone };

  // A node above the next one, and the part that has its end.
  struct Copied {
    const Node* node;
    size_t part;
  };

  const IndexData& data_;
  Images& images_;
  bool begun_ = false;
  std::string salt_;            // where the copy is
  const Node* next_ = nullptr;  // the node that is copied; nullptr: none of this salt is left
  uint32_t at_ = 0;             // which block of the text is next
  size_t part_ = no_parent;     // what was copied last of the next node
  std::deque<Copied> above_;    // from the top
  std::shared_mutex mutex_;
  std::atomic<unsigned> marking_{0};      // threads in mark_gone(), which go before readers
  std::vector<std::vector<Mark>> marks_;  // by group and block id
};

}  // namespace pkv::prefix
