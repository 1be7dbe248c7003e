// A caller's config, checked and with its defaults filled in, and what it takes in bytes.
#pragma once

#include <pagedkv/cache.h>
#include <pagedkv/store.h>

#include <optional>
#include <vector>

#include "engine/memory/layout.h"

namespace pkv {

struct GroupConfig {
  memory::Shape shape;
  uint32_t blocks;
  std::vector<uint32_t> layer_indices;  // which layers of the model
};

struct CacheConfig {
  pkv_storage storage;
  pkv_layout layout;
  uint32_t block_size;
  uint32_t layers;  // over all groups
  std::vector<GroupConfig> groups;
  uint32_t threads;
  pkv_runner runner;  // run NULL: none
  pkv_isa isa;
  pkv_huge_pages huge_pages;
  bool prefault;
  bool prefix;  // keeps an index of what was computed
  pkv_prefix_config prefix_config;
  std::optional<pkv_store_config> store;
  uint32_t watermark;  // blocks of each group that only sessions with tokens may take
};

// Throws INVALID_ARGUMENT.
void check_block_size(uint32_t block_size);
// Throws the status and sentence of the first thing that is wrong. config has the size of this
// build; its groups are read by their own struct_size.
CacheConfig check_config(const pkv_cache_config& config);

// group: an index or PKV_ALL_GROUPS.
pkv_cache_plan compute_plan(const CacheConfig& config, uint32_t group);

// The defaults of a group whose caller said nothing.
pkv_layer_group default_group();
pkv_prefix_config default_prefix();
pkv_store_config default_store();
pkv_cache_config default_config();

}  // namespace pkv
