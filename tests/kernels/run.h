// Makes one attention call as the engine does: attend() for each part, then finish().
#pragma once

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "../support/portable.h"
#include "sequence.h"
#include "tables.h"

namespace pkv::kernels::test {

struct Call {
  uint32_t head_begin = 0, head_end = 0;  // Counted in KV heads.
  uint32_t queries = 1;
  uint64_t first_query = 0;
  bool causal = true;
  uint32_t window = 0;  // 0 means none.
  uint64_t sinks = 0;
  // Has [queries][mask_words] words, or none.
  std::vector<uint64_t> mask = {};
  uint64_t mask_begin = 0, mask_words = 0;
  float softcap = 0;  // 0 means none.
  // Each has one number per query head, or none.
  std::vector<float> alibi_slopes = {}, sink_logits = {};
  // How far tokens from shifts_begin on are from where they lie, up to the end of a tile; or none.
  std::vector<float> key_shifts = {};
  uint64_t shifts_begin = 0;
  // The queries were multiplied by it.
  float scale = 1;
  // The queries are bf16 numbers times the scale.
  bool whole_queries = false;
  pkv_dtype results = PKV_F32;  // What the results become.
  // Parts are [cuts[i], cuts[i + 1]).
  std::vector<uint64_t> cuts;

  uint64_t begin() const { return cuts.front(); }
  uint64_t end() const { return cuts.back(); }

  QueryView view(uint32_t i) const {
    QueryView query{};
    query.position = first_query + i;
    query.begin = window != 0 && query.position + 1 > window ? query.position + 1 - window : 0;
    query.end = causal ? query.position + 1 : end();
    query.mask = mask.empty() ? nullptr : mask.data() + i * mask_words;
    query.mask_begin = mask_begin;
    return query;
  }

  // The position of a token for slopes.
  uint64_t place_of(uint64_t position) const {
    if (key_shifts.empty() || position < shifts_begin) return position;
    return position +
           static_cast<uint64_t>(static_cast<int64_t>(key_shifts[position - shifts_begin]));
  }

  // Follows the definition in views.h.
  bool sees(uint32_t i, uint64_t position) const {
    const QueryView query = view(i);
    if (position < begin() || position >= end() || position >= query.end) return false;
    if (position >= sinks && position < query.begin) return false;
    if (mask.empty() || position < mask_begin) return true;
    return (query.mask[(position - mask_begin) / 64] >> ((position - mask_begin) % 64) & 1) != 0;
  }
};

// Makes a call for all heads, whose queries see all positions up to their own.
inline Call call_of(const Shape& shape, uint64_t first_query, uint32_t queries,
                    std::vector<uint64_t> cuts) {
  return Call{.head_end = shape.kv_heads,
              .queries = queries,
              .first_query = first_query,
              .cuts = std::move(cuts)};
}

// Returns true if the call has enough rows for matrix products (min_matmul_rows).
inline bool takes_matmul(const Shape& shape, const Call& call) {
  return call.queries * shape.heads_per_kv_head >= min_matmul_rows;
}

// Working memory of exactly the size that is asked for, filled with NaN.
class WorkArea {
 public:
  explicit WorkArea(size_t bytes)
      : bytes_((bytes + 63) / 64 * 64),
        memory_(portable::allocate_aligned(64, std::max<size_t>(bytes_, 64)),
                portable::free_aligned) {
    std::memset(memory_.get(), 0xFF, bytes_);
  }
  unsigned char* data() const { return static_cast<unsigned char*>(memory_.get()); }

 private:
  size_t bytes_;
  std::unique_ptr<void, void (*)(void*)> memory_;
};

inline constexpr float unset = 12345.0f;

// One part of a call. attend() computes its partial results.
class Part {
 public:
  Part(const Table& kernels, Sequence& sequence, const Call& call, uint64_t begin, uint64_t end,
       const std::vector<float>& q)
      : kernels_(kernels),
        task_(task_of(sequence, call, begin, end)),
        work_(kernels.attend_scratch_bytes(task_)) {
    const size_t head_rows = size_t{call.queries} * task_.heads_per_kv_head,
                 rows = (call.head_end - call.head_begin) * head_rows;
    out.assign(rows * task_.kv.v.dim, unset);
    max.assign(rows, unset);
    sum.assign(rows, unset);
    for (uint32_t i = 0; i < call.queries; i++) views_.push_back(call.view(i));
    task_.query = views_.data();
    task_.q = q.data() + call.head_begin * head_rows * task_.kv.k.dim;
    task_.out = out.data();
    task_.max = max.data();
    task_.sum = sum.data();
    task_.scratch = work_.data();
  }

  void attend() { kernels_.attend(task_); }
  Partial partial() const {
    return {out.data(), max.data(), sum.data(), uint64_t{task_.queries} * task_.heads_per_kv_head};
  }

  std::vector<float> out, max, sum;

 private:
  // Sets all fields that the size of the working memory depends on, and those that are equal for
  // all parts.
  static AttendTask task_of(Sequence& sequence, const Call& call, uint64_t begin, uint64_t end) {
    AttendTask task{};
    task.kv = sequence.view();
    task.head_begin = call.head_begin;
    task.head_end = call.head_end;
    task.heads_per_kv_head = sequence.shape.heads_per_kv_head;
    task.queries = call.queries;
    task.begin = begin;
    task.end = end;
    task.sinks = call.sinks;
    task.scale = call.scale;
    task.results = call.results;
    task.transform = {call.softcap, call.alibi_slopes.empty() ? nullptr : call.alibi_slopes.data(),
                      call.key_shifts.empty() ? nullptr : call.key_shifts.data(),
                      call.shifts_begin};
    return task;
  }

  const Table& kernels_;
  AttendTask task_;
  WorkArea work_;
  std::vector<QueryView> views_;
};

// Runs a call. q is [kv_heads][queries * heads_per_kv_head][key_dim], and lse [queries][query
// heads] or empty.
inline void attend_and_finish(const Table& kernels, Sequence& sequence, const Call& call,
                              const std::vector<float>& q, Rows& out, std::vector<float>& lse) {
  const Shape& shape = sequence.shape;
  std::vector<Part> parts;
  std::vector<Partial> partials;
  for (size_t i = 0; i + 1 < call.cuts.size(); i++)
    parts.emplace_back(kernels, sequence, call, call.cuts[i], call.cuts[i + 1], q);
  for (Part& part : parts) {
    part.attend();
    partials.push_back(part.partial());
  }
  FinishTask finish{};
  finish.head_begin = call.head_begin;
  finish.head_end = call.head_end;
  finish.heads_per_kv_head = shape.heads_per_kv_head;
  finish.queries = call.queries;
  finish.value_dim = shape.value_dim;
  finish.parts = static_cast<uint32_t>(partials.size());
  finish.part = partials.data();
  finish.sink_logits = call.sink_logits.empty() ? nullptr : call.sink_logits.data();
  finish.rows = out.view();
  finish.lse = lse.empty() ? nullptr : lse.data();
  finish.lse_stride = uint64_t{shape.kv_heads} * shape.heads_per_kv_head;
  kernels.finish(finish);
}

// Runs a call and returns the results in dense rows of fp32.
inline Rows attend(const Table& kernels, Sequence& sequence, const Call& call,
                   const std::vector<float>& q) {
  const Shape& shape = sequence.shape;
  Rows out(PKV_F32, call.queries, shape.kv_heads * shape.heads_per_kv_head, shape.value_dim);
  std::vector<float> no_lse;
  attend_and_finish(kernels, sequence, call, q, out, no_lse);
  return out;
}

inline std::vector<float> random_queries(const Shape& shape, uint32_t queries, Random& random) {
  std::vector<float> q(size_t{shape.kv_heads} * queries * shape.heads_per_kv_head * shape.key_dim);
  for (float& x : q) x = real(random);
  return q;
}

}  // namespace pkv::kernels::test
