// Operations on the sessions and the snapshots of a cache of any kind, and what each session must
// report and hold after them.
#pragma once

#include <algorithm>
#include <memory>
#include <set>

#include "../support/hints.h"
#include "world_admission.h"

namespace world {

class WorldSessions {
 protected:
  WorldSessions(std::shared_ptr<Shared> shared, Random random)
      : shared_(std::move(shared)), random_(std::move(random)) {
    set_clock();
  }

  pkv_cache cache() const { return here_->cache; }
  void validate() const {
    if (shared_->alone) CHECK(pkv_cache_validate(cache()));
  }

  static constexpr size_t max_talks = 8, max_tokens = 150;

  Talk& pick() { return talks_[random_.below(talks_.size())]; }
  bool full() const {
    size_t count = talks_.size();
    for (const auto& step : steps_) count += step->members.size();
    return count >= max_talks;
  }

  static uint64_t shared_way(const std::string& salt) {
    return mix(salt.empty() ? 1 : static_cast<unsigned char>(salt[0]));
  }
  uint64_t way_of(const Talk& talk) const {
    return talk.use == PKV_PREFIX_SHARE && talk.forgotten_from == UINT64_MAX && kind_.prefix
               ? shared_way(talk.salt)
               : talk.own_way;
  }
  uint64_t new_way() { return mix(++ways_ << 8); }

  // Lets an allocation of the next run() fail, and all after it.
  void refuse_memory() { refuse_at_ = random_.between(1, 20); }

  // Makes a call that may be refused memory.
  template <class Call>
  pkv_status run(const Call& call) {
    const memory::Refusal refusal(std::exchange(refuse_at_, 0));
    const pkv_status status = call();
    struck_ = refusal.struck();
    return status;
  }

  // Returns whether a call found room. If not, it makes some: by preemption, or by closing a talk.
  bool worked(pkv_status status, const char* call) {
    if (status == PKV_OK) return true;
    if (status == PKV_OUT_OF_MEMORY && struck_) {
      no_memory_++;
      return false;
    }
    refused_++;
    if (status != PKV_OUT_OF_BLOCKS && status != PKV_TOO_LARGE && status != PKV_BATCH_TOO_LARGE &&
        status != PKV_LIMIT_REACHED)
      cache_test::check(status, call);
    if (!talks_.empty() && random_.chance(40)) close();
    return false;
  }

  // A copy of a talk for a session that was made of it.
  Talk copy(const Talk& talk, Session session) {
    return {std::move(session),
            talk.text,
            talk.salt,
            talk.use,
            talk.own_way,
            talk.priority,
            false,
            {},
            talk.forgotten_from,
            talk.dropped,
            talk.trimmable,
            false,
            opened_++};
  }

  // ---- Sessions -------------------------------------------------------------------------------

  std::vector<int32_t> draw_ids(size_t n) {
    std::vector<int32_t> ids(n);
    for (int32_t& id : ids) id = static_cast<int32_t>(random_.chance(85) ? 1 : random_.below(3));
    return ids;
  }

  // Draws a prefix of an earlier text, and then some more tokens.
  std::vector<int32_t> draw_text() {
    if (!shared_->alone && random_.chance(50)) return draw_common_text();
    std::vector<int32_t> ids;
    if (!past_.empty() && random_.chance(80)) {
      const std::vector<int32_t>& old = past_[random_.below(past_.size())];
      ids.assign(old.begin(), old.begin() + static_cast<ptrdiff_t>(random_.below(old.size() + 1)));
    }
    const std::vector<int32_t> more = draw_ids(random_.below(50));
    ids.insert(ids.end(), more.begin(), more.end());
    return ids;
  }

  // One of the texts that plays have in common. They diverge inside blocks.
  std::vector<int32_t> draw_common_text() {
    const auto branch = static_cast<int32_t>(random_.below(9)),
               leaf = static_cast<int32_t>(random_.below(3));
    std::vector<int32_t> ids(random_.below(130));
    for (size_t i = 0; i < ids.size(); i++)
      ids[i] = i < 40 ? branch / 3 : i < 90 ? branch : branch * 3 + leaf;
    return ids;
  }

  void keep(const Text& text) {
    past_.push_back(ids_of(text));
    if (past_.size() > 12) past_.erase(past_.begin());
  }

  void open_talk() { open_talk(0); }
  // Opens a talk with room for some more tokens than the text that it should begin with.
  void open_with_room() { open_talk(1 + random_.below(40)); }
  void open_talk(uint64_t room) {
    if (full()) return;
    Talk talk;
    talk.salt = random_.chance(50) ? "" : random_.chance(60) ? "a" : "b";
    talk.use = random_.chance(75)   ? PKV_PREFIX_SHARE
               : random_.chance(60) ? PKV_PREFIX_MATCH
                                    : PKV_PREFIX_OFF;
    talk.own_way = new_way();
    talk.priority = static_cast<int32_t>(random_.below(3)) - 1;
    talk.dropped.resize(kind_.groups.size());
    auto config = made<pkv_session_config>();
    config.salt = talk.salt.data(), config.salt_size = talk.salt.size();
    config.prefix_use = talk.use;
    config.priority = talk.priority;
    pkv_session session;
    if (!worked(run([&] { return pkv_session_open(cache(), &config, &session); }), "open")) return;
    talk.session = Session(session);
    talk.opened = opened_++;
    const std::vector<int32_t> wanted = draw_text();
    if (!match(talk, wanted, room == 0 ? 0 : wanted.size() + room)) return;
    matched_ += talk.text.size();
    talks_.push_back(std::move(talk));
    check(talks_.back());
    advance({&talks_.back()}, {after(talks_.back(), wanted)});
  }

  // Returns false if there is no room for `total` tokens.
  bool match(Talk& talk, const std::vector<int32_t>& wanted, uint64_t total = 0) {
    uint64_t matched = 0;
    const pkv_status status = run([&] {
      return pkv_session_admit(talk.session, wanted.size(), wanted.data(), total, &matched);
    });
    EXPECT_TRUE(total > 0 || status == PKV_OK || status == PKV_OUT_OF_MEMORY) << pkv_last_error();
    if (!worked(status, "admit")) return false;
    EXPECT_LE(matched, wanted.size());
    EXPECT_TRUE(matched == 0 || (kind_.prefix && talk.use != PKV_PREFIX_OFF));
    talk.text = computed({wanted.begin(), wanted.begin() + static_cast<ptrdiff_t>(matched)},
                         shared_way(talk.salt));
    talk.trimmable = matched;
    return true;
  }

  // Returns the new tokens that a talk needs for a text; remembered tokens come first.
  NewTokens after(const Talk& talk, std::vector<int32_t> wanted) const {
    for (size_t i = talk.text.size(); i < std::min(wanted.size(), talk.remembered.size()); i++)
      wanted[i] = talk.remembered[i].id;
    Text text = talk.text;
    const size_t from = text.size();
    for (size_t i = from; i < wanted.size(); i++) extend(text, wanted[i], way_of(talk));
    NewTokens made{
        talk.session, &talk.text, {text.begin() + static_cast<ptrdiff_t>(from), text.end()}};
    for (size_t i = 0; i < made.tokens.size(); i++) made.parents.push_back(static_cast<int>(i) - 1);
    return made;
  }

  NewTokens draw_more(const Talk& talk) {
    constexpr size_t sizes[] = {1, 1, 1, 2, 5, 16, 17, 40};
    return draw_more(talk, std::min(sizes[random_.below(std::size(sizes))],
                                    max_tokens - std::min(max_tokens, talk.text.size())));
  }
  NewTokens draw_more(const Talk& talk, size_t n) {
    std::vector<int32_t> wanted = ids_of(talk.text);
    const std::vector<int32_t> more = draw_ids(n);
    wanted.insert(wanted.end(), more.begin(), more.end());
    return after(talk, wanted);
  }

  void step() {
    std::vector<Talk*> talks;
    std::vector<NewTokens> news;
    const size_t first = random_.below(talks_.size());
    for (size_t i = 0; i < talks_.size(); i++)
      if (!talks_[i].suspended && (i == first || random_.chance(25))) {
        talks.push_back(&talks_[i]);
        news.push_back(draw_more(talks_[i]));
      }
    if (!talks.empty()) advance(talks, news);
  }

  bool begin(const std::vector<NewTokens>& news, Batch& batch) {
    std::vector<pkv_session> sessions;
    std::vector<uint32_t> counts;
    for (const NewTokens& each : news) {
      sessions.push_back(each.session);
      counts.push_back(static_cast<uint32_t>(each.tokens.size()));
    }
    pkv_batch begun = nullptr;
    const Admission admission(kind_, *here_, talks_, frozen_, steps_, sessions, counts);
    const pkv_status status = run([&] {
      return pkv_batch_begin(cache(), sessions.size(), sessions.data(), counts.data(), &begun);
    });
    if (shared_->alone) admission.check(status);
    expire(sessions);
    if (status != PKV_OK && status != PKV_OUT_OF_MEMORY && random_.chance(50)) {
      refused_++;
      if (shared_->alone) preempt(sessions, counts);
      return false;
    }
    if (!worked(status, "begin")) return false;
    batch = Batch(begun);
    return true;
  }

  // The sessions may have lost what left their windows.
  void expire(const std::vector<pkv_session>& sessions) {
    for (Talk& talk : talks_)
      if (std::find(sessions.begin(), sessions.end(), talk.session.get()) != sessions.end())
        talk.trimmable = talk.text.size();
  }

  // Suspends the sessions that the library names. Then the step of the others has room, unless some
  // of them are no talks.
  pkv_status preempt(std::vector<pkv_session> sessions, std::vector<uint32_t> counts) {
    pkv_session victims[max_talks];
    size_t left = 0;
    const pkv_status status = pkv_batch_choose_victims(cache(), sessions.size(), sessions.data(),
                                                       counts.data(), max_talks, victims, &left);
    if (status != PKV_OK) return status;
    const auto end = victims + left;
    check_rank({victims, end}, sessions);
    for (Talk& talk : talks_) {
      const pkv_session session = talk.session;
      if (std::find(victims, end, session) == end) continue;
      suspend(talk);
      left--;
      const auto at = std::find(sessions.begin(), sessions.end(), session) - sessions.begin();
      if (static_cast<size_t>(at) == sessions.size()) continue;
      sessions.erase(sessions.begin() + at);
      counts.erase(counts.begin() + at);
    }
    if (kind_.elsewhere()) settle();  // Blocks that the device copies for the store are in use.
    if (left == 0) cache_test::begin(cache(), sessions, counts);
    expire(sessions);
    return PKV_OK;
  }

  // Checks that victims are those of the lowest rank: of the lowest priority, and among these
  // opened last.
  void check_rank(const std::vector<pkv_session>& victims,
                  const std::vector<pkv_session>& step) const {
    std::vector<const Talk*> chosen;
    for (const pkv_session victim : victims)
      for (const Talk& talk : talks_)
        if (talk.session == victim) chosen.push_back(&talk);
    EXPECT_TRUE(std::is_sorted(chosen.begin(), chosen.end(),
                               [](const Talk* a, const Talk* b) { return goes_before(*a, *b); }));
    for (const Talk& talk : talks_) {
      if (chosen.empty() || std::count(chosen.begin(), chosen.end(), &talk) > 0) continue;
      const bool listed = std::count(step.begin(), step.end(), talk.session.get()) > 0;
      EXPECT_TRUE((!listed && info_of(talk.session).blocks == 0) ||
                  goes_before(*chosen.back(), talk))
          << "a victim of higher rank";
    }
  }
  static bool goes_before(const Talk& a, const Talk& b) {
    return a.priority != b.priority ? a.priority < b.priority : a.opened > b.opened;
  }

  // Takes a step of some talks and keeps the same new tokens of each, or aborts it.
  void advance(const std::vector<Talk*>& talks, const std::vector<NewTokens>& news) {
    Batch batch;
    if (!begin(news, batch)) return;
    write(batch, news);
    validate();
    if (random_.chance(8)) return;
    const bool told = !random_.chance(6);
    const std::vector<int32_t> ids = ids_of(tokens_of_all(news));
    commit(batch, told ? ids : std::vector<int32_t>());
    for (size_t i = 0; i < talks.size(); i++) append(*talks[i], news[i].tokens, told);
  }

  void write(pkv_batch batch, const std::vector<NewTokens>& news) {
    write_step(batch, kind_, news);
    write_engine(batch, news);
  }

  // Writes what the engine has.
  void write_engine(pkv_batch batch, const std::vector<NewTokens>& news) {
    std::vector<uint64_t> marks;
    for (const Token& token : tokens_of_all(news)) marks.push_back(token.mark);
    const auto state = [&](size_t s, size_t n) {
      if (n > 0) return news[s].tokens[n - 1].mark;
      return news[s].before->empty() ? 0 : news[s].before->back().mark;
    };
    for (uint32_t g = 0; g < kind_.groups.size(); g++) {
      if (kind_.has_rows(g)) continue;
      if (kind_.groups[g].has_states())
        here_->engine.write_states(batch, g, news.size(), state);
      else
        here_->engine.write(batch, g, news.size(), marks);
    }
  }

  void commit(Batch& batch, const std::vector<int32_t>& ids = {}) {
    cache_test::commit(batch, ids);
    here_->commits++;
  }

  void append(Talk& talk, const Text& more, bool told) {
    talk.trimmable = talk.text.size();
    talk.has_run = talk.has_run || !more.empty();
    here_->committed_tokens += more.size();
    for (Token token : more) {
      const size_t at = talk.text.size();
      token.told = told || (at < talk.remembered.size() && talk.remembered[at].told);
      talk.text.push_back(token);
    }
    if (talk.text.size() >= talk.remembered.size()) talk.remembered.clear();
    keep(talk.text);
  }

  // Steps a tree of tokens, of which one path is kept; without rows, a chain, since none can move.
  void draft() {
    Talk& talk = pick();
    if (!drafts(talk)) return;
    const NewTokens tree = draw_tree(talk);
    Batch batch;
    if (!begin({tree}, batch)) return;
    write(batch, {tree});
    const std::vector<uint32_t> path = draw_path(tree);
    CHECK(pkv_batch_accept(batch, 0, path.size(), path.data()));
    commit(batch, ids_of(tree.tokens));
    append(talk, along(tree, path), true);
  }

  // Returns how many tokens a step may have that keeps the states between them.
  uint64_t max_draft() const {
    uint64_t limit = 6;
    for (const SmallGroup& group : kind_.groups)
      if (group.has_states()) limit = std::min<uint64_t>(limit, group.max_verify_tokens);
    return limit;
  }
  bool drafts(const Talk& talk) const {
    return max_draft() > 0 && !talk.suspended && talk.remembered.empty() &&
           talk.text.size() <= max_tokens;
  }

  NewTokens draw_tree(const Talk& talk) {
    NewTokens tree{talk.session, &talk.text, {}};
    const std::vector<int32_t> ids = draw_ids(random_.between(1, max_draft()));
    for (size_t i = 0; i < ids.size(); i++) {
      tree.parents.push_back(static_cast<int>(kind_.has_rows() ? random_.below(i + 1) : i) - 1);
      const Text& parents = tree.parents[i] < 0 ? talk.text : tree.tokens;
      const size_t parent =
          tree.parents[i] < 0 ? talk.text.size() - 1 : static_cast<size_t>(tree.parents[i]);
      const uint64_t before = tree.parents[i] < 0 && talk.text.empty() ? 0 : parents[parent].mark;
      tree.tokens.push_back({ids[i], mark_after(before, ids[i], way_of(talk))});
    }
    return tree;
  }
  // Draws a token of a tree, or none, and returns the path to it.
  std::vector<uint32_t> draw_path(const NewTokens& tree) {
    std::vector<uint32_t> path;
    for (int i = static_cast<int>(random_.below(tree.tokens.size() + 1)) - 1; i >= 0;
         i = tree.parents[static_cast<size_t>(i)])
      path.insert(path.begin(), static_cast<uint32_t>(i));
    return path;
  }
  static Text along(const NewTokens& tree, const std::vector<uint32_t>& path) {
    Text kept;
    for (const uint32_t i : path) kept.push_back(tree.tokens[i]);
    return kept;
  }

  void close() {
    const size_t i = random_.below(talks_.size());
    dead_sessions_.push_back(talks_[i].session);
    talks_.erase(talks_.begin() + static_cast<ptrdiff_t>(i));
  }

  void fork_talk() {
    const Talk& talk = pick();
    pkv_session child;
    if (talk.suspended || full() ||
        !worked(run([&] { return pkv_session_fork(talk.session, &child); }), "fork"))
      return;
    talks_.push_back(copy(talk, Session(child)));
  }

  void trim() { trim(pick()); }
  void trim(Talk& talk) {
    const uint64_t limit = random_.below(talk.text.size() + 1);
    uint64_t length = 0;
    CHECK(pkv_session_get_trim_point(talk.session, limit, &length));
    ASSERT_LE(length, limit);
    if (limit >= talk.trimmable || !is_sparse(kind_)) expect_trimmable(talk, limit, length);
    for (uint64_t longer = length + 1; longer <= limit; longer++)
      REFUSED(PKV_OUT_OF_RANGE, pkv_session_trim(talk.session, longer));
    CHECK(pkv_session_trim(talk.session, length));
    trimmed_ += length;
    talk.text.resize(length);
    talk.has_run = talk.has_run && length > 0;
    talk.remembered.clear();
    talk.suspended = false;
    forget_beyond(talk, length);
  }

  void expect_trimmable(const Talk& talk, uint64_t limit, uint64_t length) const {
    for (const std::set<size_t>& blocks : talk.dropped)
      if (!blocks.empty()) return;
    EXPECT_TRUE(kind_.has_states() || length == limit) << length << " instead of " << limit;
  }

  static void forget_beyond(Talk& talk, uint64_t length) {
    talk.trimmable = length;
    if (length <= talk.forgotten_from) talk.forgotten_from = UINT64_MAX;
    for (std::set<size_t>& blocks : talk.dropped)
      blocks.erase(blocks.lower_bound(length / 16), blocks.end());
  }

  void drop() {
    Talk& talk = pick();
    const size_t g = random_.below(kind_.groups.size());
    if (talk.suspended || kind_.groups[g].has_states()) return;
    std::vector<uint32_t> blocks;
    for (uint32_t i = 0; i < talk.text.size() / 16; i++)
      if (random_.chance(30)) blocks.push_back(i);
    CHECK(pkv_session_drop_blocks(talk.session, static_cast<uint32_t>(g), blocks.size(),
                                  blocks.data()));
    if (blocks.empty()) return;
    talk.dropped[g].insert(blocks.begin(), blocks.end());
    talk.forgotten_from = std::min<uint64_t>(talk.forgotten_from, blocks[0] * 16);
    talk.own_way = new_way();
  }

  void suspend() { suspend(pick()); }
  void suspend(Talk& talk) {
    CHECK(pkv_session_suspend(talk.session));
    here_->suspensions += !talk.suspended;
    if (talk.text.size() > talk.remembered.size()) talk.remembered = talk.text;
    std::copy(talk.text.begin(), talk.text.end(), talk.remembered.begin());
    talk.text.clear();
    talk.suspended = true;
    forget_beyond(talk, 0);
  }

  void resume() {
    size_t i = random_.below(talks_.size());
    for (size_t n = 0; n < talks_.size() && !talks_[i].suspended; n++) i = (i + 1) % talks_.size();
    Talk& talk = talks_[i];
    uint64_t length = 0, total = 0;
    if (!worked(run([&] { return pkv_session_resume(talk.session, &length, &total); }), "resume"))
      return;
    ASSERT_EQ(std::max(talk.text.size(), talk.remembered.size()), total);
    if (!talk.suspended) return;
    std::vector<int32_t> ids = ids_of(talk.remembered);
    ids.resize(length);
    talk.text = computed(ids, shared_way(talk.salt));
    talk.suspended = false;
    talk.has_run = true;
    talk.trimmable = length;
    matched_ += length;
    if (length == total) talk.remembered.clear();
  }

  void reserve() {
    Talk& talk = pick();
    if (talk.suspended) return;
    const uint64_t total = random_.below(max_tokens);
    worked(run([&] { return pkv_session_reserve(talk.session, total); }), "reserve");
    talk.trimmable = talk.text.size();
  }

  void set_priority() {
    Talk& talk = pick();
    talk.priority = static_cast<int32_t>(random_.below(4)) - 1;
    CHECK(pkv_session_set_priority(talk.session, talk.priority));
  }

  void set_tokens() {
    Talk& talk = pick();
    set_tokens(talk, random_.below(talk.text.size() + 1));
  }
  void set_tokens(Talk& talk, size_t first) {
    std::vector<int32_t> ids = ids_of(talk.text, first);
    if (!ids.empty() && talk.text.back().told) {
      ids.back()++;  // another one than before
      REFUSED(PKV_INVALID_ARGUMENT,
              pkv_session_set_tokens(talk.session, first, ids.size(), ids.data()));
      ids.back()--;
    }
    CHECK(pkv_session_set_tokens(talk.session, first, ids.size(), ids.data()));
    for (size_t i = first; i < talk.text.size(); i++) talk.text[i].told = true;
  }

  // Adds tokens without ids, after the text or instead of it.
  void step_without_ids() { step_without_ids(pick(), random_.chance(30)); }
  void step_without_ids(Talk& talk, bool anew) {
    if (anew) {
      CHECK(pkv_session_trim(talk.session, 0));
      talk.text.clear(), talk.remembered.clear();
      talk.suspended = talk.has_run = false;
      forget_beyond(talk, 0);
    }
    if (talk.suspended) return;
    std::vector<int32_t> wanted = ids_of(talk.text);
    const std::vector<int32_t> ids = draw_ids(anew ? random_.between(1, 60) : 1);
    wanted.insert(wanted.end(), ids.begin(), ids.end());
    const NewTokens more = after(talk, wanted);
    Batch batch;
    if (!begin({more}, batch)) return;
    write(batch, {more});
    commit(batch);
    append(talk, more.tokens, false);
  }

  // Computes tokens without ids in two forks. One of them gets the ids later, so that its text is
  // cached, while the other one still has blocks of it.
  void know_ids_of_a_fork() {
    if (full()) return;
    const size_t first = random_.below(talks_.size());
    step_without_ids(talks_[first], true);
    if (first >= talks_.size() || talks_[first].suspended) return;  // blocks were short
    pkv_session child;
    if (!worked(run([&] { return pkv_session_fork(talks_[first].session, &child); }), "fork"))
      return;
    talks_.push_back(copy(talks_[first], Session(child)));
    set_tokens(talks_[first], 0);
    trim(talks_.back());
    if (random_.chance(50)) talks_.erase(talks_.begin() + static_cast<ptrdiff_t>(first));
  }

  // ---- Snapshots ------------------------------------------------------------------------------

  void take_snapshot() {
    const Talk& talk = pick();
    pkv_snapshot snapshot;
    if (talk.suspended || frozen_.size() >= 3 ||
        !worked(run([&] { return pkv_snapshot_take(talk.session, &snapshot); }), "take"))
      return;
    frozen_.push_back({Snapshot(snapshot), copy(talk, Session()), tables_of(talk)});
    for (std::vector<uint32_t>& table : frozen_.back().tables)
      table.resize(std::min(table.size(), (talk.text.size() + 15) / 16));
  }

  void open_snapshot() {
    if (frozen_.empty() || full()) return;
    const Frozen& frozen = frozen_[random_.below(frozen_.size())];
    pkv_session session;
    if (!worked(run([&] { return pkv_snapshot_fork(frozen.snapshot, &session); }),
                "open a snapshot"))
      return;
    talks_.push_back(copy(frozen.talk, Session(session)));
  }

  void close_snapshot() {
    if (frozen_.empty()) return;
    const size_t i = random_.below(frozen_.size());
    dead_snapshots_.push_back(frozen_[i].snapshot);
    frozen_.erase(frozen_.begin() + static_cast<ptrdiff_t>(i));
  }

  void set_clock() { here_->clock.set(now_ms_); }
  void settle() {
    if (kind_.stored) cache_test::settle(cache());
  }

  // ---- Comparison -----------------------------------------------------------------------------

  // Checks all that a session reports and holds. Returns the blocks that it holds, by group.
  std::vector<std::vector<bool>> check(const Talk& talk) const { return check(talk, *here_); }
  std::vector<std::vector<bool>> check(const Talk& talk, const Place& place) const {
    std::vector<std::vector<bool>> held;
    const pkv_session_info info = info_of(talk.session);
    EXPECT_EQ(talk.text.size(), info.length);
    EXPECT_EQ(std::max(talk.text.size(), talk.remembered.size()), info.total);
    EXPECT_EQ(talk.suspended, info.suspended == 1);
    EXPECT_EQ(talk.priority, info.priority);
    std::vector<int32_t> ids;
    for (size_t i = 0; i < info.total; i++)
      ids.push_back((i < talk.text.size() ? talk.text[i] : talk.remembered[i]).known());
    EXPECT_EQ(ids, tokens_of(talk.session, info.total));
    for (uint32_t g = 0; g < kind_.groups.size(); g++) {
      SCOPED_TRACE(testing::Message() << "group " << g);
      held.push_back(kind_.has_rows(g) ? check_layers(talk, g) : check_engine(talk, g, place));
      for (size_t b = 0; b < held[g].size(); b++)
        EXPECT_TRUE(held[g][b] || !needs(talk, g, b)) << "block " << b;
    }
    return held;
  }

  // Checks what a session holds of a group. Returns its blocks.
  std::vector<bool> check_layers(const Talk& talk, uint32_t g) const {
    std::vector<std::vector<bool>> held;  // by layer
    for (const uint32_t layer : kind_.layers_of(g)) {
      held.push_back(kind_.groups[g].has_states()
                         ? check_states(talk.session, talk.text, layer, kind_.groups[g].state_bytes)
                         : check_rows(talk.session, talk.text, kind_.groups[g], layer));
      EXPECT_EQ(held[0], held.back()) << "layer " << layer;
    }
    return held[0];
  }

  // The same for a group that the engine has.
  std::vector<bool> check_engine(const Talk& talk, uint32_t g, const Place& place) const {
    std::vector<bool> held;
    const bool states = kind_.groups[g].has_states(), known = place.engine.complete;
    const std::vector<uint32_t> table = block_table(talk.session, g);
    for (size_t first = 0; first < talk.text.size(); first += 16) {
      const size_t last = std::min(first + 16, talk.text.size());
      const uint32_t block = first / 16 < table.size() ? table[first / 16] : PKV_NO_BLOCK_ID;
      held.push_back(block != PKV_NO_BLOCK_ID);
      for (size_t i = states ? last - 1 : first; i < last && held.back() && known; i++)
        EXPECT_EQ(talk.text[i].mark,
                  place.engine.at(g, int64_t{block} * 16 + (states ? 0 : i % 16)))
            << "token " << i;
    }
    return held;
  }

  // Returns whether the next token of a talk needs what a group has of a block.
  bool needs(const Talk& talk, size_t g, size_t block) const {
    const SmallGroup& group = kind_.groups[g];
    const size_t first = block * 16, last = std::min(first + 16, talk.text.size());
    if (group.has_states()) return last == talk.text.size();
    if (talk.dropped[g].contains(block)) return false;
    return group.window == 0 || first < group.sinks || last + group.window > talk.text.size() + 1;
  }

  const std::shared_ptr<Shared> shared_;
  const SmallCache& kind_ = shared_->kind;
  MemoryStore& store_ = shared_->store;
  std::unique_ptr<Place>& here_ = shared_->here;
  Random random_;
  std::vector<Talk> talks_;
  std::vector<Frozen> frozen_;
  std::vector<std::unique_ptr<Step>> steps_;  // that are held open; their talks are not in talks_
  std::vector<std::vector<int32_t>> past_;
  std::vector<pkv_session> dead_sessions_;
  std::vector<pkv_snapshot> dead_snapshots_;
  uint64_t ways_ = 0, now_ms_ = 1'000'000, opened_ = 0;
  uint64_t refuse_at_ = 0;                // which allocation of the next call
  bool struck_ = false;                   // one of the last call was refused
  uint64_t matched_ = 0, trimmed_ = 0;    // tokens that were found, and that trims left
  uint64_t refused_ = 0, no_memory_ = 0;  // calls that lacked blocks, or memory
};

}  // namespace world
