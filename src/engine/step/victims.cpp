// Suspends sessions in a forecast, one after another, until the step would fit.
#include "engine/step/victims.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "base/status.h"
#include "engine/cache/reservation.h"
#include "engine/step/needs.h"

namespace pkv {

namespace {

// Computes how many blocks the pools would have if some sessions were suspended, without changing
// anything.
class FreeBlocks {
 public:
  explicit FreeBlocks(const Cache& cache)
      : cache_(cache), gone_(cache.groups().size()), given_up_(cache.groups().size()) {
    for (const auto& group : cache.groups()) {
      const size_t g = free_.size();
      free_.push_back(group->pool.free_count() + cache.evictable(g));
      sparse_ = sparse_ || group->sparse();
    }
    if (cache.pages() == nullptr) return;
    pages_.emplace(*cache.pages());
  }

  // Counts as free what begin() would take from the sessions of the step if blocks are short:
  // blocks that left the window, the state after its last full block, and spare blocks that they do
  // not need.
  void expire(std::span<Session* const> sessions, std::span<const uint32_t> new_tokens) {
    for (size_t i = 0; i < new_tokens.size(); i++)
      for (size_t g = 0; g < free_.size(); g++)
        if (!sessions[i]->content().table(g).spare_blocks().empty())
          watch_spares(g, {sessions[i], new_tokens[i]});
    for (size_t i = 0; i < new_tokens.size() && sparse_; i++) expire(*sessions[i]);
  }

  // Counts the blocks of a session as free, and calls visit(group, id) for each that is shared,
  // once this reference to it is gone. has_expired: the session was among those of expire().
  template <class Visit>
  void suspend(const Session& session, bool has_expired, const Visit& visit) {
    std::vector<memory::BlockTable::Entries> expired(free_.size());
    if (has_expired) expired = expired_entries(session);
    for (size_t g = 0; g < free_.size(); g++)
      free_spares(session, g, session.content().table(g).spare_blocks().size());
    session.content().for_each_block([&](size_t group, size_t entry, uint32_t references) {
      if (expired[group].contains(entry)) return;
      const uint32_t id = id_of(session, group, entry);
      drop_reference(group, id, references, !is_taken_over(session, group, entry, references));
      if (references > 1) visit(group, id);
    });
  }

  // True if the blocks that would be free or evictable cover the needs.
  bool fits(const Needs& needs) const {
    if (pages_) return pages_->fits(with_watermark(needs.blocks(), needs.watermark()));
    return shortage(needs).blocks_short == 0;
  }

  // Returns the first group that the needs exceed, and how many blocks are missing over all groups.
  // With shared memory a group has no number of its own.
  pkv_error_details shortage(const Needs& needs) const {
    pkv_error_details details = blocks_details(UINT32_MAX, 0);
    for (uint32_t g = 0; g < free_.size() && !pages_; g++) {
      const uint64_t wanted = needs.blocks()[g] == 0 ? 0 : needs.blocks()[g] + needs.watermark();
      if (wanted <= free_[g]) continue;
      details.group = std::min(details.group, g);
      details.blocks_short += wanted - free_[g];
    }
    return details;
  }

  // The references to shared blocks that sessions would drop. A step may need fewer blocks without
  // them: it does not copy a tail once the sessions that share it are suspended.
  const GoneReferences& gone() const { return gone_; }

 private:
  void expire(const Session& session) {
    const std::vector<memory::BlockTable::Entries> expired = expired_entries(session);
    session.content().for_each_block([&](size_t group, size_t entry, uint32_t references) {
      if (expired[group].contains(entry))
        drop_reference(group, id_of(session, group, entry), references, false);
    });
  }

  static uint32_t id_of(const Session& session, size_t group, size_t entry) {
    return session.content().table(group).ids()[entry];
  }

  static std::vector<memory::BlockTable::Entries> expired_entries(const Session& session) {
    std::vector<memory::BlockTable::Entries> expired;
    for (size_t g = 0; g < session.content().groups(); g++)
      expired.push_back(session.content().table(g).expired(session.length()));
    return expired;
  }

  // Returns whether the index may take over a session's reference to a block, which it does not
  // have yet. `references`: as of Content::for_each_block().
  static bool is_taken_over(const Session& session, size_t group, size_t entry,
                            uint32_t references) {
    const memory::Group& of = session.content().table(group).group();
    return session.publishes() && (entry + 1) * of.block_size <= session.length() &&
           of.pool.references(id_of(session, group, entry)) == references;
  }

  // A session of the step that has spare blocks.
  struct Watcher {
    const Session* session;
    uint32_t new_tokens;
  };

  // Counts the expired spare blocks of a session as free, and looks again when the other sessions
  // have given up one of the last two blocks of its table.
  void watch_spares(size_t group, const Watcher& watcher) {
    expire_spares(group, watcher);
    const memory::BlockTable& table = watcher.session->content().table(group);
    for (const uint32_t id : table.ids_before_spares(watcher.session->length()))
      watchers_[{group, id}].push_back(watcher);
  }

  // Counts the spare blocks that no step needs any more as free. One that the coming step takes for
  // the copy of its tail is needed unless all that share the tail, and the index, let go of it.
  void expire_spares(size_t group, const Watcher& watcher) {
    const memory::BlockTable& table = watcher.session->content().table(group);
    const uint64_t start = watcher.session->length();
    const memory::StepNeed need = table.step_need(start, start + watcher.new_tokens);
    const uint32_t tail = memory::block_id(need.tail);
    memory::GoneCounts& gone = given_up_[group];
    const uint32_t before = gone[tail];
    if (tail != PKV_NO_BLOCK) gone[tail] = gone_[group][tail] + (lets_go(group, tail) ? 1 : 0);
    free_spares(*watcher.session, group, table.expired_spares(start, need.spares, &gone).size());
    gone[tail] = before;
  }

  bool lets_go(size_t group, uint32_t id) const {
    return cache_.prefix() != nullptr && cache_.prefix()->has_unpinned(group, id);
  }

  // Counts spare blocks of a session as free, from the last one back, until `count` of them are.
  void free_spares(const Session& session, size_t group, size_t count) {
    const auto spares = session.content().table(group).spare_blocks();
    for (size_t& gone = free_spares_[{&session, group}]; gone < count; gone++)
      free(group, memory::block_id(spares[spares.size() - 1 - gone]));
  }

  // Drops one of a block's references. The block becomes free with the last of them, and spare
  // blocks can expire when it is not shared any more. for_good: a suspended session drops it, and
  // the index does not take it over.
  void drop_reference(size_t group, uint32_t id, uint32_t references, bool for_good) {
    if (references == 1) return free(group, id);
    if (++gone_[group][id] == references) free(group, id);
    const auto watchers = watchers_.find({group, id});
    if (watchers == watchers_.end()) return;
    if (for_good) given_up_[group][id]++;
    if (memory::references_left(cache_.groups()[group]->pool, id, &gone_[group]) >
        1u + lets_go(group, id))
      return;
    for (const Watcher& watcher : watchers->second) expire_spares(group, watcher);
  }

  void free(size_t group, uint32_t id) {
    free_[group]++;
    if (pages_) pages_->free(group, id);
  }

  const Cache& cache_;
  std::vector<uint64_t> free_;                 // by group; evictable blocks count as free
  std::optional<memory::PageForecast> pages_;  // if the groups share one memory
  bool sparse_ = false;                        // whether blocks can expire at all
  GoneReferences gone_;
  // The references of suspended sessions that nothing takes over, for the blocks in watchers_.
  GoneReferences given_up_;
  // By session and group: how many of its spare blocks count as free, from the last one back.
  std::map<std::pair<const Session*, size_t>, size_t> free_spares_;
  // By group and block id: the sessions whose spare blocks may expire when references to the block
  // are dropped.
  std::map<std::pair<size_t, uint32_t>, std::vector<Watcher>> watchers_;
};

bool holds_blocks(const Session& session) {
  for (size_t g = 0; g < session.content().groups(); g++)
    if (const memory::BlockTable& table = session.content().table(g);
        !table.blocks().empty() || !table.spare_blocks().empty())
      return true;
  return false;
}

// The sessions that the caller may suspend, in the order of preference, so that the next victim is
// the last one.
std::vector<size_t> candidates_among(std::span<Session* const> sessions, size_t step_sessions) {
  std::vector<size_t> candidates(sessions.size());
  std::iota(candidates.begin(), candidates.end(), size_t{0});
  std::erase_if(candidates,
                [&](size_t i) { return i >= step_sessions && !holds_blocks(*sessions[i]); });
  std::sort(candidates.begin(), candidates.end(), [&](size_t a, size_t b) {
    if (sessions[a]->priority() != sessions[b]->priority())
      return sessions[a]->priority() > sessions[b]->priority();
    return sessions[a]->open_order() < sessions[b]->open_order();
  });
  return candidates;
}

// A step without the victims chosen so far.
class Plan {
 public:
  Plan(const Cache& cache, std::span<Session* const> sessions, std::span<const uint32_t> new_tokens)
      : cache_(cache),
        sessions_(sessions),
        new_tokens_(new_tokens),
        forecast_(cache),
        needs_(cache, new_tokens.size(), "choose_victims", &forecast_.gone()),
        suspended_(sessions.size()) {
    forecast_.expire(sessions, new_tokens);
    for (size_t i = 0; i < new_tokens.size(); i++)
      for_entry(i, [&] { needs_.add(*sessions[i], new_tokens[i]); });
    needs_.skip_last_copies();
  }

  bool fits() const { return forecast_.fits(needs_); }
  pkv_error_details shortage() const { return forecast_.shortage(needs_); }
  const std::vector<size_t>& victims() const { return victims_; }

  // Returns whether the step fits if the store and pins give up theirs, too.
  bool fits_with_all() const {
    if (cache_.prefix() == nullptr) return false;
    prefix::OwnBlocks own;
    needs_.list_tails(own);
    for (size_t i = 0; i < new_tokens_.size(); i++)
      if (!suspended_[i]) sessions_[i]->list_expired(needs_.of(i), own);
    std::vector<prefix::Releasable> releasables;
    for (const size_t victim : victims_)
      releasables.push_back({sessions_[victim]->content().releasable()});
    return can_have(cache_, {needs_.blocks(), needs_.watermark(), own, true},
                    std::move(releasables));
  }

  // Suspends candidates, the last one first, until the step fits or only one is left.
  void suspend(std::span<const size_t> candidates) {
    while (!fits() && candidates.size() > 1) {
      suspend(candidates.back());
      candidates = candidates.first(candidates.size() - 1);
    }
  }

 private:
  void suspend(size_t victim) {
    const bool in_step = victim < new_tokens_.size();
    if (in_step) needs_.remove(victim);
    forecast_.suspend(*sessions_[victim], in_step,
                      [&](size_t group, uint32_t id) { needs_.skip_last_copy(group, id); });
    victims_.push_back(victim);
    suspended_[victim] = true;
  }

  const Cache& cache_;
  const std::span<Session* const> sessions_;
  const std::span<const uint32_t> new_tokens_;
  FreeBlocks forecast_;
  Needs needs_;
  std::vector<size_t> victims_;
  std::vector<bool> suspended_;
};

}  // namespace

std::vector<size_t> choose_victims(Cache& cache, std::span<Session* const> sessions,
                                   std::span<const uint32_t> new_tokens) {
  for (size_t i = 0; i < new_tokens.size(); i++)
    for_entry(i, [&] { sessions[i]->check_ready("choose_victims"); });
  const std::vector<size_t> candidates = candidates_among(sessions, new_tokens.size());
  Plan plan(cache, sessions, new_tokens);
  plan.suspend(candidates);
  if (!plan.fits() && !plan.fits_with_all())
    fail(plan.shortage(),
         "choose_victims: not enough blocks even if all %zu sessions that can be suspended were",
         plan.victims().size());
  return plan.victims();
}

}  // namespace pkv
