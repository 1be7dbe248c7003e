// Runs a step of many sessions, and answers queries about its slots, copies and indices.
#include "engine/step/batch.h"

#include <algorithm>

#include "base/checked.h"
#include "base/status.h"
#include "engine/attention/attend.h"
#include "engine/cache/reservation.h"
#include "engine/rows/rows.h"
#include "engine/step/needs.h"

namespace pkv {

Batch::Batch(Cache& cache, std::span<Session* const> sessions, std::span<const uint32_t> new_tokens)
    : cache_(cache), written_(cache.config().layers) {
  for (uint32_t layer = 0; layer < written_.size(); layer++)
    written_[layer] = cache.group(cache.place(layer).group).has_states();
  const bool has_rows = cache.config().storage != PKV_STORAGE_NONE;
  entries_.reserve(sessions.size());
  if (has_rows) {
    tasks_.reserve(sessions.size());
    sequences_.reserve(sessions.size());
  }
  for (size_t i = 0; i < sessions.size(); i++) {
    for_entry(i, [&] { sessions[i]->check_ready("begin"); });
    const Entry& entry =
        entries_.emplace_back(sessions[i], sessions[i]->length(), new_tokens[i], rows_);
    if (has_rows && entry.count > 0)
      sequences_.push_back({kernels::KvView{}, entry.end(), entry.count, entry.first_row, i});
    rows_ = checked_add(rows_, new_tokens[i], "rows of the batch");
  }
  set_first_rows(nullptr);
  reserve();
  open_ = true;
}

// Begins the step in all sessions or in none: first everything that can fail is done for all of
// them, then each begins, which cannot fail.
void Batch::reserve() {
  Needs needs(cache_, entries_.size(), "begin");
  for (size_t i = 0; i < entries_.size(); i++)
    for_entry(i, [&] { needs.add(*entries_[i].session, entries_[i].count); });
  needs.skip_last_copies();
  needs.check_fits_together();
  const auto give_up = [&] {
    bool any = false;
    for (size_t i = 0; i < entries_.size(); i++)
      any = entries_[i].session->release_expired(needs.of(i)) || any;
    return any || needs.skip_last_copies(cache_.prefix());
  };
  Reservation reservation(cache_, needs.blocks(), needs.watermark(), "begin", give_up,
                          ": suspend what pkv_batch_choose_victims names, and resume none before "
                          "this step has begun");
  for (size_t i = 0; i < entries_.size(); i++)
    entries_[i].session->prepare_step(entries_[i].count, needs.of(i));
  for (size_t i = 0; i < entries_.size(); i++)
    entries_[i].session->begin(*this, entries_[i].count, needs.of(i), reservation);
  copies_ = needs.copies();
  cache_.counters().copied_blocks += copies_;
}

Batch::~Batch() {
  if (open_) abort();
}

void Batch::abort() noexcept {
  for (const Entry& entry : entries_) entry.session->abort();
  open_ = false;
  cache_.counters().aborts += 1;
}

void Batch::check_none_accepted(const char* who) const {
  if (!has_accepted_) return;
  fail(PKV_INVALID_ARGUMENT,
       "%s: tokens were accepted already; the batch can only accept, commit or abort", who);
}

void Batch::accept(size_t index, std::span<const uint32_t> kept) {
  if (index >= entries_.size())
    fail(PKV_OUT_OF_RANGE, "session %zu of the batch; it has %zu", index, entries_.size());
  Entry& entry = entries_[index];
  if (cache_.config().storage == PKV_STORAGE_NONE)
    fail(PKV_UNSUPPORTED, "accept: storage NONE keeps no keys and values to move");
  if (rows_ > 0 && first_unwritten() < written_.size())
    fail(PKV_INCOMPLETE, "accept: layer %zu of %zu was not written", first_unwritten(),
         written_.size());
  for (size_t i = 0; i < kept.size(); i++)
    for_entry(i, [&] {
      if (kept[i] >= entry.count)
        fail(PKV_OUT_OF_RANGE, "kept[%zu] is %u; the session has %u new tokens", i, kept[i],
             entry.count);
      if (i > 0 && kept[i] <= kept[i - 1])
        fail(PKV_INVALID_ARGUMENT, "kept must be in ascending order: kept[%zu] is %u, after %u", i,
             kept[i], kept[i - 1]);
    });
  if (entry.accepted)
    fail(PKV_INVALID_ARGUMENT,
         "accept: the tokens of session %zu of the batch were accepted already", index);
  for (size_t g = 0; g < cache_.groups().size(); g++)
    entry.session->content().table(g).check_keeps(kept, entry.count);
  Accepted accepted{{kept.begin(), kept.end()}, std::vector<int32_t>(kept.size())};
  for (uint32_t layer = 0; layer < written_.size(); layer++) {
    if (cache_.group(cache_.place(layer).group).has_states()) continue;  // commit() chooses them
    const kernels::KvView kv = entry.session->view(cache_.place(layer));
    for (size_t i = 0; i < kept.size(); i++)
      if (kept[i] != i)
        cache_.kernels().transfer({kv, entry.start + kept[i], kv, entry.start + i, 1});
  }
  entry.accepted = std::move(accepted);
  has_accepted_ = true;
}

size_t Batch::first_unwritten() const {
  return static_cast<size_t>(std::find(written_.begin(), written_.end(), false) - written_.begin());
}

// Returns the group of a layer. Throws OUT_OF_RANGE, and UNSUPPORTED where the library keeps no K
// and V.
memory::Group& Batch::group_with_rows(uint32_t layer, const char* who) const {
  memory::Group& group = cache_.group(cache_.place(layer).group);
  memory::check_has_rows(group, who);
  if (group.storage == PKV_STORAGE_NONE)
    fail(PKV_UNSUPPORTED, "storage NONE keeps no keys and values");
  return group;
}

void Batch::set_first_rows(const uint32_t* first_rows) {
  if (first_rows == nullptr)
    first_rows_.clear();
  else
    first_rows_.assign(first_rows, first_rows + entries_.size());
  batch_rows_ = rows::BatchRows(first_rows_.empty() ? nullptr : first_rows_.data());
  for (const Entry& entry : entries_) batch_rows_.add(entry.count);
}

// Returns the sessions with new tokens, with K and V of one layer. A write and the attention after
// it share the views: block tables and tensors stay where they are until the step ends.
std::span<const rows::Sequence> Batch::sequences(uint32_t layer) {
  if (viewed_layer_ != layer)
    for (rows::Sequence& one : sequences_)
      one.kv = entries_[one.index].session->view(cache_.place(layer));
  viewed_layer_ = layer;
  return sequences_;
}

void Batch::write(uint32_t layer, const pkv_tensor* k, const pkv_tensor* v) {
  const memory::Group& group = group_with_rows(layer, "write");
  check_none_accepted("write");
  const memory::Shape& shape = group.shape;
  const rows::BatchTensor keys =
      rows::check_rows(k, batch_rows_, shape.kv_heads, shape.key_dim, "k");
  const rows::BatchTensor values =
      rows::check_values(v, batch_rows_, shape.kv_heads, shape.value_dim, shape.latent);
  tasks_.clear();
  for (const rows::Sequence& one : sequences(layer))
    tasks_.push_back({one.kv, one.start(), one.queries,
                      rows::rows_at(keys.view, keys.begin(batch_rows_, one)),
                      rows::rows_at(values.view, values.begin(batch_rows_, one))});
  rows::copy_rows(cache_.workers(), cache_.kernels().store, tasks_,
                  group.layout.token_bytes() / group.shape.layers);
  written_[layer] = true;
}

void Batch::attend(uint32_t layer, const pkv_attention_params* params, const pkv_tensor* q,
                   const pkv_tensor* out) {
  memory::Group& group = group_with_rows(layer, "attend");
  const memory::Shape& shape = group.shape;
  attention::AttendCall call{};
  call.shape = {shape.query_heads, shape.kv_heads, shape.key_dim,
                shape.value_dim,   shape.dtype,    shape.value_dtype};
  call.params =
      attention::check_params(params, shape.kv_heads, shape.key_dim, {shape.window, shape.sinks});
  check_none_accepted("attend");
  call.rows = batch_rows_;
  call.q = rows::check_rows(q, call.rows, shape.query_heads, shape.key_dim, "q");
  call.out = rows::check_rows(out, call.rows, shape.query_heads, shape.value_dim, "out");
  if (!written_[layer] && rows_ > 0)
    fail(PKV_INCOMPLETE, "attend: layer %u was not written in this step", layer);
  call.sequences = sequences(layer);
  attention::ChoosingLayer choosing{};
  if (call.params.chooses() && group.slab) choosing = choosing_layer(call, layer, group);
  pkv::attention::attend(cache_.workers(), cache_.scratch(), cache_.kernels(), call, choosing);
}

// Returns the layer and the block tables by which blocks are chosen.
attention::ChoosingLayer Batch::choosing_layer(const attention::AttendCall& call, uint32_t layer,
                                               memory::Group& group) const {
  const LayerPlace place = cache_.place(layer);
  attention::ChoosingLayer choosing{&group, place.layer, {}};
  for (const rows::Sequence& sequence : call.sequences)
    choosing.tables.push_back(
        entries_[sequence.index].session->content().table(place.group).blocks().data());
  return choosing;
}

// Returns the ids of the tokens that an entry keeps, or nothing if the caller gave no ids.
std::span<const int32_t> Batch::kept_ids(Entry& entry, const int32_t* tokens) {
  if (tokens == nullptr) return {};
  if (!entry.accepted) return {tokens + entry.first_row, entry.count};
  Accepted& accepted = *entry.accepted;
  for (size_t i = 0; i < accepted.ids.size(); i++)
    accepted.ids[i] = tokens[entry.first_row + accepted.indices[i]];
  return accepted.ids;
}

// Throws INVALID_ARGUMENT if an id differs from the one that the session remembers for the same
// position from before it was suspended.
void Batch::check_ids(size_t index, std::span<const int32_t> ids) const {
  const Entry& entry = entries_[index];
  for (uint64_t i = 0; i < ids.size() && entry.start + i < entry.session->total(); i++) {
    const int32_t before = entry.session->remembered_token(entry.start + i);
    if (before != PKV_NO_TOKEN && ids[i] != PKV_NO_TOKEN && before != ids[i])
      fail(PKV_INVALID_ARGUMENT,
           "commit: position %llu of session %zu held token %d before it was suspended, not %d",
           llu(entry.start + i), index, before, ids[i]);
  }
}

void Batch::commit(const int32_t* tokens) {
  const size_t unwritten = first_unwritten();
  if (cache_.config().storage != PKV_STORAGE_NONE && rows_ > 0 && unwritten < written_.size())
    fail(PKV_INCOMPLETE, "commit: layer %zu of %zu was not written", unwritten, written_.size());
  for (size_t e = 0; e < entries_.size(); e++)
    if (!entries_[e].session->remembered_tokens().empty())
      check_ids(e, kept_ids(entries_[e], tokens));
  // One session may have kept a block that the others replaced by copies. Once these have given it
  // up, it is that session's alone.
  if (copies_ > 0)
    for (const Entry& entry : entries_) entry.session->drop_originals();
  uint64_t committed = 0;
  for (Entry& entry : entries_) {
    entry.session->commit(kept_ids(entry, tokens), entry.kept_count(), entry.kept());
    committed += entry.kept_count();
  }
  open_ = false;
  cache_.counters().tokens += committed;
  if (!cache_.config().memory_directory.empty()) compute_bounds();
  cache_.counters().commits += 1;
  cache_.counters().committed_tokens += committed;
}

// Computes the key bounds of the blocks that the step filled. Called where K and V are in a file:
// the keys are still in memory now, and would have to be read when blocks are chosen. Bounds that
// fail here are computed at that time.
void Batch::compute_bounds() noexcept {
  try {
    for (size_t g = 0; g < cache_.groups().size(); g++) {
      memory::Group& group = *cache_.groups()[g];
      if (group.has_states()) continue;
      std::vector<memory::Block> filled;
      for (const Entry& entry : entries_) {
        const auto blocks = entry.session->content().table(g).blocks();
        const uint64_t end = (entry.start + entry.kept_count()) / group.block_size;
        for (uint64_t i = entry.start / group.block_size; i < end; i++)
          if (memory::is_block(blocks[i])) filled.push_back(blocks[i]);
      }
      for (uint32_t layer = 0; layer < group.shape.layers && !filled.empty(); layer++)
        group.compute_bounds(cache_.workers(), cache_.kernels(), layer, filled);
    }
  } catch (...) {
  }
}

void Batch::check_has_slots(uint32_t group) const {
  if (cache_.group(group).storage == PKV_STORAGE_CONTIGUOUS)
    fail(PKV_UNSUPPORTED, "storage CONTIGUOUS has no slots");
  if (cache_.group(group).has_states())
    fail(PKV_UNSUPPORTED, "group %u keeps states, which have no slots", group);
}

size_t Batch::count_states(uint32_t group) const {
  size_t count = 0;
  for (const Entry& entry : entries_)
    count += entry.session->content().state_table(group).new_states().size();
  return count;
}

size_t Batch::states(uint32_t layer, const void** before, std::span<void*> after) const {
  const LayerPlace place = cache_.place(layer);
  memory::check_has_states(cache_.group(place.group), layer);
  const size_t total = count_states(place.group);
  if (after.size() < total) return total;
  size_t at = 0;
  for (size_t i = 0; i < entries_.size(); i++) {
    const memory::StateTable& table = entries_[i].session->content().state_table(place.group);
    const memory::Block own = table.state_block(entries_[i].start);
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
  for (size_t i = 0; i < entries_.size(); i++) {
    const memory::StateTable& table = entries_[i].session->content().state_table(group);
    if (out.before != nullptr)
      out.before[i] = memory::block_id(table.state_block(entries_[i].start));
    out.indptr[i] = at;
    for (const memory::NewState& state : table.new_states()) {
      if (out.after != nullptr) out.after[at] = memory::block_id(state.block);
      out.tokens[at++] = state.tokens - 1;
    }
  }
  out.indptr[entries_.size()] = at;
  return total;
}

size_t Batch::slot_mapping(uint32_t group, std::span<int64_t> slots) const {
  check_has_slots(group);
  if (slots.size() < rows_) return rows_;
  for (const Entry& entry : entries_)
    for (uint32_t i = 0; i < entry.count; i++)
      slots[entry.first_row + i] = entry.session->content().kv_table(group).slot(entry.start + i);
  return rows_;
}

size_t Batch::block_copies(uint32_t group, size_t capacity, uint32_t* from, uint32_t* to) const {
  check_has_slots(group);
  size_t count = 0;
  for (const Entry& entry : entries_) {
    const memory::KvTable& table = entry.session->content().kv_table(group);
    if (table.copied_from() == memory::no_block) continue;
    if (count < capacity) {
      from[count] = PKV_BLOCK_ID(table.copied_from());
      to[count] = table.copied_to();
    }
    count++;
  }
  return count;
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
  for (const Entry& entry : entries_)
    entry.session->content().kv_table(group).for_each_read(
        entry.end(), [&](uint64_t, uint64_t first, uint64_t last) {
          total += unit == PKV_INDEX_SLOTS ? last - first : 1;
        });
  if (total > max) fail(PKV_OVERFLOW, "%zu KV indices; there can be at most %llu", total, llu(max));
  if (indices.size() < total) return total;

  uint32_t at = 0;
  for (size_t e = 0; e < entries_.size(); e++) {
    const memory::KvTable& table = entries_[e].session->content().kv_table(group);
    const uint64_t end = entries_[e].end();
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
  indptr[entries_.size()] = at;
  return total;
}

}  // namespace pkv
