// Where a server is.
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

// Can this be a host name or an address? What a server or a caller says is in no sentence unless it
// can.
bool is_host(std::string_view text);

}  // namespace pkv::redis
