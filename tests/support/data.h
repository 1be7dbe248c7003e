// The paths of data files in the repository.
#pragma once

#include <filesystem>

namespace cache_test {

inline std::filesystem::path repository_data(const char* name) {
  return std::filesystem::path(PAGEDKV_ROOT) / "bench" / "data" / name;
}

}  // namespace cache_test
