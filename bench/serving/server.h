// Continuous batching over one cache as in Orca (Yu et al. 2022) and vLLM (Kwon et al. 2023): it
// decides which requests run, wait or are suspended. Prompts are computed in chunks beside decode
// steps as in Sarathi (Agrawal et al. 2023).
#pragma once

#include <deque>
#include <functional>
#include <unordered_map>
#include <vector>

#include "cache.h"
#include "figures.h"

namespace pkv::serve {

class Server {
 public:
  Server(const Options& options, const Setup& setup, const Trace& trace);

  // Runs until every request is finished, or `go_on`, which is called after each step, returns
  // false.
  Figures run(const std::function<bool(const Server&)>& go_on);

  const Figures& figures() const { return figures_; }
  size_t running() const { return running_.size(); }
  size_t waiting() const { return waiting_.size() + suspended_.size(); }
  double part_done() const {
    return Figures::ratio(static_cast<double>(tokens_done_), static_cast<double>(tokens_in_all_));
  }

 private:
  struct Sequence {
    const Request* request = nullptr;
    pkv_session session = nullptr;
    std::vector<int32_t>
        tokens;  // prompt and answer; of the answer the first `generated` are known
    uint64_t held = 0, room = 0;  // tokens in the cache; tokens that blocks were reserved for
    uint64_t computed = 0;        // the largest value of held so far
    uint32_t generated = 0;

    uint64_t known() const { return request->input + generated; }
    uint64_t behind() const { return known() - held; }
  };

  void arrive();
  void admit();
  bool resume(Sequence& q);
  bool start(Sequence& q);
  bool has_room(uint64_t blocks, const Sequence& candidate) const;
  uint64_t missing(const Sequence& q, uint64_t held) const;

  void plan();
  void step();
  void preempt();
  void account(const Sequence& q, uint32_t count);
  void advance(Sequence& q, uint32_t count);
  void finish(Sequence& q);
  void observe();
  void close();

  const Options& options_;
  const Trace& trace_;
  Cache cache_;
  Figures figures_;
  double clock_ = 0, observed_ = 0;
  bool full_ = false;  // the next request was refused, and nothing was freed since
  uint64_t tokens_done_ = 0, tokens_in_all_ = 0;

  std::deque<Sequence> sequences_;   // all that have arrived
  std::deque<Sequence*> waiting_;    // not begun, by arrival
  std::deque<Sequence*> suspended_;  // by arrival
  std::vector<Sequence*> running_;   // by admission
  std::unordered_map<pkv_session, Sequence*> owner_;

  std::vector<Sequence*> planned_;  // this step
  std::vector<pkv_session> sessions_;
  std::vector<uint32_t> counts_;
  std::vector<int32_t> tokens_;
};

}  // namespace pkv::serve
