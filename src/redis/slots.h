// How a cluster spreads keys over its servers.
#pragma once

#include <hiredis.h>

#include <optional>
#include <string_view>
#include <vector>

#include "redis/address.h"

namespace pkv::redis {

constexpr size_t slot_count = 16384;

// CRC-16 (XMODEM) of the key, or of what stands between its first { and the next }, unless that is
// nothing.
uint16_t slot_of(std::string_view key);

struct SlotRange {
  size_t first, last;
  Address master;
};

// The reply to CLUSTER SLOTS of the server `asked`; none where it is not one. A server without
// clusters has no ranges.
std::optional<std::vector<SlotRange>> parse_slots(const redisReply& reply, const Address& asked);

// "MOVED 3999 host:port" and "ASK 3999 host:port": where to ask instead.
struct Redirection {
  bool ask;
  size_t slot;
  Address to;
};

std::optional<Redirection> parse_redirection(const redisReply& reply, const Address& asked);

}  // namespace pkv::redis
