// The token ids that a suspended session remembers. It keeps them after a resume, until all of
// these tokens were computed again.
#pragma once

#include <pagedkv/session.h>

#include <algorithm>
#include <optional>
#include <span>

#include "base/vectors.h"
#include "engine/cache/cache.h"

namespace pkv {

class Suspension {
 public:
  explicit Suspension(Cache& cache) : cache_(cache), tokens_(&cache.memory()) {}

  // True from begin() to end() or forget().
  bool lasts() const { return counted_.has_value(); }
  // The ids, from position 0 on.
  std::span<const int32_t> tokens() const { return tokens_; }
  // Returns the id that a position had, or PKV_UNKNOWN_TOKEN.
  int32_t token(uint64_t position) const {
    return position < tokens_.size() ? tokens_[position] : PKV_UNKNOWN_TOKEN;
  }

  // Takes over the ids of a session and leaves `own` with unspecified contents. If tokens of the
  // last suspension are still missing, their ids are kept. Counts and logs the suspension if the
  // session was not suspended.
  void begin(NumberVector<int32_t>& own) noexcept {
    if (tokens_.size() > own.size())
      std::copy(own.begin(), own.end(), tokens_.begin());
    else
      tokens_.swap(own);
    if (lasts()) return;
    counted_.emplace(cache_.counters().suspended_sessions);
    cache_.log_suspension(commits_at_end_ == cache_.counters().commits);
    cache_.counters().suspensions += 1;
  }
  // Takes over the ids of another session, and whether it is suspended. Throws bad_alloc; then
  // nothing has changed.
  void copy(std::span<const int32_t> tokens, bool lasts) {
    tokens_.assign(tokens.begin(), tokens.end());
    if (lasts) counted_.emplace(cache_.counters().suspended_sessions);
  }
  // The session was resumed, and has `length` tokens.
  void end(uint64_t length) noexcept {
    counted_.reset();
    commits_at_end_ = cache_.counters().commits;
    forget_computed(length);
  }
  // Forgets the ids once all of their tokens were computed again.
  void forget_computed(uint64_t length) noexcept {
    if (!tokens_.empty() && length >= tokens_.size()) forget();
  }
  // Forgets the ids and frees their memory. The session is then no longer suspended.
  void forget() noexcept {
    NumberVector<int32_t>(tokens_.get_allocator()).swap(tokens_);
    counted_.reset();
  }

 private:
  Cache& cache_;
  NumberVector<int32_t> tokens_;
  std::optional<Counted> counted_;  // has a value while the session is suspended
  // How many batches the cache had committed when the last suspension ended.
  std::optional<uint64_t> commits_at_end_;
};

}  // namespace pkv
