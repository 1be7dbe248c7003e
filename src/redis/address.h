// The address of a server, and how hosts and numbers in configs and replies are checked.
#pragma once

#include <charconv>
#include <compare>
#include <optional>
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

// Returns the number if the whole text is one in [min, max]; otherwise nothing.
template <class Number>
std::optional<Number> parse_number(std::string_view text, Number min, Number max) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size() || number < min || number > max)
    return std::nullopt;
  return number;
}

}  // namespace pkv::redis
