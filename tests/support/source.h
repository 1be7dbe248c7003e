// Where a random test takes its choices from: a seed, or the bytes of a fuzzer's input.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>

class Source {
 public:
  explicit Source(uint64_t seed) : random_(seed) {}
  Source(const uint8_t* data, size_t size) : data_(data), left_(size) {}

  // A number below n. An input that has come to its end gives 0.
  uint64_t below(uint64_t n) { return draw(n) % n; }
  uint64_t between(uint64_t first, uint64_t last) { return first + below(last - first + 1); }
  bool chance(unsigned percent) { return below(100) < percent; }

  // The choices of one step: the next bytes of an input, so many for every step, whatever it takes
  // of them; or a seed of its own.
  Source part(size_t bytes) {
    if (data_ == nullptr) return Source(random_());
    const Source result(data_, bytes < left_ ? bytes : left_);
    data_ += result.left_;
    left_ -= result.left_;
    return result;
  }

  // True where the input has come to its end; never of a seed.
  bool spent() const { return data_ != nullptr && left_ == 0; }

 private:
  // As few bytes as the range needs, so that a fuzzer's change of one byte changes one choice.
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
