// Parses decimal numbers in configs and in replies of servers.
#pragma once

#include <charconv>
#include <optional>
#include <string_view>

namespace pkv::redis {

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
