// All that a prefix index has at one moment, as somebody who writes it down needs it. Until it ends
// its blocks are in use: nothing of it is evicted.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/memory/group.h"

namespace pkv {

class PrefixIndex;
struct Node;

class PrefixImage {
 public:
  static constexpr size_t no_parent = ~size_t{0};

  // A run of blocks that follows the end of another one, which comes before it in the list.
  struct Part {
    size_t parent = no_parent;
    size_t salt = 0;               // in salts
    bool leaf = false;             // no other one follows it
    uint64_t last_use = 0;         // later ones are larger
    uint8_t retention = 0;
    std::vector<int32_t> tokens;   // in whole blocks
    std::vector<Block> blocks;     // by position, then group; no_block where a window group has let go
  };

  PrefixImage(PrefixIndex& index, std::span<const std::unique_ptr<Group>> groups) : index_(index), groups_(groups) {}
  ~PrefixImage();
  PrefixImage(PrefixImage&& other) noexcept;
  PrefixImage(const PrefixImage&) = delete;
  PrefixImage& operator=(const PrefixImage&) = delete;

  // Takes references to a part's blocks; one that cannot be had is left out.
  void add(Part part);

  const std::vector<Part>& parts() const { return parts_; }
  std::vector<std::string> salts;

 private:
  friend class PrefixIndex;

  PrefixIndex& index_;
  std::span<const std::unique_ptr<Group>> groups_;
  std::vector<Part> parts_;
  std::vector<Node*> claims_;  // on the ends of all texts
};

}  // namespace pkv
