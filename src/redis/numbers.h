// Reading decimal numbers in what a caller configures and in what a server says.
#pragma once

#include <charconv>
#include <optional>
#include <string_view>

namespace pkv::redis {

// Returns the number that the whole text is, or nothing if it is none or is not in [min, max].
template <class Number>
std::optional<Number> parse_number(std::string_view text, Number min, Number max) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size() || number < min || number > max)
    return std::nullopt;
  return number;
}

}  // namespace pkv::redis
