// What a session needs of the batch that it is in. Sessions include only this header, since batch.h
// includes session.h.
#pragma once

#include <cstdint>

namespace pkv {

class Step {
 public:
  // Returns whether K and V of the new tokens are written in a layer whose rows the library keeps.
  virtual bool written(uint32_t layer) const = 0;

 protected:
  ~Step() = default;
};

}  // namespace pkv
