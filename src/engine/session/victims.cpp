// Suspends sessions in a forecast, one after another, until the step would fit.
#include "engine/session/victims.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "base/status.h"
#include "engine/cache/reservation.h"
#include "engine/session/needs.h"

namespace pkv {

namespace {

// Computes how many blocks the pools would have if some sessions were suspended, without changing
// anything.
class Forecast {
 public:
  explicit Forecast(const Cache& cache) : dropped_(cache.groups().size()) {
    for (size_t g = 0; g < dropped_.size(); g++)
      free_.push_back(cache.groups()[g]->pool.free_count() +
                      (cache.prefix() != nullptr ? cache.prefix()->evictable(g) : 0));
    if (cache.pages() == nullptr) return;
    pages_.emplace(*cache.pages());
    if (cache.prefix() != nullptr) cache.prefix()->free_evictable(*pages_);
  }

  void suspend(const Session& session) {
    session.content().for_each_block([&](size_t group, size_t entry, uint32_t references) {
      drop_reference(group, session.content().sequences()[group].ids()[entry], references);
    });
    for (size_t g = 0; g < free_.size(); g++)
      for (const memory::Block block : session.content().sequences()[g].spare_blocks())
        free(g, memory::block_id(block));
  }

  // Counts the blocks that left the window of a session of the step, and its last full states.
  // begin() takes them if blocks are short.
  void expire(const Session& session) {
    std::vector<memory::Sequence::Entries> expired;
    for (const memory::Sequence& sequence : session.content().sequences())
      expired.push_back(sequence.expired(session.length()));
    session.content().for_each_block([&](size_t group, size_t entry, uint32_t references) {
      if (expired[group].contains(entry))
        drop_reference(group, session.content().sequences()[group].ids()[entry], references);
    });
  }

  // True if the blocks that would be free or evictable cover the needs.
  bool fits(const Needs& needs) const {
    if (pages_) return pages_->fits(with_watermark(needs.blocks(), needs.watermark()));
    for (size_t g = 0; g < free_.size(); g++)
      if (needs.blocks()[g] > 0 && needs.blocks()[g] + needs.watermark() > free_[g]) return false;
    return true;
  }

  // The references to shared blocks that the suspended sessions would drop. A step may need fewer
  // blocks without them: it does not copy a tail once the sessions that share it are suspended.
  const DroppedReferences& dropped() const { return dropped_; }

 private:
  // Drops one of a block's references. The block becomes free with the last of them.
  void drop_reference(size_t group, uint32_t id, uint32_t references) {
    if (references == 1 || ++dropped_[group][id] == references) free(group, id);
  }

  void free(size_t group, uint32_t id) {
    free_[group]++;
    if (pages_) pages_->free(group, id);
  }

  std::vector<uint64_t> free_;                 // by group; evictable blocks count as free
  std::optional<memory::PageForecast> pages_;  // if the groups share one memory
  DroppedReferences dropped_;
};

bool holds_blocks(const Session& session) {
  const auto sequences = session.content().sequences();
  return std::any_of(sequences.begin(), sequences.end(), [](const memory::Sequence& sequence) {
    return !sequence.blocks().empty() || !sequence.spare_blocks().empty();
  });
}

bool has_sparse_groups(const Cache& cache) {
  return std::any_of(cache.groups().begin(), cache.groups().end(),
                     [](const auto& group) { return group->sparse(); });
}

}  // namespace

std::vector<size_t> choose_victims(Cache& cache, std::span<Session* const> sessions,
                                   std::span<const uint32_t> new_tokens) {
  const size_t step_sessions = new_tokens.size();
  for (size_t i = 0; i < step_sessions; i++) sessions[i]->check_ready("choose_victims");

  // The sessions in the order of preference, so that the next victim is the last one.
  std::vector<size_t> rank(sessions.size());
  std::iota(rank.begin(), rank.end(), size_t{0});
  std::erase_if(rank, [&](size_t i) {
    return i >= step_sessions && (sessions[i]->in_step() || !holds_blocks(*sessions[i]));
  });
  std::sort(rank.begin(), rank.end(), [&](size_t a, size_t b) {
    if (sessions[a]->priority() != sessions[b]->priority())
      return sessions[a]->priority() > sessions[b]->priority();
    return sessions[a]->open_order() < sessions[b]->open_order();
  });

  Forecast forecast(cache);
  std::vector<size_t> victims;
  std::vector<bool> suspended(sessions.size());
  for (;;) {
    Needs needs(cache, step_sessions, &forecast.dropped());
    for (size_t i = 0; i < step_sessions; i++)
      if (!suspended[i]) needs.add(*sessions[i], new_tokens[i]);
    needs.spare_last_copies();
    if (forecast.fits(needs)) return victims;
    if (has_sparse_groups(cache)) {
      Forecast expired = forecast;
      for (size_t i = 0; i < step_sessions; i++)
        if (!suspended[i]) expired.expire(*sessions[i]);
      if (expired.fits(needs)) return victims;
    }
    if (rank.size() <= 1)
      fail(PKV_OUT_OF_BLOCKS,
           "choose_victims: not enough blocks even with all %zu other sessions suspended",
           victims.size());
    forecast.suspend(*sessions[rank.back()]);
    victims.push_back(rank.back());
    suspended[rank.back()] = true;
    rank.pop_back();
  }
}

}  // namespace pkv
