#include "engine/session/hint.h"

#include <algorithm>

#include "base/enums.h"
#include "base/status.h"

namespace pkv {

namespace {

pkv_hint_result result_of(pkv_hint_outcome outcome, uint64_t tokens,
                          pkv_hint_reason reason = PKV_HINT_REASON_NONE) {
  pkv_hint_result result{};
  result.outcome = outcome;
  result.reason = reason;
  result.tokens = tokens;
  return result;
}

pkv_hint_result rejected(pkv_hint_reason reason) {
  return result_of(PKV_HINT_OUTCOME_REJECTED, 0, reason);
}

pkv_hint_result missing(pkv_hint_reason reason = PKV_HINT_REASON_NOT_CACHED) {
  return result_of(PKV_HINT_OUTCOME_MISSING, 0, reason);
}

// A hint about a text. The text ends with the range, after a whole block.
class TextHint {
 public:
  TextHint(Cache& cache, std::string_view salt, prefix::Tokens text, const Hint& hint)
      : cache_(cache),
        index_(*cache.prefix()),
        size_(cache.config().block_size),
        salt_(salt),
        hint_(hint),
        text_(text.first(std::min<uint64_t>(hint.end, text.size()) / size_ * size_)),
        blocks_(static_cast<uint32_t>(text_.size() / size_)),
        first_(static_cast<uint32_t>(
            std::min<uint64_t>(hint.first / size_ + (hint.first % size_ != 0), blocks_))) {}

  pkv_hint_result apply() const {
    switch (hint_.action) {
      case PKV_HINT_SET_RETENTION:
        return set_retention();
      case PKV_HINT_PIN:
        return pin();
      case PKV_HINT_UNPIN:
        return unpin();
      case PKV_HINT_PREFETCH:
        return prefetch();
      case PKV_HINT_DROP:
        return drop();
      case PKV_HINT_STORE:
      case PKV_HINT_DEMOTE:
        return write_to_store();
      case PKV_HINT_EXPECT_RETURN:
        break;
    }
    fail(PKV_INTERNAL, "action %s of a hint about a text", enum_name(hint_.action));
  }

 private:
  uint64_t tokens(uint64_t blocks) const { return blocks * size_; }
  // The result of a hint that covered all `blocks` cached blocks of the `asked` ones.
  pkv_hint_result accepted(uint64_t blocks, uint64_t asked = 0) const {
    return blocks < asked
               ? result_of(PKV_HINT_OUTCOME_CLIPPED, tokens(blocks), PKV_HINT_REASON_NOT_CACHED)
               : result_of(PKV_HINT_OUTCOME_DONE, tokens(blocks));
  }

  pkv_hint_result set_retention() const {
    const uint32_t end =
        index_.set_retention(salt_, text_, {first_, blocks_, hint_.retention, hint_.duration_ms});
    return end > first_ ? accepted(end - first_, blocks_ - first_) : missing();
  }

  pkv_hint_result pin() const {
    const prefix::PinResult done = index_.pin(salt_, text_, hint_.duration_ms);
    if (done.cached == 0) return missing();
    const pkv_hint_reason limit =
        done.quota_reached ? PKV_HINT_REASON_QUOTA : PKV_HINT_REASON_LIMIT;
    if (done.pinned == 0) return rejected(limit);
    if (done.pinned < done.cached)
      return result_of(PKV_HINT_OUTCOME_CLIPPED, tokens(done.pinned), limit);
    return accepted(done.pinned, blocks_);
  }

  pkv_hint_result unpin() const {
    const uint32_t pinned = index_.unpin(salt_, text_);
    return pinned > 0 ? accepted(pinned) : missing(PKV_HINT_REASON_NONE);
  }

  pkv_hint_result drop() const {
    const auto [before, now] = index_.drop(salt_, text_, first_);
    if (before <= first_) return missing();
    if (now <= first_) return accepted(before - first_);
    if (now == before) return rejected(PKV_HINT_REASON_IN_USE);
    return result_of(PKV_HINT_OUTCOME_CLIPPED, tokens(before - now), PKV_HINT_REASON_IN_USE);
  }

  // Even a text that is all in memory may still be asked for by an earlier hint.
  pkv_hint_result prefetch() const {
    Store* const store = cache_.store();
    if (store == nullptr) return rejected(PKV_HINT_REASON_NO_STORE);
    if (blocks_ == 0) return missing();
    const uint32_t cached = index_.cached(salt_, text_);
    if (cached == blocks_) return accepted(blocks_);
    if (store->reads_pause()) return rejected(PKV_HINT_REASON_STORE_DOWN);
    const uint64_t room = std::min<uint64_t>(index_.quota(salt_), blocks_);
    if (room <= cached) return rejected(PKV_HINT_REASON_QUOTA);
    const bool queued = store->prefetch(salt_, text_, hint_.retention, hint_.duration_ms);
    if (!queued) return rejected(PKV_HINT_REASON_LIMIT);
    return result_of(PKV_HINT_OUTCOME_DEFERRED, tokens(room),
                     room < blocks_ ? PKV_HINT_REASON_QUOTA : PKV_HINT_REASON_NONE);
  }

  // The content that is written takes blocks over as a session does, but does not count as a use.
  pkv_hint_result write_to_store() const {
    Store* const store = cache_.store();
    if (store == nullptr) return rejected(PKV_HINT_REASON_NO_STORE);
    if (store->writes_pause()) return rejected(PKV_HINT_REASON_STORE_DOWN);
    Content content(cache_);
    content.hold() = prefix::Hold(index_, salt_, 0);
    content.hold().make_passive(hint_.action == PKV_HINT_DEMOTE ? first_ : prefix::Use::no_block);
    const uint64_t matched =
        uint64_t{index_.match_blocks(content.hold(), text_, content.tables())} * size_;
    if (matched == 0) return missing();
    content.tokens().reserve(matched);
    append(content.tokens(), text_.first(matched));
    if (!store->enqueue(std::move(content), Writing::for_hint))
      return rejected(PKV_HINT_REASON_LIMIT);
    return result_of(PKV_HINT_OUTCOME_DEFERRED, matched,
                     matched < text_.size() ? PKV_HINT_REASON_NOT_CACHED : PKV_HINT_REASON_NONE);
  }

  Cache& cache_;
  prefix::Index& index_;
  const uint32_t size_;  // of a block
  const std::string_view salt_;
  const Hint& hint_;
  const prefix::Tokens text_;
  const uint32_t blocks_, first_;
};

// A hint about what a session leaves behind, in its full blocks [first, last).
class LaterHint {
 public:
  LaterHint(Session& session, const Hint& hint)
      : session_(session),
        size_(session.cache().config().block_size),
        hint_(hint),
        first_(block(hint.first / size_ + (hint.first % size_ != 0))),
        last_(block(hint.end / size_)) {}

  pkv_hint_result set_retention() const {
    prefix::Hold& hold = session_.hold();
    if (hint_.first == 0 && hint_.end == PKV_TO_END && hint_.duration_ms == 0)
      hold.set_retention(hint_.retention);
    else if (!hold.set_retention({first_, last_, hint_.retention, hint_.duration_ms}))
      return rejected(PKV_HINT_REASON_LIMIT);
    return result_of(PKV_HINT_OUTCOME_DONE, tokens(last_));
  }
  pkv_hint_result drop() const {
    session_.hold().drop_later(std::min(first_, UINT32_MAX - 1));
    return result_of(PKV_HINT_OUTCOME_DEFERRED, tokens(UINT32_MAX));
  }

 private:
  static uint32_t block(uint64_t position) {
    return static_cast<uint32_t>(std::min<uint64_t>(position, UINT32_MAX));
  }
  // Returns how many tokens the session has in the blocks [first, last).
  uint64_t tokens(uint32_t last) const {
    const uint64_t end = std::min<uint64_t>(session_.total() / size_, last);
    return (end - std::min<uint64_t>(first_, end)) * size_;
  }

  Session& session_;
  const uint32_t size_;  // of a block
  const Hint& hint_;
  const uint32_t first_, last_;
};

// Returns the ids of a session that can be in the prefix index.
std::vector<int32_t> known_tokens(const Session& session) {
  std::vector<int32_t> ids(std::min<uint64_t>(session.total(), session.content().forgotten_from()));
  session.tokens(0, ids.size(), ids.data());
  ids.erase(std::find(ids.begin(), ids.end(), PKV_UNKNOWN_TOKEN), ids.end());
  return ids;
}

// Does what the hint says for the tokens that a session has.
pkv_hint_result apply_to_tokens(Session& session, const Hint& hint) {
  return apply_hint(session.cache(), session.hold().salt(), known_tokens(session), hint);
}

}  // namespace

pkv_hint_result apply_hint(Cache& cache, std::string_view salt, prefix::Tokens text,
                           const Hint& hint) {
  return TextHint(cache, salt, text, hint).apply();
}

pkv_hint_result apply_hint(Session& session, const Hint& hint) {
  if (!session.hold()) return rejected(PKV_HINT_REASON_NO_INDEX);
  switch (hint.action) {
    case PKV_HINT_EXPECT_RETURN:
      session.hold().set_hint(prefix::hint_of(hint.duration_ms));
      return result_of(PKV_HINT_OUTCOME_DONE, session.total());
    case PKV_HINT_SET_RETENTION: {
      const pkv_hint_result result = LaterHint(session, hint).set_retention();
      // A suspended session has already left its blocks behind, so the hint must also apply now.
      if (result.outcome == PKV_HINT_OUTCOME_DONE && session.suspended())
        apply_to_tokens(session, hint);
      return result;
    }
    case PKV_HINT_DROP:
      if (!session.suspended()) return LaterHint(session, hint).drop();
      break;
    case PKV_HINT_DEMOTE: {
      const pkv_hint_result result = apply_to_tokens(session, hint);
      if (result.outcome == PKV_HINT_OUTCOME_DEFERRED)
        LaterHint(session, {PKV_HINT_SET_RETENTION, hint.first, hint.end, 0, 0}).set_retention();
      return result;
    }
    case PKV_HINT_PIN:
    case PKV_HINT_UNPIN:
    case PKV_HINT_PREFETCH:
    case PKV_HINT_STORE:
      break;
  }
  return apply_to_tokens(session, hint);
}

}  // namespace pkv
