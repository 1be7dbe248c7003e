// A step in flight as the sessions in it see it. It is a batch, or an append to one session;
// sessions include only this interface, because a batch in turn knows its sessions.
// Destroying a step that was not committed aborts it.
#pragma once

#include <cstdint>

namespace pkv {

class Step {
 public:
  virtual ~Step() = default;
  // True if K and V of the new tokens are written in this layer.
  virtual bool written(uint32_t layer) const = 0;
};

}  // namespace pkv
