#include "replicated_cluster.h"

#include <chrono>
#include <stdexcept>
#include <thread>

#include "cluster_repair.h"

namespace redis_test {

namespace {

using namespace std::chrono_literals;

const char* cli_program() {
  static const char* const found = [] {
    for (const char* name : {"redis-cli", "valkey-cli"})
      if (std::system(("command -v " + std::string(name) + " > /dev/null 2>&1").c_str()) == 0)
        return name;
    return static_cast<const char*>(nullptr);
  }();
  return found;
}

}  // namespace

bool have_cli() { return cli_program() != nullptr; }

ReplicatedCluster::ReplicatedCluster() {
  for (auto& server : servers_)
    server = std::make_unique<Server>(std::vector<std::string>{
        "--cluster-enabled", "yes", "--cluster-node-timeout", "1500",
        "--cluster-require-full-coverage", "no", "--cluster-allow-replica-migration", "no",
        "--cluster-replica-validity-factor", "0", "--repl-diskless-sync-delay", "0"});
  runs_.fill(true);
  std::vector<std::string> words = {"create"};
  for (const auto& server : servers_) words.push_back(server->address());
  words.insert(words.end(), {"--cluster-replicas", "1"});
  if (!cli(words)) throw std::runtime_error("redis-cli --cluster create failed");
  wait_until_healthy();
}

std::string ReplicatedCluster::addresses() const {
  return servers_[0]->address() + "," + servers_[1]->address() + "," + servers_[2]->address();
}

bool ReplicatedCluster::cli(const std::vector<std::string>& arguments) const {
  std::string command = std::string("timeout 30 ") + cli_program() + " --cluster";
  for (const std::string& argument : arguments) command += " " + argument;
  return std::system((command + " --cluster-yes < /dev/null > /dev/null 2>&1").c_str()) == 0;
}

size_t ReplicatedCluster::any_that_runs() const {
  for (size_t i = 0; i < servers; i++)
    if (runs_[i]) return i;
  throw std::runtime_error("no server runs");
}

std::optional<size_t> ReplicatedCluster::owner(const std::string& key, size_t asked) {
  const std::string answer = servers_[asked]->ask({"STRLEN", key});
  const size_t colon = answer.rfind(':');
  if (!answer.starts_with("MOVED "))
    return answer.find(' ') == std::string::npos ? std::optional(asked) : std::nullopt;
  for (size_t i = 0; i < servers; i++)
    if (answer.substr(colon + 1) == std::to_string(servers_[i]->port())) return i;
  return std::nullopt;
}

void ReplicatedCluster::kill(size_t i) {
  servers_[i]->stop();
  runs_[i] = false;
}

void ReplicatedCluster::start(size_t i) {
  servers_[i]->start();
  runs_[i] = true;
}

// An item that a reshard that failed has left in the other server is replaced: it is the same.
bool ReplicatedCluster::reshard(size_t from, size_t to, size_t slots) {
  return cli({"reshard", servers_[any_that_runs()]->address(), "--cluster-from",
              servers_[from]->ask({"CLUSTER", "MYID"}), "--cluster-to",
              servers_[to]->ask({"CLUSTER", "MYID"}), "--cluster-slots", std::to_string(slots),
              "--cluster-replace"});
}

void ReplicatedCluster::take_over() {
  for (size_t i = 0; i < servers; i++) {
    const std::string role = servers_[i]->ask({"ROLE"});
    for (size_t k = 0; k < servers; k++)
      if (!runs_[k] && role.starts_with("slave 127.0.0.1 " + std::to_string(servers_[k]->port())))
        servers_[i]->ask({"CLUSTER", "FAILOVER", "TAKEOVER"});
  }
}

void ReplicatedCluster::mend() {
  std::array<const Server*, servers> all;
  std::vector<ClusterView> views(servers);
  for (size_t i = 0; i < servers; i++) all[i] = servers_[i].get();
  const auto end = std::chrono::steady_clock::now() + 120s;
  while (std::chrono::steady_clock::now() < end) {
    const bool healthy = become_healthy(6s);
    // Servers tell each other what changed about once a second.
    for (int i = 0; i < 50; i++, std::this_thread::sleep_for(100ms)) {
      for (size_t k = 0; k < servers; k++) views[k] = view_of(*all[k]);
      if (healthy && is_agreed(views)) return;
    }
    reconcile(all, views);
  }
  std::string nodes;
  for (const Server* server : all) nodes.append("\n").append(server->ask({"CLUSTER", "NODES"}));
  throw std::runtime_error("the servers do not agree again. What each of them says:" + nodes);
}

bool ReplicatedCluster::is_healthy() {
  size_t masters = 0, replicas = 0;
  for (const auto& server : servers_) {
    const std::string info = server->ask({"CLUSTER", "INFO"}), role = server->ask({"ROLE"});
    if (info.find("cluster_state:ok") == std::string::npos ||
        info.find("cluster_slots_ok:16384") == std::string::npos)
      return false;
    masters += role.starts_with("master ") && role.find("127.0.0.1") != std::string::npos;
    replicas += role.starts_with("slave ") && role.find(" connected ") != std::string::npos;
  }
  return masters == 3 && replicas == 3;
}

bool ReplicatedCluster::become_healthy(std::chrono::seconds patience) {
  for (const auto end = std::chrono::steady_clock::now() + patience;
       std::chrono::steady_clock::now() < end; std::this_thread::sleep_for(50ms))
    if (is_healthy()) return true;
  return false;
}

void ReplicatedCluster::wait_until_healthy(std::chrono::seconds patience) {
  if (!become_healthy(patience)) throw std::runtime_error("the cluster does not become healthy");
}

}  // namespace redis_test
