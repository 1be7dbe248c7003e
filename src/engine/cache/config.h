// The config of a cache: a caller's structs, checked and with defaults filled in, and the plan that
// says how many bytes it takes.
#pragma once

#include <pagedkv/cache.h>
#include <pagedkv/store.h>

#include <optional>
#include <string>
#include <vector>

#include "engine/memory/layout.h"
#include "engine/memory/pages.h"
#include "engine/prefix/index_options.h"

namespace pkv {

struct GroupConfig {
  memory::Shape shape;
  uint32_t blocks;                      // with shared memory: those that all of it would be
  uint64_t block_stride;                // with shared memory, or 0
  std::vector<uint32_t> layer_indices;  // the group's layers, as the model numbers them
};

struct CacheConfig {
  pkv_storage storage;
  pkv_layout layout;
  uint32_t block_size;
  uint32_t layers;  // over all groups
  std::vector<GroupConfig> groups;
  uint32_t threads;   // with a runner, the number of its threads
  pkv_runner runner;  // its run is NULL if the caller has none
  pkv_isa isa;
  pkv_huge_pages huge_pages;
  std::string memory_directory;  // empty: memory
  bool prefault;
  std::optional<prefix::IndexOptions> prefix;
  std::optional<pkv_store_config> store;
  uint64_t max_queued_blocks;  // of the store; 0: the default
  uint32_t watermark;          // blocks of each group that only sessions that have run may take
  std::optional<memory::PageCut> pages;  // of the memory that the groups share
  std::optional<pkv_block_io> block_io;  // if a group is opaque

  // Returns whether the bytes of all blocks can be copied: storage is not EXTERNAL, or all groups
  // are opaque.
  bool has_bytes() const { return storage != PKV_STORAGE_EXTERNAL || groups[0].shape.opaque(); }
};

// Throws INVALID_ARGUMENT unless it is a multiple of 16 in the possible range.
void check_block_size(uint32_t block_size);

// Converts a limit in tokens to whole blocks, rounded down; 0 stays 0. Throws INVALID_ARGUMENT for
// less than one block.
uint64_t limit_in_blocks(uint64_t tokens, uint32_t block_size, const char* name);

// Checks a caller's config and the structs that it points to, and fills in defaults. Throws
// INVALID_ARGUMENT, OUT_OF_RANGE, UNSUPPORTED, TOO_LARGE, OVERFLOW with a sentence about the first
// thing that is wrong.
CacheConfig check_config(pkv_cache_config config);

// Computes the sizes of one group, or of the whole cache for PKV_ALL_GROUPS. Throws OUT_OF_RANGE,
// OVERFLOW.
pkv_cache_sizes compute_sizes(const CacheConfig& config, uint32_t group);

}  // namespace pkv
