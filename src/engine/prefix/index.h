// The prefix index of a cache: which texts are cached, in which blocks, and what goes when room is
// needed. One lock guards it.
//
// The index holds one reference to each of its blocks. A hold is a session's (or a snapshot's)
// claim on a path of the tree: all its blocks are in use while there is one. Who copies from a
// block claims the path to it, too. A few have a reference without a claim: a session that was
// trimmed into a block, a fork or a snapshot of before a block was cached. When the last claim on a
// node ends and its blocks have other references, the index keeps that claim itself until they are
// gone. So blocks of nodes without claims are the index's alone: they are evictable, and evicting
// one frees it.
//   free + evictable = what can be had
#pragma once

#include <pagedkv/prefix.h>

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "engine/memory/sequence.h"
#include "engine/prefix/events.h"
#include "engine/prefix/image.h"
#include "engine/prefix/policy.h"
#include "engine/prefix/tree.h"

namespace pkv::prefix {

struct Figures {
  uint64_t matches = 0, asked_tokens = 0, matched_tokens = 0, matched_blocks = 0;
  uint64_t published = 0, evicted = 0, expelled = 0, cleared = 0, cached = 0, evictable = 0,
           pinned = 0;
  void add(const Figures& more);
};

class Index {
 public:
  Index(const pkv_prefix_config& config, uint32_t block_size,
        std::span<const std::unique_ptr<memory::Group>> groups, HookMemory& memory);
  ~Index();

  // What is cached under one salt.
  struct Space {
    Node& root;
    uint64_t hash;           // of the salt
    NodeHeap own;            // its candidates for eviction, where it has a quota
    uint64_t quota = 0;      // of blocks; 0: none
    bool own_quota = false;  // not that of all salts
    size_t nodes = 0;
    Figures figures = {};
  };

  // A claim on the path to a node: depth() blocks. Moved, copied (another claim) and dropped under
  // the index's lock. An empty one claims nothing.
  class Hold {
   public:
    Hold() = default;
    // On the beginning of everything; throws bad_alloc. retention: of what it leaves behind.
    Hold(Index& index, std::string_view salt, uint8_t retention);
    Hold(Hold&& other) noexcept { swap(other); }
    Hold& operator=(Hold&& other) noexcept { return swap(other), *this; }
    ~Hold();
    Hold copy() const;

    explicit operator bool() const { return index_ != nullptr; }
    uint32_t depth() const { return depth_; }
    std::string salt() const;
    uint8_t retention() const { return retention_; }
    // Gives up the path beyond so many blocks. Where that needs memory that is not there, some more
    // of it.
    void retreat(uint32_t blocks) noexcept;

   private:
    friend class Index;
    void swap(Hold& other) noexcept;

    Index* index_ = nullptr;
    Space* space_ = nullptr;
    Node* node_ = nullptr;
    uint32_t depth_ = 0;
    uint8_t retention_ = 0;
  };

  // The blocks of the longest cached beginning of a text, which the sequences (empty ones) take
  // over: so many blocks. tail: where the block after them begins like the rest of the text, that
  // block with a reference of its own in every group, and how many tokens; for the caller to copy
  // and release. Throws bad_alloc and REF_LIMIT, and nothing is changed.
  struct Tail {
    std::vector<memory::Block> blocks;  // by group; empty: there is none
    uint32_t tokens = 0;
    Node* node = nullptr;  // claimed, so that the block is not evicted for its own copy
  };
  uint32_t match(Hold& hold, Tokens text, std::span<memory::Sequence> sequences, Tail* tail);
  void release(Tail& tail) noexcept;
  // How many blocks a match would find; changes nothing.
  uint32_t cached(std::string_view salt, Tokens text);
  void count_matched(const Hold& hold, uint64_t asked, uint64_t matched) noexcept;  // tokens

  // Caches the blocks of a text beyond the hold; where another session has cached the same, the
  // sequences take over its blocks. wait: false gives up where another thread has the lock. What
  // cannot be stored for want of memory is left for the next time.
  void publish(Hold& hold, Tokens text, std::span<memory::Sequence> sequences, bool wait) noexcept;

  // Evicts until a group has so many free blocks; false, and nothing is evicted, where that cannot
  // be.
  bool make_free(size_t group, uint64_t blocks) noexcept;
  uint64_t evictable(size_t group);
  // By group and position, true where a block of the sequences is the index's as well: what a
  // session would give back, too.
  std::vector<std::vector<bool>> held_with(const Hold& hold,
                                           std::span<const memory::Sequence> sequences) const;

  // A pin keeps what is cached of a text, so many blocks, though nobody uses it. Throws
  // OUT_OF_BLOCKS beyond the quota of pins.
  uint32_t pin(std::string_view salt, Tokens text);
  // Takes back the longest pin of a beginning of the text. Throws DOUBLE_FREE where there is none.
  uint32_t unpin(std::string_view salt, Tokens text);
  // At most so many blocks are cached of a salt from now on; 0: without a limit; nothing: as all
  // salts. Throws bad_alloc.
  void set_quota(std::string_view salt, std::optional<uint64_t> blocks);

  bool has_events() const { return events_.kept(); }
  size_t read_events(uint64_t& next, std::span<pkv_prefix_event> out,
                     uint64_t& lost) const noexcept;

  Figures figures(std::string_view salt);
  Figures figures();
  // Drops what nobody uses, of one salt or (nullptr) of all.
  void clear(const std::string_view* salt) noexcept;

  // Fills an image with all that is cached, and tells it until forget() what goes. Throws
  // bad_alloc.
  void freeze(Image& image);
  void forget(Image& image) noexcept;

  // For validation: references the index holds, by group and id, and its own equations. Throws
  // INTERNAL.
  void validate(std::span<std::vector<uint64_t>> references) const;

 private:
  void attach(Node& node) noexcept;
  // used: as a text, which counts for the order of eviction.
  void detach(Node& node, bool used) noexcept;
  uint32_t count_read(const Node& node) const noexcept;
  Node& keep(Node& node, uint32_t blocks) noexcept;
  void review_unclaimed() noexcept;
  void offer(Node& node) noexcept;
  void withdraw(Node& node) noexcept;
  void move(Hold& hold, Node& node) noexcept;
  void count_evictable(Node& node, bool evictable) noexcept;
  void give_up(Hold& hold, Node& end) noexcept;
  void reserve_node(Space& space);
  void count_node(Space& space) noexcept { nodes_++, space.nodes++; }
  Node& split(Node& node, uint32_t inside);
  Node& end_after(const Tree::Match& found, uint32_t depth);
  Space& space(std::string_view salt);
  static Space& space_of(Node& node) noexcept { return *static_cast<Space*>(node.owner); }
  void drop_if_empty(Space& space) noexcept;

  using Path = std::pmr::vector<memory::Block>;  // of one group, by position
  void read_path(const Node& end, size_t group, Path& path) const;
  uint32_t usable(uint32_t depth) const;
  uint32_t usable_of(const Tree::Match& found);
  void hide_before_window(Path& path, size_t group, uint32_t depth) const;
  void retain_paths(uint32_t depth) const;
  void find_tail(const Tree::Match& found, Tail& tail) const;
  void retain(Tail& tail) noexcept;

  void take_over(Hold& hold, Node& end, std::span<memory::Sequence> sequences) noexcept;
  void store(Hold& hold, Tokens text, std::span<memory::Sequence> sequences);
  void store_run(Hold& hold, Tree::Run run, std::span<memory::Sequence> sequences);
  void let_windows_go(Node& node) noexcept;
  uint64_t room_in_quota(Space& space, uint64_t wanted) noexcept;
  void evict(Node& victim, uint64_t most, pkv_prefix_event_kind why) noexcept;
  void drop_last(Node& node, uint32_t count, pkv_prefix_event_kind why) noexcept;
  void tell(pkv_prefix_event_kind kind, const Node& node, uint32_t from) noexcept;
  void release_last(const Node& node, uint32_t count) noexcept;
  void release(size_t group, std::span<const memory::Block> blocks) noexcept;

  mutable std::mutex mutex_;
  const std::span<const std::unique_ptr<memory::Group>> groups_;
  std::pmr::memory_resource& memory_;
  Tree tree_;
  const std::unique_ptr<Policy> policy_;
  std::pmr::map<std::pmr::string, Space, std::less<>> spaces_;  // by salt
  Figures gone_;                                                // of salts nothing is left of
  size_t nodes_ = 0;
  uint64_t clock_ = 0;          // blocks that holds gave up so far
  const uint64_t most_pinned_;  // blocks
  uint64_t pinned_ = 0;
  const uint64_t quota_;  // of each salt that has none of its own
  EventLog events_;
  std::vector<uint64_t> evictable_;  // by group
  std::vector<Image*> images_;       // that are being read
  // Nodes that the index keeps in use because of references that no claim stands for.
  std::pmr::vector<Node*> unclaimed_;

  // Kept between calls for their room.
  std::pmr::vector<Path> paths_;            // by group, of a match
  std::pmr::vector<memory::Block> blocks_;  // of what is stored
  std::pmr::vector<uint64_t> hashes_;
  std::pmr::vector<History> histories_;
};

}  // namespace pkv::prefix
