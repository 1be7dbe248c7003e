// Runs a step of many sessions.
#include "engine/step/batch.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/status.h"
#include "engine/attention/attend.h"
#include "engine/cache/reservation.h"
#include "engine/rows/rows.h"
#include "engine/step/needs.h"

namespace pkv {

Batch::Batch(Cache& cache, std::span<Session* const> sessions, std::span<const uint32_t> new_tokens)
    : cache_(cache), written_(cache.config().layers) {
  for (uint32_t layer = 0; layer < written_.size(); layer++)
    written_[layer] = !cache.group(cache.place(layer).group).keeps_rows();
  const bool has_rows = first_unwritten() < written_.size();
  members_.reserve(sessions.size());
  if (has_rows) {
    tasks_.reserve(sessions.size());
    sequences_.reserve(sessions.size());
  }
  for (size_t i = 0; i < sessions.size(); i++) {
    for_entry(i, [&] { sessions[i]->check_ready("begin"); });
    const Member& member =
        members_.emplace_back(sessions[i], sessions[i]->length(), new_tokens[i], rows());
    if (has_rows && member.count > 0)
      sequences_.push_back({kernels::KvView{}, member.end(), member.count, member.first_row, i});
    batch_rows_.add(member.count);
  }
  begin();
  open_ = true;
}

// Begins the step in all sessions or in none: first everything that can fail is done for all of
// them, then each begins, which cannot fail.
void Batch::begin() {
  Needs needs(cache_, members_.size(), "begin");
  for (size_t i = 0; i < members_.size(); i++)
    for_entry(i, [&] { needs.add(*members_[i].session, members_[i].count); });
  needs.skip_last_copies();
  needs.check_fits_together();
  const Reservation::Own own = {
      [&] {
        prefix::OwnBlocks listed;
        needs.list_tails(listed);
        for (size_t i = 0; i < members_.size(); i++)
          members_[i].session->list_expired(needs.of(i), listed);
        return listed;
      },
      [&](const prefix::OwnBlocks& listed, std::span<const size_t> tails) {
        let_go(needs, listed, tails);
        needs.skip_last_copies();
        for (size_t i = 0; i < members_.size(); i++)
          members_[i].session->release_expired(needs.of(i));
        return Reservation::Demand{needs.blocks(), needs.watermark()};
      }};
  Reservation reservation(cache_, needs.blocks(), needs.watermark(), "begin", own,
                          Urgency::must_succeed,
                          ": suspend what pkv_batch_choose_victims names, and resume none before "
                          "this step has begun");
  for (size_t i = 0; i < members_.size(); i++)
    members_[i].session->prepare_step(members_[i].count, needs.of(i));
  for (size_t i = 0; i < members_.size(); i++)
    members_[i].session->begin(*this, members_[i].count, needs.of(i), reservation);
  copies_ = needs.copies();
  cache_.counters().copied_blocks += copies_;
}

// Has the prefix index let go of some tails, so that one of their writers needs no copy.
void Batch::let_go(const Needs& needs, const prefix::OwnBlocks& listed,
                   std::span<const size_t> tails) {
  if (cache_.prefix() == nullptr) return;
  std::set<std::pair<size_t, uint32_t>> ids;  // with their groups
  for (const size_t i : tails) ids.insert({listed.tails[i].group, listed.tails[i].id});
  for (size_t i = 0; i < members_.size() && !ids.empty(); i++)
    for (size_t g = 0; g < cache_.groups().size(); g++)
      if (ids.contains({g, memory::block_id(needs.of(i)[g].tail)}))
        members_[i].session->hold().release_tail();
  for (const auto& [group, id] : ids) cache_.prefix()->let_go(group, id);
}

Batch::~Batch() {
  if (open_) abort();
}

void Batch::abort() noexcept {
  for (const Member& member : members_) member.session->abort();
  open_ = false;
  cache_.counters().aborts += 1;
}

void Batch::check_none_accepted(const char* who) const {
  if (!has_accepted_) return;
  fail(PKV_INVALID_ARGUMENT,
       "%s: tokens were accepted already; the batch can only accept, commit or abort", who);
}

void Batch::accept(size_t index, std::span<const uint32_t> kept) {
  if (index >= members_.size())
    fail(PKV_OUT_OF_RANGE, "accept: session %zu of the batch; it has %zu", index, members_.size());
  Member& member = members_[index];
  if (rows() > 0 && first_unwritten() < written_.size())
    fail(PKV_INCOMPLETE, "accept: layer %zu of %zu was not written", first_unwritten(),
         written_.size());
  for (size_t i = 0; i < kept.size(); i++)
    for_entry(i, [&] {
      if (kept[i] >= member.count)
        fail(PKV_OUT_OF_RANGE, "accept: kept[%zu] is %u; the session has %u new tokens", i, kept[i],
             member.count);
      if (i > 0 && kept[i] <= kept[i - 1])
        fail(PKV_INVALID_ARGUMENT,
             "accept: kept must be in ascending order: kept[%zu] is %u, after %u", i, kept[i],
             kept[i - 1]);
    });
  if (member.accepted)
    fail(PKV_INVALID_ARGUMENT,
         "accept: the tokens of session %zu of the batch were accepted already", index);
  for (size_t g = 0; g < cache_.groups().size(); g++)
    member.session->content().table(g).check_keeps(kept, member.count);
  Accepted accepted{{kept.begin(), kept.end()}, std::vector<int32_t>(kept.size())};
  for (uint32_t layer = 0; layer < written_.size(); layer++) {
    // The engine's rows stay where they are, and commit() chooses states.
    if (!cache_.group(cache_.place(layer).group).keeps_rows()) continue;
    const kernels::KvView kv = member.session->view(cache_.place(layer));
    for (size_t i = 0; i < kept.size(); i++)
      if (kept[i] != i)
        cache_.kernels().transfer({kv, member.start + kept[i], kv, member.start + i, 1});
  }
  member.accepted = std::move(accepted);
  has_accepted_ = true;
}

size_t Batch::first_unwritten() const {
  return static_cast<size_t>(std::find(written_.begin(), written_.end(), false) - written_.begin());
}

// Returns the group of a layer. Throws OUT_OF_RANGE, and UNSUPPORTED where the library keeps no K
// and V.
memory::Group& Batch::group_with_rows(uint32_t layer, const char* who) const {
  memory::Group& group = cache_.group(cache_.place(layer).group);
  memory::check_keeps_rows(group, who);
  return group;
}

void Batch::set_first_rows(const uint32_t* first_rows) {
  if (first_rows == nullptr)
    first_rows_.clear();
  else
    first_rows_.assign(first_rows, first_rows + members_.size());
  batch_rows_ = rows::BatchRows(first_rows_.empty() ? nullptr : first_rows_.data());
  for (const Member& member : members_) batch_rows_.add(member.count);
}

// Returns the sessions with new tokens, with K and V of one layer. A write and the attention after
// it share the views: block tables and tensors stay where they are until the step ends.
std::span<const rows::Sequence> Batch::sequences(uint32_t layer) {
  if (viewed_layer_ != layer)
    for (rows::Sequence& one : sequences_)
      one.kv = members_[one.index].session->view(cache_.place(layer));
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
      rows::check_values(v, batch_rows_, shape.kv_heads, shape.value_dim, shape.latent());
  tasks_.clear();
  for (const rows::Sequence& one : sequences(layer))
    tasks_.push_back({one.kv, one.start(), one.queries,
                      rows::rows_at(keys.view, keys.begin(batch_rows_, one)),
                      rows::rows_at(values.view, values.begin(batch_rows_, one))});
  written_[layer] = false;  // a write that fails may have changed some rows
  rows::copy_rows(cache_.workers(), cache_.kernels().store, tasks_,
                  group.layout.token_bytes() / group.shape.layers);
  written_[layer] = true;
}

void Batch::attend(uint32_t layer, const pkv_attention_params* params, const pkv_tensor* q,
                   const pkv_tensor* out, const pkv_attention_outputs* outputs) {
  memory::Group& group = group_with_rows(layer, "attend");
  const memory::Shape& shape = group.shape;
  attention::AttendCall call{};
  call.shape = {shape.query_heads, shape.kv_heads, shape.key_dim,
                shape.value_dim,   shape.dtype,    shape.value_dtype};
  call.params =
      attention::check_params(params, shape.kv_heads, shape.key_dim, {shape.window, shape.sinks});
  call.outputs = attention::check_outputs(outputs, call.params);
  check_none_accepted("attend");
  call.rows = batch_rows_;
  call.q = rows::check_rows(q, call.rows, shape.query_heads, shape.key_dim, "q");
  call.out = rows::check_rows(out, call.rows, shape.query_heads, shape.value_dim, "out");
  if (!written_[layer] && rows() > 0)
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
        members_[sequence.index].session->content().table(place.group).blocks().data());
  return choosing;
}

// Returns the ids of the tokens that a member keeps, or nothing if the caller gave no ids.
std::span<const int32_t> Batch::kept_ids(Member& member, const int32_t* tokens) {
  if (tokens == nullptr) return {};
  if (!member.accepted) return {tokens + member.first_row, member.count};
  Accepted& accepted = *member.accepted;
  for (size_t i = 0; i < accepted.ids.size(); i++)
    accepted.ids[i] = tokens[member.first_row + accepted.indices[i]];
  return accepted.ids;
}

// Throws INVALID_ARGUMENT if an id differs from the one that the session remembers for the same
// position from before it was suspended.
void Batch::check_ids(size_t index, std::span<const int32_t> ids) const {
  const Member& member = members_[index];
  for (uint64_t i = 0; i < ids.size() && member.start + i < member.session->total(); i++) {
    const int32_t before = member.session->suspension().token(member.start + i);
    if (before != PKV_UNKNOWN_TOKEN && ids[i] != PKV_UNKNOWN_TOKEN && before != ids[i])
      fail(entry_details(PKV_INVALID_ARGUMENT,
                         member.first_row + (member.accepted ? member.kept()[i] : i)),
           "commit: position %llu of session %zu held token %d before it was suspended, not %d",
           llu(member.start + i), index, before, ids[i]);
  }
}

void Batch::commit(const int32_t* tokens) {
  const size_t unwritten = first_unwritten();
  if (rows() > 0 && unwritten < written_.size())
    fail(PKV_INCOMPLETE, "commit: layer %zu of %zu was not written", unwritten, written_.size());
  for (size_t e = 0; e < members_.size(); e++)
    if (!members_[e].session->suspension().tokens().empty())
      check_ids(e, kept_ids(members_[e], tokens));
  // One session may have kept a block that the others replaced by copies. Once these have given it
  // up, it is that session's alone.
  if (copies_ > 0)
    for (const Member& member : members_) member.session->drop_originals();
  uint64_t committed = 0;
  for (Member& member : members_) {
    member.session->commit(kept_ids(member, tokens), member.kept_count(), member.kept());
    committed += member.kept_count();
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
      if (!group.keeps_rows()) continue;
      std::vector<memory::Block> filled;
      for (const Member& member : members_) {
        const auto blocks = member.session->content().table(g).blocks();
        const uint64_t end = (member.start + member.kept_count()) / group.block_size;
        for (uint64_t i = member.start / group.block_size; i < end; i++)
          if (memory::is_block(blocks[i])) filled.push_back(blocks[i]);
      }
      for (uint32_t layer = 0; layer < group.shape.layers && !filled.empty(); layer++)
        group.compute_bounds(cache_.workers(), cache_.kernels(), layer, filled);
    }
  } catch (...) {
  }
}

}  // namespace pkv
