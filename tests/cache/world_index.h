// Operations on the prefix index of a cache of any kind and on the store behind it, and what the
// index must say after each operation: events that add up to what a match finds, pins that hold,
// quotas that are kept.
#pragma once

#include <map>

#include "world_steps.h"

namespace world {

class WorldIndex : protected WorldSteps {
 protected:
  using WorldSteps::WorldSteps;
  using Ids = std::vector<int32_t>;

  // Times of hints end when pass_time() says so. The clocks of several plays differ, so that of
  // their cache goes forth and back.
  void pass_time() {
    now_ms_ += random_.below(20);
    set_clock();
  }

  void clear() {
    if (kind_.prefix) CHECK(pkv_prefix_clear(cache(), nullptr, PKV_ALL_SALTS));
  }

  // ---- Hints ----------------------------------------------------------------------------------

  // Gives a hint about an earlier text or a session.
  void give_hint() {
    if (past_.empty() || !kind_.prefix) return;
    const Ids& text = past_[random_.below(past_.size())];
    const std::string salt = random_.chance(50) ? "" : "a";
    constexpr uint64_t durations[] = {0, 1, 1000, UINT64_MAX};
    pkv_hint fields{};
    fields.first = random_.chance(40) ? 0 : random_.below(text.size() + 1);
    fields.end =
        random_.chance(40) ? 0 : fields.first + random_.below(text.size() - fields.first + 1);
    fields.retention = static_cast<pkv_retention>(static_cast<int>(random_.below(3)) - 1);
    fields.duration_ms = durations[random_.below(std::size(durations))];
    const pkv_hint given = hint_of(static_cast<pkv_hint_action>(random_.below(8) + 1), fields);
    if (random_.chance(50) && !talks_.empty()) {
      hint(talks_[random_.below(talks_.size())].session, given.action, given);
      if (given.action == PKV_HINT_UNPIN) pins_.clear();  // It may have been any of them.
    } else if (given.action != PKV_HINT_EXPECT_RETURN) {
      const pkv_hint_result result = hint(cache(), given.action, text, salt, given);
      ASSERT_LE(result.tokens, std::min<uint64_t>(given.end, text.size()));
      if (shared_->alone) expect_followed(given, text, salt, result);
    }
  }

  void expect_followed(const pkv_hint& given, const Ids& text, const std::string& salt,
                       const pkv_hint_result& result) {
    const bool accepted = result.outcome == PKV_HINT_OUTCOME_DONE;
    // A pin that was clipped ends where less of the text was cached.
    const std::pair pin{Ids(text.begin(), text.begin() + static_cast<ptrdiff_t>(result.tokens)),
                        salt};
    if (given.action == PKV_HINT_DROP && accepted) {
      ASSERT_LE(cached(cache(), salt, text), (given.first + 15) / 16 * 16);
    } else if (given.action == PKV_HINT_PIN && result.tokens > 0) {
      const bool ends = given.duration_ms != 0 && given.duration_ms < UINT64_MAX - now_ms_;
      pins_[pin] = std::max(pins_[pin], ends ? now_ms_ + given.duration_ms : UINT64_MAX);
    } else if (given.action == PKV_HINT_UNPIN && accepted) {
      pins_.erase(pin);
    }
  }

  // ---- The store ------------------------------------------------------------------------------

  // Gets an earlier text from the store, and opens a session that may begin with it; sometimes in a
  // new cache, as after a crash.
  void fetch() {
    if (!kind_.stored || past_.empty()) return;
    if (random_.chance(30)) lose_all();
    if (kind_.elsewhere() && random_.chance(10)) here_->engine.fail_after(random_.below(6));
    const Ids& text = past_[random_.below(past_.size())];
    const std::string salt = random_.chance(50) ? "" : "a";
    prefetch(cache(), text, salt);
    if (random_.chance(10)) CHECK(pkv_prefetch_cancel(cache(), TextArg(text, salt)));
    settle();
    here_->engine.work();
    open_talk();
  }

  void lose_all() {
    if (!shared_->alone) return clear();
    end_steps();
    talks_.clear();
    frozen_.clear();
    settle();
    move_to(shared_->make_place());
  }
  void move_to(std::unique_ptr<Place> other) {
    count_store();
    here_ = std::move(other);
    set_clock();
    pins_.clear();
    stored_.clear();
    next_event_ = yielded_ = 0;
  }

  void spoil() {
    if (kind_.stored) store_.spoil(random_);
  }

  // The same after items have changed, which are misses then.
  void spoil_and_fetch() {
    if (!kind_.stored) return;
    for (uint64_t n = random_.below(30); n > 0; n--) spoil();
    clear();
    fetch();
  }

  // Counts what the store was asked for before the cache goes.
  void count_store() {
    if (!kind_.stored) return;
    const StoreStats stats = store_stats_of(cache());
    fetched_ += stats.read_items;
    corrupt_ += stats.corrupt_items;
  }

  // ---- Room -----------------------------------------------------------------------------------

  // Asks for the victims of a step of some talks, in which each may be as long as the cache.
  void ask_for_victims() {
    std::vector<pkv_session> sessions;
    std::vector<uint32_t> counts;
    const Talk* last = nullptr;  // that would be suspended
    size_t index = 0;
    for (const Talk& talk : talks_) {
      if (talk.suspended || random_.chance(40)) continue;
      if (last == nullptr || goes_before(*last, talk)) last = &talk, index = sessions.size();
      sessions.push_back(talk.session);
      counts.push_back(static_cast<uint32_t>(random_.below(80)));
    }
    if (!shared_->alone) return;
    const pkv_status status = preempt(sessions, counts);
    if (status == PKV_OUT_OF_BLOCKS)
      expect_too_few(sessions[index], counts[index]);
    else
      worked(status, "choose victims");
  }

  // Suspending all sessions except the one that would be chosen last is not enough.
  void expect_too_few(pkv_session session, uint32_t tokens) {
    for (Talk& talk : talks_)
      if (talk.session != session && !talk.suspended) suspend(talk);
    pkv_batch batch;
    EXPECT_EQ(PKV_OUT_OF_BLOCKS, pkv_batch_begin(cache(), 1, &session, &tokens, &batch));
  }

  // Whatever hints said, a session gets all that an empty cache has once no other has anything.
  void expect_room() {
    if (!shared_->alone) return;
    end_steps();
    for (Talk& talk : talks_)
      if (!talk.suspended) suspend(talk);
    frozen_.clear();
    settle();
    const Place empty(kind_);
    uint64_t tokens = 16 * kind_.blocks;
    while (pkv_session_reserve(cache_test::open(empty.cache), tokens) != PKV_OK) tokens -= 16;
    CHECK(pkv_session_reserve(cache_test::open(cache()), tokens));
  }

  // ---- Comparison -----------------------------------------------------------------------------

  static uint64_t cached(pkv_cache cache, const std::string& salt, const Ids& text) {
    uint64_t cached = 0;
    CHECK(pkv_prefix_probe(cache, TextArg(text, salt), &cached));
    return cached;
  }

  // Compares the index with the model, while no other play changes it.
  void check_index() {
    if (!kind_.prefix || !shared_->alone) return;
    ASSERT_LE(stats_of(cache()).evictable_blocks, pool_stats_of(cache()).held_blocks);
    read_events();
    for (const Ids& text : past_)
      for (const char* salt : salts) check_promise(text, salt);
    const PrefixStats all = prefix_stats_of(cache());
    ASSERT_TRUE(is_sparse(kind_) ? stored_.size() <= all.cached_blocks
                                 : stored_.size() == all.cached_blocks)
        << stored_.size() << " and " << all.cached_blocks;
    for (const char* salt : salts) {
      const uint64_t blocks = prefix_stats_of(cache(), salt, std::strlen(salt)).cached_blocks;
      ASSERT_TRUE(kind_.quota == 0 || blocks <= kind_.quota) << blocks;
    }
    check_pins(all);
  }

  void read_events() {
    pkv_prefix_event events[64];
    for (size_t n = 64; n == 64;) {
      uint64_t lost = 0;
      CHECK(pkv_prefix_read_events(cache(), &next_event_, 64, events, &n, &lost));
      ASSERT_EQ(0u, lost);
      for (size_t i = 0; i < n; i++) {
        const pkv_prefix_event& event = events[i];
        const bool stored = event.kind == PKV_PREFIX_EVENT_PUBLISHED;
        ASSERT_EQ(stored, stored_.insert(event.hash).second) << "event " << event.number;
        if (!stored) stored_.erase(event.hash);
        ASSERT_TRUE(is_sparse(kind_) || event.position == 0 || stored_.contains(event.parent))
            << "event " << event.number;
      }
    }
  }

  // Checks that a match of a text ends after the last block of it that the events promise.
  void check_promise(const Ids& text, const char* salt) const {
    std::vector<uint64_t> hashes(text.size() / 16);
    CHECK(pkv_prefix_hash_blocks(TextArg(text, salt), 16, hashes.data()));
    while (!hashes.empty() && !stored_.contains(hashes.back())) hashes.pop_back();
    ASSERT_EQ(16 * hashes.size(), cached(cache(), salt, text));
  }

  // Pinned texts are cached, unless a step needed their blocks.
  void check_pins(const PrefixStats& all) {
    if (std::exchange(yielded_, all.yielded_pins) != all.yielded_pins) pins_.clear();
    std::erase_if(pins_, [&](const auto& pin) { return pin.second <= now_ms_; });
    for (const auto& [pin, until] : pins_)
      ASSERT_GE(cached(cache(), pin.second, pin.first), pin.first.size())
          << "a pinned text is gone";
    ASSERT_TRUE(pins_.empty() || all.pinned_blocks > 0);
  }

  static constexpr const char* salts[] = {"", "a", "b"};
  std::map<std::pair<Ids, std::string>, uint64_t> pins_;  // texts with salts, and until when
  std::set<uint64_t> stored_;                             // the hashes that events say are cached
  uint64_t next_event_ = 0, yielded_ = 0;
  uint64_t fetched_ = 0, corrupt_ = 0;  // items of the store
};

}  // namespace world
