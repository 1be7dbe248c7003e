// A cluster of three masters with a replica each, in which servers are killed and slots move.
#pragma once

#include <array>
#include <chrono>
#include <optional>
#include <string>

#include "servers.h"

namespace redis_test {

// Returns true if there is a redis-cli or a valkey-cli, which makes clusters and moves slots.
bool have_cli();

class ReplicatedCluster {
 public:
  static constexpr size_t servers = 6;

  ReplicatedCluster();
  Server& operator[](size_t i) { return *servers_[i]; }
  // Returns the addresses of the servers that are masters at first, as a config has them.
  std::string addresses() const;

  // Returns the server that has the slot of a key, as `asked` says, or nothing if none has.
  std::optional<size_t> owner(const std::string& key, size_t asked);
  bool is_master(size_t i) { return servers_[i]->ask({"ROLE"}).starts_with("master"); }

  // Kills a server as a power cut would, and starts it again.
  void kill(size_t i);
  void start(size_t i);
  bool runs(size_t i) const { return runs_[i]; }
  // Moves slots from one master to another, with their keys. Returns false if that fails.
  bool reshard(size_t from, size_t to, size_t slots);
  // Lets the replicas of masters that do not run take their place without asking the others.
  void take_over();
  // Repairs what a failed reshard() and killed servers have left, until all servers agree. Throws
  // if they do not within two minutes. All servers must run.
  void mend();
  // Waits until every slot has a master, and every master an up-to-date replica. Throws if that
  // takes too long.
  void wait_until_healthy(std::chrono::seconds patience = std::chrono::seconds(60));

 private:
  bool is_healthy();
  bool become_healthy(std::chrono::seconds patience);
  size_t any_that_runs() const;
  bool cli(const std::vector<std::string>& arguments) const;

  std::array<std::unique_ptr<Server>, servers> servers_;
  std::array<bool, servers> runs_{};
};

}  // namespace redis_test
