// Where data lies: in the repository, or beside it.
#pragma once

#include <cstdlib>
#include <filesystem>

namespace systems {

// Data that is not in the repository: PAGEDKV_DATA, or ../shared/data beside it.
inline std::filesystem::path outside_data(const char* name) {
  const char* const given = std::getenv("PAGEDKV_DATA");
  const std::filesystem::path root = PAGEDKV_ROOT;
  return (given != nullptr ? std::filesystem::path(given)
                           : root.parent_path() / "shared" / "data") /
         name;
}

inline std::filesystem::path repository_data(const char* name) {
  return std::filesystem::path(PAGEDKV_ROOT) / "bench" / "data" / name;
}

}  // namespace systems
