// Processes whose caches keep blocks in a cluster, and check every row that comes back.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace redis_test {

// The figures of the caches of all processes.
struct PlayFigures {
  uint64_t texts = 0;   // that were served
  uint64_t wrong = 0;   // of these, with a row that is not the text's, or after a failed call
  uint64_t tokens = 0;  // of all texts
  uint64_t found = 0;   // of these, in memory or in the store
  uint64_t written = 0, asked = 0, read = 0, corrupt = 0, failures = 0;  // pkv_store_stats
  double longest_step = 0;                                               // seconds

  void add(const PlayFigures& other);
};

class ClusterPlay {
 public:
  // Begins `processes` processes with a cache and `threads` threads each. This process must have
  // no threads yet.
  ClusterPlay(const std::string& addresses, size_t processes, size_t threads, uint64_t seed);
  ~ClusterPlay();
  ClusterPlay(const ClusterPlay&) = delete;
  ClusterPlay& operator=(const ClusterPlay&) = delete;

  // Ends the processes and returns their figures. A process that crashed counts as a wrong text.
  PlayFigures finish();

 private:
  struct Process {
    int id, stop, figures;  // ends of pipes: closing the first one ends the process
  };
  std::vector<Process> processes_;
};

}  // namespace redis_test
