// One sequence that grows. Steps go through a Batch, also those of prefill() and push().
#pragma once

#include <pagedkv/session.h>

#include <algorithm>
#include <memory>

#include "engine/content.h"

namespace pkv {

class Batch;

class Session {
 public:
  // publishes: what it computes goes to the prefix index, if its content has a hold on it.
  explicit Session(Content content, int32_t priority = 0, bool publishes = true);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  Cache& cache() const { return content_.cache(); }
  const Content& content() const { return content_; }
  uint64_t length() const { return content_.length(); }
  uint64_t layer_length(uint32_t layer) const;
  uint64_t length_in_flight() const;  // with the step in flight, written or not

  void tokens(uint64_t first, size_t n, int32_t* out) const;  // remembered ones, too
  void set_tokens(uint64_t first, size_t n, const int32_t* tokens);

  void reserve(uint64_t total_tokens);
  uint64_t match_prefix(Tokens text);
  bool publishes() const { return publishes_; }
  void prefill(uint32_t layer, size_t n, const pkv_tensor* k, const pkv_tensor* v);
  void push(uint32_t layer, const pkv_tensor* k, const pkv_tensor* v);
  void trim(uint64_t length);
  Content fork() const;

  // Preemption: blocks go, tokens stay. What resume() leaves to be computed again are positions
  // [length(), total()).
  void suspend() noexcept;
  void resume(uint64_t* short_by);
  bool suspended() const { return suspended_; }
  uint64_t total() const { return std::max<uint64_t>(length(), remembered_.size()); }
  // The id that a position had before a suspension, or PKV_NO_TOKEN.
  int32_t remembered(uint64_t position) const {
    return position < remembered_.size() ? remembered_[position] : PKV_NO_TOKEN;
  }

  // Tokens of before a suspension: all of them.
  std::span<const int32_t> all_remembered() const { return remembered_; }
  // Of a new session: what another one remembered, and whether it was suspended.
  void remember(std::span<const int32_t> tokens, bool suspended);
  // From now on what it computes goes to the prefix index, and what it has, too.
  void start_publishing() noexcept;

  int32_t priority() const { return priority_; }
  void set_priority(int32_t priority) { priority_ = priority; }
  uint64_t opened() const { return opened_; }  // how many were opened before it
  bool in_step() const { return batch_ != nullptr; }
  void check_idle(const char* who) const;   // BUSY while a step is in flight
  void check_ready(const char* who) const;  // BUSY while a step is in flight, SUSPENDED
  pkv_session_info info() const;

  // Of one group; throws UNSUPPORTED where storage is contiguous.
  const Sequence& table(uint32_t group) const;
  void slot_mapping(uint32_t group, uint64_t first, size_t n, int64_t* slots) const;
  void materialize(uint32_t layer, uint64_t first, size_t n, const pkv_tensor* k,
                   const pkv_tensor* v) const;

 private:
  friend class Batch;
  enum class Solo { idle, prefill, push };

  void step(Solo kind, uint32_t layer, size_t n, const pkv_tensor* k, const pkv_tensor* v);
  void begin_replacing(size_t n);
  void reserve_blocks(std::span<const uint64_t> totals, uint32_t keep, uint64_t* short_by,
                      const char* who);
  void forget() noexcept;
  void publish(bool wait) noexcept;
  uint64_t take_prefix(Tokens text);
  void empty() noexcept;
  void hand_over() noexcept;
  bool copy_tail(const PrefixIndex::Tail& tail);
  void reserve_more_tokens(uint64_t total);
  void end_step(uint64_t committed) noexcept;
  void count_tokens();
  uint32_t kept_free() const;

  Content content_;
  std::pmr::vector<int32_t> remembered_;  // tokens of before a suspension, from position 0 on; none
                                          // once length() is there again
  bool suspended_ = false;
  int32_t priority_;
  bool publishes_;
  const uint64_t opened_;
  Batch* batch_ = nullptr;       // the step in flight, whoever drives it
  std::unique_ptr<Batch> solo_;  // that step, if prefill() or push() drives it
  Solo solo_kind_ = Solo::idle;
  uint64_t counted_tokens_ = 0;  // what the cache's figure has of this session
};

}  // namespace pkv
