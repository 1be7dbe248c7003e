#include "servers.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <random>
#include <set>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "../support/files.h"

namespace redis_test {

namespace {

using namespace std::chrono_literals;

const char* server_program() {
  static const char* const found = [] {
    for (const char* name : {"redis-server", "valkey-server"})
      if (std::system(("command -v " + std::string(name) + " > /dev/null 2>&1").c_str()) == 0)
        return name;
    return static_cast<const char*>(nullptr);
  }();
  return found;
}

bool can_bind(int port) {
  const int descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  const bool result =
      bind(descriptor, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  close(descriptor);
  return result;
}

std::string text_of(const redisReply* reply) {
  if (reply->type == REDIS_REPLY_INTEGER) return std::to_string(reply->integer);
  if (reply->type == REDIS_REPLY_NIL) return "(nil)";
  if (reply->type != REDIS_REPLY_ARRAY) return {reply->str, reply->len};
  std::string text;
  for (size_t i = 0; i < reply->elements; i++)
    text.append(i > 0 ? " " : "").append(text_of(reply->element[i]));
  return text;
}

}  // namespace

bool have_server() { return server_program() != nullptr; }

// Ports are below those that systems assign automatically. A cluster takes another one, 10,000
// above.
int free_port() {
  static std::mt19937 random(std::random_device{}());
  for (;;) {
    const int port = std::uniform_int_distribution<int>(20'000, 32'000)(random);
    if (can_bind(port) && can_bind(port + 10'000)) return port;
  }
}

bool have_ipv6() {
  const int socket = ::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (socket < 0) return false;
  sockaddr_in6 any_port{};
  any_port.sin6_family = AF_INET6;
  any_port.sin6_addr = in6addr_loopback;
  const bool bound =
      bind(socket, reinterpret_cast<const sockaddr*>(&any_port), sizeof any_port) == 0;
  close(socket);
  return bound;
}

bool have_tls_server() {
  if (!have_server()) return false;
  static const bool found =
      std::system(
          (std::string("ldd $(command -v ") + server_program() + ") | grep -q libssl").c_str()) ==
      0;
  return found;
}

Server::Server(std::vector<std::string> options, std::optional<TlsFiles> tls)
    : options_(std::move(options)), tls_(std::move(tls)), directory_(files::make_directory()) {
  // Another process may take the port before the server does.
  for (int attempt = 0; attempt < 10; attempt++) {
    port_ = free_port();
    do tls_port_ = tls_ ? free_port() : 0;
    while (tls_port_ == port_);
    if (try_start()) return;
  }
  throw std::runtime_error("no server could be started in " + directory_.string());
}

Server::~Server() {
  stop();
  std::error_code ignored;
  std::filesystem::remove_all(directory_, ignored);
}

void Server::stop() {
  if (process_ < 0) return;
  kill(process_, SIGKILL);
  waitpid(process_, nullptr, 0);
  process_ = -1;
}

void Server::start() {
  for (int attempt = 0; attempt < 10; attempt++)
    if (try_start()) return;
  throw std::runtime_error("the server could not be started again on port " +
                           std::to_string(port_));
}

bool Server::try_start() {
  std::vector<std::string> words = {
      server_program(), "--port",    std::to_string(port_), "--bind", "127.0.0.1",
      "--save",         "",          "--appendonly",        "no",     "--dir",
      directory_,       "--logfile", directory_ / "log"};
  if (tls_) {
    const std::string clients = tls_->asks_clients ? "yes" : "no";
    for (const std::string& word :
         {std::string("--tls-port"), std::to_string(tls_port_), std::string("--tls-cert-file"),
          tls_->certificate, std::string("--tls-key-file"), tls_->key,
          std::string("--tls-ca-cert-file"), tls_->ca, std::string("--tls-auth-clients"), clients})
      words.push_back(word);
  }
  words.insert(words.end(), options_.begin(), options_.end());
  if (std::find(words.begin(), words.end(), "--sentinel") != words.end()) {
    // A Sentinel keeps what it knows in its configuration file, which comes first.
    std::ofstream(directory_ / "sentinel.conf");
    words.insert(words.begin() + 1, directory_ / "sentinel.conf");
  }
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const pid_t parent = getpid();
  process_ = fork();
  if (process_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    execvp(arguments[0], arguments.data());
    _exit(127);
  }
  for (const auto end = std::chrono::steady_clock::now() + hang_limit;
       std::chrono::steady_clock::now() < end;) {
    if (waitpid(process_, nullptr, WNOHANG) == process_) break;
    const std::string answer = ask({"PING"});
    if (answer == "PONG" || answer.starts_with("NOAUTH")) return true;
    std::this_thread::sleep_for(5ms);
  }
  stop();
  return false;
}

// Calls `handle` with the reply, unless there is none.
void Server::send(const std::vector<std::string>& arguments,
                  const std::function<void(const redisReply&)>& handle,
                  const std::string& password) const {
  const timeval timeout{hang_limit.count(), 0};
  redisContext* context = redisConnectWithTimeout("127.0.0.1", port_, timeout);
  if (context != nullptr && context->err == 0) {
    redisSetTimeout(context, timeout);
    if (!password.empty()) freeReplyObject(redisCommand(context, "AUTH %s", password.c_str()));
    std::vector<const char*> data;
    std::vector<size_t> sizes;
    for (const std::string& argument : arguments)
      data.push_back(argument.data()), sizes.push_back(argument.size());
    if (auto* reply = static_cast<redisReply*>(
            redisCommandArgv(context, static_cast<int>(data.size()), data.data(), sizes.data()))) {
      handle(*reply);
      freeReplyObject(reply);
    }
  }
  if (context != nullptr) redisFree(context);
}

std::string Server::ask(const std::vector<std::string>& arguments) const {
  std::string answer = "(no connection)";
  send(arguments, [&](const redisReply& reply) { answer = text_of(&reply); });
  return answer;
}

std::string Server::ask_as(const std::string& password,
                           const std::vector<std::string>& arguments) const {
  std::string answer = "(no connection)";
  send(arguments, [&](const redisReply& reply) { answer = text_of(&reply); }, password);
  return answer;
}

std::vector<std::string> Server::list(const std::vector<std::string>& arguments) const {
  std::vector<std::string> elements;
  send(arguments, [&](const redisReply& reply) {
    if (reply.type != REDIS_REPLY_ARRAY) return;
    for (size_t i = 0; i < reply.elements; i++) elements.push_back(text_of(reply.element[i]));
  });
  return elements;
}

Cluster::Cluster(const std::optional<TlsFiles>& tls) {
  std::vector<std::string> options = {"--cluster-enabled",
                                      "yes",
                                      "--cluster-node-timeout",
                                      "2000",
                                      "--cluster-require-full-coverage",
                                      "no"};
  if (tls) options.insert(options.end(), {"--tls-cluster", "yes"});
  for (size_t i = 0; i < 3; i++) servers_.push_back(std::make_unique<Server>(options, tls));
  for (size_t i = 0, first = 0; i < size(); i++) {
    size_t end = first;
    while (end < 16384 && owner(end) == i) end++;
    const std::string answer = servers_[i]->ask(
        {"CLUSTER", "ADDSLOTSRANGE", std::to_string(first), std::to_string(end - 1)});
    if (answer != "OK") throw std::runtime_error("CLUSTER ADDSLOTSRANGE: " + answer);
    first = end;
  }
  for (size_t i = 0; i < size(); i++)
    servers_[i]->ask({"CLUSTER", "SET-CONFIG-EPOCH", std::to_string(i + 1)});
  for (size_t i = 1; i < size(); i++)
    servers_[0]->ask({"CLUSTER", "MEET", "127.0.0.1",
                      std::to_string(tls ? servers_[i]->tls_port() : servers_[i]->port())});
  wait_until_ok();
}

namespace {

// Returns what a server knows of each server: its id, its epoch and its slots.
std::set<std::string> map_of(const Server& server) {
  std::set<std::string> map;
  std::istringstream lines(server.ask({"CLUSTER", "NODES"}));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string id, skipped, epoch, slots;
    words >> id;
    for (int i = 0; i < 5; i++) words >> skipped;  // address, flags, master, two times
    words >> epoch >> skipped;                     // and the state of the link
    std::getline(words, slots);
    map.insert(id + " " + epoch + slots);
  }
  return map;
}

}  // namespace

void Cluster::wait_until_ok() {
  for (const auto end = std::chrono::steady_clock::now() + hang_limit;
       std::chrono::steady_clock::now() < end; std::this_thread::sleep_for(20ms)) {
    size_t ok = 0;
    const auto map = map_of(*servers_[0]);
    for (const auto& server : servers_) {
      const std::string info = server->ask({"CLUSTER", "INFO"});
      ok += info.find("cluster_state:ok") != std::string::npos &&
            info.find("cluster_slots_ok:16384") != std::string::npos && map_of(*server) == map;
    }
    if (ok == size()) return;
  }
  throw std::runtime_error("the cluster does not come up");
}

}  // namespace redis_test
