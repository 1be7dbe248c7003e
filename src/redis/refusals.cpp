// The errors of all versions of Redis and Valkey that this library knows.
#include "redis/refusals.h"

namespace pkv::redis {

namespace {

struct Refusal {
  std::string_view prefix, meaning;
};

// The first entry that matches is used; the last one matches every error.
constexpr Refusal refusals[] = {
    {"WRONGPASS", "WRONGPASS, the user or the password is wrong"},
    {"NOAUTH", "NOAUTH, the server wants a password"},
    {"NOPERM", "NOPERM, the user has no right to this command or to these keys"},
    {"ERR invalid password", "the password is wrong"},
    {"ERR Client sent AUTH, but no password is set", "the server has no password"},
    {"ERR AUTH <password> called without any password", "the server has no password"},
    {"ERR wrong number of arguments for 'auth'",
     "the server is older than Redis 6 and knows no users"},
    {"ERR DB index is out of range", "the server has no such database (DB index is out of range)"},
    {"ERR invalid DB index", "the server has no such database (invalid DB index)"},
    {"ERR SELECT is not allowed in cluster mode", "a cluster has no databases"},
    {"ERR unknown command", "the server does not know this command"},
    {"ERR max number of clients reached", "the server has its maximum number of clients"},
    {"LOADING", "LOADING, the server is still reading its data"},
    {"MASTERDOWN", "MASTERDOWN, the server is a replica that has lost its master"},
    {"CLUSTERDOWN", "CLUSTERDOWN, the cluster does not work"},
    {"DENIED", "DENIED, the server is in protected mode"},
    {"BUSY", "BUSY, the server runs a script"},
    {"MISCONF", "MISCONF, the server cannot save its data"},
    {"", "an error whose text is not shown, since it may repeat what was sent"},
};

}  // namespace

std::string describe_refusal(std::string_view command, std::string_view text) {
  const Refusal* refusal = refusals;
  while (!text.starts_with(refusal->prefix)) refusal++;
  return std::string(command).append(" was refused: ").append(refusal->meaning);
}

bool is_missing_right(std::string_view text) { return text.starts_with("NOPERM"); }

bool is_cluster_down(std::string_view text) { return text.starts_with("CLUSTERDOWN"); }

}  // namespace pkv::redis
