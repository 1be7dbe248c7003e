// A sequence that no longer changes. It holds references to the blocks of the session it was taken
// from or, where storage is contiguous, copies.
#pragma once

#include <utility>

#include "engine/session/content.h"

namespace pkv {

class Snapshot {
 public:
  explicit Snapshot(Content content) : content_(std::move(content)) {}
  const Content& content() const { return content_; }

 private:
  const Content content_;
};

}  // namespace pkv
