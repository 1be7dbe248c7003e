// Adds blocks of sessions to the index.
#pragma once

#include "engine/memory/sequence.h"
#include "engine/prefix/eviction.h"

namespace pkv::prefix {

class Publisher {
 public:
  Publisher(Contents& contents, Claims& claims, Eviction& eviction,
            std::pmr::memory_resource& memory)
      : contents_(contents),
        claims_(claims),
        eviction_(eviction),
        blocks_(&memory),
        hashes_(&memory),
        histories_(&memory) {}

  // Caches the blocks of a text beyond a claim, and moves the claim to their end. If another
  // session has cached the same text, the sequences take over its blocks. Throws bad_alloc; the
  // claim then ends after the last block that was cached.
  void publish(Claim& claim, Tokens text, std::span<memory::Sequence> sequences);

 private:
  void take_over(Claim& claim, Node& end, std::span<memory::Sequence> sequences) noexcept;
  void store(Claim& claim, Tokens text, std::span<memory::Sequence> sequences);
  void store_run(Claim& claim, Tree::Run run, std::span<memory::Sequence> sequences);
  void retain_run(Claim& claim, std::span<memory::Sequence> sequences);
  bool retain(size_t group, memory::Block block) noexcept;

  Contents& contents_;
  Claims& claims_;
  Eviction& eviction_;

  // The run that is being stored. These are members so that their memory is reused.
  std::pmr::vector<memory::Block> blocks_;
  std::pmr::vector<BlockHash> hashes_;
  std::pmr::vector<History> histories_;
};

}  // namespace pkv::prefix
