// Random plays about blocks that a session must get. A test drives them by seeds.
//
// The first tests the promise of pkv_session_reserve: sessions reserve room, others take all
// remaining blocks, and then every step within the reservation must get its blocks, however the
// steps are cut.
#pragma once

#include <algorithm>
#include <map>
#include <numeric>
#include <vector>

#include "world_sessions.h"

namespace reserve {

using namespace cache_test;
using world::Talk;

inline const std::vector<SmallCache> kinds = [] {
  const SmallGroup full, window{.window = 40}, sinks{.window = 40, .sinks = 20},
      states{.state_bytes = 64}, checkpoints{.state_bytes = 64, .checkpoint_interval = 32},
      large{.state_bytes = 2048, .checkpoint_interval = 32},
      drafts{.state_bytes = 64, .checkpoint_interval = 48, .max_verify_tokens = 5};
  constexpr auto none = PKV_STORAGE_EXTERNAL;
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
        {.state_bytes = 64, .checkpoint_interval = 32, .max_verify_tokens = 4, .blocks = 12}},
       14},
      {"one memory", {full, window}, 14, true, true, none},
      {"one memory with states", {full, checkpoints}, 14, true, true, none},
      {"one memory with large states", {full, large}, 14, true, true, none},
  };
}();

class ReservePlay : world::WorldSessions {
 public:
  ReservePlay(const SmallCache& kind, uint64_t seed)
      : WorldSessions(std::make_shared<world::Shared>(kind), Random(seed)) {}

  // Plays one round: a history, reservations, and the steps that they promise. Throws with the
  // library's sentence if one of these is refused.
  void run() {
    for (uint64_t n = random_.between(1, 14); n > 0 || talks_.empty(); n -= n > 0) make_history();
    reserve_some();
    for (int step = 0; step < 30 && !reserved_.empty(); step++) {
      for (uint64_t n = random_.below(4); n > 0 && !talks_.empty(); n--) {
        close_or_step_further();
        if (random_.below(2) == 0) take_the_rest();
        validate();
      }
      if (random_.below(3) > 0) take_the_rest();
      step_reserved();
      validate();
    }
    for (const Talk& talk : talks_) check(talk);
  }

  uint64_t steps() const { return steps_; }

 private:
  void make_history() {
    const uint64_t what = talks_.empty() ? 0 : random_.below(9);
    if (what <= 1)
      open_talk();
    else if (what <= 4)
      step();
    else if (what == 5)
      fork_talk();
    else if (what == 6)
      trim();
    else if (what == 7)
      draft();
    else
      close();
  }

  void reserve_some() {
    for (uint64_t n = random_.between(1, 3); n > 0; n--) {
      const Talk& talk = pick();
      const uint64_t total = talk.text.size() + random_.between(1, random_.below(2) == 0 ? 6 : 70);
      if (!talk.suspended && pkv_session_reserve(talk.session, total) == PKV_OK)
        reserved_[talk.session] = std::max(reserved_[talk.session], total);
    }
  }

  // Closes a session that reserved nothing, or makes a step of any length, which may be refused.
  void close_or_step_further() {
    Talk& talk = pick();
    if (!reserved_.contains(talk.session) && random_.below(2) == 0)
      talks_.erase(talks_.begin() + (&talk - talks_.data()));
    else if (!talk.suspended)
      advance({&talk}, {draw_more(talk)});
    forget_used_up();
  }

  // Others take what is free or evictable. They keep it, or leave it in the prefix index.
  void take_the_rest() {
    if (random_.below(3) == 0) others_.clear();
    for (const uint64_t tokens : {64, 17, 1})
      for (;;) {
        Session other = cache_test::open(cache());
        if (pkv_session_reserve(other, tokens) != PKV_OK) break;
        others_.push_back(std::move(other));
      }
  }

  void step_reserved() {
    std::vector<Talk*> talks;
    std::vector<world::NewTokens> news;
    std::vector<pkv_session> sessions;
    std::vector<uint32_t> counts;
    std::vector<int32_t> ids;
    for (Talk& talk : talks_) {
      if (!reserved_.contains(talk.session) || (!talks.empty() && random_.below(2) == 0)) continue;
      const uint64_t left = reserved_[talk.session] - talk.text.size();
      const uint64_t count =
          random_.below(3) == 0 ? random_.below(left + 1) : std::min<uint64_t>(left, 1);
      talks.push_back(&talk);
      news.push_back(draw_more(talk, count));
      sessions.push_back(talk.session);
      counts.push_back(static_cast<uint32_t>(count));
      for (const world::Token& token : news.back().tokens) ids.push_back(token.id);
    }
    if (talks.empty()) return;
    steps_++;
    Batch batch = cache_test::begin(cache(), sessions, counts);
    write(batch, news);
    if (random_.below(6) == 0) return;  // an abort
    for (size_t i = 0; i < news.size(); i++) accept_some(batch, i, news[i].tokens);
    const bool told = random_.below(8) > 0;
    cache_test::commit(batch, told ? ids : std::vector<int32_t>());
    for (size_t i = 0; i < talks.size(); i++) append(*talks[i], news[i].tokens, told);
    forget_used_up();
  }

  // Keeps the first tokens of a step, if it is a draft for every group with states.
  void accept_some(pkv_batch batch, size_t index, world::Text& tokens) {
    if (tokens.empty() || random_.below(3) > 0) return;
    for (const SmallGroup& group : kind_.groups)
      if (group.has_states() && tokens.size() > group.max_verify_tokens) return;
    std::vector<uint32_t> kept(random_.below(tokens.size() + 1));
    std::iota(kept.begin(), kept.end(), 0u);
    CHECK(pkv_batch_accept(batch, index, kept.size(), kept.data()));
    tokens.resize(kept.size());
  }

  // Forgets reservations that are used up, or of sessions that had to go meanwhile.
  void forget_used_up() {
    std::erase_if(reserved_, [&](const auto& reserved) {
      return std::none_of(talks_.begin(), talks_.end(), [&](const Talk& talk) {
        return talk.session == reserved.first && !talk.suspended &&
               talk.text.size() < reserved.second;
      });
    });
  }

  std::map<pkv_session, uint64_t> reserved_;  // the reserved lengths
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
    kind.storage = PKV_STORAGE_EXTERNAL;
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
