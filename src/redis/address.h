// The address of a server, and a check of strings that may be a host.
#pragma once

#include <compare>
#include <string>
#include <string_view>

namespace pkv::redis {

struct Address {
  std::string host;
  int port;

  auto operator<=>(const Address&) const = default;
  std::string text() const { return host + ":" + std::to_string(port); }
};

// Whether a string can be a host name or an IP address. Error sentences show a host from a server
// or a caller only if this is true.
bool is_host(std::string_view text);

}  // namespace pkv::redis
