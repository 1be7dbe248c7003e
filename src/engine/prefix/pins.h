// Pins keep a text cached without a session: each pin is a use of the path to the end of the text.
#pragma once

#include "engine/prefix/matcher.h"

namespace pkv::prefix {

class Pins {
 public:
  Pins(IndexData& data, Uses& uses, Matcher& matcher, uint64_t max_blocks)
      : data_(data), uses_(uses), matcher_(matcher), max_blocks_(max_blocks) {}

  // The most pins of a salt. Nodes count their users in 32 bits: pins take at most half of that
  // range, and memory limits sessions and snapshots to far less than the other half.
  static constexpr uint32_t max_pins = uint32_t{1} << 31;

  // See the functions of Index with these names.
  uint32_t pin(std::string_view salt, Tokens text);
  void unpin(std::string_view salt, Tokens text);
  uint64_t blocks() const { return blocks_; }

 private:
  IndexData& data_;
  Uses& uses_;
  Matcher& matcher_;
  const uint64_t max_blocks_;
  uint64_t blocks_ = 0;  // pinned now
};

}  // namespace pkv::prefix
