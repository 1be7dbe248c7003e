// Events that a cluster has to survive, and the time until a store of it works again.
#pragma once

#include <deque>
#include <random>

#include "replicated_cluster.h"
#include "support.h"

namespace redis_test {

// Stores whose keys lie in three slots, one of each server that is a master at first.
class Recovery {
 public:
  explicit Recovery(ReplicatedCluster& cluster) : cluster_(cluster) {
    for (size_t server = 0; server < 3; server++) {
      for (int tag = 0; prefixes_.size() == server; tag++) {
        const std::string prefix = "{" + std::to_string(tag) + "}:";
        if (cluster_.owner(prefix, 0) == server) prefixes_.push_back(prefix);
      }
      stores_.emplace_back(cluster_.addresses(), [&](pkv_redis_config& config) {
        config.key_prefix = prefixes_.back().c_str();
        config.connect_timeout_ms = 500, config.command_timeout_ms = 1000;
      });
    }
  }

  // Puts new items into all three slots and gets them back until that works, and returns the
  // seconds since `begin`. Throws after 20 s.
  double measure(Clock::time_point begin) {
    for (Store& store : stores_)
      while (!works(store)) {
        if (seconds_since(begin) > 20) throw std::runtime_error("the store does not work again");
        std::this_thread::sleep_for(5ms);
      }
    return seconds_since(begin);
  }

  // Returns a master, by what a server says that runs.
  size_t master(std::mt19937_64& random) {
    for (;;)
      if (const size_t i = random() % ReplicatedCluster::servers; cluster_.is_master(i)) return i;
  }

 private:
  bool works(Store& store) {
    seed_++;
    return store.put(seed_, 1000) == 1 && store.get(seed_, 1000) == 1;
  }

  ReplicatedCluster& cluster_;
  std::deque<std::string> prefixes_;
  std::deque<Store> stores_;
  uint64_t seed_ = 0;
};

}  // namespace redis_test
