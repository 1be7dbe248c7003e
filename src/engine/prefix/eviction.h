// Removes blocks from the index: to free blocks of a pool, to keep the quota of a salt, or because
// they are cleared.
#pragma once

#include <optional>

#include "engine/prefix/uses.h"

namespace pkv::prefix {

class Eviction {
 public:
  Eviction(IndexData& data, Uses& uses) : data_(data), uses_(uses) {}

  // Evicts until a group has `blocks` free blocks. Returns false, and evicts nothing, if there are
  // not enough evictable ones.
  bool make_free(size_t group, uint64_t blocks) noexcept;
  // Evicts until pages have `wanted` blocks of each group. Returns false, and evicts nothing, if
  // there are not enough evictable ones.
  bool make_room(memory::Pages& pages, std::span<const uint64_t> wanted) noexcept;
  // Marks all evictable blocks as free. Throws bad_alloc.
  void free_evictable(memory::PageForecast& forecast);
  // Evicts unused blocks of a space, least recently used first, to fit `wanted` blocks into its
  // quota. Returns how many of them fit.
  uint64_t make_room_in_quota(Space& space, uint64_t wanted) noexcept;
  // See Index::set_quota.
  void set_quota(std::string_view salt, std::optional<uint64_t> blocks);
  // Drops all unused blocks of one space, or of all.
  void clear(Space& space) noexcept;
  void clear() noexcept;
  // Drops the path from a node up to `above`, as far as it is unused and no other path shares
  // it.
  void withdraw(Node& node, const Node& above) noexcept;

 private:
  bool evict_some() noexcept;
  bool evict_window_blocks(CachedBlocks::List list) noexcept;
  bool evict_window_block(size_t group, CachedBlocks::List list) noexcept;
  void evict(Node& victim, uint64_t max_blocks, pkv_prefix_event_kind why) noexcept;
  void drop_last(Node& node, uint32_t count, pkv_prefix_event_kind why) noexcept;
  void release_last(const Node& node, uint32_t count) noexcept;

  IndexData& data_;
  Uses& uses_;
};

}  // namespace pkv::prefix
