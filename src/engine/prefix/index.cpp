#include "engine/prefix/index.h"

#include <algorithm>
#include <utility>

#include "base/status.h"

namespace pkv::prefix {

Index::Index(const IndexOptions& options, std::span<const std::unique_ptr<memory::Group>> groups,
             HookMemory& memory)
    : data_(options, groups, memory),
      uses_(data_),
      matcher_(data_, uses_, memory),
      eviction_(data_, uses_),
      publisher_(data_, uses_, eviction_, memory),
      hints_(data_, uses_, matcher_,
             options.max_pinned != 0 ? options.max_pinned : memory::largest_pool(groups) / 4) {}

// ---- Matching and publishing --------------------------------------------------------------------

// The lock is taken for writing only where nodes change.
uint64_t Index::match(Hold& hold, Tokens text, memory::Tables tables) {
  Use& use = hold.use_;
  const auto find = [&] {
    Match match = matcher_.find(*use.space, text);
    const size_t entries = match.depth + (match.tail.empty() ? 0 : 1);
    for (const auto& table : tables) table->reserve_entries(entries);
    return match;
  };
  std::shared_lock reading(mutex_);
  Match match = find();
  reading.unlock();
  if (match.depth == 0 && match.tail.empty()) return 0;
  std::span<const memory::Block> tail;
  try {
    std::unique_lock changing(mutex_);
    if (match.removals != data_.removals) match = find();
    tail = matcher_.take(match, use, tables);
    changing.unlock();
    matcher_.retain(match, false, tables);
  } catch (...) {
    for (const auto& table : tables) table->trim(0);
    for (size_t g = 0; g < tail.size(); g++) data_.groups[g]->pool.release(tail[g]);
    hold.cancel();
    throw;
  }
  for (size_t g = 0; g < tail.size(); g++) tables[g]->append(tail.subspan(g, 1));
  return uint64_t{match.depth} * data_.block_size() + (tail.empty() ? 0 : match.found.common);
}

uint32_t Index::match_blocks(Hold& hold, Tokens text, memory::Tables tables) {
  const uint64_t size = data_.block_size(), matched = match(hold, text, tables) / size * size;
  for (const auto& table : tables) table->trim(matched);
  hold.retreat(matched);
  return static_cast<uint32_t>(matched / size);
}

uint32_t Index::cached(std::string_view salt, Tokens text) const {
  const std::shared_lock lock(mutex_);
  const Space* const space = data_.spaces.find(salt);
  return space != nullptr ? matcher_.usable(data_.tree.find(space->root, text)) : 0;
}

void Index::publish(Hold& hold, Tokens text, memory::Tables tables, IfLocked if_locked) noexcept {
  std::unique_lock lock(mutex_, std::defer_lock);
  if (if_locked == IfLocked::wait)
    lock.lock();
  else if (!lock.try_lock())
    return;
  try {
    publisher_.publish(hold.use_, text, tables);
  } catch (const std::bad_alloc&) {
    // What is missing is tried again when more is published.
  }
}

std::vector<std::vector<bool>> Index::has_unpinned(memory::Tables tables) const {
  const std::shared_lock lock(mutex_);
  std::vector<std::vector<bool>> result;
  for (size_t g = 0; g < tables.size(); g++) {
    std::vector<bool>& given_up = result.emplace_back();
    for (const memory::Block block : tables[g]->blocks())
      given_up.push_back(memory::is_block(block) &&
                         data_.blocks.has_unpinned(g, memory::block_id(block)));
  }
  return result;
}

// ---- Eviction, pins and quotas ------------------------------------------------------------------

// Locks the index for calls that find out what can be evicted: what hints kept may end now.
std::unique_lock<ReadWriteLock> Index::lock_now() noexcept {
  std::unique_lock lock(mutex_);
  hints_.expire();
  return lock;
}

bool Index::evict_until_free(std::span<const uint64_t> wanted) noexcept {
  const auto lock = lock_now();
  return eviction_.evict_until_free(wanted);
}

bool Index::evict_for_pages(memory::Pages& pages, std::span<const uint64_t> wanted) noexcept {
  const auto lock = lock_now();
  return eviction_.evict_for_pages(pages, wanted);
}

void Index::let_go(size_t group, uint32_t id) noexcept {
  const std::lock_guard lock(mutex_);
  eviction_.let_go(group, id);
}

std::vector<uint64_t> Index::pinned_blocks() const {
  const std::shared_lock lock(mutex_);
  return hints_.pinned_blocks();
}

bool Index::has_unpinned(size_t group, uint32_t id) const {
  const std::shared_lock lock(mutex_);
  return data_.blocks.has_unpinned(group, id);
}

uint64_t Index::evictable(size_t group) {
  const auto lock = lock_now();
  uses_.review(group);
  return data_.blocks.evictable(group);
}

bool Index::is_over(uint64_t time) const { return data_.time.now_ms() >= time; }

uint64_t Index::time_in(uint64_t duration_ms) const { return data_.time.in_ms(duration_ms); }

PinResult Index::pin(std::string_view salt, Tokens text, uint64_t duration_ms) {
  const auto lock = lock_now();
  return hints_.pin(salt, text, duration_ms);
}

uint32_t Index::unpin(std::string_view salt, Tokens text) noexcept {
  const auto lock = lock_now();
  return hints_.unpin(salt, text);
}

bool Index::has_pins() const {
  const std::shared_lock lock(mutex_);
  return !data_.pins.empty();
}

Price Index::price_now(const memory::Pages* pages, const Lack& lack,
                       std::span<const Releasable> releasables) {
  uses_.review();
  Forecast forecast(data_.groups, pages, &data_);
  return forecast.price(lack, releasables);
}

Price Index::price(const memory::Pages* pages, const Lack& lack,
                   std::span<const Releasable> releasables) {
  const auto lock = lock_now();
  return price_now(pages, lack, releasables);
}

Price Index::price_and_end_pins(const memory::Pages* pages, const Lack& lack,
                                std::span<const Releasable> releasables) {
  const auto lock = lock_now();
  const Price price = price_now(pages, lack, releasables);
  for (Node* const node : price.pins) hints_.yield(*node);
  return price;
}

uint32_t Index::set_retention(std::string_view salt, Tokens text, const Range& range) {
  const auto lock = lock_now();
  return hints_.set_retention(salt, text, range);
}

std::pair<uint32_t, uint32_t> Index::drop(std::string_view salt, Tokens text, uint32_t first) {
  const auto lock = lock_now();
  Space* const space = data_.spaces.find(salt);
  if (space == nullptr) return {0, 0};
  return eviction_.drop(*space, text, first);
}

void Index::set_quota(std::string_view salt, std::optional<uint64_t> blocks) {
  const auto lock = lock_now();
  eviction_.set_quota(salt, blocks);
}

uint64_t Index::quota(std::string_view salt) const {
  const std::shared_lock lock(mutex_);
  const Space* const space = data_.spaces.find(salt);
  const uint64_t quota = space != nullptr ? space->quota : data_.spaces.default_quota();
  return quota != 0 ? quota : UINT64_MAX;
}

uint64_t Index::make_room_in_quota(Hold& hold, uint64_t end) noexcept {
  const std::lock_guard lock(mutex_);
  return hold.depth() + eviction_.make_room_in_quota(*hold.use_.space, end - hold.depth());
}

void Index::clear(const std::string_view* salt) noexcept {
  const auto lock = lock_now();
  if (salt == nullptr) return eviction_.clear();
  if (Space* const space = data_.spaces.find(*salt)) eviction_.clear(*space);
}

// ---- Events, statistics and images --------------------------------------------------------------

size_t Index::read_events(uint64_t& next, std::span<pkv_prefix_event> out, uint64_t& lost) const {
  const std::shared_lock lock(mutex_);
  return data_.events.read(next, out, lost);
}

Figures Index::figures(std::string_view salt) {
  const auto lock = lock_now();
  uses_.review();
  const Space* const space = data_.spaces.find(salt);
  return space != nullptr ? space->figures : Figures{};
}

Figures Index::figures() {
  const auto lock = lock_now();
  uses_.review();
  return data_.spaces.total();
}

std::unique_ptr<Image> Index::begin_image() { return std::make_unique<Image>(data_); }

bool Index::copy_more(Image& image, uint32_t most) const {
  const std::shared_lock lock(mutex_);
  return image.copy_more(most);
}

// Blocks that the index no longer has, but that are not gone, are referenced by the caller of
// Image::mark_referenced().
Index::Loan Index::lend(Image& image, size_t group, std::span<const uint32_t> ids) {
  Loan loan(*data_.groups[group], ids.size());
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < ids.size(); i++) {
    if (!image.read(group, ids[i], [] {})) continue;
    if (const auto [node, position] = data_.blocks.place_of(group, ids[i]); node != nullptr) {
      const memory::Block block = node->blocks_at(position)[group];
      if (data_.groups[group]->pool.retain(block) != PKV_OK) continue;
      loan.blocks_.push_back(block);
      data_.blocks.share(group, block);
    }
    loan.available_[i] = true;
  }
  // A short use of its node lists a block as shared, since more than the index references it.
  const Node* last = nullptr;
  for (const memory::Block block : loan.blocks_) {
    Node& node = *data_.blocks.place_of(group, memory::block_id(block)).node;
    if (std::exchange(last, &node) == &node) continue;
    uses_.attach(node);
    uses_.detach(node, false);
  }
  return loan;
}

void Index::validate(std::span<std::vector<uint64_t>> references) {
  const auto lock = lock_now();
  uses_.review();
  prefix::validate(data_, hints_.pinned(), references);
}

}  // namespace pkv::prefix
