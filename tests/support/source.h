// The source of a random test's choices: a seed, or the bytes of a fuzzer's input.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>

class Source {
 public:
  explicit Source(uint64_t seed) : random_(seed) {}
  Source(const uint8_t* data, size_t size) : data_(data), left_(size) {}

  // Returns a number below n. At the end of an input it returns 0.
  uint64_t below(uint64_t n) { return draw(n) % n; }
  uint64_t between(uint64_t first, uint64_t last) { return first + below(last - first + 1); }
  bool chance(unsigned percent) { return below(100) < percent; }

  // Returns the choices of one step. It takes the same number of bytes from an input for every
  // step, however many the step needs, or makes a seed of its own.
  Source part(size_t bytes) {
    if (data_ == nullptr) return Source(random_());
    const Source result(data_, bytes < left_ ? bytes : left_);
    data_ += result.left_;
    left_ -= result.left_;
    return result;
  }

  // Returns true at the end of an input. A seed has no end.
  bool spent() const { return data_ != nullptr && left_ == 0; }

 private:
  // Takes as few bytes as the range needs, so that a fuzzer's change of one byte changes one
  // choice.
  uint64_t draw(uint64_t n) {
    if (data_ == nullptr) return random_();
    uint64_t value = 0;
    for (uint64_t range = n - 1; range > 0 && left_ > 0; range >>= 8, left_--)
      value = value << 8 | *data_++;
    return value;
  }

  std::mt19937_64 random_;
  const uint8_t* data_ = nullptr;
  size_t left_ = 0;
};
