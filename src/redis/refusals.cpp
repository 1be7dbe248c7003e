// The errors of all versions of Redis and Valkey that this library knows.
#include "redis/refusals.h"

#include <cerrno>

namespace pkv::redis {

namespace {

constexpr std::string_view unknown_command = "ERR unknown command", wrong_type = "WRONGTYPE";

struct Refusal {
  std::string_view prefix;
  int error;
  std::string_view meaning;
};

// The first entry that matches is used; the last one matches every error.
constexpr Refusal refusals[] = {
    {"WRONGPASS", EACCES, "WRONGPASS, the user or the password is wrong"},
    {"NOAUTH", EACCES, "NOAUTH, the server wants a password"},
    {"NOPERM", EACCES, "NOPERM, the user has no right to this command or to these keys"},
    {"ERR invalid password", EACCES, "the password is wrong"},
    {"ERR Client sent AUTH, but no password is set", EACCES, "the server has no password"},
    {"ERR AUTH <password> called without any password", EACCES, "the server has no password"},
    {"ERR wrong number of arguments for 'auth'", EACCES,
     "the server is older than Redis 6 and knows no users"},
    {"ERR DB index is out of range", EACCES,
     "the server has no such database (DB index is out of range)"},
    {"ERR invalid DB index", EACCES, "the server has no such database (invalid DB index)"},
    {"ERR SELECT is not allowed in cluster mode", EACCES, "a cluster has no databases"},
    {unknown_command, EOPNOTSUPP, "the server does not know this command"},
    {"ERR max number of clients reached", EAGAIN, "the server has its maximum number of clients"},
    {"OOM", ENOSPC, "OOM, its memory is full (maxmemory), and its policy evicts nothing"},
    {"READONLY", EROFS, "READONLY, the server is a replica"},
    {"NOREPLICAS", EAGAIN, "NOREPLICAS, too few replicas are connected"},
    {"LOADING", EAGAIN, "LOADING, the server is still reading its data"},
    {"MASTERDOWN", EAGAIN, "MASTERDOWN, the server is a replica that has lost its master"},
    {"CLUSTERDOWN", EAGAIN, "CLUSTERDOWN, the cluster does not work"},
    {"TRYAGAIN", EAGAIN, "TRYAGAIN, the slot of the key is being moved"},
    {"MOVED", EAGAIN, "MOVED, redirected, but not to a server of its cluster"},
    {"ASK", EAGAIN, "ASK, redirected, but not to a server of its cluster"},
    {"DENIED", EACCES, "DENIED, the server is in protected mode"},
    {"BUSY", EBUSY, "BUSY, the server runs a script"},
    {"MISCONF", EIO, "MISCONF, the server cannot save its data"},
    {wrong_type, EIO, "WRONGTYPE, the value is not a string"},
    {"", EIO, "an error whose text is not shown, since it may repeat what was sent"},
};

const Refusal& find_refusal(std::string_view text) {
  const Refusal* refusal = refusals;
  while (!text.starts_with(refusal->prefix)) refusal++;
  return *refusal;
}

}  // namespace

std::string describe_refusal(std::string_view command, std::string_view text) {
  return std::string(command).append(" was refused: ").append(find_refusal(text).meaning);
}

int errno_of_refusal(std::string_view text) { return find_refusal(text).error; }

bool is_missing_right(std::string_view text) { return text.starts_with("NOPERM"); }

bool is_final(std::string_view text) {
  return is_missing_right(text) || text.starts_with(unknown_command);
}

bool concerns_one_key(std::string_view text) { return text.starts_with(wrong_type); }

bool is_cluster_down(std::string_view text) { return text.starts_with("CLUSTERDOWN"); }

}  // namespace pkv::redis
