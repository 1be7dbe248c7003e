// A sequence that no longer changes. It holds references to the blocks of the session it was taken
// from.
#pragma once

#include <utility>

#include "engine/session/content.h"

namespace pkv {

class Snapshot {
 public:
  Snapshot(Content content, const Attributes& attributes)
      : content_(std::move(content)), attributes_(attributes) {}
  const Content& content() const { return content_; }
  // The attributes of the session that it was taken from.
  const Attributes& attributes() const { return attributes_; }

 private:
  const Content content_;
  const Attributes attributes_;
  const Counted counted_{content_.cache().counters().snapshots};
};

}  // namespace pkv
