// The memory of one layer group: its layout, its pool of block ids and, for paged storage, the slab of bytes.
#pragma once

#include <atomic>
#include <optional>

#include "engine/memory/layout.h"
#include "engine/memory/pool.h"
#include "engine/memory/slab.h"

namespace pkv {

struct Group {
  Group(pkv_storage kind, pkv_layout layout_kind, const Shape& group_shape, uint32_t tokens_per_block, uint32_t blocks,
        HookMemory& resource, pkv_huge_pages huge_pages)
      : storage(kind), shape(group_shape), block_size(tokens_per_block), memory(resource),
        layout(layout_kind, group_shape, tokens_per_block, blocks), pool(blocks, tokens_per_block, &resource) {
    if (storage == PKV_STORAGE_PAGED) slab.emplace(layout.total_bytes(), resource, huge_pages);
  }

  const pkv_storage storage;
  const Shape shape;
  const uint32_t block_size;
  HookMemory& memory;
  const Layout layout;
  Pool pool;
  std::optional<Slab> slab;
  std::atomic<uint64_t> tensor_bytes{0};  // of contiguous sequences
};

}  // namespace pkv
