// Where in a file the keys and values are: for each chain and group, tiles one after another.
#pragma once

#include <algorithm>
#include <vector>

#include "engine/file/format.h"

namespace pkv::file {

// One layer of up to 16 tokens.
struct SavedTile {
  uint32_t chain;
  size_t group;
  uint32_t layer;
  uint64_t first;   // token of the chain
  uint64_t offset;  // behind the tables
  size_t bytes;
};

class KvMap {
 public:
  explicit KvMap(const Tables& tables);
  // Of one tile.
  size_t longest() const { return longest_; }

  // visit(tile) for those that begin in [begin, end), or for those that end in (begin, end].
  template <class Visit>
  void each_begun(uint64_t begin, uint64_t end, const Visit& visit) const {
    each(begin, end, 1, visit);
  }
  template <class Visit>
  void each_ended(uint64_t begin, uint64_t end, const Visit& visit) const {
    each(begin, end, 0, visit);
  }

 private:
  struct Section {
    uint32_t chain;
    size_t group;
    uint32_t layers;
    uint64_t offset;
    size_t bytes;  // of a tile
    uint64_t tiles;
    uint64_t end() const { return offset + tiles * bytes; }
    // Tiles that lie before `at` altogether, and with `begun` those that only begin there.
    uint64_t before(uint64_t at, bool begun) const {
      return at <= offset ? 0 : std::min(tiles, (at - offset + (begun ? bytes - 1 : 0)) / bytes);
    }
  };

  template <class Visit>
  void each(uint64_t begin, uint64_t end, bool begun, const Visit& visit) const {
    auto section =
        std::upper_bound(sections_.begin(), sections_.end(), begin,
                         [](uint64_t at, const Section& other) { return at < other.end(); });
    for (; section != sections_.end() && section->offset < end; section++)
      for (uint64_t i = section->before(begin, begun); i < section->before(end, begun); i++)
        visit(SavedTile{section->chain, section->group, static_cast<uint32_t>(i % section->layers),
                        i / section->layers * kernels::tile_tokens,
                        section->offset + i * section->bytes, section->bytes});
  }

  std::vector<Section> sections_;
  size_t longest_ = 0;
};

}  // namespace pkv::file
