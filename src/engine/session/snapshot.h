// A sequence that no longer changes: references to its blocks (copies, where storage is
// contiguous).
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
