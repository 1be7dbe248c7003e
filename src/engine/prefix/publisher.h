// Adds blocks of sessions to the index.
#pragma once

#include "engine/memory/block_table.h"
#include "engine/prefix/eviction.h"

namespace pkv::prefix {

class Publisher {
 public:
  Publisher(IndexData& data, Uses& uses, Eviction& eviction, std::pmr::memory_resource& memory)
      : data_(data),
        uses_(uses),
        eviction_(eviction),
        blocks_(&memory),
        hashes_(&memory),
        histories_(&memory) {}

  // See Index::publish. Moves the use to the end of what is cached then. Throws bad_alloc, after
  // some blocks, too.
  void publish(Use& use, Tokens text, memory::Tables tables);

 private:
  void take_over(Use& use, Node& end, memory::Tables tables) noexcept;
  bool store(Use& use, Tokens text, bool generated, memory::Tables tables);
  void store_retained(Use& use, Tokens text, bool generated);
  void store_run(Use& use, const Tree::NewBlocks& run, bool generated);
  void retain_first(const Use& use, Tokens text, memory::Tables tables) noexcept;
  void release_from(size_t position) noexcept;
  bool retain(size_t group, memory::Block block) noexcept;

  IndexData& data_;
  Uses& uses_;
  Eviction& eviction_;

  // The blocks that are being stored. These are members so that their memory is reused.
  std::pmr::vector<memory::Block> blocks_;
  std::pmr::vector<BlockHash> hashes_;
  std::pmr::vector<History> histories_;
};

}  // namespace pkv::prefix
