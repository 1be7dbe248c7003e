#include "redis/slots.h"

#include <charconv>

namespace pkv::redis {

namespace {

std::string_view text_of(const redisReply& reply) { return {reply.str, reply.len}; }

template <class Number>
std::optional<Number> number_of(std::string_view text, Number least, Number most) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size() || number < least || number > most) return std::nullopt;
  return number;
}

bool is_slot(const redisReply& reply) {
  return reply.type == REDIS_REPLY_INTEGER && reply.integer >= 0 && reply.integer < static_cast<long long>(slot_count);
}

}  // namespace

uint16_t slot_of(std::string_view key) {
  if (const size_t open = key.find('{'); open != std::string_view::npos) {
    const size_t close = key.find('}', open + 1);
    if (close != std::string_view::npos && close > open + 1) key = key.substr(open + 1, close - open - 1);
  }
  unsigned crc = 0;
  for (const char byte : key) {
    crc ^= static_cast<unsigned>(static_cast<unsigned char>(byte)) << 8;
    for (int bit = 0; bit < 8; bit++) crc = (crc << 1) ^ ((crc & 0x8000) != 0 ? 0x1021 : 0);
  }
  return static_cast<uint16_t>(crc % slot_count);
}

std::optional<std::vector<SlotRange>> parse_slots(const redisReply& reply, const Address& asked) {
  std::vector<SlotRange> ranges;
  if (reply.type == REDIS_REPLY_ERROR) return ranges;
  if (reply.type != REDIS_REPLY_ARRAY) return std::nullopt;
  for (size_t i = 0; i < reply.elements; i++) {
    const redisReply& range = *reply.element[i];
    if (range.type != REDIS_REPLY_ARRAY || range.elements < 3 || !is_slot(*range.element[0]) || !is_slot(*range.element[1])) return std::nullopt;
    const redisReply& master = *range.element[2];
    if (master.type != REDIS_REPLY_ARRAY || master.elements < 2) return std::nullopt;
    const redisReply &host = *master.element[0], &port = *master.element[1];
    if (port.type != REDIS_REPLY_INTEGER || port.integer < 1 || port.integer > 65535) return std::nullopt;
    // A node that does not know its own name leaves it out.
    const bool named = host.type == REDIS_REPLY_STRING && host.len > 0 && text_of(host) != "?";
    ranges.push_back({static_cast<size_t>(range.element[0]->integer), static_cast<size_t>(range.element[1]->integer),
                      {named ? std::string(text_of(host)) : asked.host, static_cast<int>(port.integer)}});
  }
  return ranges;
}

std::optional<Redirection> parse_redirection(const redisReply& reply, const Address& asked) {
  if (reply.type != REDIS_REPLY_ERROR) return std::nullopt;
  std::string_view text = text_of(reply);
  const bool ask = text.starts_with("ASK "), moved = text.starts_with("MOVED ");
  if (!ask && !moved) return std::nullopt;
  text.remove_prefix(text.find(' ') + 1);
  const size_t space = text.find(' '), colon = text.rfind(':');
  if (space == std::string_view::npos || colon == std::string_view::npos || colon < space) return std::nullopt;
  const auto slot = number_of<size_t>(text.substr(0, space), 0, slot_count - 1);
  const auto port = number_of<int>(text.substr(colon + 1), 1, 65535);
  if (!slot || !port) return std::nullopt;
  const std::string_view host = text.substr(space + 1, colon - space - 1);
  return Redirection{ask, *slot, {host.empty() ? asked.host : std::string(host), *port}};
}

}  // namespace pkv::redis
