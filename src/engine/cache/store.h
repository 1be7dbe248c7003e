// What a cache and its sessions need of the store below the cache. QueuedStore in engine/store
// implements it; the interface is here so that they need not know the rooms above them.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

#include "engine/prefix/index.h"

namespace pkv {

class Content;

// Who asks for a write: a session that ended or was suspended, or a hint.
enum class Writing { of_session, for_hint };

class Store {
 public:
  virtual ~Store() = default;

  // Queues a content. The blocks of it that the prefix index has are written to the store, and then
  // the retention is lowered as its hold says; the other blocks are given back. Returns false if
  // too much is queued already: for a hint, half as much.
  virtual bool enqueue(Content content, Writing why) noexcept = 0;
  // Starts to read the blocks of a text that the index lacks, unless it cannot begin within
  // `duration_ms` (0: no limit). Returns false if too many texts are asked for. Throws bad_alloc or
  // OUT_OF_MEMORY.
  virtual bool prefetch(std::string_view salt, prefix::Tokens text, uint8_t retention,
                        uint64_t duration_ms) = 0;
  // Return whether reads, or writes, are paused after a failure.
  virtual bool reads_pause() const noexcept = 0;
  virtual bool writes_pause() const noexcept = 0;
  // Calls choose() with all that the store can release, in the order in which it should go, and
  // releases those whose indices it returns. A reservation calls this when evicting is not enough.
  // Nothing that the store holds changes meanwhile. Returns how many contents the store has taken
  // so far: if two calls return the same number, it had nothing new to release. Throws what
  // choose() throws.
  using Choose =
      std::function<std::vector<size_t>(std::span<const prefix::Releasable> releasables)>;
  virtual uint64_t release_for(const Choose& choose) = 0;
  // Returns whether fetch() may wait for blocks.
  virtual bool waits() const noexcept = 0;
  // Reads the blocks of a text that the index lacks, for a session that is about to match, and
  // waits for them as long as the store's config says. Throws bad_alloc.
  virtual void fetch(std::string_view salt, prefix::Tokens text) = 0;
  // Calls visit once with all contents that the store holds. They do not change during the call.
  virtual void inspect(
      const std::function<void(std::span<const Content* const> contents)>& visit) = 0;
  // Writes all queued content and ends the threads of the store, which use the cache until then.
  virtual void stop() noexcept = 0;
};

}  // namespace pkv
