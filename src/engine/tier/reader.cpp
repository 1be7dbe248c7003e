// The thread of the tier that reads: it looks up which blocks of a text the store has, and puts
// them into the cache and the prefix index.
#include <algorithm>
#include <utility>

#include "base/logger.h"
#include "base/status.h"
#include "engine/cache/reservation.h"
#include "engine/memory/coverage.h"
#include "engine/tier/store_tier.h"

namespace pkv::tier {

namespace {

constexpr size_t max_reads = 64;
constexpr size_t positions_per_probe = 256;
constexpr uint8_t default_retention = 1;
// How much is added under one lock, while threads that need blocks wait for it.
constexpr uint64_t slice_bytes = uint64_t{1} << 20;

}  // namespace

bool StoreTier::ReadRequest::concerns(std::string_view other_salt, prefix::Tokens other) const {
  const size_t common = std::min(text.size(), other.size());
  return salt == other_salt &&
         std::equal(other.begin(), other.begin() + static_cast<std::ptrdiff_t>(common),
                    text.begin());
}

void StoreTier::prefetch(std::string_view salt, prefix::Tokens text) {
  ReadRequest request{std::string(salt), std::vector<int32_t>(text.begin(), text.end())};
  {
    const std::lock_guard lock(queue_mutex_);
    start(reader_, read_buffer_, &StoreTier::run_reader);
    reads_.push_back(std::move(request));
    if (reads_.size() > max_reads)
      reads_.erase(std::next(reads_.begin()));  // the reader works on the first one
  }
  work_queued_.notify_all();
  work_done_.notify_all();  // for threads that wait for the request that was erased
}

void StoreTier::fetch(std::string_view salt, prefix::Tokens text) {
  if (max_wait_.count() == 0 || store_.down() ||
      cache_.prefix()->cached(salt, text) == text.size() / block_size())
    return;
  prefetch(salt, text);
  wait(salt, text, Clock::now() + max_wait_);
}

uint64_t StoreTier::wait(std::string_view salt, prefix::Tokens text, Clock::time_point until) {
  const auto pending = [&] {
    return std::count_if(reads_.begin(), reads_.end(), [&](const ReadRequest& each) {
      return !each.cancelled && each.concerns(salt, text);
    });
  };
  std::unique_lock lock(queue_mutex_);
  work_done_.wait_until(lock, until, [&] { return pending() == 0; });
  return static_cast<uint64_t>(pending());
}

void StoreTier::cancel(std::string_view salt, prefix::Tokens text) {
  {
    const std::lock_guard lock(queue_mutex_);
    for (ReadRequest& each : reads_) each.cancelled = each.cancelled || each.concerns(salt, text);
  }
  work_done_.notify_all();
}

void StoreTier::run_reader() noexcept {
  reader_id_.store(std::this_thread::get_id(), std::memory_order_relaxed);
  std::unique_lock lock(queue_mutex_);
  for (;;) {
    work_queued_.wait(lock, [&] { return stopping_ || !reads_.empty(); });
    if (reads_.empty()) return;
    ReadRequest& request = reads_.front();  // remains the first one until it is removed below
    lock.unlock();
    try {
      read(request);
    } catch (const Error&) {
      // Out of blocks, for example. What was read so far is in the index.
    } catch (const std::bad_alloc&) {
    }
    {
      const std::lock_guard content_lock(reader_mutex_);
      reader_content_.reset();
    }
    lock.lock();
    reads_.pop_front();
    work_done_.notify_all();
  }
}

void StoreTier::read(ReadRequest& request) {
  const auto is_cancelled = [&] {
    const std::lock_guard lock(queue_mutex_);
    return request.cancelled;
  };
  if (is_cancelled() || store_.down()) return;
  const prefix::Tokens text = request.text;
  const uint64_t from = cache_.prefix()->cached(request.salt, text);
  if (from == text.size() / block_size()) return;
  const LookupResult lookup = look_up(request, from);
  if (lookup.to == from || match_in_memory(request) != from) return;
  for (uint64_t first = from; first < lookup.to && !is_cancelled();) {
    const uint64_t asked = std::min<uint64_t>(batch_positions_, lookup.to - first);
    uint64_t count = asked;
    const Items items = read_items(lookup, text, first, count);
    if (!add_in_slices(lookup, text, first, count, items) || count < asked) return;
    first += count;
  }
}

// Asks the store which items of a text it has. Asks in steps, since the store has only a short
// beginning of most texts.
StoreTier::LookupResult StoreTier::look_up(const ReadRequest& request, uint64_t from) {
  const uint64_t total = request.text.size() / block_size();
  LookupResult lookup{from, from, keys_of(request.salt, request.text, from, total), {}};
  Items items;
  // All groups without a window are complete up to here.
  uint64_t limit = from;
  while (limit < total) {
    const uint64_t step = std::min<uint64_t>(positions_per_probe, total - limit);
    items.clear();
    for (uint64_t i = (limit - from) * groups(); i < (limit - from + step) * groups(); i++) {
      pkv_store_item item{};
      std::copy(lookup.keys[i].begin(), lookup.keys[i].end(), item.key);
      items.push_back(item);
    }
    store_.probe(items);
    asked_.fetch_add(items.size(), std::memory_order_relaxed);
    for (size_t i = 0; i < items.size(); i++)
      lookup.present.push_back(items[i].size == item_bytes_[i % groups()]);
    forget_missing_keys(std::span(lookup.keys).subspan((limit - from) * groups(), items.size()),
                        std::span(lookup.present).last(items.size()));
    const uint64_t before = limit;
    const auto complete = [&](uint64_t position) {
      for (size_t g = 0; g < groups(); g++)
        if (!group(g).sparse() && lookup.present[(position - from) * groups() + g] == 0)
          return false;
      return true;
    };
    while (limit < before + step && complete(limit)) limit++;
    if (limit < before + step) break;
  }
  lookup.to = memory::longest_usable(cache_.groups(), limit, [&](uint64_t position, size_t g) {
    return position < from || lookup.present[(position - from) * groups() + g] != 0;
  });
  return lookup;
}

// Forgets keys that the store has lost, so that their blocks are written again.
void StoreTier::forget_missing_keys(std::span<const ContentKey> keys,
                                    std::span<const unsigned char> present) {
  const std::lock_guard lock(queue_mutex_);
  for (size_t i = 0; i < keys.size(); i++)
    if (present[i] == 0) stored_keys_.erase(key_prefix(keys[i]));
}

// Returns whether a text that ends at lookup.to needs this block.
bool StoreTier::is_needed(const LookupResult& lookup, uint64_t position, size_t g) const {
  return memory::Coverage(group(g)).needs(position, lookup.to);
}

// Sets reader_content_ to what the prefix index has of the text. Returns its length in blocks.
uint64_t StoreTier::match_in_memory(const ReadRequest& request) {
  // Locked all the while, so that inspect() sees every block that is held.
  const std::lock_guard lock(reader_mutex_);
  Content& content = reader_content_.emplace(cache_);
  taken_.fetch_add(1, std::memory_order_release);
  content.hold() = prefix::Index::Hold(*cache_.prefix(), request.salt, default_retention);
  const uint32_t depth =
      cache_.prefix()->match(content.hold(), request.text, content.sequences(), nullptr);
  content.tokens().reserve(request.text.size());
  content.tokens().assign(
      request.text.begin(),
      request.text.begin() + static_cast<std::ptrdiff_t>(depth * uint64_t{block_size()}));
  return depth;
}

// Reads and checks the items of `count` positions. Lowers count to those before the first position
// of which an item is missing or corrupt.
StoreTier::Items StoreTier::read_items(const LookupResult& lookup, prefix::Tokens text,
                                       uint64_t first, uint64_t& count) {
  Items items;
  std::vector<size_t> key_indices;  // of the items, in lookup.keys
  unsigned char* at = read_buffer_.data();
  for (uint64_t position = first; position < first + count; position++)
    for (size_t g = 0; g < groups(); g++) {
      if (!is_needed(lookup, position, g)) continue;
      const size_t key_index = (position - lookup.from) * groups() + g;
      pkv_store_item item{};
      std::copy(lookup.keys[key_index].begin(), lookup.keys[key_index].end(), item.key);
      item.data = at;
      item.size = item_bytes_[g];
      items.push_back(item);
      key_indices.push_back(key_index);
      at += item_bytes_[g];
    }
  store_.get(items);
  for (size_t i = 0; i < items.size(); i++) {
    const uint64_t position = lookup.from + key_indices[i] / groups();
    const size_t g = key_indices[i] % groups();
    const ContentKey& key = lookup.keys[key_indices[i]];
    const bool good =
        items[i].size == item_bytes_[g] &&
        open_block_value(
            group(g), key, text.subspan(position * block_size(), block_size()), secret_,
            {static_cast<unsigned char*>(items[i].data), static_cast<size_t>(items[i].size)});
    if (good) continue;
    if (items[i].size != 0) {
      corrupt_.fetch_add(1, std::memory_order_relaxed);
      store_.drop(items[i]);
    }
    const std::lock_guard lock(queue_mutex_);
    stored_keys_.erase(key_prefix(key));
    count = std::min(count, position - first);
  }
  return items;
}

// Puts items into blocks of the cache and into the index, in slices, so that a thread that needs
// blocks meanwhile waits only for one slice. Returns false if give_way() released the content.
// Throws OUT_OF_BLOCKS.
bool StoreTier::add_in_slices(const LookupResult& lookup, prefix::Tokens text, uint64_t first,
                              uint64_t count, const Items& items) {
  const uint64_t slice = std::max<uint64_t>(slice_bytes / position_bytes_, 1);
  size_t item = 0;
  for (const uint64_t end = first + count; first < end; first += slice)
    if (!add_blocks(lookup, text, first, std::min(slice, end - first), items, item)) return false;
  return count > 0;
}

// Adds one slice, beginning with items[item], and advances item.
bool StoreTier::add_blocks(const LookupResult& lookup, prefix::Tokens text, uint64_t first,
                           uint64_t count, const Items& items, size_t& item) {
  yield_to_give_way();
  const DelayedLines lines;  // Blocks are evicted here, and the logger is told.
  const std::lock_guard lock(reader_mutex_);
  if (!reader_content_) return false;
  std::vector<uint64_t> counts(groups());
  for (uint64_t position = first; position < first + count; position++)
    for (size_t g = 0; g < groups(); g++) counts[g] += is_needed(lookup, position, g);
  Reservation reservation(cache_, counts, cache_.config().watermark, nullptr, "prefetch");
  for (size_t g = 0; g < groups(); g++) reader_content_->sequences()[g].make_room(count, 0);
  const size_t before = item;
  for (uint64_t position = first; position < first + count; position++)
    for (size_t g = 0; g < groups(); g++) {
      memory::Sequence& sequence = reader_content_->sequences()[g];
      memory::Block block = memory::no_block;
      if (is_needed(lookup, position, g)) {
        block = reservation.next(g, 1)[0];
        reservation.disown(g, 1);
        group(g).pool.set_filled(block, block_size());
      }
      sequence.append(std::span(&block, 1));
      if (block == memory::no_block) continue;
      load_block_value(cache_.kernels(), {&group(g), sequence.ids()}, position,
                       static_cast<const unsigned char*>(items[item].data));
      read_bytes_.fetch_add(items[item++].size, std::memory_order_relaxed);
    }
  read_.fetch_add(item - before, std::memory_order_relaxed);
  const auto end = static_cast<std::ptrdiff_t>((first + count) * block_size());
  reader_content_->tokens().insert(reader_content_->tokens().end(),
                                   text.begin() + static_cast<std::ptrdiff_t>(first * block_size()),
                                   text.begin() + end);
  cache_.prefix()->publish(reader_content_->hold(), reader_content_->tokens(),
                           reader_content_->sequences(), true);
  return true;
}

}  // namespace pkv::tier
