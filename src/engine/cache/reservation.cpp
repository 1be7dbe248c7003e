#include "engine/cache/reservation.h"

#include <algorithm>
#include <cstdio>

#include "base/status.h"

namespace pkv {

namespace {

// What else there is to say about the blocks of a group: "3 of 8 are free, 2 evictable, 1 stays
// free (watermark)".
struct Having {
  char text[128];
};

uint64_t evictable(const Cache& cache, size_t group) {
  return cache.prefix() != nullptr ? cache.prefix()->evictable(group) : 0;
}

Having describe(const Cache& cache, size_t group, uint32_t keep) {
  const memory::Pool& pool = cache.groups()[group]->pool;
  Having having{};
  int at = std::snprintf(having.text, sizeof having.text, "%u of %u are free", pool.free_count(),
                         pool.blocks());
  const auto add = [&](const char* format, unsigned long long number) {
    at += std::snprintf(having.text + at, sizeof having.text - static_cast<size_t>(at), format,
                        number);
  };
  if (cache.prefix() != nullptr) add(", %llu evictable", evictable(cache, group));
  if (keep > 0) add(", %llu stay free (watermark)", keep);
  return having;
}

uint64_t missing(const Cache& cache, std::span<const uint64_t> counts, uint32_t keep) {
  uint64_t total = 0;
  for (size_t g = 0; g < counts.size(); g++) {
    const uint64_t have = cache.groups()[g]->pool.free_count() + evictable(cache, g),
                   needed = counts[g] == 0 ? 0 : counts[g] + keep;
    total += needed > have ? needed - have : 0;
  }
  return total;
}

// From what is free, else from what the prefix index can do without.
bool take_evicting(const Cache& cache, size_t group, uint64_t count, uint32_t keep,
                   memory::Block* out) {
  memory::Pool& pool = cache.groups()[group]->pool;
  const auto try_alloc = [&] {
    return (keep == 0 || pool.free_count() >= count + keep) && pool.try_alloc(count, out);
  };
  if (try_alloc()) return true;
  // Another thread may be quicker to what was evicted.
  while (cache.prefix() != nullptr && cache.prefix()->make_free(group, count + keep))
    if (try_alloc()) return true;
  return false;
}

// What waits to be written to a store is the last to go.
bool take(const Cache& cache, size_t group, uint64_t count, uint32_t keep, memory::Block* out) {
  if (take_evicting(cache, group, count, keep, out)) return true;
  return cache.tier() != nullptr && cache.tier()->give_way() &&
         take_evicting(cache, group, count, keep, out);
}

}  // namespace

Reservation::Reservation(Cache& cache, std::span<const uint64_t> counts, uint32_t keep,
                         uint64_t* short_by, const char* who)
    : cache_(cache), blocks_(counts.size()), passed_(counts.size()) {
  for (size_t g = 0; g < counts.size(); g++) {
    if (counts[g] > cache.groups()[g]->pool.blocks() - keep)
      fail(PKV_TOO_LARGE, "%s needs %llu blocks in group %zu: %s", who,
           (unsigned long long)counts[g], g, describe(cache, g, keep).text);
    blocks_[g].resize(counts[g]);
  }
  for (size_t g = 0; g < counts.size(); g++) {
    if (counts[g] == 0 || take(cache, g, counts[g], keep, blocks_[g].data())) continue;
    for (size_t rest = g; rest < counts.size(); rest++) blocks_[rest].clear();  // were not taken
    give_back();
    // Another thread may have released blocks since: one is the least that was short.
    const uint64_t total = std::max<uint64_t>(missing(cache, counts, keep), 1);
    if (short_by != nullptr) *short_by = total;
    fail(PKV_OUT_OF_BLOCKS, "%s needs %llu blocks in group %zu, %s (%llu short over all groups)",
         who, (unsigned long long)counts[g], g, describe(cache, g, keep).text,
         (unsigned long long)total);
  }
}

void Reservation::give_back() noexcept {
  for (size_t g = 0; g < blocks_.size(); g++)
    for (size_t i = passed_[g]; i < blocks_[g].size(); i++)
      cache_.groups()[g]->pool.release(blocks_[g][i]);
}

}  // namespace pkv
