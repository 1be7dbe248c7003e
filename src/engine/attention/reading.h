// The readings of a call: each sequence as some of its KV heads see it, with windows and masks
// resolved to one view for each query. The kernels only take masks of bits, so trees that are given
// by parents, and what masks with columns hide, are converted to bits here.
#pragma once

#include <memory>
#include <memory_resource>
#include <span>
#include <vector>

#include "base/parallel.h"
#include "engine/attention/call.h"

namespace pkv::attention {

// The positions of one word of a mask.
inline constexpr uint64_t word_bits = 64;

// A sequence as KV heads [head_begin, head_end) see it.
struct Reading : rows::Sequence {
  kernels::RowsView q, out;  // its rows, from its first query on
  uint32_t head_begin, head_end;
  uint32_t window, sinks;           // of these heads
  const kernels::QueryView* views;  // what each query sees
  const float* key_shifts;          // as in kernels::ScoreTransform
  bool biased;                      // a query of any reading of the call has a bias
  bool excerpt = false;             // true if it has only some blocks of the caller's sequence

  bool masked() const { return views[0].mask != nullptr; }
  uint64_t mask_begin() const { return views[0].mask_begin; }  // the same for all its queries
};

// Arrays that live as long as this object.
class Arrays {
 public:
  // Returns zeros.
  template <class T>
  std::span<T> make(size_t count) {
    T* const array = std::pmr::polymorphic_allocator<T>(&memory_).allocate(count);
    std::uninitialized_value_construct_n(array, count);
    return {array, count};
  }

 private:
  std::pmr::monotonic_buffer_resource memory_;
};

// Some queries of one reading, for some of its KV heads. The kernels compute for such chunks.
struct QueryChunk {
  const Reading* reading;
  uint32_t first, queries;  // queries [first, first + queries) of the reading
  uint32_t head_begin, head_end;

  const kernels::QueryView* views() const { return reading->views + first; }
};

// Returns the task that writes the queries of a chunk to q, converted to fp32 and scaled. There, a
// KV head has `head_rows` rows.
kernels::QueryTask query_task(const AttendCall& call, const QueryChunk& chunk, float* q,
                              uint64_t head_rows);
// Returns the task of a chunk for positions [begin, end) of its reading, without the pointers to
// prepared queries, results and scratch memory.
kernels::AttendTask attend_task(const AttendCall& call, const QueryChunk& chunk, uint64_t begin,
                                uint64_t end);

class Readings {
 public:
  // `call` has been checked. The object refers to its masks and block tables as long as it lives.
  // Throws bad_alloc and OVERFLOW.
  Readings(Workers& workers, const AttendCall& call);
  Readings(const Readings&) = delete;
  Readings& operator=(const Readings&) = delete;

  // All readings, one sequence after the other. A sequence has a reading for each run of KV heads
  // that have the same window.
  std::span<const Reading> all() const { return all_; }
  // The readings of the sequence at an index of AttendCall::sequences.
  std::span<const Reading> of(size_t sequence) const {
    return std::span(all_).subspan(sequence * runs_, runs_);
  }
  // The reading of this sequence that has this KV head.
  const Reading& of(size_t sequence, uint32_t head) const {
    const Reading* reading = &all_[sequence * runs_];
    while (reading->head_end <= head) reading++;
    return *reading;
  }

 private:
  size_t runs_;                            // of KV heads
  Arrays arrays_;                          // masks that were made here, and positions of trees
  std::vector<kernels::QueryView> views_;  // of all readings
  std::vector<Reading> all_;
};

}  // namespace pkv::attention
