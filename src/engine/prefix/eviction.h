// Removes blocks from the index: to free blocks of a pool, to keep the quota of a salt, or because
// they are cleared.
#pragma once

#include <optional>

#include "engine/prefix/uses.h"

namespace pkv::prefix {

class Eviction {
 public:
  Eviction(IndexData& data, Uses& uses) : data_(data), uses_(uses) {}

  // See the functions of Index with these names.
  bool evict_until_free(std::span<const uint64_t> wanted) noexcept;
  bool evict_for_pages(memory::Pages& pages, std::span<const uint64_t> wanted) noexcept;
  void set_quota(std::string_view salt, std::optional<uint64_t> blocks);
  void clear(Space& space) noexcept;
  void clear() noexcept;
  // Evicts unused blocks of a space, those of the lowest retention first and among these the least
  // recently used ones, to fit `wanted` blocks into its quota. Returns how many of them fit.
  uint64_t make_room_in_quota(Space& space, uint64_t wanted) noexcept;
  // Returns false if the quota certainly has no room for another block.
  bool may_have_room_in_quota(Space& space) const noexcept;
  // Drops the path from a node up to `above`, as far as it is unused and no other path shares
  // it.
  void withdraw(Node& node, const Node& above) noexcept;
  // See Index::drop.
  std::pair<uint32_t, uint32_t> drop(Space& space, Tokens text, uint32_t first);
  void let_go(size_t group, uint32_t id) noexcept;

 private:
  bool has(size_t group, uint64_t wanted) noexcept;
  bool evict_until_free(size_t group, uint64_t wanted) noexcept;
  bool evict_some() noexcept;
  bool evict_sparse_blocks(CachedBlocks::List list) noexcept;
  bool evict_sparse_block(size_t group, CachedBlocks::List list) noexcept;
  void evict_sparse_block(size_t group, CachedBlocks::Place place) noexcept;
  void evict(Node& victim, uint64_t max_blocks, pkv_prefix_event_kind why) noexcept;
  void drop_last(Node& node, uint32_t count, pkv_prefix_event_kind why) noexcept;
  void release_last(const Node& node, uint32_t count) noexcept;

  IndexData& data_;
  Uses& uses_;
};

}  // namespace pkv::prefix
