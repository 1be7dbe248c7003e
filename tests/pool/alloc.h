// Allocates blocks that must be available.
#pragma once

#include <gtest/gtest.h>

#include <memory_resource>
#include <vector>

#include "engine/memory/pool.h"

namespace pkv::memory {

inline std::pmr::memory_resource* const memory = std::pmr::new_delete_resource();

inline std::vector<Block> alloc(Pool& pool, size_t n) {
  std::vector<Block> blocks(n);
  EXPECT_TRUE(pool.try_alloc(n, blocks.data()));
  return blocks;
}

}  // namespace pkv::memory
