#include "server.h"

#include <algorithm>
#include <chrono>

namespace pkv::serve {

Server::Server(const Options& options, const Setup& setup, const Trace& trace)
    : options_(options), trace_(trace), cache_(options, setup, trace) {
  figures_.setup = setup;
  figures_.requests = trace.requests.size();
  figures_.blocks = cache_.blocks();
  figures_.bytes_per_block = cache_.bytes_per_block();
  for (const Request& request : trace.requests) tokens_in_all_ += request.length();
}

// ---- Admission ----

void Server::arrive() {
  if (running_.empty() && waiting_.empty() && suspended_.empty() &&
      sequences_.size() < trace_.requests.size())
    clock_ = std::max(clock_, trace_.requests[sequences_.size()].arrival);
  while (sequences_.size() < trace_.requests.size() &&
         trace_.requests[sequences_.size()].arrival <= clock_) {
    const Request& request = trace_.requests[sequences_.size()];
    waiting_.push_back(&sequences_.emplace_back());
    waiting_.back()->request = &request;
  }
}

// Returns the blocks that a session still needs for all known tokens and one more.
uint64_t Server::missing(const Sequence& q, uint64_t held) const {
  const uint64_t wanted = blocks_of(q.known() + 1, options_.block_size);
  return wanted - std::min(wanted, blocks_of(std::max(held, q.room), options_.block_size));
}

// Returns whether this many blocks are left besides the watermark and the blocks that running
// sessions still need for their known tokens. Statistics of a large pool take a while, so it does
// not ask for them if everything fits even without shared blocks.
bool Server::has_room(uint64_t blocks, const Sequence& candidate) const {
  uint64_t pending = cache_.watermark() + blocks,
           held = blocks_of(candidate.held, options_.block_size);
  for (const Sequence* q : running_) {
    pending += missing(*q, q->held);
    held += blocks_of(std::max(q->held, q->room), options_.block_size) +
            1;  // 1: a part-filled block that is copied
  }
  if (held + pending <= cache_.blocks()) return true;
  return pending <= cache_.pool_stats().free_blocks + cache_.stats().evictable_blocks;
}

bool Server::resume(Sequence& q) {
  if (!running_.empty() && !has_room(blocks_of(q.known() + 1, options_.block_size), q))
    return false;
  uint64_t length, total;
  const pkv_status status = pkv_session_resume(q.session, &length, &total);
  if (status == PKV_OUT_OF_BLOCKS) return false;
  check(status, "resume");
  q.held = length;
  q.room = total;
  return true;
}

// Opens the session to see how much of its prompt is cached, and closes it again if the rest does
// not fit.
bool Server::start(Sequence& q) {
  const Request& request = *q.request;
  if (cache_.open(request, &q.session) == PKV_OUT_OF_BLOCKS) return false;
  if (q.tokens.empty()) q.tokens = text_of(request);
  // The last prompt token is always computed, because its output is needed.
  if (figures_.setup.prefix)
    check(pkv_session_admit(q.session, request.input - 1, q.tokens.data(), 0, &q.held), "match");
  q.room = cache_.reservation(request);
  if (figures_.setup.reserve == Reserve::none && !running_.empty() &&
      !has_room(missing(q, q.held), q)) {
    check(pkv_session_close(q.session), "close");
    q.session = nullptr;
    q.held = 0;
    return false;
  }
  figures_.lookup_tokens += request.input - 1;
  figures_.matched_tokens += q.held;
  tokens_done_ += q.held;
  q.computed = q.held;
  owner_[q.session] = &q;
  return true;
}

// Suspended sessions come first. A request that finds no room holds up those behind it, so that
// none starves. There is more room only when a session ended or was suspended.
void Server::admit() {
  while (running_.size() < options_.running && !full_) {
    std::deque<Sequence*>& queue = suspended_.empty() ? waiting_ : suspended_;
    if (queue.empty()) return;
    Sequence& q = *queue.front();
    full_ = !(&queue == &suspended_ ? resume(q) : start(q));
    if (full_) return;
    running_.push_back(&q);
    queue.pop_front();
  }
}

// ---- A step ----

void Server::plan() {
  planned_.clear();
  sessions_.clear();
  counts_.clear();
  tokens_.clear();
  size_t budget = options_.budget;
  for (Sequence* q : running_) {
    const uint64_t behind = q->behind();
    const auto count = static_cast<uint32_t>(behind == 1 ? 1 : std::min<uint64_t>(behind, budget));
    if (count == 0) continue;
    if (behind > 1) budget -= count;
    planned_.push_back(q);
    sessions_.push_back(q->session);
    counts_.push_back(count);
    tokens_.insert(tokens_.end(), q->tokens.begin() + static_cast<ptrdiff_t>(q->held),
                   q->tokens.begin() + static_cast<ptrdiff_t>(q->held + count));
  }
}

void Server::preempt() {
  std::vector<pkv_session> victims(running_.size());
  size_t count;
  check(pkv_batch_choose_victims(cache_.handle(), sessions_.size(), sessions_.data(),
                                 counts_.data(), victims.size(), victims.data(), &count),
        "choosing victims");
  for (size_t i = 0; i < count; i++) {
    Sequence& q = *owner_.at(victims[i]);
    check(pkv_session_suspend(q.session), "suspend");
    q.held = q.room = 0;
    std::erase(running_, &q);
    full_ = false;
    // Older requests have smaller addresses in the trace.
    suspended_.insert(std::upper_bound(suspended_.begin(), suspended_.end(), &q,
                                       [](auto* a, auto* b) { return a->request < b->request; }),
                      &q);
    figures_.preemptions++;
  }
}

void Server::account(const Sequence& q, uint32_t count) {
  const bool decodes = q.generated > 0 && q.behind() == count && count == 1;
  const uint64_t again = std::min<uint64_t>(count, q.computed - std::min(q.computed, q.held));
  if (!decodes) figures_.prefill_tokens += count;
  figures_.recomputed_tokens += again;
  tokens_done_ += count - again;
}

void Server::advance(Sequence& q, uint32_t count) {
  account(q, count);
  q.held += count;
  q.computed = std::max(q.computed, q.held);
  if (q.behind() > 0) return;
  if (q.generated++ == 0)
    figures_.first_token_seconds.push_back(static_cast<float>(clock_ - q.request->arrival));
  figures_.decode_tokens++;
  if (q.generated == q.request->output) finish(q);
}

void Server::finish(Sequence& q) {
  owner_.erase(q.session);
  check(pkv_session_close(q.session), "close");
  q.session = nullptr;
  q.tokens = {};
  std::erase(running_, &q);
  full_ = false;
  tokens_done_++;  // the last one, which is not fed back
  figures_.finished++;
  figures_.request_seconds.push_back(static_cast<float>(clock_ - q.request->arrival));
}

// Looks at the pool about a thousand times between the first and the last arrival.
void Server::observe() {
  figures_.peak_running = std::max(figures_.peak_running, running_.size());
  const double since = clock_ - observed_;
  if (since < trace_.requests.back().arrival / 1000) return;
  observed_ = clock_;
  const pkv_cache_stats stats = cache_.stats();
  const uint64_t cached_slots =
      stats.evictable_blocks * options_.block_size;  // only full blocks are cached
  const uint64_t used = cache_.pool_stats().held_blocks;
  figures_.peak_used = std::max(figures_.peak_used, used - stats.evictable_blocks);
  figures_.filled_slots += static_cast<double>(stats.filled_slots - cached_slots);
  figures_.reserved_slots += static_cast<double>(used * options_.block_size - cached_slots);
  figures_.copied_blocks = stats.copied_blocks;
}

void Server::step() {
  double seconds;
  plan();
  while (cache_.step(sessions_, counts_, tokens_.data(), &seconds) == PKV_OUT_OF_BLOCKS) {
    preempt();
    plan();
  }
  clock_ += seconds;
  figures_.steps++;
  figures_.seconds = clock_;
  figures_.step_seconds.push_back(static_cast<float>(seconds));
  figures_.busy_seconds += seconds;
  figures_.running_integral += seconds * static_cast<double>(running_.size());
  observe();
  for (size_t i = 0; i < planned_.size(); i++) advance(*planned_[i], counts_[i]);
}

// Closes all sessions and checks that no block is left in use.
void Server::close() {
  for (const auto& [session, q] : owner_) check(pkv_session_close(session), "close");
  check(pkv_cache_validate(cache_.handle()), "validation");
  const pkv_pool_stats pool = cache_.pool_stats();
  if (pool.free_blocks + cache_.stats().evictable_blocks != pool.blocks)
    throw std::runtime_error("blocks are in use although no session is left");
}

Figures Server::run(const std::function<bool(const Server&)>& go_on) {
  const auto begin = std::chrono::steady_clock::now();
  while (figures_.finished < trace_.requests.size()) {
    arrive();
    admit();
    step();
    figures_.wall_seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (!go_on(*this)) {
      figures_.interrupted = figures_.finished < trace_.requests.size();
      break;
    }
  }
  close();
  return figures_;
}

}  // namespace pkv::serve
