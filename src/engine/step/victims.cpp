// Looks for the fewest sessions without which a forecast says that the step fits.
#include "engine/step/victims.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/status.h"
#include "engine/cache/reservation.h"
#include "engine/step/needs.h"

namespace pkv {

namespace {

bool holds_blocks(const Session& session) {
  for (size_t g = 0; g < session.content().groups(); g++)
    if (const memory::BlockTable& table = session.content().table(g);
        !table.blocks().empty() || !table.spare_blocks().empty())
      return true;
  return false;
}

// The sessions that the caller may suspend, in the order in which they should go.
std::vector<size_t> candidates_among(std::span<Session* const> sessions, size_t step_sessions) {
  std::vector<size_t> candidates(sessions.size());
  std::iota(candidates.begin(), candidates.end(), size_t{0});
  std::erase_if(candidates,
                [&](size_t i) { return i >= step_sessions && !holds_blocks(*sessions[i]); });
  std::sort(candidates.begin(), candidates.end(), [&](size_t a, size_t b) {
    if (sessions[a]->priority() != sessions[b]->priority())
      return sessions[a]->priority() < sessions[b]->priority();
    return sessions[a]->open_order() > sessions[b]->open_order();
  });
  return candidates;
}

// A step without some sessions, which are suspended.
class Rest {
 public:
  Rest(const Cache& cache, std::span<Session* const> sessions, std::span<const uint32_t> new_tokens,
       std::span<const size_t> suspended)
      : cache_(cache), needs_(cache, new_tokens.size(), "choose_victims") {
    std::vector<bool> stays(sessions.size(), true);
    for (const size_t i : suspended) {
      stays[i] = false;
      released_.push_back({sessions[i]->content().releasable()});
    }
    for (size_t i = 0; i < new_tokens.size(); i++)
      if (stays[i]) for_entry(i, [&] { needs_.add(*sessions[i], new_tokens[i]); });
    needs_.skip_last_copies();
    needs_.list_tails(own_);
    size_t place = 0;
    for (size_t i = 0; i < new_tokens.size(); i++)
      if (stays[i]) sessions[i]->list_expired(needs_.of(place++), own_);
  }

  // Returns what the step then lacks: nothing if it fits.
  prefix::Price price() const { return price_of(cache_, lack(false), released_); }
  // Returns what it lacks if the store and pins give up theirs, too.
  prefix::Price price_with_all() const { return price_with_store(cache_, lack(true), released_); }

 private:
  prefix::Lack lack(bool yields_pins) const {
    return {needs_.blocks(), needs_.watermark(), own_, yields_pins};
  }

  const Cache& cache_;
  Needs needs_;
  prefix::OwnBlocks own_;
  std::vector<prefix::Releasable> released_;
};

}  // namespace

std::vector<size_t> choose_victims(Cache& cache, std::span<Session* const> sessions,
                                   std::span<const uint32_t> new_tokens) {
  for (size_t i = 0; i < new_tokens.size(); i++)
    for_entry(i, [&] { sessions[i]->check_ready("choose_victims"); });
  const std::vector<size_t> candidates = candidates_among(sessions, new_tokens.size());
  const auto without = [&](size_t victims) {
    return Rest(cache, sessions, new_tokens, std::span(candidates).first(victims));
  };
  const auto fits = [&](size_t victims) { return without(victims).price().missing == 0; };
  const size_t most = std::max<size_t>(candidates.size(), 1) - 1;
  if (fits(0)) return {};
  // With more victims, a step never lacks more. Mostly, few are enough.
  size_t too_few = 0, enough = 1;
  while (enough < most && !fits(enough)) too_few = std::exchange(enough, 2 * enough);
  if (enough >= most) {
    enough = most;
    if (!fits(most)) {
      too_few = most;
      const prefix::Price price = without(most).price_with_all();
      if (price.missing > 0)
        fail(
            blocks_details(price.group, price.missing),
            "choose_victims: not enough blocks even if all %zu sessions that can be suspended were",
            most);
    }
  }
  while (too_few + 1 < enough) {
    const size_t middle = std::midpoint(too_few, enough);
    (fits(middle) ? enough : too_few) = middle;
  }
  return {candidates.begin(), candidates.begin() + static_cast<std::ptrdiff_t>(enough)};
}

}  // namespace pkv
