// Plans a load: which blocks of a file a cache would take for each text, and whether a text has all
// blocks that it needs. Nothing here changes the cache. A load makes the plan before it takes a
// block, and then puts its blocks into the plan. A save makes the same plan for its own tables, so
// that it never writes a file that cannot be loaded.
#pragma once

#include "engine/cache/cache.h"
#include "engine/file/file.h"

namespace pkv::file {

// Throws MISMATCH unless the file has the model, the storage and the fingerprint of this load, and
// its salts may be trusted.
void check_fits(const Cache& cache, const OpenedFile& file, const FileOptions& options);

// The blocks of a chain in one group. If blocks are larger than those that were saved, the first
// one may begin before the chain. Then the end of the parent chain is copied into it.
struct ChainBlocks {
  // no_block if the file does not fill the block; planned_block until the load has taken one.
  std::vector<memory::Block> blocks;
  std::vector<uint32_t> ids;  // of the blocks that the load has taken
};
inline constexpr memory::Block planned_block = 0;

// A text to be loaded, for a session or for the prefix index.
struct Text {
  uint32_t chain;
  uint64_t length;
  const SavedSession* session;  // nullptr: it keeps everything the file has
  const std::string* salt;      // nullptr: it does not use the index
  uint32_t retention;
};

class LoadPlan {
 public:
  // Plans all sessions and, if with_index is true and the cache has an index, its texts. The cache
  // has the layer groups of the tables, which must outlive the plan. Takes time linear in the size
  // of the file. Throws CORRUPT if texts under two salts share a chain.
  LoadPlan(const Cache& cache, const Tables& tables, bool with_index);

  // Returns how many blocks the plan takes, by group. Throws TOO_LARGE if the pools have fewer.
  // After this call, work that grows with the texts is bounded by the cache.
  std::vector<uint64_t> count_blocks() const;
  // Checks that every session has all that its next token needs. Throws CORRUPT, or MISMATCH if
  // blocks of the cache's size cannot hold what the file has.
  void check_sessions() const;

  std::span<const Text> sessions() const { return sessions_; }
  // Returns the texts of the index, cut to their saved parts, the least recently used first.
  std::vector<Text> entries() const;
  ChainBlocks& chain_blocks(uint32_t chain, size_t g) { return chain_blocks_[chain][g]; }
  // Sets how many tokens of each chain were saved, from the end of the file: fewer than the chain
  // has if the index lost a block meanwhile. Throws CORRUPT if a chain has fewer tokens.
  void set_saved_tokens(std::span<const uint64_t> lengths);
  // Returns whether some text goes through a chain.
  bool needed(uint32_t chain) const { return needed_[chain]; }
  // The number of the first block of a chain in its texts.
  uint64_t first_block(const Chain& chain) const { return chain.start / block_size_; }

  // Returns the chains of a text, from its beginning on.
  std::vector<uint32_t> path(const Text& text) const;
  using BlockTables = std::vector<std::vector<memory::Block>>;  // by group
  // Returns the block tables of a text. In a group with a window they have only the sinks and the
  // run at the end, like those of a sequence.
  BlockTables block_tables(const Text& text) const;

 private:
  void list_sessions();
  void check_tenants(bool with_index) const;
  std::vector<SavedEntry> distinct_entries() const;
  void choose_entries();
  void mark_needed(uint32_t chain);
  void drop_unsaved(const Text& text, std::vector<memory::Block>& states) const;
  void plan_chains();
  void check_dropped(const Text& text) const;
  void check_visible(const Text& text, const BlockTables& table) const;
  void check_state(const Text& text, const std::vector<memory::Block>& table) const;
  void cut_to_held(Text& text, const BlockTables& table) const;
  void cut_to_saved(Text& text) const;
  void check_capacity(std::span<const uint64_t> counts) const;
  memory::Group& group(size_t g) const { return *cache_.groups()[g]; }

  const Cache& cache_;
  const Tables& tables_;
  const size_t groups_;
  const uint64_t block_size_;
  std::vector<Text> sessions_, entries_;
  std::vector<bool> needed_;                            // by chain
  std::vector<std::vector<ChainBlocks>> chain_blocks_;  // by chain and group
  std::vector<uint64_t> saved_tokens_;                  // by chain
};

}  // namespace pkv::file
