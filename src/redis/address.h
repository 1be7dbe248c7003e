// The address of a server, and which texts can be a host in one.
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

// Whether a text can be a host name or an IP address. Error sentences show a host that a server or
// a caller gave only if this is true.
bool is_host(std::string_view text);

}  // namespace pkv::redis
