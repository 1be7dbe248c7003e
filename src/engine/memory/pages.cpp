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

// Returns how many pages a group needs besides its loose blocks.
int64_t pages_besides(int64_t loose, uint64_t wanted, uint32_t per_page) {
  const auto there = static_cast<uint64_t>(std::max<int64_t>(loose, 0));
  return static_cast<int64_t>(ceil_div(lacking(wanted, there), uint64_t{per_page}));
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
      memory_(memory),
      owners_(cut.pages, nobody),
      free_pages_(cut.pages) {
  groups_.reserve(cut.per_page.size());
  std::iota(free_pages_.rbegin(), free_pages_.rend(), 0u);  // the first page goes first
}

void Pages::add_group(Pool& pool) {
  auto use = std::make_unique<PageUse>(cut_.pages, cut_.per_page[groups_.size()], &memory_);
  pool.count_pages(*use);
  groups_.push_back({&pool, std::move(use)});
  pool.hold_back(0, pool.blocks());
}

bool Pages::provide(std::span<const uint64_t> wanted) noexcept {
  bool enough = true;
  for (size_t g = 0; g < groups_.size(); g++) enough &= groups_[g].pool->free_count() >= wanted[g];
  if (enough) return true;
  const std::lock_guard lock(mutex_);
  if (give(wanted)) return true;
  collect();
  return give(wanted);
}

// Gives the groups pages that belong to no group. If there are too few, gives none: collect() would
// have to take them back.
bool Pages::give(std::span<const uint64_t> wanted) noexcept {
  int64_t pages = 0;
  for (size_t g = 0; g < groups_.size(); g++)
    pages += pages_besides(groups_[g].pool->free_count(), wanted[g], cut_.per_page[g]);
  if (pages > static_cast<int64_t>(free_pages_.size())) return false;
  for (uint32_t g = 0; g < groups_.size(); g++) {
    const uint32_t per_page = cut_.per_page[g];
    while (groups_[g].pool->free_count() < wanted[g]) {
      if (free_pages_.empty()) return false;
      const uint32_t page = free_pages_.back();
      free_pages_.pop_back();
      owners_[page] = g;
      groups_[g].pool->give_out(page * per_page, per_page);
    }
  }
  return true;
}

// Takes back every page without used blocks, so that the next allocation takes blocks of other
// pages first. A page that cannot be taken back, because another thread is about to take a block of
// its group, is tried again by the next call.
void Pages::collect() noexcept {
  for (uint32_t g = 0; g < groups_.size(); g++) {
    const uint32_t per_page = cut_.per_page[g];
    constexpr size_t max_again = 16;
    uint32_t again[max_again];
    size_t n = 0;
    while (n < max_again) {
      const std::optional<uint32_t> page = groups_[g].use->freed_pages().take();
      if (!page) break;
      if (owners_[*page] != g || !is_free(groups_[g], *page)) continue;
      if (!groups_[g].pool->hold_back(*page * per_page, per_page)) {
        again[n++] = *page;
        continue;
      }
      owners_[*page] = nobody;
      free_pages_.push_back(*page);
    }
    for (const uint32_t page : std::span(again, n)) groups_[g].use->freed_pages().add(page);
  }
}

// Returns whether all blocks of a page are free.
bool Pages::is_free(const Member& member, uint32_t page) const noexcept {
  const uint32_t per_page = member.use->per_page();
  for (uint32_t i = 0; i < per_page; i++)
    if (!member.pool->is_free(page * per_page + i)) return false;
  return true;
}

uint32_t Pages::free_pages() const {
  const std::lock_guard lock(mutex_);
  return static_cast<uint32_t>(free_pages_.size());
}

int64_t Pages::Member::loose() const {
  return static_cast<int64_t>(pool->free_count() + use->reclaimable()) -
         use->whole() * use->per_page();
}

bool Pages::suffice(std::span<const uint64_t> wanted) const noexcept {
  int64_t pages = free_pages();
  for (size_t g = 0; g < wanted.size(); g++)
    pages +=
        groups_[g].use->whole() - pages_besides(groups_[g].loose(), wanted[g], cut_.per_page[g]);
  return pages >= 0;
}

void Pages::count_references(std::span<std::vector<uint64_t>> references) const {
  const std::lock_guard lock(mutex_);
  for (uint32_t page = 0; page < cut_.pages; page++)
    for (uint32_t g = 0; g < groups_.size(); g++) {
      const uint32_t per_page = cut_.per_page[g];
      if (owners_[page] == g) continue;
      for (uint32_t i = 0; i < per_page; i++) references[g][page * per_page + i]++;
    }
}

void Pages::validate() const {
  const std::lock_guard lock(mutex_);
  const auto unowned = std::count(owners_.begin(), owners_.end(), nobody);
  if (static_cast<size_t>(unowned) != free_pages_.size())
    fail(PKV_INTERNAL, "pages: %zu belong to no group, but %zu are listed",
         static_cast<size_t>(unowned), free_pages_.size());
  for (size_t g = 0; g < groups_.size(); g++) {
    const auto& [pool, use] = groups_[g];
    int64_t whole = 0;
    for (uint32_t page = 0; page < cut_.pages; page++) {
      uint32_t busy = 0;
      for (uint32_t i = 0; i < use->per_page(); i++) {
        const uint32_t id = page * use->per_page() + i;
        busy += !pool->is_free(id) && !use->is_reclaimable(id);
      }
      if (busy != use->busy(page))
        fail(PKV_INTERNAL, "pages: group %zu has %u busy blocks in page %u, but %u are counted", g,
             busy, page, use->busy(page));
      whole += busy == 0;
    }
    if (whole != use->whole())
      fail(PKV_INTERNAL, "pages: group %zu has %lld whole ones, but %lld are counted", g,
           static_cast<long long>(whole), static_cast<long long>(use->whole()));
  }
}

// ---- What could be taken ------------------------------------------------------------------------

PageForecast::PageForecast(const Pages& pages) : pages_(pages), whole_(pages.free_pages()) {
  for (const Pages::Member& member : pages.groups_) {
    loose_.push_back(member.loose());
    whole_ += member.use->whole();
  }
}

void PageForecast::free(size_t group, uint32_t id) {
  const PageUse& use = *pages_.groups_[group].use;
  const uint32_t page = use.page_of(id);
  uint32_t& busy = busy_.try_emplace({group, page}, use.busy(page)).first->second;
  loose_[group]++;
  if (busy == 0 || --busy > 0) return;
  loose_[group] -= use.per_page();
  whole_++;
}

void PageForecast::use(size_t group, uint32_t id) {
  const PageUse& use = *pages_.groups_[group].use;
  const uint32_t page = use.page_of(id);
  uint32_t& busy = busy_.try_emplace({group, page}, use.busy(page)).first->second;
  loose_[group]--;
  if (busy++ > 0) return;
  loose_[group] += use.per_page();
  whole_--;
}

PageForecast::Missing PageForecast::missing(std::span<const uint64_t> wanted) const {
  Missing missing;
  int64_t pages = whole_;
  for (uint32_t g = 0; g < wanted.size(); g++) {
    const uint32_t per_page = pages_.cut_.per_page[g];
    const int64_t needed = pages_besides(loose_[g], wanted[g], per_page),
                  taken = std::clamp<int64_t>(pages, 0, needed);
    pages -= taken;
    if (taken == needed) continue;
    const int64_t there = std::max<int64_t>(loose_[g], 0) + taken * per_page;
    missing.blocks += wanted[g] - static_cast<uint64_t>(there);
    missing.group = std::min(missing.group, g);
  }
  return missing;
}

}  // namespace pkv::memory
