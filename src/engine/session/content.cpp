// Forks contents, and checks all of them against the pools.
#include "engine/session/content.h"

#include <algorithm>
#include <vector>

#include "base/checked.h"
#include "base/status.h"
#include "engine/cache/reservation.h"

namespace pkv {

Content::Content(Cache& cache)
    : cache_(&cache), tokens_(&cache.memory()), sequences_(&cache.memory()) {
  sequences_.reserve(cache.groups().size());
  for (const auto& group : cache.groups()) sequences_.emplace_back(*group, cache.memory());
}

void Content::swap(Content& other) noexcept {
  std::swap(hold_, other.hold_);
  tokens_.swap(other.tokens_);
  std::swap(forgotten_from_, other.forgotten_from_);
  sequences_.swap(other.sequences_);
}

Content Content::fork() const {
  Content child(*cache_);
  append(child.tokens_, std::span<const int32_t>(tokens_));
  child.forgotten_from_ = forgotten_from_;
  std::vector<uint64_t> counts;
  for (const memory::Sequence& sequence : sequences_)
    counts.push_back(sequence.blocks_needed_to_fork(length()));
  Reservation reservation(*cache_, counts, 0, nullptr, "the copy");
  child.sequences_.clear();
  for (size_t g = 0; g < sequences_.size(); g++) {
    child.sequences_.push_back(sequences_[g].fork(length(), reservation.blocks(g)));
    reservation.take(g, counts[g]);  // not before, because the fork may have failed
  }
  child.hold_ = hold_.copy();
  return child;
}

namespace {

// Checks one block table of a content and adds its references to `references`, which are indexed by
// block id.
void validate_sequence(const memory::Sequence& sequence, const Content& content,
                       std::vector<uint64_t>& references) {
  const memory::Group& group = sequence.group();
  const uint64_t length = content.length();
  const std::span<const memory::Block> blocks = sequence.blocks();
  if (blocks.size() < ceil_div(length, group.block_size))
    fail(PKV_INTERNAL, "a table has %zu blocks for %llu tokens", blocks.size(), llu(length));
  if (group.offset_of(length) != 0 && !memory::is_block(blocks[group.block_of(length)]))
    fail(PKV_INTERNAL, "a table lacks the part-filled block that the next of %llu tokens goes into",
         llu(length));
  size_t dropped = 0;
  for (size_t i = 0; i < blocks.size(); i++) {
    if (sequence.ids()[i] != PKV_BLOCK_ID(blocks[i]))
      fail(PKV_INTERNAL, "entry %zu: id and block differ", i);
    dropped += blocks[i] == memory::dropped_block;
    if (blocks[i] == memory::dropped_block && i * group.block_size < content.forgotten_from())
      fail(PKV_INTERNAL, "entry %zu was dropped, but only those from %llu on count as forgotten", i,
           llu(content.forgotten_from()));
    if (!memory::is_block(blocks[i])) continue;
    const auto state = group.pool.state(PKV_BLOCK_ID(blocks[i]));
    const uint64_t begin = i * uint64_t{group.block_size};
    const uint64_t held = length > begin ? std::min<uint64_t>(length - begin, group.block_size) : 0;
    if (state.generation != blocks[i] >> 32)
      fail(PKV_INTERNAL, "entry %zu: block %u was freed and allocated again", i,
           PKV_BLOCK_ID(blocks[i]));
    if (state.filled < held)
      fail(PKV_INTERNAL, "entry %zu: block %u is filled to %u, the sequence holds %llu", i,
           PKV_BLOCK_ID(blocks[i]), state.filled, llu(held));
    references[PKV_BLOCK_ID(blocks[i])]++;
  }
  if (dropped != sequence.dropped())
    fail(PKV_INTERNAL, "a table counts %zu dropped blocks and has %zu", sequence.dropped(),
         dropped);
  if (sequence.copied_from() != memory::no_block)
    references[PKV_BLOCK_ID(sequence.copied_from())]++;
  for (const memory::NewState& state : sequence.new_states())
    references[PKV_BLOCK_ID(state.block)]++;
  for (const memory::Block block : sequence.spare_blocks()) references[PKV_BLOCK_ID(block)]++;
}

}  // namespace

void validate(const Cache& cache, std::span<const Content* const> contents) {
  std::vector<std::vector<uint64_t>> references;
  for (const auto& group : cache.groups()) references.emplace_back(group->pool.blocks());
  if (cache.prefix() != nullptr) cache.prefix()->validate(references);
  if (cache.pages() != nullptr) cache.pages()->count_references(references);
  for (size_t g = 0; g < cache.groups().size(); g++) {
    const memory::Pool& pool = cache.groups()[g]->pool;
    pool.validate();
    for (const Content* content : contents)
      validate_sequence(content->sequences()[g], *content, references[g]);
    for (uint32_t id = 0; id < pool.blocks(); id++)
      if (references[g][id] != pool.references(id))
        fail(PKV_INTERNAL, "group %zu, block %u: the pool counts %u references, %llu are held", g,
             id, pool.references(id), llu(references[g][id]));
  }
}

}  // namespace pkv
