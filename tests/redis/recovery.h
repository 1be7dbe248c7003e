// Events that a cluster must survive, and the time until its store works again.
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
      stores_.emplace_back(cluster_.addresses(), adjust(prefixes_.back()));
    }
  }

  // Puts new items into all three slots and gets them back until that works, and returns the
  // seconds since `begin`. Throws once that is longer than `patience`.
  double measure(Clock::time_point begin, std::chrono::seconds patience = hang_limit) {
    for (size_t i = 0; i < stores_.size(); i++)
      while (!works(stores_[i])) {
        if (Clock::now() - begin > patience) throw std::runtime_error(describe(prefixes_[i]));
        std::this_thread::sleep_for(5ms);
      }
    return seconds_since(begin);
  }

  // Returns a master, as reported by a running server.
  size_t master(std::mt19937_64& random) {
    for (;;)
      if (const size_t i = random() % ReplicatedCluster::servers; cluster_.is_master(i)) return i;
  }

 private:
  static std::function<void(pkv_redis_config&)> adjust(const std::string& prefix) {
    return [&prefix](pkv_redis_config& config) {
      config.key_prefix = prefix.c_str();
      config.connect_timeout_ms = 500, config.command_timeout_ms = 1000;
    };
  }
  // Finds out why a store does not work: a new store works unless the servers are the cause.
  std::string describe(const std::string& prefix) {
    Store fresh(cluster_.addresses(), adjust(prefix));
    std::string text = "the store does not work again; a new one ";
    text += works(fresh) ? "does" : "does not, either";
    for (size_t i = 0; i < ReplicatedCluster::servers; i++)
      text += "; " + cluster_[i].address() + " says " + cluster_[i].ask({"STRLEN", prefix});
    return text;
  }
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
