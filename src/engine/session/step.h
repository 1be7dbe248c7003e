// A step in flight, as the sessions in it know it: a batch, or a prefill or push of one session.
// Whoever destroys it before it was committed aborts it.
#pragma once

#include <cstdint>

namespace pkv {

class Step {
 public:
  virtual ~Step() = default;
  // Whether the new tokens have keys and values in a layer.
  virtual bool written(uint32_t layer) const = 0;
  virtual const char* name() const = 0;  // for a sentence: "batch"
};

}  // namespace pkv
