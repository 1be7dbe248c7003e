// Writes contents batch by batch: asks the store which items it has, packs the others and puts
// them.
#include "engine/store/writer.h"

#include <algorithm>
#include <utility>

#include "base/os.h"
#include "base/status.h"

namespace pkv::store {

bool Writer::enqueue(Content content, Writing why) noexcept {
  const uint64_t blocks = content.hold().depth();
  content.tokens().resize(blocks * format_.block_size());
  for (const auto& table : content.tables()) table->trim(blocks * format_.block_size());
  try {
    worker_.start(format_.batch_positions() * format_.position_bytes(), [this] { run(); });
    if (queue_.push(std::move(content), why)) return true;
  } catch (const Error& error) {
    format_.cache().log_failed_copy(error.text);
  } catch (...) {
  }
  if (why == Writing::of_session) queue_.count_dropped(blocks);
  return false;
}

void Writer::run() noexcept {
  os::lower_priority();
  while (queue_.wait()) {
    uint64_t written = 0;  // block positions
    try {
      write_next(written);
    } catch (const Error& error) {
      if (error.status == PKV_IO) format_.cache().log_failed_copy(error.text);
    } catch (const std::bad_alloc&) {
    }
    {
      const auto lock = worker_.lock();
      worker_.release();
    }
    queue_.finish(written);
  }
}

// Takes the next content and writes it until it is released or the store takes nothing. Batches go
// from the end of the text to its beginning, as the items of each do (StoreCalls). An item that
// the store does not take ends nothing: the blocks before it are of use without it.
void Writer::write_next(uint64_t& written) {
  std::string salt;
  std::vector<int32_t> text;
  {
    const auto lock = worker_.lock();
    std::optional<Content>& content = worker_.content();
    queue_.pop(content);
    if (!content) return;
    salt = content->hold().salt();
    text.assign(content->tokens().begin(), content->tokens().end());
  }
  const uint64_t total = text.size() / format_.block_size();
  const size_t groups = format_.groups();
  const std::vector<ContentKey> keys = format_.keys(salt, text, 0, total);
  uint64_t lost_before = 0;  // No position from here on is lost.
  for (uint64_t left = total; left > 0;) {
    const uint64_t count = std::min<uint64_t>(format_.batch_positions(), left);
    const uint64_t first = left - count;
    const std::chrono::nanoseconds begin = os::thread_time();
    const Stored stored =
        write_batch(std::span(keys).subspan(first * groups, count * groups), text, first);
    if (stored.empty()) return;
    written += count_written(stored, first, lost_before);
    left = first;
    if (written < total - left && store_.writing().pauses()) break;
    throttle_during_steps(os::thread_time() - begin);
  }
  const auto lock = worker_.lock();
  if (worker_.content()) worker_.content()->hold().demote(lost_before);
}

// Returns how many positions of a batch the store has in full. Raises `lost_before` to the end of
// the last one of the others.
uint64_t Writer::count_written(const Stored& stored, uint64_t first, uint64_t& lost_before) const {
  const size_t groups = format_.groups();
  uint64_t written = 0;
  for (size_t i = 0; i < stored.size(); i += groups) {
    if (std::ranges::all_of(std::span(stored).subspan(i, groups), [](bool is) { return is; }))
      written++;
    else
      lost_before = std::max(lost_before, first + i / groups + 1);
  }
  return written;
}

// Sleeps so that the writer works a tenth of the time while steps run, since a step waits for the
// slowest of its threads. Does not sleep while a caller of flush() waits for the writer.
void Writer::throttle_during_steps(std::chrono::nanoseconds worked) {
  const Counters& counters = format_.cache().counters();
  const uint64_t ended = counters.commits + counters.aborts;
  const auto now = std::chrono::steady_clock::now();
  if (std::exchange(steps_seen_, ended) != ended) last_step_ = now;
  if (now - last_step_ <= std::chrono::seconds(1)) queue_.pause(9 * worked);
}

// Returns 1 for each key that the store has, from memory or by asking the store, and 0 for others.
// Asks again about a text after as many puts as it has items, so that what is in use does not
// become the oldest even in a small store.
Writer::Stored Writer::find_stored(std::span<const ContentKey> keys, uint64_t text_items) {
  Stored stored(keys.size());
  std::vector<pkv_store_item> asked;
  std::vector<size_t> asked_indices;
  for (size_t i = 0; i < keys.size(); i++) {
    stored[i] = store_.known().knows(keys[i], text_items);
    if (stored[i]) continue;
    asked.push_back(item_of(keys[i]));
    asked_indices.push_back(i);
  }
  store_.touch(asked);
  for (size_t i = 0; i < asked.size(); i++) {
    const size_t index = asked_indices[i];
    stored[index] = asked[i].size == format_.value_bytes(index % format_.groups());
    if (stored[index] != 0) store_.known().remember(keys[index]);
  }
  return stored;
}

// Writes a batch of positions that begins at `first`. Returns what the store has of it now; nothing
// if the content was released.
Writer::Stored Writer::write_batch(std::span<const ContentKey> keys, prefix::Tokens text,
                                   size_t first) {
  const uint64_t text_items = text.size() / format_.block_size() * format_.groups();
  Stored stored = find_stored(keys, text_items);
  std::vector<pkv_store_item> items;
  std::vector<size_t> indices;  // of their keys
  Copies opaque(format_.groups());
  // Opaque values, each with the index of its key.
  std::vector<std::pair<size_t, unsigned char*>> unsealed;
  unsigned char* at = worker_.buffer();
  for (size_t i = 0; i < keys.size(); i++) {
    const size_t position = first + i / format_.groups(), g = i % format_.groups();
    {
      const auto lock = worker_.lock();
      if (!worker_.content()) return {};
      const memory::BlockTable& table = worker_.content()->table(g);
      known_items_ += stored[i];
      const memory::Block block = table.blocks()[position];
      if (block == memory::no_block) stored[i] = 1;
      if (stored[i] != 0) continue;
      format_.pack(g, table, text, position, keys[i], at);
      if (format_.group(g).opaque()) {
        retain_in_flight(g, block);
        opaque[g].push_back(
            {memory::block_id(block), format_.block_size(), format_.opaque_bytes(g, at)});
      }
    }
    if (format_.group(g).opaque())
      unsealed.emplace_back(i, at);
    else
      format_.seal(g, keys[i], at);
    items.push_back(item_of(keys[i], at, format_.value_bytes(g)));
    at += format_.value_bytes(g);
    indices.push_back(i);
  }
  if (!unsealed.empty() && !read_opaque(opaque)) return {};
  for (const auto& [i, value] : unsealed) format_.seal(i % format_.groups(), keys[i], value);
  put(keys, items, indices, stored);
  return stored;
}

// Puts items of these keys, and notes which of them the store has now.
void Writer::put(std::span<const ContentKey> keys, std::span<pkv_store_item> items,
                 std::span<const size_t> indices, Stored& stored) {
  store_.put(items);
  for (size_t i = 0; i < items.size(); i++) {
    const size_t index = indices[i];
    if (items[i].size == 0) continue;
    stored[index] = 1;
    store_.known().remember(keys[index]);
    written_items_ += 1;
    written_bytes_ += format_.value_bytes(index % format_.groups());
  }
}

// Takes a reference to a block that the engine is about to copy. Throws LIMIT_REACHED, bad_alloc.
void Writer::retain_in_flight(size_t g, memory::Block block) {
  std::optional<Content>& held = worker_.in_flight();
  if (!held) held.emplace(format_.cache());
  held->tables()[g]->reserve_entries(1);
  memory::retain_table(format_.group(g), std::span(&block, 1));
  held->tables()[g]->append(std::span(&block, 1));
}

// Copies what is held, without the lock. Returns false if it was released before. Throws IO.
bool Writer::read_opaque(const Copies& copies) {
  auto lock = worker_.lock();
  if (!worker_.in_flight()) return false;
  worker_.unlocked(lock, [&] {
    for (uint32_t g = 0; g < copies.size(); g++)
      format_.cache().block_io()->read(g, format_.group(g), copies[g]);
  });
  worker_.in_flight().reset();
  return true;
}

void Writer::report(pkv_store_stats& stats) const noexcept {
  stats.written_items = written_items_;
  stats.written_bytes = written_bytes_;
  stats.known_items = known_items_;
}

}  // namespace pkv::store
