// What hints say about cached texts: pins and retention, each for a time or without an end.
//
// A pin keeps a text cached without a session: it is a use of the path to the end of the text. Each
// end has at most one pin. Pins yield to calls that would fail otherwise.
#pragma once

#include "engine/prefix/matcher.h"

namespace pkv::prefix {

// What a pin found and did, in blocks of the text.
struct PinResult {
  uint32_t cached = 0, pinned = 0;  // pinned is lower where a limit was reached
  bool quota_reached = false;       // the limit was the quota of the salt
};

class Hints {
 public:
  Hints(IndexData& data, Uses& uses, Matcher& matcher, uint64_t max_pinned)
      : data_(data), uses_(uses), matcher_(matcher), max_pinned_(max_pinned) {}

  // See the functions of Index with these names.
  PinResult pin(std::string_view salt, Tokens text, uint64_t duration_ms);
  uint32_t unpin(std::string_view salt, Tokens text) noexcept;
  // Ends the pin that ends at a node, for a call that would fail without its blocks.
  void yield(Node& end) noexcept;
  uint32_t set_retention(std::string_view salt, Tokens text, const Range& range);
  // Ends the pins and retentions whose time is over.
  void expire() noexcept {
    if (!data_.pins.empty() || !data_.retained.empty()) expire(data_.time.now_ms());
  }
  // How many blocks are pinned.
  uint64_t pinned() const { return pinned_; }
  // Returns how many blocks pins keep, by group. Throws bad_alloc.
  std::vector<uint64_t> pinned_blocks() const;

 private:
  uint32_t clip(const Space& space, const Tree::Found& found, PinResult& result) const;
  void begin(Node& end, uint32_t asked, uint64_t until);
  void end(Node& end) noexcept;
  void expire(uint64_t now) noexcept;

  IndexData& data_;
  Uses& uses_;
  Matcher& matcher_;
  const uint64_t max_pinned_;
  uint64_t pinned_ = 0;
};

}  // namespace pkv::prefix
