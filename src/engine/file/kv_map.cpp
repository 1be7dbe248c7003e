// Computes where each chain and group begins among the keys and values of a file.
#include "engine/file/kv_map.h"

#include "base/checked.h"
#include "engine/file/tiles.h"

namespace pkv::file {

KvMap::KvMap(const Tables& tables) {
  uint64_t offset = 0;
  for (uint32_t c = 0; c < tables.chains.size(); c++)
    for (size_t g = 0; g < tables.groups.size(); g++) {
      const memory::Shape& shape = tables.groups[g].shape;
      if (!tables.has_kv || tables.chains[c].has_kv[g] == 0) continue;
      const uint64_t tile_tokens = saved_tile_tokens(shape, tables.block_size),
                     tiles = ceil_div(tables.chains[c].tokens.size(), tile_tokens) * shape.layers;
      sections_.push_back({c, g, shape.layers, offset,
                           static_cast<size_t>(saved_layer_bytes(shape)), tiles, tile_tokens});
      offset = sections_.back().end();
      max_tile_bytes_ = std::max(max_tile_bytes_, sections_.back().bytes);
    }
}

}  // namespace pkv::file
