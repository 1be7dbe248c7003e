#include "engine/prefix/return_time.h"

#include <bit>
#include <cmath>
#include <utility>

#include "base/status.h"

namespace pkv::prefix {

namespace {

// Times are counted in blocks that sessions released. These constants are in capacities: one is the
// time in which sessions release as many blocks as the cache has.
constexpr double horizon_capacities = 32;     // a block that stays away for longer counts as gone
constexpr double memory_capacities = 64;      // what was learned loses half its weight in this time
constexpr double interval_capacities = 0.25;  // from one learning to the next
// In blocks: a small cache does not learn more often, and does not forget faster.
constexpr double min_interval = 1024;
constexpr double min_memory = 1024;
// The table has room for twice the blocks that sessions release within the horizon, up to a limit.
// Its size is a power of two.
constexpr size_t watched_ways = 8, watched_per_block = 64, max_watched = 32768;

// What is assumed before anything is seen. A kind returns as all kinds do together, times a factor
// that grows with how often its blocks were used. Of all blocks, a tenth returns in each half
// octave of age (Lindy's law). Each of these counts as much as those blocks that are watched of
// what sessions release in a part of a capacity. A fixed number of blocks would not do: it can
// be hundreds of texts or a part of one, and the blocks of a text return together.
constexpr double assumed_capacities = 0.15, min_assumed = 200;
constexpr double lindy = 0.1;

// Blocks that were used once return half as often as the average, and each doubling of their uses
// doubles that. Nothing is assumed about kinds of hints, since they can be unlike all others.
double assumed_factor(size_t kind) {
  if (kind >= ReturnTimes::unhinted_kinds) return 1;
  const size_t often = kind / ReturnTimes::fresh_classes;
  return often <= 1 ? 0.5 : std::exp2(static_cast<double>(often - 1));
}

}  // namespace

ReturnTimes::ReturnTimes(uint64_t capacity, std::pmr::memory_resource& memory)
    : capacity_(static_cast<double>(capacity)),
      watched_(std::min<size_t>(max_watched, std::bit_ceil(capacity) * watched_per_block), &memory),
      returned_(kinds, &memory),
      ended_(kinds, &memory),
      at_risk_(kinds, &memory),
      worth_(kinds, &memory) {
  relearn(0);
}

double ReturnTimes::horizon() const { return horizon_capacities * capacity_; }

double ReturnTimes::assumed() const {
  const double watched = 1 / (1 + static_cast<double>(sampled_));  // of all blocks
  return std::max(min_assumed, assumed_capacities * capacity_ * watched);
}

size_t ReturnTimes::bucket(uint64_t age) {
  if (age < 2) return 0;
  constexpr uint32_t sqrt_2 = 0xB504F334;  // times 2^31
  const unsigned octave = static_cast<unsigned>(std::bit_width(age)) - 1;
  const bool upper_half = static_cast<uint32_t>(age << (63 - octave) >> 32) >= sqrt_2;
  return std::min<size_t>(2 * octave + upper_half, ages - 1);
}

double ReturnTimes::begin(size_t bucket) {
  return bucket == 0 ? 0 : std::exp2(static_cast<double>(bucket) / 2);
}

void ReturnTimes::used(std::span<const BlockHash> hashes, uint8_t kind, uint64_t now) noexcept {
  for (const BlockHash& hash : hashes)
    if ((hash.own & sampled_) == 0) watch(hash.own, kind, now);
  if (early_ > static_cast<double>(watched_.size()) / 8) widen(now);
}

void ReturnTimes::ended(const Watched& watched, bool returned, uint64_t now) noexcept {
  const size_t age = bucket(now - watched.since);
  ended_[watched.kind][age] += 1;
  returned_[watched.kind][age] += returned;
}

// Watches a block from this use on, and ends the watch that began with its last use. If the set is
// full, the block that was watched for longest makes room.
void ReturnTimes::watch(uint64_t hash, uint8_t kind, uint64_t now) noexcept {
  const auto set = std::span(watched_).subspan(set_of(hash), watched_ways);
  const auto known = std::find_if(set.begin(), set.end(), [&](const Watched& each) {
    return each.kind != nothing && each.hash == hash;
  });
  Watched* place = known != set.end() ? &*known : nullptr;
  if (place != nullptr) {
    ended(*place, true, now);
  } else {
    place = &*std::min_element(set.begin(), set.end(), [](const Watched& a, const Watched& b) {
      return b.kind != nothing && (a.kind == nothing || a.since < b.since);
    });
    if (place->kind != nothing) {
      early_ += static_cast<double>(now - place->since) < horizon();
      ended(*place, false, now);
    }
  }
  place->hash = hash;
  place->since = now & ~uint64_t{0} >> 8;
  place->kind = kind;
}

// Returns the first place of the set of watches that a hash belongs to.
size_t ReturnTimes::set_of(uint64_t hash) const {
  return (hash >> 32) * watched_ways & (watched_.size() - 1);
}

void ReturnTimes::validate(uint64_t now) const {
  for (size_t i = 0; i < watched_.size(); i++) {
    const Watched& each = watched_[i];
    if (each.kind == nothing) continue;
    const size_t first = i / watched_ways * watched_ways;
    const auto is_same = [&](const Watched& other) {
      return other.kind != nothing && other.hash == each.hash;
    };
    if (each.kind >= kinds || each.since > now || (each.hash & sampled_) != 0 ||
        set_of(each.hash) != first ||
        std::count_if(watched_.begin() + static_cast<std::ptrdiff_t>(first),
                      watched_.begin() + static_cast<std::ptrdiff_t>(i), is_same) > 0)
      fail(PKV_INTERNAL, "eviction: watch %zu, of kind %d, is a duplicate or cannot exist", i,
           static_cast<int>(each.kind));
  }
}

// Watches only every other block from now on, because the table is too small for the horizon.
void ReturnTimes::widen(uint64_t now) noexcept {
  sampled_ = sampled_ << 1 | 1;
  early_ = 0;
  for (Watched& each : watched_) {
    if (each.kind == nothing || (each.hash & sampled_) == 0) continue;
    ended(each, false, now);
    each.kind = nothing;
  }
}

void ReturnTimes::count_at_risk(uint64_t now) noexcept {
  for (auto& row : at_risk_) row.fill(0);
  for (const Watched& each : watched_)
    if (each.kind != nothing) at_risk_[each.kind][bucket(now - each.since)] += 1;
  for (size_t kind = 0; kind < kinds; kind++) {
    double later = 0;
    for (size_t age = ages; age-- > 0;) {
      const double waiting = at_risk_[kind][age];
      at_risk_[kind][age] = later + (ended_[kind][age] + returned_[kind][age]) / 2;
      later += ended_[kind][age] + waiting;
    }
  }
}

void ReturnTimes::relearn(uint64_t now) noexcept {
  const double interval = std::max(min_interval, interval_capacities * capacity_);
  next_ = now + static_cast<uint64_t>(interval);
  early_ *= std::exp2(-interval / horizon());
  count_at_risk(now);
  std::array<double, ages> usual;  // the probability to return at an age, over all kinds
  for (size_t age = 0; age < ages; age++) {
    double returned = assumed() * lindy, at_risk = assumed();
    for (size_t kind = 0; kind < kinds; kind++) {
      returned += returned_[kind][age];
      at_risk += at_risk_[kind][age];
    }
    usual[age] = returned / at_risk;
  }
  for (size_t kind = 0; kind < kinds; kind++) set_worth(kind, usual);
  const double kept = std::exp2(-interval / (memory_capacities * std::max(capacity_, min_memory)));
  for (Table<double>* table : {&ended_, &returned_})
    for (auto& row : *table)
      for (double& number : row) number *= kept;
}

// The worth of a block at an age is its highest ratio of hits to the time it is held, over all
// times to hold it. To find it for all ages at once, runs of ages are joined from the last age back
// to the first, for as long as the later run is worth more.
void ReturnTimes::set_worth(size_t kind, const std::array<double, ages>& usual) noexcept {
  const double prior = assumed();
  double seen = prior * assumed_factor(kind), expected = prior;
  for (size_t age = 0; age < ages; age++) {
    seen += returned_[kind][age];
    expected += at_risk_[kind][age] * usual[age];
  }
  struct Ages {
    double hits, time;  // expected of a block that begins the run
    double stays;       // the probability that the block is still away at the end of the run
  };
  std::array<Ages, ages> runs;
  size_t count = 0;
  for (size_t age = ages; age-- > 0;) {
    const double usually = std::min(1.0, usual[age] * seen / expected);
    const double returns =
        std::min(0.999, (returned_[kind][age] + prior * usually) / (at_risk_[kind][age] + prior));
    Ages run{returns, std::max(1.0, begin(age + 1) - begin(age)) * (1 - returns / 2), 1 - returns};
    while (count > 0 && runs[count - 1].hits * run.time > run.hits * runs[count - 1].time) {
      const Ages& later = runs[--count];
      run.hits += run.stays * later.hits;
      run.time += run.stays * later.time;
      run.stays *= later.stays;
    }
    runs[count++] = run;
    worth_[kind][age] = static_cast<float>(run.hits / run.time);
  }
}

}  // namespace pkv::prefix
