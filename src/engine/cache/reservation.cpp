// Takes blocks from the pools: free ones first, then cached ones, last those that the tier holds.
#include "engine/cache/reservation.h"

#include <algorithm>
#include <cstdio>

#include "base/status.h"

namespace pkv {

namespace {

// A part of an error sentence about the blocks of a group: "3 of 8 are free, 2 evictable, 1 stay
// free (watermark)". The text is a fixed buffer, since memory may be short.
struct Availability {
  char text[192];
};

uint64_t evictable(const Cache& cache, size_t group) {
  return cache.prefix() != nullptr ? cache.prefix()->evictable(group) : 0;
}

Availability describe(const Cache& cache, size_t group, uint32_t watermark) {
  const memory::Pool& pool = cache.groups()[group]->pool;
  Availability result{};
  int length = std::snprintf(result.text, sizeof result.text, "%u of %u are free",
                             pool.free_count(), pool.blocks());
  const auto add = [&](const char* format, unsigned long long number) {
    length += std::snprintf(result.text + length, sizeof result.text - static_cast<size_t>(length),
                            format, number);
  };
  if (cache.prefix() != nullptr) add(", %llu evictable", evictable(cache, group));
  if (cache.pages() != nullptr) add(", %llu shared pages are free", cache.pages()->free_pages());
  if (watermark > 0) add(", %llu stay free (watermark)", watermark);
  return result;
}

// Returns how many blocks are missing, summed over all groups.
uint64_t count_missing(const Cache& cache, std::span<const uint64_t> counts, uint32_t watermark) {
  uint64_t total = 0;
  for (size_t g = 0; g < counts.size(); g++) {
    const uint64_t have = cache.groups()[g]->pool.free_count() + evictable(cache, g),
                   needed = counts[g] == 0 ? 0 : counts[g] + watermark;
    total += needed > have ? needed - have : 0;
  }
  return total;
}

// Moves pages to the groups that lack blocks, if the groups share their memory, and evicts cached
// blocks if that is not enough. Other threads may take the blocks before the caller does.
void provide_pages(const Cache& cache, std::span<const uint64_t> counts, uint32_t watermark) {
  if (cache.pages() == nullptr) return;
  const std::vector<uint64_t> wanted = with_watermark(counts, watermark);
  const auto make_room = [&] {
    return cache.prefix() != nullptr && cache.prefix()->make_room(*cache.pages(), wanted);
  };
  if (cache.pages()->provide(wanted)) return;
  if (make_room() || (cache.tier() != nullptr && cache.tier()->give_way() && make_room()))
    cache.log_eviction();
}

// Takes blocks of one group; evicts cached ones if too few are free. Returns false if that is not
// enough.
bool take_evicting(const Cache& cache, size_t group, uint64_t count, uint32_t watermark,
                   memory::Block* out) {
  memory::Pool& pool = cache.groups()[group]->pool;
  const auto try_alloc = [&] {
    return (watermark == 0 || pool.free_count() >= count + watermark) && pool.try_alloc(count, out);
  };
  if (try_alloc()) return true;
  if (cache.pages() != nullptr) return false;  // provide_pages() did what can be done
  // This is a loop because another thread may take the blocks that were evicted here.
  while (cache.prefix() != nullptr && cache.prefix()->make_free(group, count + watermark)) {
    cache.log_eviction();
    if (try_alloc()) return true;
  }
  return false;
}

// Takes blocks of one group. If evicting is not enough, the tier drops what it has yet to write:
// that comes last, because such blocks are in no store and would have to be computed again.
bool take(const Cache& cache, size_t group, uint64_t count, uint32_t watermark,
          memory::Block* out) {
  if (take_evicting(cache, group, count, watermark, out)) return true;
  return cache.tier() != nullptr && cache.tier()->give_way() &&
         take_evicting(cache, group, count, watermark, out);
}

}  // namespace

std::vector<uint64_t> with_watermark(std::span<const uint64_t> counts, uint32_t watermark) {
  std::vector<uint64_t> result(counts.begin(), counts.end());
  for (uint64_t& blocks : result) blocks += blocks == 0 ? 0 : watermark;
  return result;
}

Reservation::Reservation(Cache& cache, std::span<const uint64_t> counts, uint32_t watermark,
                         uint64_t* short_by, const char* who, const std::function<bool()>& give_up,
                         const char* advice)
    : cache_(cache), blocks_(counts.size()), disowned_(counts.size()) {
  check_possible(counts, watermark, who);
  size_t lacking = try_take(counts, watermark);
  if (lacking < counts.size() && give_up && give_up()) lacking = try_take(counts, watermark);
  if (lacking == counts.size()) return;
  // Other threads may have released blocks since, so the count can be 0 by now; but at least one
  // block was missing.
  const uint64_t total = std::max<uint64_t>(count_missing(cache, counts, watermark), 1);
  if (short_by != nullptr) *short_by = total;
  fail(PKV_OUT_OF_BLOCKS, "%s needs %llu blocks in group %zu, %s (%llu short over all groups)%s",
       who, (unsigned long long)counts[lacking], lacking, describe(cache, lacking, watermark).text,
       (unsigned long long)total, advice);
}

void Reservation::check_possible(std::span<const uint64_t> counts, uint32_t watermark,
                                 const char* who) const {
  for (size_t g = 0; g < counts.size(); g++)
    if (counts[g] > cache_.groups()[g]->pool.blocks() - watermark)
      fail(PKV_TOO_LARGE, "%s needs %llu blocks in group %zu: %s", who,
           (unsigned long long)counts[g], g, describe(cache_, g, watermark).text);
  if (cache_.pages() == nullptr) return;
  const memory::PageCut& cut = cache_.pages()->cut();
  const uint64_t pages = cut.pages_for(with_watermark(counts, watermark));
  if (pages > cut.pages)
    fail(PKV_TOO_LARGE, "%s needs %llu pages of the memory that the groups share, which has %u",
         who, (unsigned long long)pages, cut.pages);
}

size_t Reservation::try_take(std::span<const uint64_t> counts, uint32_t watermark) {
  provide_pages(cache_, counts, watermark);
  for (size_t g = 0; g < counts.size(); g++) blocks_[g].resize(counts[g]);
  for (size_t g = 0; g < counts.size(); g++) {
    if (counts[g] == 0 || take(cache_, g, counts[g], watermark, blocks_[g].data())) continue;
    // Blocks of this group and of those after it were not taken, so they must not be given back.
    for (size_t rest = g; rest < counts.size(); rest++) blocks_[rest].clear();
    give_back();
    for (std::vector<memory::Block>& blocks : blocks_) blocks.clear();
    return g;
  }
  return counts.size();
}

void Reservation::give_back() noexcept {
  for (size_t g = 0; g < blocks_.size(); g++)
    for (size_t i = disowned_[g]; i < blocks_[g].size(); i++)
      cache_.groups()[g]->pool.release(blocks_[g][i]);
}

}  // namespace pkv
