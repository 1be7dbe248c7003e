// The tier that keeps blocks in a pkv_store. It writes what sessions leave in the prefix index to
// the store, and reads it back when a text is requested. One thread writes and another one reads,
// so that no step waits for the store.
//
// A session that ends or is suspended passes its content to the tier. The tier references its
// blocks until they are written, so that blocks that were not written yet are evicted last. If the
// cache runs out of blocks nevertheless, give_way() releases all of them at once.
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

// Returns the first bytes of a key, by which the tier remembers it. A collision only costs a miss.
inline uint64_t key_prefix(const ContentKey& key) {
  uint64_t number;
  std::memcpy(&number, key.data(), sizeof number);
  return number;
}

class StoreTier final : public Tier {
 public:
  // The config must have been checked and have the size of this build. Throws UNSUPPORTED, OVERFLOW
  // or bad_alloc. The store stays the caller's to close until own_store().
  StoreTier(Cache& cache, const pkv_store_config& config);
  // Takes over the store, which is then closed with the tier.
  void own_store() noexcept { store_.own(); }
  // Writes all queued content first.
  ~StoreTier() override;
  StoreTier(const StoreTier&) = delete;
  StoreTier& operator=(const StoreTier&) = delete;

  void write(Content content) noexcept override;
  uint64_t give_way() noexcept override;
  uint64_t flush(Clock::time_point until) noexcept override;
  void prefetch(std::string_view salt, prefix::Tokens text) override;
  void fetch(std::string_view salt, prefix::Tokens text) override;
  uint64_t wait(std::string_view salt, prefix::Tokens text, Clock::time_point until) override;
  void cancel(std::string_view salt, prefix::Tokens text) override;
  pkv_store_stats stats() const override;
  void inspect(const std::function<void(std::span<const Content* const>)>& look) override;

 private:
  // A text that the reader thread must read into the cache.
  struct ReadRequest {
    std::string salt;
    std::vector<int32_t> text;
    bool cancelled = false;
    // Returns whether one of the two texts is the beginning of the other, under the same salt.
    bool concerns(std::string_view other_salt, prefix::Tokens other) const;
  };
  // Which items of a text the store has, from block position `from` on.
  struct LookupResult {
    uint64_t from = 0, to = 0;           // `to` is where the usable part ends
    std::vector<ContentKey> keys;        // by position, then group
    std::vector<unsigned char> present;  // by position, then group: 1 if the store has the item
  };
  using Items = std::vector<pkv_store_item>;

  size_t groups() const { return cache_.groups().size(); }
  uint32_t block_size() const { return cache_.config().block_size; }
  memory::Group& group(size_t g) const { return *cache_.groups()[g]; }
  // Returns the keys of block positions [from, to) of a text, by position, then group.
  std::vector<ContentKey> keys_of(std::string_view salt, prefix::Tokens text, uint64_t from,
                                  uint64_t to) const;

  // Yields while other threads are in give_way(), so that they get the mutex that the calling
  // thread locks next.
  void yield_to_give_way() const noexcept;
  // Starts a thread and allocates its buffer, unless it runs already. Throws bad_alloc or
  // NO_MEMORY.
  void start(std::thread& thread, std::vector<unsigned char>& buffer,
             void (StoreTier::*run)() noexcept);
  void run_writer() noexcept;
  void write_content(const std::string& salt, const std::vector<int32_t>& text);
  size_t write_batch(std::span<const ContentKey> keys, prefix::Tokens text, size_t first,
                     size_t count);
  void throttle_during_steps(std::chrono::nanoseconds worked);
  void find_stored(std::span<const ContentKey> keys, std::vector<unsigned char>& stored);
  void finish_writing(uint64_t dropped) noexcept;

  void run_reader() noexcept;
  void read(ReadRequest& request);
  LookupResult look_up(const ReadRequest& request, uint64_t from);
  void forget_missing_keys(std::span<const ContentKey> keys,
                           std::span<const unsigned char> present);
  bool is_needed(const LookupResult& lookup, uint64_t position, size_t g) const;
  uint64_t match_in_memory(const ReadRequest& request);
  Items read_items(const LookupResult& lookup, prefix::Tokens text, uint64_t first,
                   uint64_t& count);
  bool add_in_slices(const LookupResult& lookup, prefix::Tokens text, uint64_t first,
                     uint64_t count, const Items& items);
  bool add_blocks(const LookupResult& lookup, prefix::Tokens text, uint64_t first, uint64_t count,
                  const Items& items, size_t& item);

  Cache& cache_;
  const Secret secret_;
  ContentKey model_;  // also secret: with it, the keys of texts can be computed
  const std::chrono::milliseconds max_wait_;
  const uint64_t max_queued_;         // block positions
  std::vector<uint64_t> item_bytes_;  // size of an item, by group
  uint64_t position_bytes_ = 0;       // of the items of one block position in all groups
  size_t batch_positions_;            // how many are written or read in one call
  std::vector<unsigned char> write_buffer_, read_buffer_;
  StoreCalls store_;

  mutable std::mutex queue_mutex_;
  std::condition_variable work_queued_, work_done_;
  bool stopping_ = false;
  unsigned flushing_ = 0;  // the number of threads in flush()
  std::list<Content> writes_;
  uint64_t queued_blocks_ = 0, writing_blocks_ = 0;
  std::list<ReadRequest> reads_;              // the reader works on the first one
  std::unordered_set<uint64_t> stored_keys_;  // key prefixes of items seen in the store

  // A thread that locks several mutexes locks reader_mutex_ first, then queue_mutex_, then
  // writer_mutex_. The reader allocates blocks while it holds reader_mutex_, and that may call
  // give_way(), which locks the other two.
  std::mutex writer_mutex_, reader_mutex_;
  // The number of threads in give_way(). They get these mutexes before the writer and the reader.
  std::atomic<unsigned> giving_way_{0};
  LogInterval dropped_interval_{std::chrono::minutes(1)};
  // What the writer writes and what the reader has read so far; give_way() empties them.
  std::optional<Content> writer_content_, reader_content_;
  // Incremented under the mutex of the queue or of the reader, with what then holds the content.
  std::atomic<uint64_t> taken_{0};

  // How many steps had ended when the writer looked last, and when it last saw this number change.
  uint64_t steps_seen_ = 0;
  Clock::time_point last_step_{};

  std::atomic<uint64_t> dropped_{0}, written_{0}, known_items_{0}, asked_{0}, read_{0}, corrupt_{0},
      written_bytes_{0}, read_bytes_{0};
  std::thread writer_, reader_;
  std::atomic<std::thread::id> reader_id_{};
};

}  // namespace pkv::tier
