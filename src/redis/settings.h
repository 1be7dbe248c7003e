// What a caller configured, read and checked.
#pragma once

#include <pagedkv/redis.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace pkv::redis {

struct Address {
  std::string host;
  int port;

  bool operator==(const Address&) const = default;
  std::string text() const { return host + ":" + std::to_string(port); }
};

struct Settings {
  std::vector<Address> servers;
  std::string user, password;
  uint32_t database = 0;
  std::string prefix;
  std::chrono::milliseconds connect_timeout, command_timeout;
  uint32_t ttl_seconds;
  size_t pipeline_bytes;
  bool connect_later;
};

// Throws an Error with INVALID_ARGUMENT or UNSUPPORTED.
Settings read_settings(const pkv_redis_config* config);

pkv_redis_config default_config();

}  // namespace pkv::redis
