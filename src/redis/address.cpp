// Which strings can be a host.
#include "redis/address.h"

#include <algorithm>

namespace pkv::redis {

bool is_host(std::string_view text) {
  constexpr size_t max_name = 255;
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("-._:%").find(c) != std::string_view::npos;
  };
  return !text.empty() && text.size() <= max_name && std::all_of(text.begin(), text.end(), allowed);
}

}  // namespace pkv::redis
