// Random plays about blocks that a session must get. A test drives them by seeds.
//
// The first tests the promise of pkv_session_reserve: sessions reserve room, others take all
// remaining blocks, and then every step within the reservation must get its blocks, however the
// steps are cut.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "../support/rows.h"
#include "small_cache.h"

namespace reserve {

using namespace cache_test;

inline const std::vector<SmallCache> kinds = [] {
  const SmallGroup full, window{.window = 40}, sinks{.window = 40, .sinks = 20},
      states{.state_bytes = 64}, checkpoints{.state_bytes = 64, .checkpoint_tokens = 32},
      large{.state_bytes = 2048, .checkpoint_tokens = 32},
      drafts{.state_bytes = 64, .checkpoint_tokens = 48, .max_draft_tokens = 5};
  constexpr auto none = PKV_STORAGE_NONE;
  return std::vector<SmallCache>{
      {"full", {full}, 14, true, false, none},
      {"full, watermark", {full}, 14, true, false, none, PKV_LAYOUT_PACKED, 2},
      {"window", {window}, 14, true, false, none},
      {"sinks", {sinks}, 14, true, false, none},
      {"states", {states}, 9, true, false, none},
      {"states, few", {states}, 4, true, false, none},
      {"checkpoints", {checkpoints}, 14, true, false, none},
      {"drafts", {drafts}, 14},
      {"drafts, ids only", {drafts}, 14, true, false, none},
      {"full and window", {{.blocks = 20}, window}, 14, true, false, none},
      {"full, window and drafts",
       {{.blocks = 20},
        window,
        {.state_bytes = 64, .checkpoint_tokens = 32, .max_draft_tokens = 4, .blocks = 12}},
       14},
      {"one memory", {full, window}, 14, true, true, none},
      {"one memory with states", {full, checkpoints}, 14, true, true, none},
      {"one memory with large states", {full, large}, 14, true, true, none},
  };
}();

class ReservePlay {
 public:
  ReservePlay(const SmallCache& kind, uint64_t seed)
      : kind_(kind), random_(seed), cache_(create(kind)) {}

  // Plays one round: a history, reservations, and the steps that they promise. Throws with the
  // library's sentence if one of these is refused.
  void run() {
    make_history();
    reserve_some();
    for (int step = 0; step < 30 && !reserved_.empty(); step++) {
      for (uint64_t n = random_.below(4); n > 0; n--) {
        close_or_step_further();
        if (random_.below(2) == 0) take_the_rest();
        CHECK(pkv_cache_validate(cache_));
      }
      if (random_.below(3) > 0) take_the_rest();
      step_reserved();
      CHECK(pkv_cache_validate(cache_));
    }
  }

  uint64_t steps() const { return steps_; }

 private:
  struct Live {
    Session session;
    uint64_t reserved = 0;  // the reserved length
  };

  uint32_t some_tokens() {
    return static_cast<uint32_t>(random_.between(1, random_.below(2) == 0 ? 6 : 70));
  }
  size_t pick() { return static_cast<size_t>(random_.below(live_.size())); }
  // Few texts, so that sessions reuse what others leave in the prefix index.
  int32_t token_at(uint64_t position) {
    return static_cast<int32_t>(position / 20 * 4 + (random_.below(12) == 0 ? 1 : 0));
  }

  void make_history() {
    for (uint64_t n = random_.between(1, 14); n > 0; n--) {
      const uint64_t kind = live_.empty() ? 0 : random_.below(8);
      if (kind <= 1)
        open_one();
      else if (kind <= 4)
        step({pick()}, {static_cast<uint32_t>(random_.below(40))});
      else if (kind == 5)
        fork_one();
      else if (kind == 6)
        trim_one(live_[pick()].session);
      else
        live_.erase(live_.begin() + static_cast<std::ptrdiff_t>(pick()));
    }
    if (live_.empty()) open_one();
  }

  void open_one() {
    live_.push_back({open(cache_)});
    if (!kind_.prefix) return;
    std::vector<int32_t> text(random_.below(90));
    for (size_t i = 0; i < text.size(); i++) text[i] = token_at(i);
    uint64_t matched = 0;
    CHECK(pkv_session_admit(live_.back().session, text.size(), text.data(), 0, &matched));
  }

  void fork_one() {
    pkv_session child = nullptr;
    const pkv_status status = pkv_session_fork(live_[pick()].session, &child);
    if (status == PKV_OK) live_.push_back({Session(child)});
  }

  void trim_one(pkv_session session) {
    uint64_t length = 0;
    CHECK(pkv_session_get_trim_point(session, random_.below(length_of(session) + 1), &length));
    CHECK(pkv_session_trim(session, length));
  }

  void reserve_some() {
    std::vector<size_t> all(live_.size());
    for (size_t i = 0; i < all.size(); i++) all[i] = i;
    for (uint64_t n = random_.between(1, 3); n > 0; n--) {
      const size_t i = pick();
      Live& live = live_[i];
      const uint64_t total = length_of(live.session) + some_tokens();
      if (pkv_session_reserve(live.session, total) != PKV_OK) continue;
      live.reserved = std::max(live.reserved, total);
      if (std::find(reserved_.begin(), reserved_.end(), i) == reserved_.end())
        reserved_.push_back(i);
    }
  }

  // Closes a session that reserved nothing, or makes a step of any length, which may be refused.
  void close_or_step_further() {
    const size_t i = pick();
    if (live_[i].session == nullptr) return;
    const bool reserved = std::find(reserved_.begin(), reserved_.end(), i) != reserved_.end();
    if (!reserved && random_.below(2) == 0) return live_[i].session.close();
    (void)step({i}, {some_tokens()});
    forget_used_up();
  }

  // Others take what is free or evictable. They keep it, or leave it in the prefix index.
  void take_the_rest() {
    if (random_.below(3) == 0) others_.clear();
    for (const uint64_t tokens : {64, 17, 1})
      for (;;) {
        Session other = open(cache_);
        if (pkv_session_reserve(other, tokens) != PKV_OK) break;
        others_.push_back(std::move(other));
      }
  }

  void step_reserved() {
    std::vector<size_t> which;
    std::vector<uint32_t> counts;
    for (const size_t i : reserved_) {
      if (!which.empty() && random_.below(2) == 0) continue;
      const uint64_t left = live_[i].reserved - length_of(live_[i].session);
      which.push_back(i);
      counts.push_back(static_cast<uint32_t>(random_.below(3) == 0 ? random_.below(left + 1)
                                                                   : std::min<uint64_t>(left, 1)));
    }
    steps_++;
    const pkv_status status = step(which, counts);
    if (status != PKV_OK) throw std::runtime_error(std::string("a step: ") + pkv_last_error());
    forget_used_up();
  }

  void forget_used_up() {
    std::erase_if(reserved_,
                  [&](size_t i) { return length_of(live_[i].session) >= live_[i].reserved; });
  }

  // Makes a step, which is sometimes aborted or keeps only some of its tokens.
  pkv_status step(const std::vector<size_t>& which, const std::vector<uint32_t>& counts) {
    std::vector<pkv_session> sessions;
    std::vector<int32_t> ids;
    for (size_t i = 0; i < which.size(); i++) {
      sessions.push_back(live_[which[i]].session);
      for (uint32_t n = 0; n < counts[i]; n++) ids.push_back(token_at(length_of(sessions[i]) + n));
    }
    pkv_batch begun = nullptr;
    const pkv_status status =
        pkv_batch_begin(cache_, sessions.size(), sessions.data(), counts.data(), &begun);
    if (status != PKV_OK) return status;
    Batch batch(begun);
    if (random_.below(6) == 0) return PKV_OK;  // an abort
    if (kind_.storage != PKV_STORAGE_NONE) write(batch, ids.size());
    for (size_t i = 0; i < which.size(); i++) accept_some(batch, i, counts[i]);
    if (random_.below(8) == 0) ids.clear();
    commit(batch, ids);
    return PKV_OK;
  }

  void write(pkv_batch batch, size_t rows) {
    const std::vector<float> zeros(rows * 16);
    const pkv_tensor tensor = {const_cast<float*>(zeros.data()), PKV_F32, 0, 0, 0};
    for (uint32_t g = 0; g < kind_.groups.size() && rows > 0; g++) {
      if (kind_.groups[g].state_bytes == 0) {
        CHECK(pkv_batch_write(batch, g, &tensor, &tensor));
        continue;
      }
      const void* before[8];
      void* after[256];
      size_t count = 0;
      CHECK(pkv_batch_get_states(batch, g, before, 256, after, &count));
    }
  }

  // Keeps the first tokens of a step, if it is a draft for every group with states.
  void accept_some(pkv_batch batch, size_t index, uint32_t count) {
    if (count == 0 || random_.below(3) > 0) return;
    for (const SmallGroup& group : kind_.groups)
      if (group.state_bytes != 0 && count > group.max_draft_tokens) return;
    std::vector<uint32_t> kept(random_.below(count + 1));
    for (uint32_t i = 0; i < kept.size(); i++) kept[i] = i;
    CHECK(pkv_batch_accept(batch, index, kept.size(), kept.data()));
  }

  const SmallCache& kind_;
  Random random_;
  Cache cache_;
  std::vector<Live> live_;
  std::vector<size_t> reserved_;  // those of live_ that have room to step into
  std::vector<Session> others_;
  uint64_t steps_ = 0;
};

// Plays steps of a session that is alone most of the time, and of its forks. A step that is refused
// while no other session has blocks must still be refused after an empty step, and a session that
// is suspended then must be resumable.
class LonePlay {
 public:
  LonePlay(const SmallCache& kind, uint64_t seed)
      : watermark_(kind.watermark), random_(seed), cache_(create(without_bytes(kind))) {
    session_ = open(cache_);
  }

  void run() {
    for (int i = 0; i < 8; i++) {
      const uint64_t kind = random_.below(9);
      if (kind == 0)
        trim();
      else if (kind == 8)
        fill();
      else if (kind == 1)
        (void)pkv_session_reserve(session_, length_of(session_) + random_.below(40));
      else if (kind == 2)
        fork_again();
      else if (kind == 3)
        fork_.close();
      else if (kind == 4 && watermark_ == 0)
        come_back();
      else
        try_step(static_cast<uint32_t>(random_.below(200)));
      CHECK(pkv_cache_validate(cache_));
    }
  }

  uint64_t refused() const { return refused_; }

 private:
  static SmallCache without_bytes(SmallCache kind) {
    kind.storage = PKV_STORAGE_NONE;
    return kind;
  }

  void trim() {
    uint64_t length = 0;
    CHECK(pkv_session_get_trim_point(session_, random_.below(length_of(session_) + 1), &length));
    CHECK(pkv_session_trim(session_, length));
  }

  void fork_again() {
    fork_.close();
    fork_ = fork(session_);
  }

  // Takes steps of one size for as long as there are blocks.
  void fill() {
    const uint32_t count = static_cast<uint32_t>(random_.between(1, 20));
    for (int i = 0; i < 300 && step(count) == PKV_OK;) i++;
  }

  void come_back() {
    fork_.close();
    CHECK(pkv_session_suspend(session_));
    uint64_t length = 0, total = 0;
    CHECK(pkv_session_resume(session_, &length, &total));
  }

  void try_step(uint32_t count) {
    const pkv_status before = step(count);
    if (before == PKV_OK || fork_ != nullptr) return;
    refused_++;
    CHECK(step(0));
    if (step(count) == PKV_OK) throw std::runtime_error("an empty step makes a difference");
  }

  pkv_status step(uint32_t count) {
    const pkv_session session = session_;
    const std::vector<int32_t> ids(count, 7);
    pkv_batch batch = nullptr;
    const pkv_status status = pkv_batch_begin(cache_, 1, &session, &count, &batch);
    if (status == PKV_OK) CHECK(pkv_batch_commit(batch, count, ids.data()));
    return status;
  }

  const uint32_t watermark_;  // a resume leaves these blocks to others
  Random random_;
  Cache cache_;
  Session session_, fork_;
  uint64_t refused_ = 0;
};

}  // namespace reserve
