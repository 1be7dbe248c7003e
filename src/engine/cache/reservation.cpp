// Takes blocks from the pools: free ones first, then cached ones, then those that the store or pins
// hold.
#include "engine/cache/reservation.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <numeric>
#include <optional>
#include <thread>

#include "base/status.h"

namespace pkv {

namespace {

// A part of an error sentence about the blocks of a group: "3 of 8 are free, 2 evictable, 1 must
// stay free (watermark)". The text is a fixed buffer, since memory may be short.
struct Availability {
  char text[192];
};

Availability describe(const Cache& cache, size_t group, uint32_t watermark) {
  const memory::Pool& pool = cache.groups()[group]->pool;
  Availability result{};
  int length = std::snprintf(result.text, sizeof result.text, "%u of %u are free",
                             pool.free_count(), pool.blocks());
  const auto add = [&](const char* format, unsigned long long number) {
    length += std::snprintf(result.text + length, sizeof result.text - static_cast<size_t>(length),
                            format, number);
  };
  if (cache.prefix() != nullptr) add(", %llu evictable", cache.evictable(group));
  if (cache.pages() != nullptr) add(", %llu shared pages are free", cache.pages()->free_pages());
  if (const uint64_t moving = cache.moving(group))
    add(", %llu are being copied by block_io", moving);
  if (watermark > 0) add(", %llu must stay free (watermark)", watermark);
  return result;
}

// Makes the blocks free that a call wants, by evicting cached ones if they are needed. Returns
// false, and evicts nothing, if there are too few. Other threads may take the blocks before the
// caller does.
bool make_free(const Cache& cache, std::span<const uint64_t> wanted) {
  if (cache.pages() != nullptr && cache.pages()->provide(wanted)) return true;
  prefix::Index* const index = cache.prefix();
  if (index == nullptr) return false;
  const bool enough = cache.pages() != nullptr ? index->evict_for_pages(*cache.pages(), wanted)
                                               : index->evict_until_free(wanted);
  if (enough) cache.log_eviction();
  return enough;
}

// What others must give up for a call, besides cached blocks; and how many contents the store has
// taken so far (see Store::release_for), or 0 if it was not asked.
struct Released {
  prefix::Price price;
  uint64_t intake = 0;
};

// Has others give up what a call lacks. The store is asked only for a call that fails without it.
Released have_others_release(const Cache& cache, const prefix::Lack& lack) {
  prefix::Index* const index = cache.prefix();
  if (index == nullptr) return {price_of(cache, lack)};
  Released released = {
      index->price_and_end_pins(cache.pages(), {lack.counts, lack.watermark, lack.own, false}, {})};
  prefix::Price& price = released.price;
  if (price.missing == 0) return released;
  if (Store* const store = cache.store())
    released.intake = store->release_for([&](std::span<const prefix::Releasable> releasables) {
      price = index->price_and_end_pins(cache.pages(), lack, releasables);
      return price.releasables;
    });
  else if (lack.yields_pins && index->has_pins())
    price = index->price_and_end_pins(cache.pages(), lack, {});
  if (!price.pins.empty()) cache.log_yielded_pin();
  return released;
}

// How often a call looks again for blocks that other threads are moving, first without sleeping.
// Such a thread may wait for a processor itself, on a busy machine for many milliseconds. So urgent
// calls sleep, for a second in all; others may hold locks.
constexpr int looks_awake = 100, looks_asleep = 900;

// Lets other threads run. Returns false if the call has looked often enough.
bool look_again(int looks, Urgency urgency) {
  if (looks < looks_awake)
    std::this_thread::yield();
  else if (urgency == Urgency::may_fail || looks == looks_awake + looks_asleep)
    return false;
  else
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return true;
}

}  // namespace

std::vector<uint64_t> with_watermark(std::span<const uint64_t> counts, uint32_t watermark) {
  std::vector<uint64_t> result(counts.begin(), counts.end());
  for (uint64_t& blocks : result) blocks += blocks == 0 ? 0 : watermark;
  return result;
}

void check_possible(const Cache& cache, size_t group, uint64_t count, uint32_t watermark,
                    const char* who) {
  const uint64_t most = cache.groups()[group]->pool.blocks() - watermark;
  if (count > most)
    fail(PKV_TOO_LARGE, "%s needs %llu blocks in group %zu, which has %llu %s", who, llu(count),
         group, llu(most), watermark > 0 ? "besides the watermark" : "in all");
}

void check_pages_possible(const Cache& cache, std::span<const uint64_t> counts, uint32_t watermark,
                          const char* who) {
  const memory::PageCut& cut = cache.pages()->cut();
  const uint64_t pages = cut.pages_for(with_watermark(counts, watermark));
  if (pages > cut.pages)
    fail(PKV_TOO_LARGE, "%s needs %llu pages of the memory that the groups share, which has %u",
         who, llu(pages), cut.pages);
}

void check_possible(const Cache& cache, std::span<const uint64_t> counts, uint32_t watermark,
                    const char* who) {
  for (size_t g = 0; g < counts.size(); g++) check_possible(cache, g, counts[g], watermark, who);
  if (cache.pages() != nullptr) check_pages_possible(cache, counts, watermark, who);
}

prefix::Price price_of(const Cache& cache, const prefix::Lack& lack,
                       std::span<const prefix::Releasable> releasables) {
  if (cache.prefix() != nullptr) return cache.prefix()->price(cache.pages(), lack, releasables);
  return prefix::Forecast(cache.groups(), cache.pages(), nullptr).price(lack, releasables);
}

prefix::Price price_with_store(const Cache& cache, const prefix::Lack& lack,
                               std::vector<prefix::Releasable> releasables) {
  prefix::Price price = price_of(cache, lack, releasables);
  Store* const store = cache.store();
  if (price.missing == 0 || store == nullptr) return price;
  store->release_for([&](std::span<const prefix::Releasable> of_store) {
    releasables.insert(releasables.end(), of_store.begin(), of_store.end());
    price = price_of(cache, lack, releasables);
    return std::vector<size_t>{};
  });
  return price;
}

bool fits_beside_pins(const Cache& cache, std::span<const uint64_t> counts, uint32_t watermark) {
  if (cache.prefix() == nullptr || !cache.prefix()->has_pins()) return true;
  const std::vector<uint64_t> wanted = with_watermark(counts, watermark),
                              pinned = cache.prefix()->pinned_blocks();
  for (size_t g = 0; g < wanted.size(); g++)
    if (wanted[g] > 0 && wanted[g] + pinned[g] > cache.groups()[g]->pool.blocks()) return false;
  if (cache.pages() == nullptr) return true;
  // Each pinned block may keep a page of its own.
  const memory::PageCut& cut = cache.pages()->cut();
  return std::accumulate(pinned.begin(), pinned.end(), cut.pages_for(wanted)) <= cut.pages;
}

Reservation::Reservation(Cache& cache, std::span<const uint64_t> counts, uint32_t watermark,
                         const char* who, const Own& own, Urgency urgency, const char* advice)
    : cache_(cache), blocks_(counts.size()), taken_(counts.size()) {
  check_possible(cache, counts, watermark, who);
  const auto [group, missing, demand] = reserve({counts, watermark}, own, urgency);
  if (missing == 0) return;
  fail(blocks_details(static_cast<uint32_t>(group), missing),
       "%s needs %llu blocks in group %zu, %s (%llu short over all groups)%s", who,
       llu(demand.counts[group]), group, describe(cache, group, demand.watermark).text,
       llu(missing), advice);
}

// This is a loop because other threads may take what was made free here, or move blocks between the
// pools, the index and the store while this looks elsewhere. It gives up if a whole round found too
// few blocks and the store took over nothing meanwhile, or if too many rounds found enough blocks
// and other threads took them first. The pauses let a thread that moves blocks finish.
Reservation::Shortage Reservation::reserve(Demand demand, const Own& own, Urgency urgency) {
  std::optional<uint64_t> intake_before;
  for (int late = 0;;) {
    const size_t group = reserve_free(demand);
    if (group == demand.counts.size()) return {group, 0, demand};
    if (make_free(cache_, with_watermark(demand.counts, demand.watermark))) continue;
    const prefix::OwnBlocks listed = own.list ? own.list() : prefix::OwnBlocks{};
    const bool yields_pins = urgency == Urgency::must_succeed;
    const auto [price, intake] =
        have_others_release(cache_, {demand.counts, demand.watermark, listed, yields_pins});
    if (price.missing > 0) {
      if (cache_.store() == nullptr || intake == intake_before)
        return {price.group, price.missing, demand};
      intake_before = intake;
      continue;
    }
    // What the call's own sessions give up may free nothing: the index keeps a tail as long as any
    // session uses its text, even a session that got no reference because the block already had the
    // maximum.
    const bool only_own = price.releasables.empty() && price.pins.empty();
    if (only_own && !look_again(late++, urgency)) return {group, 1, demand};
    if (own.give_up) demand = own.give_up(listed, price.tails);
  }
}

size_t Reservation::reserve_free(const Demand& demand) {
  const auto& [counts, watermark] = demand;
  for (size_t g = 0; g < counts.size(); g++) blocks_[g].resize(counts[g]);
  for (size_t g = 0; g < counts.size(); g++) {
    memory::Pool& pool = cache_.groups()[g]->pool;
    if (counts[g] == 0 || ((watermark == 0 || pool.free_count() >= counts[g] + watermark) &&
                           pool.try_alloc(counts[g], blocks_[g].data())))
      continue;
    // Blocks of this group and of those after it were not taken, so they must not be given back.
    for (size_t rest = g; rest < counts.size(); rest++) blocks_[rest].clear();
    give_back();
    for (std::vector<memory::Block>& blocks : blocks_) blocks.clear();
    return g;
  }
  return counts.size();
}

void Reservation::give_back() noexcept {
  for (size_t g = 0; g < blocks_.size(); g++) cache_.groups()[g]->pool.release_held(blocks(g));
}

}  // namespace pkv
