// The tier behind a cache's memory: what sessions leave in the prefix index goes to a store, and
// comes back when it is asked for. Two threads, one that writes and one that reads, so that no step
// waits for the store.
//
// A session that ends or is suspended hands its content over. Until that is written its blocks stay
// in use: what nobody has written is evicted last. Where blocks are short all the same, give_way()
// lets go of everything at once.
#pragma once

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

#include "engine/session/content.h"
#include "engine/tier/block_value.h"
#include "engine/tier/store_calls.h"

namespace pkv::tier {

// Enough of a key to remember it by, where a mistake costs a miss.
inline uint64_t beginning(const ContentKey& key) {
  uint64_t number;
  std::memcpy(&number, key.data(), sizeof number);
  return number;
}

class StoreTier final : public Tier {
 public:
  // config was checked and has the size of this build. Throws UNSUPPORTED, bad_alloc.
  StoreTier(Cache& cache, const pkv_store_config& config);
  // Until then the store is the caller's to close.
  void own_store() noexcept { store_.own(); }
  ~StoreTier() override;  // writes what is queued
  StoreTier(const StoreTier&) = delete;
  StoreTier& operator=(const StoreTier&) = delete;

  void write(Content content) noexcept override;
  bool give_way() noexcept override;
  uint64_t flush(Clock::time_point until) noexcept override;
  void prefetch(std::string_view salt, prefix::Tokens text) override;
  void fetch(std::string_view salt, prefix::Tokens text) override;
  void wait(std::string_view salt, prefix::Tokens text, Clock::time_point until) override;
  void cancel(std::string_view salt, prefix::Tokens text) override;
  pkv_store_stats stats() const override;
  void inspect(const std::function<void(std::span<const Content* const>)>& look) override;

 private:
  struct Reading {
    std::string salt;
    std::vector<int32_t> text;
    bool cancelled = false;
    bool concerns(std::string_view other_salt, prefix::Tokens other) const;
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
  memory::Group& group(size_t g) const { return *cache_.groups()[g]; }
  // The keys of positions [from, to) of a text.
  std::vector<ContentKey> keys_of(std::string_view salt, prefix::Tokens text, uint64_t from,
                                  uint64_t to) const;

  void let_others_in() const noexcept;
  // The first time that there is something to do for it. Throws bad_alloc, NO_MEMORY.
  void start(std::thread& thread, std::vector<unsigned char>& buffer,
             void (StoreTier::*run)() noexcept);
  void run_writer() noexcept;
  void write_content(const std::string& salt, const std::vector<int32_t>& text);
  size_t write_batch(std::span<const ContentKey> keys, prefix::Tokens text, size_t first,
                     size_t count);
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
  Items read_items(const Found& found, prefix::Tokens text, uint64_t first, uint64_t& count);
  bool add_in_turns(const Found& found, prefix::Tokens text, uint64_t first, uint64_t count,
                    const Items& items);
  bool add_blocks(const Found& found, prefix::Tokens text, uint64_t first, uint64_t count,
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
  // Threads in give_way(), which get these mutexes before the two threads do.
  std::atomic<unsigned> in_need_{0};
  std::optional<Content> writing_, reading_;

  // What the writer has seen: how many steps had ended, and when the last of them was seen.
  uint64_t steps_seen_ = 0;
  Clock::time_point last_step_{};

  std::atomic<uint64_t> dropped_{0}, written_{0}, known_items_{0}, asked_{0}, read_{0}, corrupt_{0},
      written_bytes_{0}, read_bytes_{0};
  std::thread writer_, reader_;
  std::atomic<std::thread::id> reader_id_{};
};

}  // namespace pkv::tier
