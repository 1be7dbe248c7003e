// The views that the servers of a cluster have of each other and of slots, and how disagreements
// are repaired. `redis-cli --cluster fix` gives up if a key is in two servers after one was killed
// while slots moved: it compares the two by a DEBUG command that servers since version 7 refuse.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "servers.h"

namespace redis_test {

// The view of one server.
struct ClusterView {
  struct Node {
    bool is_master = false;
    uint64_t epoch = 0;
    std::string master;  // the id of a replica's master
  };

  std::string id;  // of the server itself; empty if it did not answer
  std::map<std::string, Node> nodes;
  // By slot, the id of its master; empty for a slot without one.
  std::vector<std::string> owners = std::vector<std::string>(16384);
  std::set<size_t> open;  // the server's slots that are moving to it or from it

  const Node& self() const { return nodes.at(id); }
};

// Asks a server for its view.
ClusterView view_of(const Server& server);

// Returns true if all servers have the same view of each other, every slot has an owner, and none
// is moving. The views include epochs: if a master has a new epoch that its replica does not know
// when the master dies, the others refuse the replica forever ("slot epoch > reqEpoch").
bool is_agreed(std::span<const ClusterView> views);

// Repairs disagreements: servers that do not know each other meet, every slot goes to the master
// that claims it with the latest epoch, with the keys that others have of it, and every master gets
// a replica, so half of the servers are masters. The servers need some seconds to spread the
// changes, and a master that lost its slots becomes a replica at the next call.
void reconcile(std::span<const Server* const> servers, std::span<const ClusterView> views);

}  // namespace redis_test
