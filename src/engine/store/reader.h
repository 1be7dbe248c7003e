// The thread that looks up which blocks of a text the store has, and puts them into the cache and
// the prefix index.
#pragma once

#include <condition_variable>
#include <list>
#include <string>

#include "engine/store/item_format.h"
#include "engine/store/store_calls.h"
#include "engine/store/worker.h"

namespace pkv::store {

class Reader {
 public:
  Reader(const ItemFormat& format, StoreCalls& store) : format_(format), store_(store) {}

  // Requests a text, whose blocks get a retention. Salts take turns, and each has its texts read in
  // the order of its requests. If there are too many requests, the newest one of the salt that has
  // the most is dropped; returns false if that is this one. A request that cannot begin within
  // `duration_ms` (0: no limit) is dropped, too. Throws bad_alloc or OUT_OF_MEMORY.
  bool prefetch(std::string_view salt, prefix::Tokens text, uint8_t retention,
                uint64_t duration_ms);
  // Waits until the requests that concern a text have ended, or until the given time. Returns how
  // many have not.
  uint64_t wait(std::string_view salt, prefix::Tokens text,
                std::chrono::steady_clock::time_point until);
  // Cancels the requests that concern a text.
  void cancel(std::string_view salt, prefix::Tokens text);
  // Cancels all requests, and ends the thread.
  void stop() noexcept;

  // The thread and the content that it works on, for release_for().
  Worker& worker() { return worker_; }
  // Returns how many contents the reader has worked on.
  uint64_t taken() const noexcept { return taken_.load(std::memory_order_acquire); }
  void report(pkv_store_stats& stats) const noexcept;

 private:
  struct Prefetch {
    std::string salt;
    std::vector<int32_t> text;
    uint8_t retention;
    uint64_t until;     // forgotten if it has not begun then
    uint64_t turn = 0;  // each salt has at most one request per turn
    bool cancelled = false;
    // Returns whether one of the two texts is the beginning of the other, under the same salt.
    bool concerns(std::string_view other_salt, prefix::Tokens other) const;
  };
  // Which items of a text the store has, from block position `from` on.
  struct LookupResult {
    size_t groups;
    uint64_t from, to;                   // `to` is where the usable part ends
    std::vector<ContentKey> keys;        // by position, then group
    std::vector<unsigned char> present;  // by position, then group: 1 if the store has the item
    // Returns where the item of a position and group is in these.
    size_t index(uint64_t position, size_t g) const { return (position - from) * groups + g; }
  };
  using Items = std::vector<pkv_store_item>;

  size_t groups() const { return format_.groups(); }
  uint32_t block_size() const { return format_.block_size(); }
  memory::Group& group(size_t g) const { return format_.group(g); }
  Cache& cache() const { return format_.cache(); }

  const Prefetch& add(std::list<Prefetch>& from);
  void run() noexcept;
  const Prefetch* wait_for_request() noexcept;
  bool is_cancelled(const Prefetch& request) const;
  void read(const Prefetch& request);
  LookupResult look_up(std::string_view salt, prefix::Tokens text, uint64_t from);
  bool is_needed(const LookupResult& lookup, uint64_t position, size_t g) const;
  uint64_t match_in_memory(const Prefetch& request, prefix::Tokens text);
  Items read_items(const LookupResult& lookup, prefix::Tokens text, uint64_t first,
                   uint64_t& count);
  bool add_in_slices(const LookupResult& lookup, prefix::Tokens text, uint64_t first,
                     uint64_t count, const Items& items);
  bool add_blocks(const LookupResult& lookup, prefix::Tokens text, uint64_t first, uint64_t count,
                  const Items& items, size_t& item);
  void fill_blocks(std::span<const pkv_store_item> items);

  const ItemFormat& format_;
  StoreCalls& store_;
  mutable std::mutex requests_mutex_;
  std::condition_variable requested_, ended_;
  std::list<Prefetch> requests_;  // by turn; the thread works on the first one
  bool stopping_ = false;
  std::atomic<uint64_t> taken_{0};
  Count asked_items_, read_items_, read_bytes_, corrupt_items_;
  Worker worker_;  // comes last, so that its thread ends first
};

}  // namespace pkv::store
