// Reads a text in batches, and adds each batch to the cache in slices.
#include "engine/store/reader.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/logger.h"
#include "base/status.h"
#include "engine/cache/reservation.h"
#include "engine/memory/coverage.h"

namespace pkv::store {

namespace {

constexpr size_t max_requests = 64;
constexpr size_t positions_per_touch = 256;
// How much is added under one lock, while threads that need blocks wait for it.
constexpr uint64_t slice_bytes = uint64_t{1} << 20;

}  // namespace

bool Reader::Prefetch::concerns(std::string_view other_salt, prefix::Tokens other) const {
  const size_t common = std::min(text.size(), other.size());
  return salt == other_salt &&
         std::equal(other.begin(), other.begin() + static_cast<std::ptrdiff_t>(common),
                    text.begin());
}

bool Reader::prefetch(std::string_view salt, prefix::Tokens text, uint8_t retention,
                      uint64_t duration_ms) {
  std::list<Prefetch> request;
  request.push_back({std::string(salt), std::vector<int32_t>(text.begin(), text.end()), retention,
                     cache().prefix()->time_in(duration_ms)});
  worker_.start(format_.batch_positions() * format_.position_bytes(), [this] { run(); });
  const std::lock_guard lock(requests_mutex_);
  const Prefetch& added = add(request);
  const bool full = requests_.size() > max_requests, drops_it = full && &requests_.back() == &added;
  if (full) requests_.pop_back();
  requested_.notify_one();
  ended_.notify_all();  // for threads that wait for the request that was dropped
  return !drops_it;
}

// Moves the first request of a list to the queue: one turn after the last of its salt or, if its
// salt has none, one turn after the first in the queue. So the last one in the queue is the newest
// of the salt that has the most.
const Reader::Prefetch& Reader::add(std::list<Prefetch>& from) {
  Prefetch& request = from.front();
  uint64_t before = requests_.empty() ? 0 : requests_.front().turn;
  for (const Prefetch& each : requests_)
    if (each.salt == request.salt) before = each.turn;
  request.turn = before + 1;
  const auto later = std::find_if(requests_.begin(), requests_.end(),
                                  [&](const Prefetch& each) { return each.turn > request.turn; });
  requests_.splice(later, from, from.begin());
  return request;
}

uint64_t Reader::wait(std::string_view salt, prefix::Tokens text,
                      std::chrono::steady_clock::time_point until) {
  const auto pending = [&] {
    return std::count_if(requests_.begin(), requests_.end(), [&](const Prefetch& each) {
      return !each.cancelled && each.concerns(salt, text);
    });
  };
  std::unique_lock lock(requests_mutex_);
  ended_.wait_until(lock, until, [&] { return pending() == 0; });
  return static_cast<uint64_t>(pending());
}

// The thread works on the first request, and removes that itself.
void Reader::cancel(std::string_view salt, prefix::Tokens text) {
  const std::lock_guard lock(requests_mutex_);
  if (requests_.empty()) return;
  Prefetch& first = requests_.front();
  first.cancelled = first.cancelled || first.concerns(salt, text);
  std::erase_if(requests_,
                [&](const Prefetch& each) { return &each != &first && each.concerns(salt, text); });
  // The others move up to the turns that the cancelled ones leave.
  std::list<Prefetch> others;
  others.splice(others.end(), requests_, std::next(requests_.begin()), requests_.end());
  while (!others.empty()) add(others);
  ended_.notify_all();
}

void Reader::stop() noexcept {
  const std::lock_guard lock(requests_mutex_);
  stopping_ = true;
  for (Prefetch& each : requests_) each.cancelled = true;
  requested_.notify_one();
}

void Reader::report(pkv_store_stats& stats) const noexcept {
  stats.asked_items = asked_items_;
  stats.read_items = read_items_;
  stats.read_bytes = read_bytes_;
  stats.corrupt_items = corrupt_items_;
}

void Reader::run() noexcept {
  while (const Prefetch* const request = wait_for_request()) {
    try {
      read(*request);
    } catch (const Error& error) {
      // Out of blocks, for example. What was read so far is in the index.
      if (error.status == PKV_IO) cache().log_failed_copy(error.text);
    } catch (const std::bad_alloc&) {
    }
    {
      const auto lock = worker_.lock();
      worker_.release();
    }
    const std::lock_guard lock(requests_mutex_);
    requests_.pop_front();
    ended_.notify_all();
  }
}

// Returns the first request, or NULL if there is none and the thread must end.
const Reader::Prefetch* Reader::wait_for_request() noexcept {
  std::unique_lock lock(requests_mutex_);
  requested_.wait(lock, [&] { return stopping_ || !requests_.empty(); });
  return requests_.empty() ? nullptr : &requests_.front();
}

bool Reader::is_cancelled(const Prefetch& request) const {
  const std::lock_guard lock(requests_mutex_);
  return request.cancelled;
}

// Of a text longer than the quota of its salt, only the beginning that can be cached is read.
void Reader::read(const Prefetch& request) {
  if (is_cancelled(request) || store_.reading().pauses()) return;
  prefix::Index& index = *cache().prefix();
  if (index.is_over(request.until)) return;
  const uint64_t blocks =
      std::min<uint64_t>(request.text.size() / block_size(), index.quota(request.salt));
  const prefix::Tokens text = prefix::Tokens(request.text).first(blocks * block_size());
  const uint64_t from = index.cached(request.salt, text);
  if (from == blocks) return;
  const LookupResult lookup = look_up(request.salt, text, from);
  if (lookup.to == from) return;
  // If more was cached meanwhile, this begins there. If blocks before `from` were evicted, it
  // stops: their items were not looked up.
  uint64_t first = match_in_memory(request, text);
  while (first >= from && first < lookup.to && !is_cancelled(request)) {
    const uint64_t asked = std::min<uint64_t>(format_.batch_positions(), lookup.to - first);
    uint64_t count = asked;
    const Items items = read_items(lookup, text, first, count);
    if (!add_in_slices(lookup, text, first, count, items) || count < asked) return;
    first += count;
  }
}

// Asks the store which items of a text it has. Asks in steps, since of most texts the store has
// only a short beginning.
Reader::LookupResult Reader::look_up(std::string_view salt, prefix::Tokens text, uint64_t from) {
  const uint64_t total = text.size() / block_size();
  LookupResult lookup{groups(), from, from, format_.keys(salt, text, from, total), {}};
  const auto present = [&](uint64_t position, size_t g) {
    return position < from || lookup.present[lookup.index(position, g)] != 0;
  };
  const auto complete = [&](uint64_t position) {
    for (size_t g = 0; g < groups(); g++)
      if (!group(g).sparse() && !present(position, g)) return false;
    return true;
  };
  Items items;
  uint64_t limit = from;  // all groups that are not sparse are complete up to here
  for (uint64_t asked = from; limit == asked && asked < total;) {
    const size_t first = lookup.index(asked, 0);
    asked = std::min<uint64_t>(asked + positions_per_touch, total);
    items.clear();
    for (size_t i = first; i < lookup.index(asked, 0); i++)
      items.push_back(item_of(lookup.keys[i]));
    store_.touch(items);
    asked_items_ += items.size();
    for (size_t i = 0; i < items.size(); i++) {
      lookup.present.push_back(items[i].size == format_.value_bytes(i % groups()));
      // The block of a key that the store has lost is written again.
      if (lookup.present.back() == 0) store_.known().forget(lookup.keys[first + i]);
    }
    while (limit < asked && complete(limit)) limit++;
  }
  lookup.to = memory::longest_usable(cache().groups(), limit, present);
  return lookup;
}

// Returns whether a text that ends at lookup.to needs this block.
bool Reader::is_needed(const LookupResult& lookup, uint64_t position, size_t g) const {
  return memory::Coverage(group(g)).needs(position, lookup.to);
}

// Sets the content to the whole blocks that the prefix index has of the text. Returns how many.
uint64_t Reader::match_in_memory(const Prefetch& request, prefix::Tokens text) {
  // Locked all the while, so that inspect() sees every block that is held.
  const auto lock = worker_.lock();
  Content& content = worker_.content().emplace(cache());
  taken_.fetch_add(1, std::memory_order_release);
  content.hold() = prefix::Hold(*cache().prefix(), request.salt, request.retention);
  const uint64_t blocks = cache().prefix()->match_blocks(content.hold(), text, content.tables());
  content.tokens().reserve(text.size());
  append(content.tokens(), text.first(blocks * block_size()));
  return blocks;
}

// Reads and checks the items of `count` positions. If an item is missing or corrupt, lowers `count`
// to the positions before it.
Reader::Items Reader::read_items(const LookupResult& lookup, prefix::Tokens text, uint64_t first,
                                 uint64_t& count) {
  Items items;
  std::vector<std::pair<uint64_t, size_t>> places;  // of the items: position and group
  unsigned char* at = worker_.buffer();
  for (uint64_t position = first; position < first + count; position++)
    for (size_t g = 0; g < groups(); g++) {
      if (!is_needed(lookup, position, g)) continue;
      items.push_back(item_of(lookup.keys[lookup.index(position, g)], at, format_.value_bytes(g)));
      places.emplace_back(position, g);
      at += format_.value_bytes(g);
    }
  store_.get(items);
  for (size_t i = 0; i < items.size(); i++) {
    const auto [position, g] = places[i];
    const ContentKey& key = lookup.keys[lookup.index(position, g)];
    const std::span<unsigned char> value(static_cast<unsigned char*>(items[i].data),
                                         static_cast<size_t>(items[i].size));
    if (format_.open(g, text, position, key, value)) continue;
    if (items[i].size != 0) {
      corrupt_items_ += 1;
      store_.remove(items[i]);
    }
    store_.known().forget(key);
    count = std::min(count, position - first);
  }
  return items;
}

// Puts items into blocks of the cache and into the index, in slices, so that a thread that needs
// blocks meanwhile waits only for one slice. Returns false if the content was released, or if the
// quota of its salt is full. Throws OUT_OF_BLOCKS.
bool Reader::add_in_slices(const LookupResult& lookup, prefix::Tokens text, uint64_t first,
                           uint64_t count, const Items& items) {
  const uint64_t slice = cache().block_io() != nullptr  // which may fill all at once
                             ? count
                             : std::max<uint64_t>(slice_bytes / format_.position_bytes(), 1);
  size_t item = 0;
  for (const uint64_t end = first + count; first < end; first += slice)
    if (!add_blocks(lookup, text, first, std::min(slice, end - first), items, item)) return false;
  return count > 0;
}

// Adds one slice, beginning with items[item], and advances item. Takes no blocks that the quota has
// no room for: they would not be cached, but blocks of other salts could be evicted for them.
bool Reader::add_blocks(const LookupResult& lookup, prefix::Tokens text, uint64_t first,
                        uint64_t count, const Items& items, size_t& item) {
  const DelayedLines lines;  // evictions are logged after the lock below is released
  auto lock = worker_.lock();
  std::optional<Content>& content = worker_.content();
  if (!content) return false;
  const uint64_t asked = first + count,
                 end = cache().prefix()->make_room_in_quota(content->hold(), asked);
  if (end <= first) return false;
  count = end - first;
  std::vector<uint64_t> counts(groups());
  for (uint64_t position = first; position < first + count; position++)
    for (size_t g = 0; g < groups(); g++) counts[g] += is_needed(lookup, position, g);
  Reservation reservation(cache(), counts, cache().config().watermark, "prefetch");
  Content& fresh = worker_.in_flight().emplace(cache());
  for (size_t g = 0; g < groups(); g++) {
    content->tables()[g]->reserve_entries(count);
    fresh.tables()[g]->reserve_entries(count);
    for (uint64_t position = first; position < first + count; position++) {
      memory::Block block = memory::no_block;
      if (is_needed(lookup, position, g)) {
        block = reservation.take(g, 1)[0];
        group(g).pool.set_filled(block, block_size());
      }
      fresh.tables()[g]->append(std::span(&block, 1));
    }
  }
  const auto added =
      std::span(items).subspan(item, std::accumulate(counts.begin(), counts.end(), uint64_t{0}));
  if (cache().block_io() == nullptr)
    fill_blocks(added);
  else
    worker_.unlocked(lock, [&] { fill_blocks(added); });
  if (!content) return false;  // its blocks were needed
  item += added.size();
  read_items_ += added.size();
  for (const pkv_store_item& each : added) read_bytes_ += each.size;
  for (size_t g = 0; g < groups(); g++) {
    const std::span<const memory::Block> blocks = fresh.table(g).blocks();
    memory::retain_table(group(g), blocks);
    content->tables()[g]->append(blocks);
  }
  worker_.in_flight().reset();
  append(content->tokens(), text.subspan(first * block_size(), count * block_size()));
  cache().prefix()->publish(content->hold(), content->tokens(), content->tables(),
                            prefix::IfLocked::wait);
  return end == asked;
}

// Copies items, by position, then group, to the blocks in flight. Nobody else can have these, so no
// lock is needed.
void Reader::fill_blocks(std::span<const pkv_store_item> items) {
  const Content& fresh = *worker_.in_flight();
  std::vector<std::vector<memory::BlockIo::Copy>> opaque(groups());
  size_t item = 0;
  for (size_t i = 0; i < fresh.table(0).blocks().size(); i++)
    for (size_t g = 0; g < groups(); g++) {
      if (fresh.table(g).blocks()[i] == memory::no_block) continue;
      auto* const value = static_cast<unsigned char*>(items[item++].data);
      if (group(g).opaque())
        opaque[g].push_back({fresh.table(g).ids()[i], 0, format_.opaque_bytes(g, value)});
      else
        format_.load(g, fresh.table(g), i, value);
    }
  for (uint32_t g = 0; g < groups() && cache().block_io() != nullptr; g++)
    cache().block_io()->write(g, group(g), opaque[g]);
}

}  // namespace pkv::store
