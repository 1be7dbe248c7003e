// One memory that all layer groups of a cache share, so that a group can use what another one does
// not. It is cut into pages of equal size. A page belongs to at most one group at a time, which
// cuts it into blocks of its own size. While a page belongs to no group, the pool of every group
// holds back the blocks that the page would give it.
//
//   ids of group g   [page 0: per_page(g) blocks][page 1: per_page(g) blocks] ...
//
// A step allocates from the pool of its group, without a lock. A thread that finds its pool empty
// takes pages, under a lock: first those of no group, then those in which another group has only
// free blocks.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "engine/memory/page_use.h"
#include "engine/memory/pool.h"
#include "engine/memory/slab.h"

namespace pkv::memory {

// How a memory is cut: pages, and by group how many blocks a page has. The blocks of a group lie
// page_bytes / per_page[g] apart.
struct PageCut {
  uint64_t page_bytes = 0;
  uint32_t pages = 0;
  std::vector<uint32_t> per_page;

  uint64_t stride(size_t group) const { return page_bytes / per_page[group]; }
  // Returns how many pages `blocks` blocks of each group need, where nothing is shared.
  uint64_t pages_for(std::span<const uint64_t> blocks) const;
};

// Cuts a memory into pages for blocks of `block_bytes[group]` bytes. Throws TOO_LARGE if it has
// less than one page per group.
PageCut cut_pages(uint64_t memory_bytes, std::span<const uint64_t> block_bytes);

class Pages {
 public:
  // with_slab: the pages have bytes, in a file in `directory` unless that is empty. Throws
  // OUT_OF_MEMORY, IO, bad_alloc.
  Pages(const PageCut& cut, bool with_slab, HookMemory& memory, pkv_huge_pages huge_pages,
        const std::string& directory);

  const PageCut& cut() const { return cut_; }
  const std::shared_ptr<Slab>& slab() const { return slab_; }
  // Adds the next group. Its pool has pages * per_page blocks, all of them free. Throws bad_alloc.
  void add_group(Pool& pool);

  // Gives pages to groups until each pool has `wanted` free blocks. Returns false if there are not
  // enough; what was given stays there. Takes the lock only if a pool has too few.
  bool provide(std::span<const uint64_t> wanted) noexcept;
  // Returns how many pages belong to no group.
  uint32_t free_pages() const;
  // Returns whether there are pages for `wanted` blocks of each group once all reclaimable blocks
  // are free.
  bool suffice(std::span<const uint64_t> wanted) const noexcept;
  // Adds the references by which blocks are held back, by group and id.
  void count_references(std::span<std::vector<uint64_t>> references) const;
  // Checks the equations of this file and of page_use.h. Throws INTERNAL.
  void validate() const;

 private:
  friend class PageForecast;
  static constexpr uint32_t nobody = ~uint32_t{0};

  struct Member {
    Pool* pool;
    std::unique_ptr<PageUse> use;

    // Returns how many blocks are free or reclaimable outside of whole pages.
    int64_t loose() const;
  };

  bool give(std::span<const uint64_t> wanted) noexcept;
  void collect() noexcept;
  bool is_free(const Member& member, uint32_t page) const noexcept;

  const PageCut cut_;
  const std::shared_ptr<Slab> slab_;
  HookMemory& memory_;
  mutable std::mutex mutex_;
  std::vector<Member> groups_;
  std::vector<uint32_t> owners_;      // by page
  std::vector<uint32_t> free_pages_;  // those of no group
};

// Forecasts which blocks the groups could get if some used blocks became free. It starts from the
// current state of the pools, in which reclaimable blocks count as free.
class PageForecast {
 public:
  // Throws bad_alloc.
  explicit PageForecast(const Pages& pages);
  // Counts a block that is in use, and not reclaimable, as free. Throws bad_alloc.
  void free(size_t group, uint32_t id);
  // Counts a block that is free, or counts as free, as in use. Throws bad_alloc.
  void use(size_t group, uint32_t id);
  // The blocks that no page is left for, over all groups, if the groups take whole pages in their
  // order; and the first group that lacks some.
  struct Missing {
    uint64_t blocks = 0;
    uint32_t group = UINT32_MAX;
  };
  // Returns what is missing for `wanted` blocks of each group.
  Missing missing(std::span<const uint64_t> wanted) const;

 private:
  const Pages& pages_;
  std::map<std::pair<size_t, uint32_t>, uint32_t> busy_;  // by group and page, where it differs
  std::vector<int64_t> loose_;                            // by group
  int64_t whole_;
};

}  // namespace pkv::memory
