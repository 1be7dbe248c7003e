// The work of one process of run_apart, and the connection between two of them.
#pragma once

#include <chrono>
#include <utility>
#include <vector>

#include "apart.h"

namespace pkv::serve {

// The requests of one process: those whose number is `index` modulo `count`.
struct Share {
  size_t index = 0, count = 1;
};

// Serves its share in real time. The other ends of `prefill` compute the prompts, in turn; without
// any, this process computes them in chunks beside the decode steps.
ApartFigures play_decode(const Options& options, const Trace& trace, Share share,
                         const std::vector<int>& prefill,
                         std::chrono::steady_clock::time_point begin);

// Computes the prompts that the other ends ask for, in their order, until all have closed.
ApartFigures play_prefill(const Options& options, const Trace& trace,
                          const std::vector<int>& sockets);

// Returns the two ends of a TCP connection on 127.0.0.1.
std::pair<int, int> loopback_pair();

}  // namespace pkv::serve
