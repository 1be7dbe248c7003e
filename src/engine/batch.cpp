#include "engine/batch.h"

#include <algorithm>

#include "base/checked.h"
#include "base/vectors.h"
#include "engine/attend.h"
#include "engine/rows.h"

namespace pkv {

void Needs::add(const Session& session, uint32_t new_tokens) {
  const uint64_t start = session.length(), end = start + new_tokens;
  for (size_t g = 0; g < blocks.size(); g++)
    add(session, g, end, session.content().sequences()[g].lacking(start, end));
}

void Needs::add(const Session& session, size_t group, uint64_t end, uint64_t lacking) {
  session.content().sequences()[group].check_fits(session.length(), end, "begin");
  blocks[group] += lacking;
  if (session.length() == 0 && lacking > 0) keep = session.cache().config().watermark;
}

Batch::Batch(Cache& cache, size_t sessions) : cache_(cache), written_(cache.config().layers) {
  entries_.reserve(sessions);
  tasks_.reserve(sessions);
}

Batch::Batch(Cache& cache, std::span<Session* const> sessions, std::span<const uint32_t> new_tokens,
             uint64_t* short_by)
    : Batch(cache, sessions.size()) {
  for (size_t i = 0; i < sessions.size(); i++) {
    sessions[i]->check_ready("begin");
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

// All or none: once there is room for everything, nothing can fail.
void Batch::reserve(uint64_t* short_by) {
  const size_t groups = cache_.groups().size();
  Needs needs(groups);
  for (const Entry& entry : entries_) needs.add(*entry.session, entry.count);
  Taken taken(cache_, needs.blocks, needs.keep, short_by, "begin");
  for (const Entry& entry : entries_)
    for (Sequence& sequence : entry.session->content_.sequences())
      sequence.make_ready(entry.end(), sequence.lacking(entry.start, entry.end()));
  size_t copies = 0;
  for (const Entry& entry : entries_) {
    for (size_t g = 0; g < groups; g++) {
      Sequence& sequence = entry.session->content_.sequences()[g];
      const uint64_t count = sequence.lacking(entry.start, entry.end());
      copies += sequence.begin(entry.start, entry.end(), taken.next(g, count));
      taken.pass(g, count);
    }
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

void Batch::check_open_for(const char* who) const {
  if (accepted_.empty()) return;
  fail(PKV_INVALID_ARGUMENT, "%s: tokens were accepted already; only commit and abort are left",
       who);
}

void Batch::accept(size_t index, std::span<const uint32_t> kept) {
  if (index >= entries_.size())
    fail(PKV_OUT_OF_RANGE, "session %zu of the batch; it has %zu", index, entries_.size());
  const Entry& entry = entries_[index];
  if (cache_.config().storage == PKV_STORAGE_NONE)
    fail(PKV_UNSUPPORTED, "accept: storage NONE keeps no keys and values to move");
  if (rows_ > 0 && !complete())
    fail(PKV_INCOMPLETE, "accept: layer %zu of %zu was not written", first_unwritten(),
         written_.size());
  for (size_t i = 0; i < kept.size(); i++) {
    if (kept[i] >= entry.count)
      fail(PKV_OUT_OF_RANGE, "kept[%zu] is %u; the session has %u new tokens", i, kept[i],
           entry.count);
    if (i > 0 && kept[i] <= kept[i - 1])
      fail(PKV_INVALID_ARGUMENT, "kept[%zu] is %u after %u; indices must rise", i, kept[i],
           kept[i - 1]);
  }
  if (!accepted_.empty() && accepted_[index].has_value())
    fail(PKV_INVALID_ARGUMENT, "accept: a second time for session %zu of the batch", index);
  std::vector<uint32_t> own(kept.begin(), kept.end());
  if (accepted_.empty()) accepted_.resize(entries_.size());
  for (uint32_t layer = 0; layer < written_.size(); layer++) {
    const LayerPlace place = cache_.place(layer);
    const KvView kv = entry.session->content_.sequences()[place.group].view(place.layer);
    for (size_t i = 0; i < kept.size(); i++)
      if (kept[i] != i)
        cache_.kernels().transfer({kv, entry.start + kept[i], kv, entry.start + i, 1});
  }
  accepted_[index] = std::move(own);
}

uint32_t Batch::new_tokens(const Session& session) const {
  const auto entry = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const Entry& e) { return e.session == &session; });
  return entry != entries_.end() ? entry->count : 0;
}

size_t Batch::first_unwritten() const {
  return static_cast<size_t>(std::find(written_.begin(), written_.end(), false) - written_.begin());
}

Group& Batch::check_layer(uint32_t layer, LayerPlace* place) const {
  *place = cache_.place(layer);
  Group& group = cache_.group(place->group);
  if (group.storage == PKV_STORAGE_NONE)
    fail(PKV_UNSUPPORTED, "storage NONE keeps no keys and values");
  return group;
}

void Batch::write(uint32_t layer, const pkv_tensor* k, const pkv_tensor* v) {
  LayerPlace place;
  const Group& group = check_layer(layer, &place);
  check_open_for("write");
  const RowsView k_rows = check_rows(k, rows_, group.shape.kv_heads, group.shape.key_dim, "k");
  const RowsView v_rows = check_values(v, rows_, group.shape);
  tasks_.clear();
  for (const Entry& entry : entries_) {
    if (entry.count == 0) continue;
    const KvView kv = entry.session->content_.sequences()[place.group].view(place.layer);
    tasks_.push_back(
        {kv, entry.start, entry.count, rows_from(k_rows, entry.row), rows_from(v_rows, entry.row)});
  }
  copy_rows(cache_.workers(), cache_.kernels().store, tasks_,
            group.layout.token_bytes() / group.shape.layers);
  written_[layer] = true;
}

void Batch::attend(uint32_t layer, const pkv_attention_params* params, const pkv_tensor* q,
                   const pkv_tensor* out) {
  LayerPlace place;
  const Group& group = check_layer(layer, &place);
  const Shape& shape = group.shape;
  AttendCall call{};
  call.shape = {shape.query_heads, shape.kv_heads, shape.key_dim,
                shape.value_dim,   shape.dtype,    shape.value_dtype};
  call.params = check_params(params, shape.key_dim, shape.window, shape.sinks);
  check_open_for("attend");
  call.q = check_rows(q, rows_, shape.query_heads, shape.key_dim, "q");
  call.out = check_rows(out, rows_, shape.query_heads, shape.value_dim, "out");
  if (!written_[layer] && rows_ > 0)
    fail(PKV_INCOMPLETE, "attend: layer %u was not written in this step", layer);
  std::vector<AttendSequence> sequences;
  sequences.reserve(entries_.size());
  for (const Entry& entry : entries_) {
    if (entry.count == 0) continue;
    const KvView kv = entry.session->content_.sequences()[place.group].view(place.layer);
    sequences.push_back({kv, entry.end(), entry.count, entry.row});
  }
  call.sequences = sequences;
  pkv::attend(cache_.workers(), cache_.scratch(), cache_.kernels(), call);
}

// The id of the i-th token that an entry keeps: the caller's, or the one remembered from before a
// suspension.
int32_t Batch::token(size_t e, uint64_t i, const int32_t* tokens) const {
  const Entry& entry = entries_[e];
  const uint64_t from = accepted(e) != nullptr ? (*accepted(e))[i] : i;
  const int32_t given = tokens != nullptr ? tokens[entry.row + from] : PKV_NO_TOKEN;
  return given != PKV_NO_TOKEN ? given : entry.session->remembered(entry.start + i);
}

void Batch::check_tokens(const int32_t* tokens) const {
  for (size_t e = 0; e < entries_.size() && tokens != nullptr; e++) {
    const Entry& entry = entries_[e];
    const uint64_t known = std::min(entry.session->total(), entry.start + count_kept(e));
    for (uint64_t position = entry.start; position < known; position++) {
      const int32_t before = entry.session->remembered(position),
                    now = token(e, position - entry.start, tokens);
      if (before != PKV_NO_TOKEN && before != now)
        fail(PKV_INVALID_ARGUMENT,
             "commit: position %llu of session %zu held token %d before it was suspended, not %d",
             (unsigned long long)position, e, before, now);
    }
  }
}

void Batch::commit(const int32_t* tokens) {
  const size_t unwritten = first_unwritten();
  if (cache_.config().storage != PKV_STORAGE_NONE && rows_ > 0 && unwritten < written_.size())
    fail(PKV_INCOMPLETE, "commit: layer %zu of %zu was not written", unwritten, written_.size());
  check_tokens(tokens);
  for (const Entry& entry : entries_) reserve_more(entry.session->content_.tokens(), entry.count);
  size_t committed = 0;
  for (size_t e = 0; e < entries_.size(); e++) {
    const Entry& entry = entries_[e];
    const uint64_t count = count_kept(e);
    auto& own = entry.session->content_.tokens();
    if (tokens != nullptr && accepted(e) == nullptr && entry.session->total() == entry.start)
      own.insert(own.end(), tokens + entry.row,
                 tokens + entry.row + count);  // as they are: none was remembered
    else
      for (uint64_t i = 0; i < count; i++) own.push_back(token(e, i, tokens));
    for (Sequence& sequence : entry.session->content_.sequences()) {
      sequence.commit(entry.start, entry.start + count);
      if (count < entry.count) sequence.drop_unused(entry.start + count);
    }
    entry.session->end_step(count);
    committed += count;
  }
  open_ = false;
  cache_.counters().tokens.fetch_add(committed, std::memory_order_relaxed);
  cache_.counters().commits.fetch_add(1, std::memory_order_relaxed);
  cache_.counters().committed_tokens.fetch_add(committed, std::memory_order_relaxed);
}

void Batch::check_ids(uint32_t group) const {
  if (cache_.group(group).storage == PKV_STORAGE_CONTIGUOUS)
    fail(PKV_UNSUPPORTED, "storage CONTIGUOUS has no slots");
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

size_t Batch::kv_indices(uint32_t group, pkv_index_unit unit, int64_t* indptr,
                         std::span<int64_t> indices, uint32_t* last_block_length) const {
  check_ids(group);
  const uint64_t block_size = cache_.config().block_size;
  // The units of one session: [0, sinks), which stayed when others left the window, and [first,
  // end).
  struct Units {
    uint64_t sinks, first, end;
    uint64_t count() const { return sinks + end - first; }
  };
  const auto units_of = [&](const Entry& entry) -> Units {
    const Sequence& sequence = entry.session->content_.sequences()[group];
    const uint64_t kept = std::min(sequence.first_kept(), entry.end());
    const uint64_t sinks = std::min<uint64_t>(sequence.group().shape.sinks, kept);
    if (unit == PKV_INDEX_SLOTS) return {sinks, kept, entry.end()};
    return {ceil_div(sinks, block_size), kept / block_size, ceil_div(entry.end(), block_size)};
  };
  size_t total = 0;
  for (const Entry& entry : entries_) total += units_of(entry).count();
  if (indices.size() < total) return total;

  size_t at = 0;
  for (size_t e = 0; e < entries_.size(); e++) {
    const Sequence& sequence = entries_[e].session->content_.sequences()[group];
    const Units units = units_of(entries_[e]);
    const auto add = [&](uint64_t i) {
      indices[at++] = unit == PKV_INDEX_SLOTS ? sequence.slot(i) : int64_t{sequence.ids()[i]};
    };
    indptr[e] = static_cast<int64_t>(at);
    for (uint64_t i = 0; i < units.sinks; i++) add(i);
    for (uint64_t i = units.first; i < units.end; i++) add(i);
    if (last_block_length != nullptr)
      last_block_length[e] = entries_[e].end() == 0
                                 ? 0
                                 : static_cast<uint32_t>((entries_[e].end() - 1) % block_size + 1);
  }
  indptr[entries_.size()] = static_cast<int64_t>(at);
  return total;
}

}  // namespace pkv
