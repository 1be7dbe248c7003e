// Plays random operations on a cache with states and compares every session with the naive model. A
// test drives it by seeds and a fuzzer by bytes.
#pragma once

#include "../support/unwritten.h"
#include "state_model.h"

namespace states {

inline Text part(const Text& whole, size_t first, size_t n) {
  const auto begin = whole.begin() + static_cast<std::ptrdiff_t>(first);
  return {begin, begin + static_cast<std::ptrdiff_t>(n)};
}

inline uint64_t used(pkv_cache cache) { return pool_stats_of(cache, state_group).used; }

inline constexpr Kind played_kinds[] = {
    {.blocks = 60, .states = 24},
    {.blocks = 60, .states = 40, .checkpoint_tokens = 32, .draft_tokens = 5},
    {.blocks = 60, .states = 30, .draft_tokens = 5, .prefix = true},
    {.blocks = 90, .states = 40, .checkpoint_tokens = 48, .draft_tokens = 3, .prefix = true},
    {.blocks = 30, .states = 24, .checkpoint_tokens = 32, .draft_tokens = 5, .shared = true},
    {.blocks = 40, .states = 24, .draft_tokens = 3, .prefix = true, .shared = true},
};

struct Live {
  Session session;
  Text text;
};

class StatePlay {
 public:
  StatePlay(const Kind& setup, Random& random)
      : setup_(setup), cache_(create(setup)), random_(random) {}

  void run(int operations) {
    for (int i = 0; i < operations && !random_.spent(); i++) {
      const uint64_t kind = random_.below(20);
      if (live_.empty() || kind == 0)
        open_one();
      else if (kind < 11)
        grow();
      else if (kind == 11)
        abort_one();
      else if (kind == 12)
        fork_one();
      else if (kind == 13)
        trim_one();
      else if (kind == 14)
        live_.erase(live_.begin() + static_cast<std::ptrdiff_t>(pick()));
      else if (kind == 15)
        suspend_one();
      else if (kind == 16)
        reserve_one();
      else if (kind == 17)
        save_and_load();
      else
        accept_one();
      CHECK(pkv_cache_validate(cache_));
      if (!live_.empty()) {
        const Live& one = live_[pick()];
        expect_holds(one.session, one.text);
      }
      if (testing::Test::HasFatalFailure() || testing::Test::HasNonfatalFailure())
        FAIL() << "operation " << i << " of kind " << kind;
    }
    live_.clear();
    EXPECT_TRUE(setup_.prefix || used(cache_) == 0);
  }

  uint64_t steps() const { return steps_; }
  uint64_t matched() const { return matched_; }
  uint64_t trimmed() const { return trimmed_; }

 private:
  size_t pick() { return static_cast<size_t>(random_.below(live_.size())); }
  // Few different tokens, so that texts begin alike.
  Text random_text(size_t n) {
    Text tokens(n);
    for (int32_t& token : tokens) token = static_cast<int32_t>(random_.below(2));
    return tokens;
  }

  void open_one() {
    Live live{open(cache_), {}};
    const Text wanted =
        random_.below(2) == 0 ? Text(random_.below(150), 1) : random_text(random_.below(40));
    uint64_t matched = 0;
    CHECK(pkv_session_match_prefix(live.session, wanted.size(), wanted.data(), &matched));
    matched_ += matched;
    live.text = part(wanted, 0, static_cast<size_t>(matched));
    live_.push_back(std::move(live));
    if (wanted.size() > matched)
      grow(live_.size() - 1, part(wanted, matched, wanted.size() - matched));
  }

  // Returns whether there was room; else somebody is closed.
  bool made_room(pkv_status status) {
    if (status == PKV_OK) return true;
    EXPECT_TRUE(status == PKV_OUT_OF_BLOCKS || status == PKV_TOO_LARGE ||
                status == PKV_BATCH_TOO_LARGE)
        << pkv_last_error();
    live_.erase(live_.begin() + static_cast<std::ptrdiff_t>(pick()));
    return false;
  }

  void grow() {
    const size_t sizes[] = {1, 1, 1, 2, 5, 16, 17, 40, 100};
    grow(pick(), random_text(sizes[random_.below(std::size(sizes))]));
  }
  void grow(size_t one, const Text& more) {
    std::vector<size_t> which = {one};
    for (size_t i = 0; i < live_.size(); i++)
      if (i != one && random_.below(3) == 0) which.push_back(i);
    std::vector<NewTokens> news;
    std::vector<pkv_session> sessions;
    std::vector<uint32_t> counts;
    for (const size_t i : which) {
      news.emplace_back(live_[i].session, i == one ? more : random_text(random_.below(4)));
      sessions.push_back(live_[i].session);
      counts.push_back(static_cast<uint32_t>(news.back().tokens.size()));
    }
    pkv_batch begun = nullptr;
    if (!made_room(pkv_batch_begin(cache_, sessions.size(), sessions.data(), counts.data(), nullptr,
                                   &begun)))
      return;
    Batch batch(begun);
    write_step(batch, news, setup_.state_bytes);
    CHECK(pkv_cache_validate(cache_));
    const Text ids = ids_of(news);
    commit(batch, ids.data());
    steps_++;
    for (size_t i = 0; i < which.size(); i++)
      live_[which[i]].text.insert(live_[which[i]].text.end(), news[i].tokens.begin(),
                                  news[i].tokens.end());
  }

  void abort_one() {
    const pkv_session session = live_[pick()].session;
    const uint32_t count = static_cast<uint32_t>(1 + random_.below(40));
    pkv_batch begun = nullptr;
    if (!made_room(pkv_batch_begin(cache_, 1, &session, &count, nullptr, &begun))) return;
    Batch batch(begun);
    write_step(batch, {{session, random_text(count)}}, setup_.state_bytes);
  }

  void accept_one() {
    Live& live = live_[pick()];
    const uint32_t count = 1 + static_cast<uint32_t>(random_.below(setup_.draft_tokens + 1));
    const pkv_session session = live.session;
    pkv_batch begun = nullptr;
    if (!made_room(pkv_batch_begin(cache_, 1, &session, &count, nullptr, &begun))) return;
    Batch batch(begun);
    NewTokens tree(session, random_text(count));
    for (size_t i = 0; i < count; i++) tree.parents[i] = static_cast<int>(random_.below(i + 1)) - 1;
    if (count > setup_.draft_tokens) tree = NewTokens(session, tree.tokens);
    write_step(batch, {tree}, setup_.state_bytes);
    // The path to a random token, or all of a step that keeps no state in between.
    std::vector<uint32_t> path;
    for (int i = count > setup_.draft_tokens ? static_cast<int>(count) - 1
                                             : static_cast<int>(random_.below(count + 1)) - 1;
         i >= 0; i = tree.parents[static_cast<size_t>(i)])
      path.insert(path.begin(), static_cast<uint32_t>(i));
    CHECK(pkv_batch_accept(batch, 0, path.size(), path.data()));
    commit(batch, tree.tokens.data());
    for (const uint32_t i : path) live.text.push_back(tree.tokens[i]);
  }

  void fork_one() {
    const Live& live = live_[pick()];
    Live copy{random_.below(2) == 0 ? fork(live.session) : thaw(cache_, freeze(live.session)),
              live.text};
    live_.push_back(std::move(copy));
  }

  void trim_one() {
    Live& live = live_[pick()];
    const uint64_t limit = random_.below(live.text.size() + 1);
    uint64_t length = 0;
    CHECK(pkv_session_get_last_trim(live.session, limit, &length));
    ASSERT_LE(length, limit);
    for (uint64_t longer = length + 1; longer <= limit; longer++) {
      Session copy = fork(live.session);
      REFUSED(PKV_OUT_OF_RANGE, pkv_session_trim(copy, longer));
    }
    CHECK(pkv_session_trim(live.session, length));
    live.text.resize(static_cast<size_t>(length));
    trimmed_ += length;
  }

  void reserve_one() { made_room(pkv_session_reserve(live_[pick()].session, random_.below(200))); }

  void suspend_one() {
    const size_t one = pick();
    CHECK(pkv_session_suspend(live_[one].session));
    CHECK(pkv_cache_validate(cache_));
    uint64_t length = 0, total = 0;
    const pkv_status status = pkv_session_resume(live_[one].session, &length, &total, nullptr);
    if (status != PKV_OK) {
      EXPECT_TRUE(status == PKV_OUT_OF_BLOCKS || status == PKV_TOO_LARGE) << pkv_last_error();
      live_.erase(live_.begin() + static_cast<std::ptrdiff_t>(one));
      return;
    }
    ASSERT_EQ(live_[one].text.size(), total);
    matched_ += length;
    const pkv_session session = live_[one].session;
    const NewTokens rest(session, part(live_[one].text, length, total - length));
    const uint32_t count = static_cast<uint32_t>(rest.tokens.size());
    pkv_batch begun = nullptr;
    // What was reserved suffices for chunks; one step may need more blocks of the window.
    if (pkv_batch_begin(cache_, 1, &session, &count, nullptr, &begun) != PKV_OK) {
      live_.erase(live_.begin() + static_cast<std::ptrdiff_t>(one));
      return;
    }
    Batch batch(begun);
    write_step(batch, {rest}, setup_.state_bytes);
    commit(batch, rest.tokens.data());
  }

  void save_and_load() {
    const transcript::Unwritten unwritten;
    std::vector<pkv_session> sessions;
    for (const Live& live : live_) sessions.push_back(live.session);
    auto config = made<pkv_file_config>();
    config.prefix_index = setup_.prefix;
    const store::Bytes file = store::save(cache_, sessions, &config);
    Kind larger = setup_;
    larger.blocks = larger.states = 4096;
    Cache other = create(larger);
    const std::vector<Session> loaded = store::load(other, file, &config);
    ASSERT_EQ(live_.size(), loaded.size());
    for (size_t i = 0; i < loaded.size(); i++) expect_holds(loaded[i], live_[i].text);
    CHECK(pkv_cache_validate(other));
  }

  const Kind setup_;
  Cache cache_;
  Random& random_;
  std::vector<Live> live_;
  uint64_t steps_ = 0, matched_ = 0, trimmed_ = 0;
};

}  // namespace states
