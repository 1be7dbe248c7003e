// The kinds of memory that keys and values can lie in, for tests that run on each of them.
#pragma once

#include <gtest/gtest.h>
#include <pagedkv/cache.h>

#include <string>

namespace cache_test {

struct MemoryKind {
  const char* name;
  pkv_layout layout;
  const char* directory = nullptr;  // of the file that the memory is
};

inline constexpr MemoryKind memory_kinds[] = {{"packed", PKV_LAYOUT_PACKED},
                                              {"plain", PKV_LAYOUT_PLAIN},
                                              {"in_file", PKV_LAYOUT_PACKED, "."}};

inline std::string kind_name(const testing::TestParamInfo<MemoryKind>& test) {
  return test.param.name;
}

}  // namespace cache_test
