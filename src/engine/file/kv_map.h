// Finds the tiles in a range of bytes of a file. For each chain and group, the tiles lie one after
// another. Saving and loading both use this order.
#pragma once

#include <algorithm>
#include <vector>

#include "engine/file/format.h"
#include "engine/file/tiles.h"

namespace pkv::file {

// K and V of up to 16 tokens in one layer, all heads; or a state of one layer; or an opaque block.
struct SavedTile {
  uint32_t chain;
  size_t group;
  uint32_t layer;
  uint64_t first;   // index of its first token in the chain
  uint64_t offset;  // in bytes from the end of the tables
  size_t bytes;
};

class KvMap {
 public:
  explicit KvMap(const Tables& tables) {
    uint64_t offset = 0;
    for (uint32_t c = 0; c < tables.chains.size(); c++)
      for (size_t g = 0; g < tables.groups.size(); g++) {
        const memory::Shape& shape = tables.groups[g].shape;
        if (!tables.has_kv || tables.chains[c].has_kv[g] == 0) continue;
        const uint32_t layers = saved_tile_layers(shape);
        const uint64_t tokens = saved_tile_tokens(shape, tables.block_size),
                       tiles = ceil_div(tables.chains[c].tokens.size(), tokens) * layers;
        const auto bytes = static_cast<size_t>(saved_layer_bytes(shape));
        sections_.push_back({c, g, layers, offset, bytes, tiles, tokens});
        offset = sections_.back().end();
        max_tile_bytes_ = std::max(max_tile_bytes_, bytes);
      }
  }
  // Returns the bytes of the largest tile.
  size_t max_tile_bytes() const { return max_tile_bytes_; }

  // Calls visit(tile) for each tile that begins in bytes [begin, end).
  template <class Visit>
  void for_each_beginning_in(uint64_t begin, uint64_t end, const Visit& visit) const {
    for_each(begin, end, true, visit);
  }
  // Calls visit(tile) for each tile that ends in bytes (begin, end].
  template <class Visit>
  void for_each_ending_in(uint64_t begin, uint64_t end, const Visit& visit) const {
    for_each(begin, end, false, visit);
  }

 private:
  // The tiles of one chain in one group.
  struct Section {
    uint32_t chain;
    size_t group;
    uint32_t layers;
    uint64_t offset;
    size_t bytes;  // of a tile
    uint64_t tiles;
    uint64_t tile_tokens;
    uint64_t end() const { return offset + tiles * bytes; }
    // Returns how many tiles lie before `at` completely, or at least `partly`.
    uint64_t tiles_before(uint64_t at, bool partly) const {
      return at <= offset ? 0 : std::min(tiles, (at - offset + (partly ? bytes - 1 : 0)) / bytes);
    }
  };

  template <class Visit>
  void for_each(uint64_t begin, uint64_t end, bool partly, const Visit& visit) const {
    auto section =
        std::upper_bound(sections_.begin(), sections_.end(), begin,
                         [](uint64_t at, const Section& other) { return at < other.end(); });
    for (; section != sections_.end() && section->offset < end; section++)
      for (uint64_t i = section->tiles_before(begin, partly);
           i < section->tiles_before(end, partly); i++)
        visit(SavedTile{section->chain, section->group, static_cast<uint32_t>(i % section->layers),
                        i / section->layers * section->tile_tokens,
                        section->offset + i * section->bytes, section->bytes});
  }

  std::vector<Section> sections_;
  size_t max_tile_bytes_ = 0;
};

}  // namespace pkv::file
