// What may be behind the memory of a cache: blocks go there and come back. The cache and its
// sessions know it by these calls; StoreTier (engine/tier) is the one that keeps blocks in a
// pkv_store.
#pragma once

#include <pagedkv/store.h>

#include <chrono>
#include <functional>
#include <span>
#include <string_view>

#include "engine/prefix/index.h"

namespace pkv {

class Content;

class Tier {
 public:
  using Clock = std::chrono::steady_clock;
  virtual ~Tier() = default;

  // Takes the content of a session that ended. What of it is not in the prefix index is given back.
  virtual void write(Content content) noexcept = 0;
  // Blocks are short: what waits to be written gives up its own. Returns false if there was
  // nothing.
  virtual bool give_way() noexcept = 0;
  // Returns how many block positions still wait when all is written, or the time is up.
  virtual uint64_t flush(Clock::time_point until) noexcept = 0;

  // Asks for a text in the background. Throws bad_alloc.
  virtual void prefetch(std::string_view salt, prefix::Tokens text) = 0;
  // For a session that is about to match: prefetches and waits, as long as the config says. Throws
  // bad_alloc.
  virtual void fetch(std::string_view salt, prefix::Tokens text) = 0;
  virtual void wait(std::string_view salt, prefix::Tokens text, Clock::time_point until) = 0;
  virtual void cancel(std::string_view salt, prefix::Tokens text) = 0;

  virtual pkv_store_stats stats() const = 0;
  // Calls look with all contents that the tier holds, which do not change meanwhile.
  virtual void inspect(
      const std::function<void(std::span<const Content* const> contents)>& look) = 0;
};

}  // namespace pkv
