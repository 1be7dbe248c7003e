// One sequence that grows, step by step.
#pragma once

#include <pagedkv/session.h>

#include <algorithm>
#include <memory>

#include "base/vectors.h"
#include "engine/cache/reservation.h"
#include "engine/session/content.h"
#include "engine/session/step.h"

namespace pkv {

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
  uint64_t match_prefix(prefix::Tokens text);
  bool publishes() const { return publishes_; }
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
  bool in_step() const { return step_ != nullptr; }
  void check_idle(const char* who) const;   // BUSY while a step is in flight
  void check_ready(const char* who) const;  // BUSY while a step is in flight, SUSPENDED
  pkv_session_info info() const;

  // ---- A step: what its driver does with each of its sessions, in this order ------------------

  // Throws bad_alloc; after that begin() cannot fail.
  void make_ready(uint32_t new_tokens);
  // Takes the blocks that the new tokens lack. Returns how many blocks begin as copies.
  size_t begin(const Step& step, uint32_t new_tokens, Reservation& reservation) noexcept;
  // Begins a step that lacks no blocks.
  void begin_with_room(const Step& step, uint32_t new_tokens) noexcept;
  // The keys and values of a layer, those of the new tokens included.
  kernels::KvView view(LayerPlace place) const {
    return content_.sequences()[place.group].view(place.layer);
  }
  // Room for the ids of new tokens, without which commit() would fail. Throws bad_alloc.
  void make_room_for_tokens(uint64_t more) { reserve_more(content_.tokens(), more); }
  // Keeps the first `count` new tokens. ids: theirs, or nothing where none is known; a PKV_NO_TOKEN
  // stands for the id of before a suspension, if there is one.
  void commit(std::span<const int32_t> ids, uint64_t count) noexcept;
  void abort() noexcept;

  // The step of a prefill or push, which the session owns, since its caller gives one layer at a
  // time.
  std::unique_ptr<Step>& own_step() { return own_step_; }
  // Empties the session but keeps as many blocks of its own as n tokens need. Throws before
  // anything is lost.
  void replace_by_room_for(uint64_t n);

  // Of one group; throws UNSUPPORTED where storage is contiguous.
  const memory::Sequence& table(uint32_t group) const;
  void slot_mapping(uint32_t group, uint64_t first, size_t n, int64_t* slots) const;
  void materialize(uint32_t layer, uint64_t first, size_t n, const pkv_tensor* k,
                   const pkv_tensor* v) const;

 private:
  void reserve_blocks(std::span<const uint64_t> totals, uint32_t keep, uint64_t* short_by,
                      const char* who);
  void forget() noexcept;
  void publish(bool wait) noexcept;
  uint64_t take_prefix(prefix::Tokens text);
  void empty() noexcept;
  void hand_over() noexcept;
  bool copy_tail(const prefix::Index::Tail& tail);
  void reserve_more_tokens(uint64_t total);
  void count_tokens();
  uint32_t kept_free() const;

  Content content_;
  std::pmr::vector<int32_t> remembered_;  // tokens of before a suspension, from position 0 on; none
                                          // once length() is there again
  bool suspended_ = false;
  int32_t priority_;
  bool publishes_;
  const uint64_t opened_;
  const Step* step_ = nullptr;  // in flight, whoever drives it
  uint32_t step_tokens_ = 0;    // its new tokens
  std::unique_ptr<Step> own_step_;
  uint64_t counted_tokens_ = 0;  // what the cache's figure has of this session
};

}  // namespace pkv
