// Cuts a memory into pages, and moves pages between groups.
#include "engine/memory/pages.h"

#include <algorithm>
#include <numeric>

#include "base/checked.h"
#include "base/status.h"
#include "engine/memory/layout.h"

namespace pkv::memory {

namespace {

// The largest page, in blocks of the largest group, and the part of a page that may be lost to
// rounding before a larger one is tried.
constexpr uint64_t max_largest_per_page = 16;
constexpr double acceptable_loss = 1.0 / 32;

// A page that holds n blocks of the largest group, and what part of it the worst group cannot use.
struct Candidate {
  PageCut cut;
  double loss = 1;
};

// Returns a page whose size every group can divide by its number of blocks into strides that are
// aligned. Its loss is 1 if there is no such page of reasonable size.
Candidate page_of(uint64_t n, uint64_t largest, std::span<const uint64_t> block_bytes) {
  constexpr uint64_t max_unit = uint64_t{1} << 30;
  Candidate page;
  const uint64_t bytes = checked_mul(n, largest, "bytes of a page");
  uint64_t unit = storage_alignment;
  for (const uint64_t block : block_bytes) {
    const uint64_t per_page = std::min<uint64_t>(bytes / block, UINT32_MAX);
    page.cut.per_page.push_back(static_cast<uint32_t>(per_page));
    const uint64_t factor = per_page / std::gcd(unit / storage_alignment, per_page);
    if (unit > max_unit / factor) return page;
    unit *= factor;
  }
  page.cut.page_bytes = checked_mul(ceil_div(bytes, unit), unit, "bytes of a page");
  page.loss = 0;
  for (size_t g = 0; g < block_bytes.size(); g++)
    page.loss = std::max(page.loss, 1 - static_cast<double>(block_bytes[g]) /
                                            static_cast<double>(page.cut.stride(g)));
  return page;
}

}  // namespace

uint64_t PageCut::pages_for(std::span<const uint64_t> blocks) const {
  uint64_t sum = 0;
  for (size_t g = 0; g < blocks.size(); g++) sum += ceil_div(blocks[g], uint64_t{per_page[g]});
  return sum;
}

PageCut cut_pages(uint64_t memory_bytes, std::span<const uint64_t> block_bytes) {
  const uint64_t largest = *std::max_element(block_bytes.begin(), block_bytes.end());
  Candidate best;
  for (uint64_t n = 1; n <= max_largest_per_page && best.loss > acceptable_loss; n++)
    if (Candidate page = page_of(n, largest, block_bytes); page.loss < best.loss)
      best = std::move(page);
  if (best.loss >= 1)
    fail(PKV_UNSUPPORTED, "groups_share_memory: no page of one size suits blocks of %zu groups",
         block_bytes.size());
  PageCut& cut = best.cut;
  const uint64_t pages = memory_bytes / cut.page_bytes;
  if (pages < block_bytes.size())
    fail(PKV_TOO_LARGE,
         "memory_bytes is %llu, shared by %zu groups; the least that works is %llu, a page of %llu "
         "for each",
         llu(memory_bytes), block_bytes.size(), llu(cut.page_bytes * block_bytes.size()),
         llu(cut.page_bytes));
  const uint32_t most = *std::max_element(cut.per_page.begin(), cut.per_page.end());
  if (pages > INT32_MAX / most)
    fail(PKV_TOO_LARGE,
         "memory_bytes is %llu: %llu pages of %u blocks; there can be at most %d blocks",
         llu(memory_bytes), llu(pages), most, INT32_MAX);
  cut.pages = static_cast<uint32_t>(pages);
  return std::move(best.cut);
}

// ---- Pages that move between groups -------------------------------------------------------------

Pages::Pages(const PageCut& cut, bool with_slab, HookMemory& memory, pkv_huge_pages huge_pages,
             const std::string& directory)
    : cut_(cut),
      slab_(with_slab
                ? std::make_shared<Slab>(cut.page_bytes * cut.pages, memory, huge_pages, directory)
                : nullptr),
      owners_(cut.pages, nobody),
      free_(cut.pages) {
  pools_.reserve(cut.per_page.size());
}

void Pages::add_group(Pool& pool) {
  pool.hold_back(0, pool.blocks());
  pools_.push_back(&pool);
}

bool Pages::provide(std::span<const uint64_t> wanted) noexcept {
  bool enough = true;
  for (size_t g = 0; g < pools_.size(); g++) enough &= pools_[g]->free_count() >= wanted[g];
  if (enough) return true;
  const std::lock_guard lock(mutex_);
  if (give(wanted)) return true;
  collect();
  return give(wanted);
}

// Gives the groups pages that belong to no group.
bool Pages::give(std::span<const uint64_t> wanted) noexcept {
  for (uint32_t g = 0; g < pools_.size(); g++) {
    const uint32_t per_page = cut_.per_page[g];
    while (pools_[g]->free_count() < wanted[g]) {
      if (free_ == 0) return false;
      while (owners_[next_] != nobody) next_ = (next_ + 1) % cut_.pages;
      owners_[next_] = g;
      free_--;
      pools_[g]->give_out(next_ * per_page, per_page);
    }
  }
  return true;
}

// Takes back every page without used blocks, so that the next allocation takes blocks of other
// pages first.
void Pages::collect() noexcept {
  for (uint32_t page = 0; page < cut_.pages; page++) {
    if (owners_[page] == nobody) continue;
    const uint32_t per_page = cut_.per_page[owners_[page]];
    if (!pools_[owners_[page]]->hold_back(page * per_page, per_page)) continue;
    owners_[page] = nobody;
    free_++;
  }
}

uint32_t Pages::free_pages() const {
  const std::lock_guard lock(mutex_);
  return free_;
}

void Pages::count_references(std::span<std::vector<uint64_t>> references) const {
  const std::lock_guard lock(mutex_);
  for (uint32_t page = 0; page < cut_.pages; page++)
    for (uint32_t g = 0; g < pools_.size(); g++) {
      const uint32_t per_page = cut_.per_page[g];
      if (owners_[page] == g) continue;
      for (uint32_t i = 0; i < per_page; i++) references[g][page * per_page + i]++;
    }
}

// ---- What could be taken ------------------------------------------------------------------------

PageForecast::PageForecast(const Pages& pages)
    : cut_(pages.cut_), busy_(cut_.pages), loose_(cut_.per_page.size()) {
  const std::lock_guard lock(pages.mutex_);
  for (uint32_t page = 0; page < cut_.pages; page++) {
    const uint32_t owner = pages.owners_[page];
    if (owner == Pages::nobody) {
      whole_++;
      continue;
    }
    const uint32_t per_page = cut_.per_page[owner], first = page * per_page;
    uint32_t free = 0;
    for (uint32_t id = first; id < first + per_page; id++) free += pages.pools_[owner]->is_free(id);
    busy_[page] = per_page - free;
    if (busy_[page] == 0)
      whole_++;
    else
      loose_[owner] += free;
  }
}

void PageForecast::free(size_t group, uint32_t id) {
  const uint32_t per_page = cut_.per_page[group];
  loose_[group]++;
  if (--busy_[id / per_page] > 0) return;
  loose_[group] -= per_page;
  whole_++;
}

bool PageForecast::fits(std::span<const uint64_t> wanted) const {
  uint64_t pages = 0;
  for (size_t g = 0; g < wanted.size(); g++)
    pages += ceil_div(lacking(wanted[g], loose_[g]), uint64_t{cut_.per_page[g]});
  return pages <= whole_;
}

}  // namespace pkv::memory
