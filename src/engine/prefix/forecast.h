// Forecasts which blocks a call can have if others let go of theirs: contents that wait for a
// store, and pins. So a call that cannot get its blocks fails before anything was given up for it,
// and one that can gives up no more than it must.
//
// A block is available if nothing references it, or only the prefix index does and the index gives
// it up: a block of a full group once no use keeps its node, and one of a sparse group unless a pin
// keeps it.
#pragma once

#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "engine/memory/block_table.h"
#include "engine/memory/pages.h"
#include "engine/prefix/index_data.h"

namespace pkv::prefix {

// A content that could release its blocks. `end` and `tail` are the last nodes of its path and of
// its tail, or NULL. A Releasable is a set of contents that are released together.
struct ReleasableContent {
  const Node *end, *tail;
  memory::Tables tables;
};
using Releasable = std::vector<ReleasableContent>;

// What the sessions of a call can do without. They give it up before anybody else does.
struct OwnBlocks {
  // A reference that the next step of its session does not need.
  struct Reference {
    size_t group;
    uint32_t id;
  };
  // A session that may have more spare blocks than it needs: see BlockTable::expired_spares().
  struct Spares {
    const memory::BlockTable* table;
    size_t group;
    uint64_t length, taken;
  };
  // A part-filled block that `writers` sessions of the call write to. If nobody else references it,
  // one of them needs no copy; so the index can let go of it instead of another block.
  struct Tail {
    size_t group;
    uint32_t id;
    uint32_t writers;
    uint32_t spare;        // the spare block that takes the copy; PKV_NO_BLOCK_ID: a new one does
    bool keeps_watermark;  // whether it counts in `watermark_needs` only because of the copy
  };
  std::vector<Reference> expired;
  std::vector<Spares> spares;
  std::vector<Tail> tails;
  // How many tables take blocks for a session that has not run yet. Without any, the watermark does
  // not count.
  uint64_t watermark_needs = 1;
};

// A call that lacks blocks.
struct Lack {
  std::span<const uint64_t> counts;  // the blocks that it takes, by group
  uint32_t watermark;                // how many stay free in each group where it takes some
  const OwnBlocks& own;
  bool yields_pins;  // whether pins end for it
};

// What must be given up for a call: its own tails and contents of others, by their places in the
// lists, and pins, by the nodes where they end. If even all of it is not enough, `missing` is not 0
// and the lists are empty.
struct Price {
  // The blocks that are missing after all, over all groups, and the first group that lacks some.
  // Groups that share memory take free pages in their order.
  uint64_t missing = 0;
  uint32_t group = UINT32_MAX;
  std::vector<size_t> tails, releasables;
  std::vector<Node*> pins;
};

class Forecast {
 public:
  // Begins with what is free or, as of the last review, evictable. index: NULL if there is none.
  // pages: NULL unless the groups share memory. Throws bad_alloc.
  Forecast(std::span<const std::unique_ptr<memory::Group>> groups, const memory::Pages* pages,
           const IndexData* index);

  // Returns the price of what a call lacks: first its tails go, then contents in their order, and
  // last pins, from the one that ends soonest on; but nothing without which the call still gets its
  // blocks. Throws bad_alloc.
  Price price(const Lack& lack, std::span<const Releasable> releasables);

 private:
  enum Change { gone, back };
  // A node that pins keep.
  struct PinnedNode {
    const Node* node;
    size_t above;  // the place of its parent; `none`: a root
    size_t last;   // the number of the last pin to end at this node or below
    bool free;     // whether all of them have ended
    bool needed;   // whether they must end: the call does not fit with the node kept
  };
  static constexpr size_t none = ~size_t{0};

  // How a tail of lack_->own counts now.
  struct TailCount {
    bool gone = false;     // whether the index lets go of it
    bool skipped = false;  // whether one copy less is needed
  };
  // By block id, the places in lack_->own of the tail and of the spare blocks that depend on it.
  struct Dependents {
    std::optional<size_t> tail;
    std::vector<size_t> spares;
  };

  void begin(const Lack& lack);
  void change_tail_or_releasable(size_t i, Change change);
  void change(const Releasable& releasable, Change change);
  void change_use(const Node& end, Change change);
  void change_reference(std::vector<memory::GoneCounts>& counts, size_t group, uint32_t id,
                        Change change);
  void update_tail(size_t i);
  void update_spares(size_t i);
  void count(size_t group, uint32_t id, Change change);

  bool end_pins(std::vector<Node*>& pins);
  static std::vector<PinnedNode> nodes_of(std::span<Node* const> pins, std::vector<size_t>& ends);
  void change_pinned(PinnedNode& pinned, Change change);
  bool can_keep(std::vector<PinnedNode>& nodes, size_t end);

  uint32_t references(size_t group, uint32_t id) const;
  bool index_has(size_t group, uint32_t id) const;
  bool index_would_evict(size_t group, uint32_t id) const;
  bool is_pinned(size_t group, uint32_t id) const;
  bool is_used(const Node& node) const;
  bool available(size_t group, uint32_t id) const;
  bool is_unshared(const OwnBlocks::Tail& tail) const;
  bool fits() const { return shortage().missing == 0; }
  Price shortage() const;

  const std::span<const std::unique_ptr<memory::Group>> groups_;
  const IndexData* const index_;
  const Lack* lack_ = nullptr;
  std::span<const Releasable> releasables_;
  std::vector<uint64_t> free_;                 // by group; evictable blocks count as free
  std::optional<memory::PageForecast> pages_;  // if the groups share one memory
  std::vector<uint64_t> wanted_;               // by group: what the call still takes
  uint64_t watermark_needs_ = 0;               // see OwnBlocks::watermark_needs
  std::vector<TailCount> tails_;               // by place in lack_->own
  std::vector<size_t> spares_;                 // by place in lack_->own: how many count as free
  std::vector<std::unordered_map<uint32_t, Dependents>> dependents_;  // by group and block id
  // References that are gone, by group: those of contents, and those of the call's own sessions.
  std::vector<memory::GoneCounts> dropped_, expired_;
  std::unordered_map<const Node*, uint32_t> uses_;  // of contents, by node: those that have ended
  std::unordered_set<const Node*> unpinned_;        // the nodes whose pins have all ended
};

}  // namespace pkv::prefix
