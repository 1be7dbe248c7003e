// What the servers of a cluster believe about each other and about slots, and how those are brought
// together that disagree. `redis-cli --cluster fix` gives up where a key lies in two servers after
// one was killed while slots moved: it compares the two by a DEBUG command that servers since
// version 7 refuse.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "servers.h"

namespace redis_test {

// What one server believes.
struct ClusterView {
  struct Node {
    bool is_master = false;
    uint64_t epoch = 0;
    std::string master;  // the id of a replica's master
  };

  std::string id;  // of the server itself; empty if it did not answer
  std::map<std::string, Node> nodes;
  // By slot, the id of its master; empty for a slot that nobody has.
  std::vector<std::string> owners = std::vector<std::string>(16384);
  std::set<size_t> open;  // the server's slots that are moving to it or from it

  const Node& self() const { return nodes.at(id); }
};

// Asks a server for what it believes.
ClusterView view_of(const Server& server);

// Returns true if all servers believe the same of each other, every slot has an owner, and none is
// moving. The epochs belong to it: where a master has a new one, which its replica has not heard of
// when the master dies, the others deny the replica its place for ever ("slot epoch > reqEpoch").
bool is_agreed(std::span<const ClusterView> views);

// Tells the servers what they do not agree on: servers that do not know each other meet, every slot
// goes to the master that claims it with the latest epoch, with the keys that others have of it,
// and every master has a replica: half of the servers are masters. The servers need some seconds to
// spread the news, and a master whose slots are gone becomes a replica at the next call.
void reconcile(std::span<const Server* const> servers, std::span<const ClusterView> views);

}  // namespace redis_test
