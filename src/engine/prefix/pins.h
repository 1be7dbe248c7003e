// Pins: uses of a path that no session has, which keep a text cached.
#pragma once

#include "engine/prefix/matcher.h"

namespace pkv::prefix {

class Pins {
 public:
  Pins(Contents& contents, Claims& claims, Matcher& matcher, uint64_t max_blocks)
      : contents_(contents), claims_(claims), matcher_(matcher), max_blocks_(max_blocks) {}

  // How many pins a salt has at most. Nodes count their users in 32 bits: these pins, and sessions
  // and snapshots, of which memory bounds the number to far less than the other half.
  static constexpr uint32_t max_pins = uint32_t{1} << 31;

  // See Index::pin and Index::unpin.
  uint32_t pin(std::string_view salt, Tokens text);
  uint32_t unpin(std::string_view salt, Tokens text);
  uint64_t blocks() const { return blocks_; }

 private:
  Contents& contents_;
  Claims& claims_;
  Matcher& matcher_;
  const uint64_t max_blocks_;
  uint64_t blocks_ = 0;  // pinned now
};

}  // namespace pkv::prefix
