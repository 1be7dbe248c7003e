// How slots are computed, and how replies about them are parsed. A server may send anything, so
// everything in a reply is checked.
#include "redis/hash_slots.h"

#include <utility>

#include "redis/reply.h"

namespace pkv::redis {

namespace {

bool is_slot(const redisReply& reply) {
  return reply.type == REDIS_REPLY_INTEGER && reply.integer >= 0 &&
         reply.integer < static_cast<long long>(slot_count);
}

}  // namespace

uint16_t slot_of(std::string_view key) {
  if (const size_t open = key.find('{'); open != std::string_view::npos) {
    const size_t close = key.find('}', open + 1);
    if (close != std::string_view::npos && close > open + 1)
      key = key.substr(open + 1, close - open - 1);
  }
  unsigned crc = 0;
  for (const char byte : key) {
    crc ^= static_cast<unsigned>(static_cast<unsigned char>(byte)) << 8;
    for (int bit = 0; bit < 8; bit++) crc = (crc << 1) ^ ((crc & 0x8000) != 0 ? 0x1021 : 0);
  }
  return static_cast<uint16_t>(crc % slot_count);
}

namespace {

// Parses a node in the reply to CLUSTER SLOTS: [name, port, ...].
std::optional<Address> parse_node(const redisReply& node, const Address& asked) {
  if (node.type != REDIS_REPLY_ARRAY || node.elements < 2) return std::nullopt;
  const redisReply &host = *node.element[0], &port = *node.element[1];
  if (port.type != REDIS_REPLY_INTEGER || port.integer < 1 || port.integer > 65535)
    return std::nullopt;
  // A node that does not know its own name leaves it out; its name is then the one that we asked.
  const bool named = host.type == REDIS_REPLY_STRING && host.len > 0 && text_of(host) != "?";
  if (named && !is_host(text_of(host))) return std::nullopt;
  return Address{named ? std::string(text_of(host)) : asked.host, static_cast<int>(port.integer)};
}

}  // namespace

std::optional<std::vector<SlotRange>> parse_slots(const redisReply& reply, const Address& asked) {
  std::vector<SlotRange> ranges;
  if (is_error(reply)) return ranges;
  if (reply.type != REDIS_REPLY_ARRAY) return std::nullopt;
  size_t slots = 0;
  for (size_t i = 0; i < reply.elements; i++) {
    const redisReply& range = *reply.element[i];
    if (range.type != REDIS_REPLY_ARRAY || range.elements < 3 || !is_slot(*range.element[0]) ||
        !is_slot(*range.element[1]))
      return std::nullopt;
    const auto first = static_cast<size_t>(range.element[0]->integer);
    const auto last = static_cast<size_t>(range.element[1]->integer);
    auto master = parse_node(*range.element[2], asked);
    if (!master || first > last) return std::nullopt;
    // No slot has two masters, so all ranges together cannot have more slots than exist.
    slots += last - first + 1;
    if (slots > slot_count) return std::nullopt;
    ranges.push_back({first, last, std::move(*master)});
  }
  return ranges;
}

std::optional<Redirection> parse_redirection(const redisReply& reply, const Address& asked) {
  if (!is_error(reply)) return std::nullopt;
  std::string_view text = text_of(reply);
  const bool ask = text.starts_with("ASK "), moved = text.starts_with("MOVED ");
  if (!ask && !moved) return std::nullopt;
  text.remove_prefix(text.find(' ') + 1);
  const size_t space = text.find(' '), colon = text.rfind(':');
  if (space == std::string_view::npos || colon == std::string_view::npos || colon < space)
    return std::nullopt;
  const auto slot = parse_number<size_t>(text.substr(0, space), 0, slot_count - 1);
  const auto port = parse_number<int>(text.substr(colon + 1), 1, 65535);
  const std::string_view host = text.substr(space + 1, colon - space - 1);
  const bool named = !host.empty() && host != "?";
  if (!slot || !port || (named && !is_host(host))) return std::nullopt;
  return Redirection{ask, *slot, {named ? std::string(host) : asked.host, *port}};
}

}  // namespace pkv::redis
