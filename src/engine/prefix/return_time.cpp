#include "engine/prefix/return_time.h"

#include <bit>
#include <cmath>
#include <utility>

namespace pkv::prefix {

namespace {

// Times are counted in blocks that were given up. These are in capacities: one is the time in which
// as many blocks are given up as the cache has.
constexpr double horizon_capacities = 32;     // a block that stays away for longer counts as gone
constexpr double memory_capacities = 64;      // what was learned loses half its weight in this time
constexpr double interval_capacities = 0.25;  // between two times of learning
// In blocks: a small cache does not learn more often, and does not forget faster.
constexpr double min_interval = 1024;
constexpr double min_memory = 1024;
constexpr size_t watched_ways = 8, watched_count = 8192;

// What is assumed before anything is seen. A kind returns as all kinds do together, which counts as
// much as `prior` blocks that were seen. Of all blocks, a tenth returns in each half octave of age
// (Lindy's law), which counts as much as `lindy_weight` blocks.
constexpr double prior = 20;
constexpr double lindy_weight = 100, lindy = 0.1;

constexpr unsigned max_uses = 31, max_often = 5, max_fresh = 4;
static_assert((max_often + 1) * (max_fresh + 1) == ReturnTimes::kinds);

unsigned width(uint64_t number) { return static_cast<unsigned>(std::bit_width(number)); }

constexpr size_t random_candidates = 32;

}  // namespace

// ---- When blocks return -------------------------------------------------------------------------

ReturnTimes::ReturnTimes(uint64_t capacity, std::pmr::memory_resource& memory)
    : capacity_(static_cast<double>(capacity)),
      watched_(watched_count, &memory),
      returned_(kinds, &memory),
      ended_(kinds, &memory),
      at_risk_(kinds, &memory),
      worth_(kinds, &memory) {
  relearn(0);
}

double ReturnTimes::horizon() const { return horizon_capacities * capacity_; }

size_t ReturnTimes::bucket(uint64_t age) {
  if (age < 2) return 0;
  constexpr uint32_t sqrt_2 = 0xB504F334;  // times 2^31
  const unsigned octave = width(age) - 1;
  const bool upper_half = static_cast<uint32_t>(age << (63 - octave) >> 32) >= sqrt_2;
  return std::min<size_t>(2 * octave + upper_half, ages - 1);
}

double ReturnTimes::begin(size_t bucket) {
  return bucket == 0 ? 0 : std::exp2(static_cast<double>(bucket) / 2);
}

void ReturnTimes::used(std::span<const uint64_t> hashes, uint8_t kind, uint64_t now) noexcept {
  for (const uint64_t hash : hashes)
    if ((hash & sampled_) == 0) watch(hash, kind, now);
  if (early_ > static_cast<double>(watched_count) / 8) widen(now);
}

void ReturnTimes::ended(const Watched& watched, bool returned, uint64_t now) noexcept {
  const size_t age = bucket(now - watched.since);
  ended_[watched.kind][age] += 1;
  returned_[watched.kind][age] += returned;
}

// Watches a block from this use on, and ends the watch that began with its last use. If the set is
// full, the block that was watched for longest makes room.
void ReturnTimes::watch(uint64_t hash, uint8_t kind, uint64_t now) noexcept {
  const auto set =
      std::span(watched_).subspan((hash >> 32) * watched_ways % watched_count, watched_ways);
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
    double returned = lindy_weight * lindy, at_risk = lindy_weight;
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
  double seen = prior, expected = prior;
  for (size_t age = 0; age < ages; age++) {
    seen += returned_[kind][age];
    expected += at_risk_[kind][age] * usual[age];
  }
  struct Run {
    double hits, time;  // expected of a block that begins the run
    double stays;       // the probability that the block is still away at the end of the run
  };
  std::array<Run, ages> runs;
  size_t count = 0;
  for (size_t age = ages; age-- > 0;) {
    const double assumed = std::min(1.0, usual[age] * seen / expected);
    const double returns =
        std::min(0.999, (returned_[kind][age] + prior * assumed) / (at_risk_[kind][age] + prior));
    Run run{returns, std::max(1.0, begin(age + 1) - begin(age)) * (1 - returns / 2), 1 - returns};
    while (count > 0 && runs[count - 1].hits * run.time > run.hits * runs[count - 1].time) {
      const Run& later = runs[--count];
      run.hits += run.stays * later.hits;
      run.time += run.stays * later.time;
      run.stays *= later.stays;
    }
    runs[count++] = run;
    worth_[kind][age] = static_cast<float>(run.hits / run.time);
  }
}

// ---- Ghosts -------------------------------------------------------------------------------------

void Ghosts::remember(uint64_t hash, History history) noexcept {
  if (table_.empty()) {
    try {
      table_.resize(sets_);
    } catch (const std::bad_alloc&) {
      return;
    }
  }
  auto& ghosts = table_[set(hash)];
  for (size_t i = ways - 1; i > 0; i--) ghosts[i] = ghosts[i - 1];
  ghosts[0] = static_cast<Ghost>(hash << 10) | uint32_t{history.turn} << 5 | history.uses;
}

History Ghosts::recall(uint64_t hash) noexcept {
  if (table_.empty()) return {};
  auto& ghosts = table_[set(hash)];
  const Ghost tag = static_cast<Ghost>(hash << 10);
  size_t place = ways;
  for (size_t i = ways; i-- > 0;)
    // The compiler makes this free of branches, since there is nearly always no ghost.
    if ((ghosts[i] ^ tag) >> 10 == 0 && ghosts[i] != 0) place = i;
  if (place == ways) return {};
  const Ghost ghost = std::exchange(ghosts[place], 0);
  return {static_cast<uint8_t>(ghost & 31), static_cast<uint8_t>(ghost >> 5 & 31)};
}

// ---- The policy ---------------------------------------------------------------------------------

ReturnTimePolicy::ReturnTimePolicy(uint64_t capacity, std::pmr::memory_resource& memory)
    : candidates_{std::pmr::vector<Node*>(&memory), std::pmr::vector<Node*>(&memory),
                  std::pmr::vector<Node*>(&memory)},
      times_(capacity, memory),
      ghosts_(capacity, memory) {}

void ReturnTimePolicy::reserve(size_t nodes) {
  for (auto& candidates : candidates_)
    if (candidates.capacity() < nodes)
      candidates.reserve(std::max(nodes, candidates.capacity() * 2));
}

void ReturnTimePolicy::add(Node& node) noexcept {
  auto& candidates = candidates_[node.retention];
  node.place = static_cast<uint32_t>(candidates.size());
  candidates.push_back(&node);
}

void ReturnTimePolicy::remove(Node& node) noexcept {
  if (next_ == &node) next_ = nullptr;
  if (node.place == Node::no_place) return;
  auto& candidates = candidates_[node.retention];
  candidates[node.place] = candidates.back();
  candidates.back()->place = node.place;
  candidates.pop_back();
  node.place = Node::no_place;
}

Node* ReturnTimePolicy::victim() noexcept {
  const auto lowest = std::find_if(candidates_.begin(), candidates_.end(),
                                   [](const auto& each) { return !each.empty(); });
  if (lowest == candidates_.end()) return nullptr;
  const std::span<Node* const> candidates = *lowest;
  Node* best = nullptr;
  float lowest_worth = 0;
  const auto consider = [&](Node* node) {
    const float worth = times_.worth(node->kind, now_ - node->last_use);
    if (best != nullptr &&
        (worth > lowest_worth || (worth == lowest_worth && node->last_use >= best->last_use)))
      return;
    best = node;
    lowest_worth = worth;
  };
  if (candidates.size() <= random_candidates) {
    for (Node* const node : candidates) consider(node);
    return best;
  }
  for (size_t i = 0; i < random_candidates; i++) {
    // Knuth's linear congruential generator, whose upper bits are good.
    random_ = random_ * 6364136223846793005u + 1442695040888963407u;
    consider(candidates[(random_ >> 32) * candidates.size() >> 32]);
  }
  if (next_ != nullptr && next_->place != Node::no_place && next_->retention == best->retention)
    consider(next_);
  return best;
}

void ReturnTimePolicy::inserted(std::span<const uint64_t> hashes,
                                std::span<History> histories) noexcept {
  constexpr size_t ahead = 16;
  for (size_t i = 0; i < hashes.size(); i++) {
    if (i + ahead < hashes.size()) ghosts_.prefetch(hashes[i + ahead]);
    histories[i] = ghosts_.recall(hashes[i]);
  }
}

void ReturnTimePolicy::used(Node& end, uint32_t from, uint64_t now) noexcept {
  // The end of the part of the path that was used before, as far as nodes and ghosts remember; the
  // root if no part was.
  const Node* known = &end;
  for (const Node* node = &end; node->parent != nullptr; node = node->parent)
    if (node->history.uses == 0) known = node->parent;
  const uint32_t length = end.end(), old = known->end();
  // A conversation goes on from its last turn: this is the turn of this text, and how much of it is
  // new.
  const uint8_t turn = static_cast<uint8_t>(std::min(known->history.turn + 1u, max_uses));
  const unsigned fresh = std::min(max_fresh, width((length - old) * uint64_t{8} / length));
  for (Node* node = &end; node->end() > from; node = node->parent) {
    if (node->start >= old) node->history = {0, turn};
    node->history.uses = static_cast<uint8_t>(std::min(node->history.uses + 1u, max_uses));
    const unsigned often =
        std::min(max_often, width(std::max<unsigned>(node->history.uses, turn - 1u)));
    node->kind = static_cast<uint8_t>(often * (max_fresh + 1) + fresh);
    times_.used(node->hashes, node->kind, now);
  }
  now_ = now + (length - from);
  times_.learn(now_);
}

void ReturnTimePolicy::evicted(Node& node, uint32_t count) noexcept {
  const auto hashes = std::span(node.hashes).last(count);
  for (const uint64_t hash : hashes) ghosts_.prefetch(hash);
  for (const uint64_t hash : hashes) ghosts_.remember(hash, node.history);
  if (count < node.size)
    next_ = &node;
  else
    next_ = node.parent->parent != nullptr ? node.parent : nullptr;
}

}  // namespace pkv::prefix
