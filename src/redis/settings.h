// What a caller configured, read and checked.
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

struct Settings {
  std::vector<Address> servers;
  Secret user, password;
  uint32_t database = 0;
  std::string prefix;
  std::chrono::milliseconds connect_timeout, command_timeout;
  uint32_t ttl_seconds;
  size_t pipeline_bytes;
  bool connect_later;
  std::unique_ptr<const TlsContext> tls;  // NULL without TLS
};

// Throws an Error with INVALID_ARGUMENT, UNSUPPORTED or IO. No sentence repeats a part of
// `servers`, `user` or `password`.
Settings read_settings(const pkv_redis_config* config);

pkv_redis_config default_config();

}  // namespace pkv::redis
