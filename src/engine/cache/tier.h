// The interface between a cache with its sessions and the tier that keeps blocks in a pkv_store.
// StoreTier in engine/tier implements it; the interface is here so that the cache and its sessions
// need not know the rooms above them.
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

  // Queues the content of a session that ended or was suspended. The blocks of it that the prefix
  // index has are written to the store; the others are given back.
  virtual void write(Content content) noexcept = 0;
  // Releases all contents that the tier holds, which makes their blocks free. A reservation calls
  // this when evicting is not enough. Returns how many contents the tier had taken until then: if
  // two calls return the same number, the tier had nothing to release in between.
  virtual uint64_t give_way() noexcept = 0;
  // Waits until all is written, or until the given time. Returns how many block positions are not
  // written yet.
  virtual uint64_t flush(Clock::time_point until) noexcept = 0;

  // Begins to read the blocks of a text that the index lacks, in the background. Throws bad_alloc.
  virtual void prefetch(std::string_view salt, prefix::Tokens text) = 0;
  // Does the same for a session that is about to match, and waits for as long as the store's config
  // says. Throws bad_alloc.
  virtual void fetch(std::string_view salt, prefix::Tokens text) = 0;
  // Waits until the prefetches of a text have ended, or until the given time. Returns how many have
  // not.
  virtual uint64_t wait(std::string_view salt, prefix::Tokens text, Clock::time_point until) = 0;
  // Ends the prefetch of a text.
  virtual void cancel(std::string_view salt, prefix::Tokens text) = 0;

  virtual pkv_store_stats stats() const = 0;
  // Calls visit once with all contents that the tier holds. They do not change during the call.
  virtual void inspect(
      const std::function<void(std::span<const Content* const> contents)>& visit) = 0;
};

}  // namespace pkv
