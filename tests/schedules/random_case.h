// A random case: two to four threads of up to five calls each on a small pool. Threads follow the
// rules: they use blocks that they hold, retain blocks that may be gone, and fill blocks that they
// publish. So every finding is a fault of the pool.
#pragma once

#include "explorer.h"
#include "pool_play.h"

namespace schedules {

class RandomCase {
 public:
  explicit RandomCase(uint64_t seed) : random_(~seed) {
    case_.name = "random";
    case_.relaxed = {.allocs = true, .refusals_alone = true};
    case_.blocks = 1 + random_.below(4);
    // The number of blocks that the threads begin with.
    const uint32_t shared = random_.below(case_.blocks + 1);
    if (random_.below(3) == 0) {
      // The other blocks lie around the border of two words.
      const uint32_t held = 63 + random_.below(2);
      setup_ = "hold " + std::to_string(held);
      case_.blocks += held;
      case_.shards = 1 + random_.below(2);
    }
    if (random_.below(8) == 0)
      case_.first_generation = pkv::memory::retired_generation - 1 - random_.below(2);
    for (uint32_t i = 0; i < shared; i++)
      setup_ += (setup_.empty() ? "alloc " : "; alloc ") + letter(i);
    case_.alone = random_.below(3) == 0;
    const uint32_t threads = 2 + random_.below(3);
    for (uint32_t thread = 0; thread < threads; thread++) {
      std::vector<uint32_t> owned;
      for (uint32_t i = 0; i < shared; i++)
        if (i % threads == thread) owned.push_back(i);
      threads_ += (thread == 0 ? "" : " | ") + program(owned, shared);
      // One thread only may take what is listed.
      if (thread == 0 && case_.alone) threads_ += "; alone";
    }
    case_.setup = setup_.c_str();
    case_.threads = threads_.c_str();
  }
  RandomCase(const RandomCase&) = delete;
  RandomCase& operator=(const RandomCase&) = delete;

  const Case& get() const { return case_; }

 private:
  static std::string letter(uint32_t i) { return std::string(1, static_cast<char>('a' + i)); }

  // Makes a program. `owned` are the references that this thread must release or keep; blocks
  // below `shared` may be looked up.
  std::string program(std::vector<uint32_t> owned, uint32_t shared) {
    std::string text;
    uint32_t fresh = shared;
    for (uint32_t calls = 1 + random_.below(5); calls > 0; calls--) {
      if (!text.empty()) text += "; ";
      const uint32_t kind = random_.below(10);
      if (kind < 4 && !owned.empty()) {
        const uint32_t first = remove(owned);
        text += "release " + letter(first);
        if (const uint32_t second = owned.empty() ? first : remove(owned); second != first)
          text += " " + letter(second);
      } else if (kind < 6 && !owned.empty()) {
        text += change(owned[random_.below(static_cast<uint32_t>(owned.size()))]);
      } else if (kind == 6) {
        text += "take " + letter(fresh) + "; retain " + letter(fresh);
        owned.push_back(fresh++);
      } else if (kind == 7 && shared > 0) {
        const uint32_t cached = random_.below(shared);
        text += "retain " + letter(cached);
        owned.push_back(cached);
      } else {
        text += "alloc";
        for (uint32_t n = 1 + random_.below(2); n > 0; n--) {
          text += " " + letter(fresh);
          owned.push_back(fresh++);
        }
      }
    }
    return text;
  }

  std::string change(uint32_t owned) {
    const std::string block = letter(owned);
    if (random_.below(2) == 0) return "fill " + block + " " + std::to_string(random_.below(3));
    return "fill " + block + " 2; publish " + block;
  }

  uint32_t remove(std::vector<uint32_t>& owned) {
    const size_t place = random_.below(static_cast<uint32_t>(owned.size()));
    const uint32_t block = owned[place];
    owned.erase(owned.begin() + static_cast<ptrdiff_t>(place));
    return block;
  }

  RandomSchedule random_;
  std::string setup_, threads_;
  Case case_;
};

}  // namespace schedules
