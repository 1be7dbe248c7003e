// The caller's config (pkv_redis_config), read, checked and parsed.
#pragma once

#include <pagedkv/redis.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "redis/address.h"
#include "redis/secret_text.h"
#include "redis/tls.h"

namespace pkv::redis {

// The maximum number of addresses in a config, and of servers in a cluster.
constexpr size_t max_servers = 1024;

struct Settings {
  std::vector<Address> servers;
  SecretText user, password;
  uint32_t database = 0;
  std::string prefix;
  std::chrono::milliseconds connect_timeout, command_timeout;
  uint32_t ttl_seconds;
  size_t max_pipeline_bytes;
  bool connect_later;
  std::unique_ptr<const TlsContext> tls;  // NULL without TLS
};

// Throws an Error with INVALID_ARGUMENT, UNSUPPORTED or IO. Its sentence never repeats a part of
// `servers`, `user` or `password`, because each may contain a password.
Settings read_settings(const pkv_redis_config* config);

}  // namespace pkv::redis
