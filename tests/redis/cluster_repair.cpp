#include "cluster_repair.h"

#include <algorithm>
#include <cstdio>
#include <functional>
#include <sstream>

namespace redis_test {

namespace {

// Reads one of the words at the end of a node's line: "5", "7-9", or "[5->-ID]" and "[5-<-ID]" for
// a slot that moves.
void read_slots(const std::string& word, const std::string& owner, ClusterView& view) {
  size_t first = 0, last = 0;
  if (std::sscanf(word.c_str(), "[%zu-", &first) == 1) {
    view.open.insert(first);
  } else if (const int numbers = std::sscanf(word.c_str(), "%zu-%zu", &first, &last); numbers > 0) {
    if (numbers == 1) last = first;
    for (size_t slot = first; slot <= last && slot < view.owners.size(); slot++)
      view.owners[slot] = owner;
  }
}

// A master, and its view of the cluster.
struct Master {
  const Server* server;
  const ClusterView* view;

  const std::string& id() const { return view->id; }
  bool claims(size_t slot) const { return view->owners[slot] == id(); }
  size_t claimed() const { return std::ranges::count(view->owners, id()); }
};

// The masters with the most slots come first. Half of the servers stay masters. Any further master
// was down while a replica replaced it, and believes that it has a slot that was just moving.
std::vector<Master> masters_of(std::span<const Server* const> servers,
                               std::span<const ClusterView> views) {
  std::vector<Master> masters;
  for (size_t i = 0; i < views.size(); i++)
    if (views[i].self().is_master) masters.push_back({servers[i], &views[i]});
  std::ranges::sort(masters, std::greater(), &Master::claimed);
  return masters;
}

// Returns the master that gets a slot: among those that claim it, the one with the latest epoch,
// whose claim the others accept.
size_t choose_owner(std::span<const Master> masters, size_t slot) {
  size_t best = slot % masters.size();
  for (size_t i = 0; i < masters.size(); i++)
    if (masters[i].claims(slot) &&
        (!masters[best].claims(slot) ||
         masters[i].view->self().epoch > masters[best].view->self().epoch))
      best = i;
  return best;
}

// Moves the keys that a master has of another one's slot to that one. Keys of the same name are
// replaced; they have the same value, because an item's name depends on its content.
void move_keys(const Server& from, const Server& to, const std::string& slot,
               const std::string& to_id) {
  if (from.ask({"CLUSTER", "COUNTKEYSINSLOT", slot}) == "0") return;
  // A server moves keys of a slot that is open. Which of the two it accepts depends on whether it
  // believes that it has the slot.
  if (from.ask({"CLUSTER", "SETSLOT", slot, "MIGRATING", to_id}) != "OK")
    from.ask({"CLUSTER", "SETSLOT", slot, "IMPORTING", to_id});
  for (;;) {
    const std::vector<std::string> keys = from.list({"CLUSTER", "GETKEYSINSLOT", slot, "100"});
    std::vector<std::string> words = {
        "MIGRATE", "127.0.0.1", std::to_string(to.port()), "", "0", "5000", "REPLACE", "KEYS"};
    words.insert(words.end(), keys.begin(), keys.end());
    if (keys.empty() || from.ask(words) != "OK") return;
  }
}

// Ends moves of a slot in all masters, and gives the slot to one of them.
void settle_slot(std::span<const Master> masters, size_t slot, const Master& owner) {
  const std::string number = std::to_string(slot);
  const auto set = [&](const Master& master, const std::vector<std::string>& state) {
    std::vector<std::string> words = {"CLUSTER", "SETSLOT", number};
    words.insert(words.end(), state.begin(), state.end());
    master.server->ask(words);
  };
  for (const Master& master : masters) set(master, {"STABLE"});
  for (const Master& master : masters)
    if (master.id() != owner.id()) move_keys(*master.server, *owner.server, number, owner.id());
  set(owner, {"NODE", owner.id()});
  for (const Master& master : masters) {
    set(master, {"NODE", owner.id()});
    set(master, {"STABLE"});
  }
}

void settle_slots(std::span<const Master> masters, std::span<const ClusterView> views) {
  const auto lasting = masters.first(std::min(masters.size(), views.size() / 2));
  std::set<size_t> new_owners;
  for (size_t slot = 0; slot < views[0].owners.size(); slot++) {
    const std::string& owner = views[0].owners[slot];
    const bool agreed = std::ranges::all_of(views, [&](const ClusterView& view) {
      return view.owners[slot] == owner && !view.open.contains(slot);
    });
    if (agreed && std::ranges::count(lasting, owner, &Master::id) > 0) continue;
    const size_t chosen = choose_owner(lasting, slot);
    settle_slot(masters, slot, lasting[chosen]);
    new_owners.insert(chosen);
  }
  // Servers believe a claim only if its epoch is later than that of the claim before.
  for (const size_t i : new_owners) lasting[i].server->ask({"CLUSTER", "BUMPEPOCH"});
}

// A server that was down while its slots moved to several others follows the one that took the last
// of them, so one master may have two replicas and another one none.
void spread_replicas(std::span<const Server* const> servers, std::span<const ClusterView> views) {
  std::map<std::string, size_t> replicas;  // by the id of the master
  std::vector<size_t> spare;               // without slots, and not needed where they are
  for (size_t i = 0; i < views.size(); i++) {
    if (views[i].self().is_master) {
      if (std::ranges::count(views[i].owners, views[i].id) > 0) {
        replicas.try_emplace(views[i].id, 0);
      } else {
        spare.push_back(i);
      }
    } else if (replicas[views[i].self().master]++ > 0) {
      spare.push_back(i);
    }
  }
  for (const auto& [master, count] : replicas) {
    if (count > 0 || spare.empty()) continue;
    const Server& server = *servers[spare.back()];
    // Only a master without data becomes a replica.
    if (views[spare.back()].self().is_master) server.ask({"FLUSHALL"});
    server.ask({"CLUSTER", "REPLICATE", master});
    spare.pop_back();
  }
}

}  // namespace

ClusterView view_of(const Server& server) {
  ClusterView view;
  std::istringstream lines(server.ask({"CLUSTER", "NODES"}));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string id, address, flags, master, ping, pong, link, word;
    uint64_t epoch = 0;
    if (!(words >> id >> address >> flags >> master >> ping >> pong >> epoch >> link)) continue;
    view.nodes[id] = {flags.find("master") != std::string::npos, epoch, master};
    if (flags.find("myself") != std::string::npos) view.id = id;
    while (words >> word) read_slots(word, id, view);
  }
  return view;
}

bool is_agreed(std::span<const ClusterView> views) {
  const auto agrees = [&](const ClusterView& view) {
    return !view.id.empty() && view.open.empty() && view.owners == views[0].owners &&
           std::ranges::all_of(views, [&](const ClusterView& other) {
             const auto known = view.nodes.find(other.id);
             return known != view.nodes.end() &&
                    known->second.is_master == other.nodes.at(other.id).is_master &&
                    known->second.master == other.self().master &&
                    known->second.epoch == other.self().epoch;
           });
  };
  return std::ranges::all_of(views, agrees) &&
         std::ranges::none_of(views[0].owners, [](const std::string& id) { return id.empty(); });
}

void reconcile(std::span<const Server* const> servers, std::span<const ClusterView> views) {
  if (std::ranges::any_of(views, [](const ClusterView& view) { return view.id.empty(); })) return;
  for (size_t i = 0; i < views.size(); i++)
    for (size_t k = 0; k < views.size(); k++)
      if (!views[i].nodes.contains(views[k].id))
        servers[i]->ask({"CLUSTER", "MEET", "127.0.0.1", std::to_string(servers[k]->port())});
  const std::vector<Master> masters = masters_of(servers, views);
  if (masters.empty()) return;
  settle_slots(masters, views);
  spread_replicas(servers, views);
}

}  // namespace redis_test
