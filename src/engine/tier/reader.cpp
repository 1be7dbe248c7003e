// What comes back from a store.
#include <algorithm>
#include <utility>

#include "base/status.h"
#include "engine/cache/reservation.h"
#include "engine/tier/store_tier.h"

namespace pkv::tier {

namespace {

constexpr size_t most_reads = 64;
constexpr size_t probed_at_once = 256;
constexpr uint8_t usual_retention = 1;
constexpr uint64_t turn_bytes = uint64_t{1}
                                << 20;  // added while others wait who are short of blocks

}  // namespace

bool StoreTier::Reading::concerns(std::string_view other_salt, prefix::Tokens other) const {
  const size_t common = std::min(text.size(), other.size());
  return salt == other_salt &&
         std::equal(other.begin(), other.begin() + static_cast<std::ptrdiff_t>(common),
                    text.begin());
}

void StoreTier::prefetch(std::string_view salt, prefix::Tokens text) {
  Reading reading{std::string(salt), std::vector<int32_t>(text.begin(), text.end())};
  {
    const std::lock_guard lock(queue_mutex_);
    start(reader_, read_buffer_, &StoreTier::run_reader);
    reads_.push_back(std::move(reading));
    if (reads_.size() > most_reads)
      reads_.erase(std::next(reads_.begin()));  // the first one is under way
  }
  queued_.notify_all();
  done_.notify_all();  // whoever waits for the one that was let go
}

void StoreTier::fetch(std::string_view salt, prefix::Tokens text) {
  if (patience_.count() == 0 || store_.down() ||
      cache_.prefix()->cached(salt, text) == text.size() / block_size())
    return;
  prefetch(salt, text);
  wait(salt, text, Clock::now() + patience_);
}

void StoreTier::wait(std::string_view salt, prefix::Tokens text, Clock::time_point until) {
  std::unique_lock lock(queue_mutex_);
  done_.wait_until(lock, until, [&] {
    return std::none_of(reads_.begin(), reads_.end(), [&](const Reading& each) {
      return !each.cancelled && each.concerns(salt, text);
    });
  });
}

void StoreTier::cancel(std::string_view salt, prefix::Tokens text) {
  {
    const std::lock_guard lock(queue_mutex_);
    for (Reading& each : reads_) each.cancelled = each.cancelled || each.concerns(salt, text);
  }
  done_.notify_all();
}

void StoreTier::run_reader() noexcept {
  reader_id_.store(std::this_thread::get_id(), std::memory_order_relaxed);
  std::unique_lock lock(queue_mutex_);
  for (;;) {
    queued_.wait(lock, [&] { return ending_ || !reads_.empty(); });
    if (reads_.empty()) return;
    Reading& reading = reads_.front();  // stays where it is until it is taken out below
    lock.unlock();
    try {
      read(reading);
    } catch (const Error&) {
      // Out of blocks, say: what there is is enough.
    } catch (const std::bad_alloc&) {
    }
    {
      const std::lock_guard content_lock(reading_mutex_);
      reading_.reset();
    }
    lock.lock();
    reads_.pop_front();
    done_.notify_all();
  }
}

void StoreTier::read(Reading& reading) {
  const auto given_up = [&] {
    const std::lock_guard lock(queue_mutex_);
    return reading.cancelled;
  };
  if (given_up() || store_.down()) return;
  const prefix::Tokens text = reading.text;
  const uint64_t from = cache_.prefix()->cached(reading.salt, text);
  if (from == text.size() / block_size()) return;
  const Found found = look_up(reading, from);
  if (found.to == from || begin_content(reading) != from) return;
  for (uint64_t first = from; first < found.to && !given_up();) {
    const uint64_t asked = std::min<uint64_t>(batch_, found.to - first);
    uint64_t count = asked;
    const Items items = read_items(found, text, first, count);
    if (!add_in_turns(found, text, first, count, items) || count < asked) return;
    first += count;
  }
}

// Asks the store in steps, since most texts end early.
StoreTier::Found StoreTier::look_up(const Reading& reading, uint64_t from) {
  const uint64_t total = reading.text.size() / block_size();
  Found found{from, from, keys_of(reading.salt, reading.text, from, total), {}};
  Items items;
  uint64_t limit = from;  // all groups without a window have what is before it
  while (limit < total) {
    const uint64_t step = std::min<uint64_t>(probed_at_once, total - limit);
    items.clear();
    for (uint64_t i = (limit - from) * groups(); i < (limit - from + step) * groups(); i++) {
      pkv_store_item item{};
      std::copy(found.keys[i].begin(), found.keys[i].end(), item.key);
      items.push_back(item);
    }
    store_.probe(items);
    asked_.fetch_add(items.size(), std::memory_order_relaxed);
    for (size_t i = 0; i < items.size(); i++)
      found.there.push_back(items[i].size == item_bytes_[i % groups()]);
    forget_missing(std::span(found.keys).subspan((limit - from) * groups(), items.size()),
                   std::span(found.there).last(items.size()));
    const uint64_t before = limit;
    const auto complete = [&](uint64_t position) {
      for (size_t g = 0; g < groups(); g++)
        if (group(g).shape.window == 0 && found.there[(position - from) * groups() + g] == 0)
          return false;
      return true;
    };
    while (limit < before + step && complete(limit)) limit++;
    if (limit < before + step) break;
  }
  found.to = limit;
  found.to = usable(found, limit);
  return found;
}

// What the store has lost is written again when it comes by.
void StoreTier::forget_missing(std::span<const ContentKey> keys,
                               std::span<const unsigned char> there) {
  const std::lock_guard lock(queue_mutex_);
  for (size_t i = 0; i < keys.size(); i++)
    if (there[i] == 0) known_.erase(beginning(keys[i]));
}

// A window group needs, of a beginning that ends there, its last window and its sinks.
bool StoreTier::needed(const Found& found, uint64_t position, size_t g) const {
  const memory::Shape& shape = group(g).shape;
  if (shape.window == 0) return true;
  return position + group(g).blocks_for(shape.window) >= found.to ||
         position < group(g).blocks_for(shape.sinks);
}

// The longest beginning up to a position of which every group can have what it needs.
uint64_t StoreTier::usable(const Found& found, uint64_t to) const {
  for (size_t g = 0; g < groups(); g++) to = std::min(to, end_of_sinks(found, to, g));
  // A position must be the end of enough blocks in a row: it is, in every group, or a smaller one
  // is tried.
  for (size_t agreed = 0, g = 0; agreed < groups(); g = (g + 1) % groups()) {
    const uint64_t before = std::exchange(to, end_of_window(found, to, g));
    agreed = to == before ? agreed + 1 : 1;
  }
  return to;
}

// Of a group, the end of the longest beginning up to `to` that lacks none of its sinks.
uint64_t StoreTier::end_of_sinks(const Found& found, uint64_t to, size_t g) const {
  const uint64_t sinks = group(g).shape.window == 0 ? 0 : group(g).blocks_for(group(g).shape.sinks);
  for (uint64_t position = found.from; position < std::min(to, sinks); position++)
    if (found.there[(position - found.from) * groups() + g] == 0) return position;
  return to;
}

// Of a group, the end of the longest beginning up to `to` that lacks nothing of its last window.
uint64_t StoreTier::end_of_window(const Found& found, uint64_t to, size_t g) const {
  if (group(g).shape.window == 0) return to;
  const uint64_t window = group(g).blocks_for(group(g).shape.window);
  for (uint64_t position = to; position > found.from && position + window > to; position--)
    if (found.there[(position - 1 - found.from) * groups() + g] == 0) to = position - 1;
  return to;
}

// What is in memory already. Its end, in blocks.
uint64_t StoreTier::begin_content(const Reading& reading) {
  Content content(cache_);
  content.hold() = prefix::Index::Hold(*cache_.prefix(), reading.salt, usual_retention);
  const uint32_t depth =
      cache_.prefix()->match(content.hold(), reading.text, content.sequences(), nullptr);
  content.tokens().reserve(reading.text.size());
  content.tokens().assign(
      reading.text.begin(),
      reading.text.begin() + static_cast<std::ptrdiff_t>(depth * uint64_t{block_size()}));
  const std::lock_guard lock(reading_mutex_);
  reading_.emplace(std::move(content));
  return depth;
}

// The items of `count` positions, checked; fewer positions where something is missing.
StoreTier::Items StoreTier::read_items(const Found& found, prefix::Tokens text, uint64_t first,
                                       uint64_t& count) {
  Items items;
  std::vector<size_t> places;  // of items, among keys
  unsigned char* at = read_buffer_.data();
  for (uint64_t position = first; position < first + count; position++)
    for (size_t g = 0; g < groups(); g++) {
      if (!needed(found, position, g)) continue;
      const size_t place = (position - found.from) * groups() + g;
      pkv_store_item item{};
      std::copy(found.keys[place].begin(), found.keys[place].end(), item.key);
      item.data = at;
      item.size = item_bytes_[g];
      items.push_back(item);
      places.push_back(place);
      at += item_bytes_[g];
    }
  store_.get(items);
  for (size_t i = 0; i < items.size(); i++) {
    const uint64_t position = found.from + places[i] / groups();
    const size_t g = places[i] % groups();
    const ContentKey& key = found.keys[places[i]];
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
    known_.erase(beginning(key));
    count = std::min(count, position - first);
  }
  return items;
}

// Into blocks of the cache and into the index, a little at a time: who is short of blocks meanwhile
// waits for that little. False: there are no blocks for them, or they were let go.
bool StoreTier::add_in_turns(const Found& found, prefix::Tokens text, uint64_t first,
                             uint64_t count, const Items& items) {
  const uint64_t turn = std::max<uint64_t>(turn_bytes / position_bytes_, 1);
  size_t item = 0;
  for (const uint64_t end = first + count; first < end; first += turn)
    if (!add_blocks(found, text, first, std::min(turn, end - first), items, item)) return false;
  return count > 0;
}

// item: of items, the next one; it moves on.
bool StoreTier::add_blocks(const Found& found, prefix::Tokens text, uint64_t first, uint64_t count,
                           const Items& items, size_t& item) {
  let_others_in();
  const std::lock_guard lock(reading_mutex_);
  if (!reading_) return false;
  std::vector<uint64_t> counts(groups());
  for (uint64_t position = first; position < first + count; position++)
    for (size_t g = 0; g < groups(); g++) counts[g] += needed(found, position, g);
  Reservation reservation(cache_, counts, cache_.config().watermark, nullptr, "prefetch");
  for (size_t g = 0; g < groups(); g++) reading_->sequences()[g].make_room(count, 0);
  const size_t before = item;
  for (uint64_t position = first; position < first + count; position++)
    for (size_t g = 0; g < groups(); g++) {
      memory::Sequence& sequence = reading_->sequences()[g];
      memory::Block block = memory::no_block;
      if (needed(found, position, g)) {
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
  reading_->tokens().insert(reading_->tokens().end(),
                            text.begin() + static_cast<std::ptrdiff_t>(first * block_size()),
                            text.begin() + end);
  cache_.prefix()->publish(reading_->hold(), reading_->tokens(), reading_->sequences(), true);
  return true;
}

}  // namespace pkv::tier
