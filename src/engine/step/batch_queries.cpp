// Answers queries about the slots, copies, indices and states of a step.
#include <algorithm>

#include "base/status.h"
#include "engine/step/batch.h"

namespace pkv {

void Batch::check_has_slots(uint32_t group) const {
  if (cache_.group(group).has_states())
    fail(PKV_UNSUPPORTED, "group %u keeps states, which have no slots", group);
}

size_t Batch::count_states(uint32_t group) const {
  size_t count = 0;
  for (const Member& member : members_)
    count += member.session->content().state_table(group).new_states().size();
  return count;
}

size_t Batch::states(uint32_t layer, const void** before, std::span<void*> after) const {
  const LayerPlace place = cache_.place(layer);
  memory::check_has_states(cache_.group(place.group), layer);
  const size_t total = count_states(place.group);
  if (after.size() < total) return total;
  size_t at = 0;
  for (size_t i = 0; i < members_.size(); i++) {
    const memory::StateTable& table = members_[i].session->content().state_table(place.group);
    const memory::Block own = table.state_block(members_[i].start);
    before[i] = own == memory::no_block ? nullptr : table.state(own, place.layer);
    for (const memory::NewState& state : table.new_states())
      after[at++] = table.state(state.block, place.layer);
  }
  return total;
}

size_t Batch::state_blocks(uint32_t group, const StateBlocks& out) const {
  if (!cache_.group(group).has_states())
    fail(PKV_UNSUPPORTED, "group %u keeps keys and values, and no states", group);
  const size_t total = count_states(group);
  if (out.capacity < total) return total;
  uint32_t at = 0;
  for (size_t i = 0; i < members_.size(); i++) {
    const memory::StateTable& table = members_[i].session->content().state_table(group);
    if (out.before != nullptr)
      out.before[i] = memory::block_id(table.state_block(members_[i].start));
    out.indptr[i] = at;
    for (const memory::NewState& state : table.new_states()) {
      if (out.after != nullptr) out.after[at] = memory::block_id(state.block);
      out.tokens[at++] = state.tokens - 1;
    }
  }
  out.indptr[members_.size()] = at;
  return total;
}

size_t Batch::slot_mapping(uint32_t group, std::span<int64_t> slots) const {
  check_has_slots(group);
  if (slots.size() < rows()) return rows();
  for (const Member& member : members_)
    for (uint32_t i = 0; i < member.count; i++)
      slots[member.first_row + i] =
          member.session->content().kv_table(group).slot(member.start + i);
  return rows();
}

size_t Batch::block_copies(uint32_t group, std::span<uint32_t> from, std::span<uint32_t> to) const {
  check_has_slots(group);
  const auto copied = [&](const Member& member) {
    return member.session->content().kv_table(group).copied_from() != memory::no_block;
  };
  const auto total = static_cast<size_t>(std::count_if(members_.begin(), members_.end(), copied));
  if (from.size() < total) return total;
  size_t at = 0;
  for (const Member& member : members_) {
    if (!copied(member)) continue;
    const memory::KvTable& table = member.session->content().kv_table(group);
    from[at] = memory::block_id(table.copied_from());
    to[at++] = table.copied_to();
  }
  return total;
}

size_t Batch::kv_indices(uint32_t group, pkv_index_unit unit, uint32_t* indptr,
                         std::span<uint32_t> indices, uint32_t* last_block_length) const {
  check_has_slots(group);
  const memory::Group& of = cache_.group(group);
  constexpr uint64_t max = INT32_MAX;
  if (unit == PKV_INDEX_SLOTS && uint64_t{of.pool.blocks()} * of.block_size - 1 > max)
    fail(PKV_OVERFLOW, "group %u has %u blocks of %u slots; indices go up to %llu", group,
         of.pool.blocks(), of.block_size, llu(max));
  size_t total = 0;
  for (const Member& member : members_)
    member.session->content().kv_table(group).for_each_read(
        member.end(), [&](uint64_t, uint64_t first, uint64_t last) {
          total += unit == PKV_INDEX_SLOTS ? last - first : 1;
        });
  if (total > max) fail(PKV_OVERFLOW, "%zu KV indices; there can be at most %llu", total, llu(max));
  if (indices.size() < total) return total;

  uint32_t at = 0;
  for (size_t e = 0; e < members_.size(); e++) {
    const memory::KvTable& table = members_[e].session->content().kv_table(group);
    const uint64_t end = members_[e].end();
    indptr[e] = at;
    table.for_each_read(end, [&](uint64_t block, uint64_t first, uint64_t last) {
      if (unit == PKV_INDEX_BLOCKS)
        indices[at++] = table.ids()[block];
      else
        for (uint64_t position = first; position < last; position++)
          indices[at++] = static_cast<uint32_t>(table.slot(position));
    });
    if (last_block_length != nullptr)
      last_block_length[e] =
          end == 0 ? 0 : static_cast<uint32_t>((end - 1) % cache_.config().block_size + 1);
  }
  indptr[members_.size()] = at;
  return total;
}

}  // namespace pkv
