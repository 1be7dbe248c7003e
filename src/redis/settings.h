// The caller's config (pkv_redis_config), read, checked and parsed.
#pragma once

#include <pagedkv/redis.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "redis/address.h"
#include "redis/secret.h"
#include "redis/tls.h"

namespace pkv::redis {

// The limit for addresses in a config, and for servers of a cluster.
constexpr size_t max_servers = 1024;

struct Settings {
  std::vector<Address> servers;
  SecretText user, password;
  uint32_t database = 0;
  std::string prefix;
  std::chrono::milliseconds connect_timeout, command_timeout;
  uint32_t ttl_seconds;
  size_t pipeline_bytes;
  bool connect_later;
  std::unique_ptr<const TlsContext> tls;  // NULL without TLS
};

// Throws an Error with INVALID_ARGUMENT, UNSUPPORTED or IO. Its sentence never repeats a part of
// `servers`, `user` or `password`, because a password may stand in any of them.
Settings read_settings(const pkv_redis_config* config);

}  // namespace pkv::redis
