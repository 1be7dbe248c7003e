// How a cluster spreads keys over its servers: the slot of a key, and replies about slots.
#pragma once

#include <hiredis.h>

#include <optional>
#include <string_view>
#include <vector>

#include "redis/address.h"

namespace pkv::redis {

constexpr size_t slot_count = 16384;

// The slot of a key: CRC-16 (XMODEM) of the key, or of the text between its first { and the next },
// if there is any.
uint16_t slot_of(std::string_view key);

struct SlotRange {
  size_t first, last;
  Address master;
};

// Parses the reply of the server `asked` to CLUSTER SLOTS. Returns nothing if it is malformed, and
// no ranges if it is an error: a server that belongs to no cluster sends one.
std::optional<std::vector<SlotRange>> parse_slots(const redisReply& reply, const Address& asked);

// An error that names the server to ask instead: "MOVED 3999 host:port" from now on, "ASK 3999
// host:port" this time only.
struct Redirection {
  bool ask;
  size_t slot;
  Address to;
};

// Returns nothing if the reply is not a redirection.
std::optional<Redirection> parse_redirection(const redisReply& reply, const Address& asked);

}  // namespace pkv::redis
