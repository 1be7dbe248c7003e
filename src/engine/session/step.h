// The interface of a step in flight for the sessions in it. A step is a batch, or an append to one
// session. Sessions include only this header, since batch.h includes session.h. Destroying a step
// that was not committed aborts it.
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
