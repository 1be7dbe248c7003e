// The tier behind a cache's memory: what sessions leave in the prefix index goes to a store, and
// comes back when it is asked for. Two threads, one that writes and one that reads, so that no step
// waits for the store.
//
// A session that ends or is suspended hands its content over. Until that is written its blocks stay
// in use: what nobody has written is evicted last. Where blocks are short all the same, give_way()
// lets go of everything at once.
#pragma once

#include <pagedkv/store.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_set>

#include "engine/content.h"
#include "engine/store/block_value.h"

namespace pkv {

// A caller's store, with what is counted of it. Leaves one that failed alone for a while.
class StoreCalls {
 public:
  explicit StoreCalls(const pkv_store& store) : store_(store) {}
  ~StoreCalls();  // closes the store, if it is owned
  void own() noexcept { owned_ = true; }
  StoreCalls(const StoreCalls&) = delete;
  StoreCalls& operator=(const StoreCalls&) = delete;

  // How many items; 0 where it is down.
  uint64_t put(std::span<const pkv_store_item> items) noexcept;
  uint64_t get(std::span<pkv_store_item> items) noexcept;
  uint64_t probe(std::span<pkv_store_item> items) noexcept;
  void drop(const pkv_store_item& item) noexcept;
  bool down() const noexcept;
  uint64_t failures() const { return failures_.load(std::memory_order_relaxed); }

 private:
  template <class Items, class Call>
  uint64_t call(Items items, const Call& function) noexcept;

  const pkv_store store_;
  bool owned_ = false;
  std::atomic<uint64_t> failures_{0};
  std::atomic<int64_t> down_until_{0}, pause_{0};  // nanoseconds
};

// Enough of a key to remember it by, where a mistake costs a miss.
inline uint64_t beginning(const ContentKey& key) {
  uint64_t number;
  std::memcpy(&number, key.data(), sizeof number);
  return number;
}

class Tier {
 public:
  using Clock = std::chrono::steady_clock;
  // config was checked and has the size of this build. Throws UNSUPPORTED, bad_alloc.
  Tier(Cache& cache, const pkv_store_config& config);
  // Until then the store is the caller's to close.
  void own_store() noexcept { store_.own(); }
  ~Tier();  // writes what is queued
  Tier(const Tier&) = delete;
  Tier& operator=(const Tier&) = delete;

  // The content of a session that ended. What of it is not in the index is given back.
  void write(Content content) noexcept;
  // Blocks are short: what is queued gives up its own. False if there was nothing.
  bool give_way() noexcept;
  uint64_t flush(Clock::time_point until) noexcept;  // block positions that still wait

  void prefetch(std::string_view salt, Tokens text);  // throws bad_alloc
  // For a session that is about to match: prefetches and waits, so long as the config says. Throws
  // bad_alloc.
  void fetch(std::string_view salt, Tokens text);
  void wait(std::string_view salt, Tokens text, Clock::time_point until);
  void cancel(std::string_view salt, Tokens text);

  pkv_store_stats stats() const;

  // While it lives no content of the tier changes.
  class Pause {
   public:
    explicit Pause(Tier& tier);
    std::vector<const Content*> contents;

   private:
    std::unique_lock<std::mutex> reading_, queue_,
        writing_;  // in this order everywhere: see the mutexes
  };

 private:
  struct Reading {
    std::string salt;
    std::vector<int32_t> text;
    bool cancelled = false;
    bool concerns(std::string_view other_salt, Tokens other) const;
  };
  // What the store has of a text from a block position on: keys and flags by position, then group.
  struct Found {
    uint64_t from = 0, to = 0;  // to: so far as it is of use
    std::vector<ContentKey> keys;
    std::vector<unsigned char> there;
  };
  using Items = std::vector<pkv_store_item>;

  size_t groups() const { return cache_.groups().size(); }
  uint32_t block_size() const { return cache_.config().block_size; }
  Group& group(size_t g) const { return *cache_.groups()[g]; }
  // The keys of positions [from, to) of a text.
  std::vector<ContentKey> keys_of(std::string_view salt, Tokens text, uint64_t from,
                                  uint64_t to) const;

  void let_others_in() const noexcept;
  // The first time that there is something to do for it. Throws bad_alloc, NO_MEMORY.
  void start(std::thread& thread, std::vector<unsigned char>& buffer, void (Tier::*run)() noexcept);
  void run_writer() noexcept;
  void write_content(const std::string& salt, const std::vector<int32_t>& text);
  size_t write_batch(std::span<const ContentKey> keys, Tokens text, size_t first, size_t count);
  void make_way_for_steps(std::chrono::nanoseconds worked);
  void skip_known(std::span<const ContentKey> keys, std::vector<unsigned char>& known);
  void finish_writing(uint64_t dropped) noexcept;

  void run_reader() noexcept;
  void read(Reading& reading);
  Found look_up(const Reading& reading, uint64_t from);
  void forget_missing(std::span<const ContentKey> keys, std::span<const unsigned char> there);
  uint64_t usable(const Found& found, uint64_t to) const;
  uint64_t end_of_sinks(const Found& found, uint64_t to, size_t g) const;
  uint64_t end_of_window(const Found& found, uint64_t to, size_t g) const;
  bool needed(const Found& found, uint64_t position, size_t g) const;
  uint64_t begin_content(const Reading& reading);
  Items read_items(const Found& found, Tokens text, uint64_t first, uint64_t& count);
  bool add_in_turns(const Found& found, Tokens text, uint64_t first, uint64_t count,
                    const Items& items);
  bool add_blocks(const Found& found, Tokens text, uint64_t first, uint64_t count,
                  const Items& items, size_t& item);

  Cache& cache_;
  const Secret secret_;
  ContentKey model_;  // secret, too: with it names of texts can be made
  const std::chrono::milliseconds patience_;
  const uint64_t most_queued_;        // block positions
  std::vector<uint64_t> item_bytes_;  // by group
  uint64_t position_bytes_ = 0;       // of all groups
  size_t batch_;                      // positions at once
  std::vector<unsigned char> write_buffer_, read_buffer_;
  StoreCalls store_;

  mutable std::mutex queue_mutex_;
  std::condition_variable queued_, done_;
  bool ending_ = false;
  unsigned flushing_ = 0;      // callers of flush()
  std::list<Content> writes_;  // a list: give_way() takes it over without memory
  uint64_t queued_blocks_ = 0, writing_blocks_ = 0;
  std::list<Reading> reads_;            // the first one is under way
  std::unordered_set<uint64_t> known_;  // beginnings of keys the store has, as far as is remembered

  // Who holds several takes reading_mutex_ first, then queue_mutex_, then writing_mutex_: the
  // reader asks for blocks, and so may find itself in give_way().
  std::mutex writing_mutex_, reading_mutex_;
  std::atomic<unsigned> in_need_{
      0};  // threads in give_way(), who get these before the two threads do
  std::optional<Content> writing_, reading_;

  uint64_t steps_seen_ =
      0;  // by the writer: how many had ended, and when the last of them was seen
  Clock::time_point last_step_{};

  std::atomic<uint64_t> dropped_{0}, written_{0}, known_items_{0}, asked_{0}, read_{0}, corrupt_{0},
      written_bytes_{0}, read_bytes_{0};
  std::thread writer_, reader_;
  std::atomic<std::thread::id> reader_id_{};
};

}  // namespace pkv
