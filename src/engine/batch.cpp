#include "engine/batch.h"

#include <algorithm>

#include "base/checked.h"
#include "base/vectors.h"
#include "engine/attend.h"
#include "engine/rows.h"

namespace pkv {

Batch::Batch(Cache& cache, size_t sessions) : cache_(cache), written_(cache.config().layers) {
  entries_.reserve(sessions);
  tasks_.reserve(sessions);
}

Batch::Batch(Cache& cache, std::span<Session* const> sessions, std::span<const uint32_t> new_tokens, uint64_t* short_by)
    : Batch(cache, sessions.size()) {
  for (size_t i = 0; i < sessions.size(); i++) {
    sessions[i]->check_idle("begin");
    entries_.push_back({sessions[i], sessions[i]->length(), new_tokens[i], rows_});
    rows_ = checked_add(rows_, new_tokens[i], "rows of the batch");
  }
  reserve(short_by);
  for (Entry& entry : entries_) entry.session->batch_ = this;
  open_ = true;
}

void Batch::begin_reserved(Session& session, uint32_t new_tokens) noexcept {
  entries_.push_back({&session, 0, new_tokens, 0});
  rows_ = new_tokens;
  for (Sequence& sequence : session.content_.sequences()) sequence.begin(0, new_tokens, {});
  session.batch_ = this;
  open_ = true;
}

// All or none: what a session got is given back if a later one fails.
void Batch::reserve(uint64_t* short_by) {
  const size_t groups = cache_.groups().size();
  std::vector<uint64_t> counts(groups);
  for (const Entry& entry : entries_) {
    for (size_t g = 0; g < groups; g++) {
      const Sequence& sequence = entry.session->content_.sequences()[g];
      sequence.check_fits(sequence.first_kept(), entry.end(), "begin");
      counts[g] += sequence.lacking(entry.start, entry.end());
    }
  }
  Taken taken(cache_, counts, short_by, "begin");
  size_t done = 0, copies = 0;
  try {
    for (const Entry& entry : entries_) {
      for (size_t g = 0; g < groups; g++, done++) {
        Sequence& sequence = entry.session->content_.sequences()[g];
        const uint64_t count = sequence.lacking(entry.start, entry.end());
        copies += sequence.begin(entry.start, entry.end(), taken.next(g, count));
        taken.pass(g, count);
      }
    }
  } catch (...) {
    while (done-- > 0) entries_[done / groups].session->content_.sequences()[done % groups].abort();
    throw;
  }
  cache_.counters().copied_blocks.fetch_add(copies, std::memory_order_relaxed);
}

Batch::~Batch() {
  if (open_) abort();
}

void Batch::abort() noexcept {
  for (Entry& entry : entries_) {
    for (Sequence& sequence : entry.session->content_.sequences()) sequence.abort();
    entry.session->batch_ = nullptr;
  }
  open_ = false;
  cache_.counters().aborts.fetch_add(1, std::memory_order_relaxed);
}

uint32_t Batch::new_tokens(const Session& session) const {
  const auto entry = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.session == &session; });
  return entry != entries_.end() ? entry->count : 0;
}

size_t Batch::first_unwritten() const {
  return static_cast<size_t>(std::find(written_.begin(), written_.end(), false) - written_.begin());
}

Group& Batch::check_layer(uint32_t layer, LayerPlace* place) const {
  *place = cache_.place(layer);
  Group& group = cache_.group(place->group);
  if (group.storage == PKV_STORAGE_NONE) fail(PKV_UNSUPPORTED, "storage NONE keeps no keys and values");
  return group;
}

void Batch::write(uint32_t layer, const pkv_tensor* k, const pkv_tensor* v) {
  LayerPlace place;
  const Group& group = check_layer(layer, &place);
  const RowsView k_rows = check_rows(k, rows_, group.shape.kv_heads, group.shape.key_dim, "k");
  const RowsView v_rows = check_rows(v, rows_, group.shape.kv_heads, group.shape.value_dim, "v");
  tasks_.clear();
  for (const Entry& entry : entries_) {
    if (entry.count == 0) continue;
    const KvView kv = entry.session->content_.sequences()[place.group].view(place.layer);
    tasks_.push_back({kv, entry.start, entry.count, rows_from(k_rows, entry.row), rows_from(v_rows, entry.row)});
  }
  copy_rows(cache_.workers(), cache_.kv_kernels(group).store, tasks_, group.layout.token_bytes() / group.shape.layers);
  written_[layer] = true;
}

void Batch::attend(uint32_t layer, const pkv_attention_params* params, const pkv_tensor* q, const pkv_tensor* out) {
  LayerPlace place;
  const Group& group = check_layer(layer, &place);
  const Shape& shape = group.shape;
  AttendCall call{};
  call.shape = {shape.query_heads, shape.kv_heads, shape.key_dim, shape.value_dim, shape.dtype};
  call.params = check_params(params, shape.key_dim, shape.window);
  call.q = check_rows(q, rows_, shape.query_heads, shape.key_dim, "q");
  call.out = check_rows(out, rows_, shape.query_heads, shape.value_dim, "out");
  if (!written_[layer] && rows_ > 0) fail(PKV_INCOMPLETE, "attend: layer %u was not written in this step", layer);
  std::vector<AttendSequence> sequences;
  sequences.reserve(entries_.size());
  for (const Entry& entry : entries_) {
    if (entry.count == 0) continue;
    const KvView kv = entry.session->content_.sequences()[place.group].view(place.layer);
    sequences.push_back({kv, entry.end(), entry.count, entry.row});
  }
  call.sequences = sequences;
  pkv::attend(cache_.workers(), cache_.scratch(), cache_.kernels(), cache_.kv_kernels(group), call);
}

void Batch::commit(const int32_t* tokens) {
  const size_t unwritten = first_unwritten();
  if (cache_.config().storage != PKV_STORAGE_NONE && rows_ > 0 && unwritten < written_.size())
    fail(PKV_INCOMPLETE, "commit: layer %zu of %zu was not written", unwritten, written_.size());
  for (const Entry& entry : entries_) reserve_more(entry.session->content_.tokens(), entry.count);
  for (const Entry& entry : entries_) {
    auto& own = entry.session->content_.tokens();
    if (tokens != nullptr)
      own.insert(own.end(), tokens + entry.row, tokens + entry.row + entry.count);
    else
      own.resize(own.size() + entry.count, PKV_NO_TOKEN);
    for (Sequence& sequence : entry.session->content_.sequences()) sequence.commit(entry.start, entry.end());
    entry.session->batch_ = nullptr;
    entry.session->counted_tokens_ += entry.count;
  }
  open_ = false;
  cache_.counters().tokens.fetch_add(rows_, std::memory_order_relaxed);
  cache_.counters().commits.fetch_add(1, std::memory_order_relaxed);
  cache_.counters().committed_tokens.fetch_add(rows_, std::memory_order_relaxed);
}

void Batch::check_ids(uint32_t group) const {
  if (cache_.group(group).storage == PKV_STORAGE_CONTIGUOUS) fail(PKV_UNSUPPORTED, "storage CONTIGUOUS has no slots");
}

size_t Batch::slot_mapping(uint32_t group, std::span<int64_t> slots) const {
  check_ids(group);
  if (slots.size() < rows_) return rows_;
  for (const Entry& entry : entries_)
    for (uint32_t i = 0; i < entry.count; i++)
      slots[entry.row + i] = entry.session->content_.sequences()[group].slot(entry.start + i);
  return rows_;
}

size_t Batch::block_copies(uint32_t group, size_t capacity, uint32_t* from, uint32_t* to) const {
  check_ids(group);
  size_t count = 0;
  for (const Entry& entry : entries_) {
    const Sequence& sequence = entry.session->content_.sequences()[group];
    if (sequence.copied_from() == no_block) continue;
    if (count < capacity) {
      from[count] = PKV_BLOCK_ID(sequence.copied_from());
      to[count] = sequence.copied_to();
    }
    count++;
  }
  return count;
}

size_t Batch::kv_indices(uint32_t group, pkv_index_unit unit, int64_t* indptr, std::span<int64_t> indices,
                         uint32_t* last_block_length) const {
  check_ids(group);
  const uint64_t block_size = cache_.config().block_size;
  // The units of one session: its first and the one after its last.
  const auto bounds = [&](const Entry& entry) {
    const uint64_t kept = std::min(entry.session->content_.sequences()[group].first_kept(), entry.end());
    return unit == PKV_INDEX_SLOTS ? std::pair(kept, entry.end()) : std::pair(kept / block_size, ceil_div(entry.end(), block_size));
  };
  size_t total = 0;
  for (const Entry& entry : entries_) total += bounds(entry).second - bounds(entry).first;
  if (indices.size() < total) return total;

  size_t at = 0;
  for (size_t e = 0; e < entries_.size(); e++) {
    const Sequence& sequence = entries_[e].session->content_.sequences()[group];
    const auto [first, last] = bounds(entries_[e]);
    indptr[e] = static_cast<int64_t>(at);
    for (uint64_t i = first; i < last; i++) indices[at++] = unit == PKV_INDEX_SLOTS ? sequence.slot(i) : int64_t{sequence.ids()[i]};
    if (last_block_length != nullptr)
      last_block_length[e] = entries_[e].end() == 0 ? 0 : static_cast<uint32_t>((entries_[e].end() - 1) % block_size + 1);
  }
  indptr[entries_.size()] = static_cast<int64_t>(at);
  return total;
}

}  // namespace pkv
