// The commands of each operation, and how their replies are read.
#include "redis/operations.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace pkv::redis {

ItemOperation::ItemOperation(const Settings& settings, size_t n, const pkv_store_item* items)
    : settings_(settings), n_(n), key_size_(settings.prefix.size() + sizeof items->name) {
  keys_.reserve(n * key_size_);
  for (size_t i = 0; i < n; i++) {
    keys_ += settings.prefix;
    keys_.append(reinterpret_cast<const char*>(items[i].name), sizeof items[i].name);
  }
}

// ---- Put ----------------------------------------------------------------------------------------

Put::Put(const Settings& settings, size_t n, pkv_store_item* items)
    : ItemOperation(settings, n, items),
      items_(items),
      sizes_(n),
      ttl_(settings.ttl_seconds > 0 ? std::to_string(settings.ttl_seconds) : "") {
  for (size_t i = 0; i < n; i++) sizes_[i] = std::exchange(items[i].size, 0);
}

// Sent without NX, because an existing value may be of another type or damaged, and because its
// time to live must start anew.
void Put::add_command(size_t item, Pipeline& commands) const {
  const std::string_view value(static_cast<const char*>(items_[item].data), sizes_[item]);
  if (ttl_.empty()) {
    commands.add({command(), key(item), value});
  } else {
    commands.add({command(), key(item), value, "EX", ttl_});
  }
}

bool Put::handle_reply(size_t item, const redisReply& reply) {
  if (reply.type != REDIS_REPLY_STATUS) return false;
  items_[item].size = sizes_[item];
  return true;
}

// ---- Measure ------------------------------------------------------------------------------------

Measure::Measure(const Settings& settings, size_t n, pkv_store_item* items)
    : ItemOperation(settings, n, items), items_(items) {
  for (size_t i = 0; i < n; i++) items[i].size = 0;
}

void Measure::add_command(size_t item, Pipeline& commands) const {
  commands.add({command(), key(item)});
}

bool Measure::handle_reply(size_t item, const redisReply& reply) {
  if (reply.type != REDIS_REPLY_INTEGER || reply.integer <= 0) return false;
  items_[item].size = static_cast<uint64_t>(reply.integer);
  return true;
}

// ---- Prolong ------------------------------------------------------------------------------------

Prolong::Prolong(const Settings& settings, size_t n, pkv_store_item* items)
    : ItemOperation(settings, n, items),
      items_(items),
      ttl_(std::to_string(settings.ttl_seconds)) {}

void Prolong::add_command(size_t item, Pipeline& commands) const {
  commands.add({command(), key(item), ttl_});
}

bool Prolong::handle_reply(size_t item, const redisReply& reply) {
  if (reply.type != REDIS_REPLY_INTEGER) return false;
  if (reply.integer != 1) items_[item].size = 0;
  return reply.integer == 1;
}

// ---- Get ----------------------------------------------------------------------------------------

Get::Get(const Settings& settings, size_t n, pkv_store_item* items)
    : ItemOperation(settings, n, items), items_(items), room_(n) {
  for (size_t i = 0; i < n; i++) room_[i] = std::exchange(items[i].size, 0);
}

// Asks for one byte more than there is room for, which shows whether the value is larger. A larger
// value is never fetched as a whole.
void Get::add_command(size_t item, Pipeline& commands) const {
  commands.add({command(), key(item), "0", std::to_string(room_[item])});
}

bool Get::handle_reply(size_t item, const redisReply& reply) {
  if (reply.type != REDIS_REPLY_STRING || reply.len == 0) return false;
  const size_t bytes = std::min<size_t>(reply.len, room_[item]);
  if (bytes > 0) std::memcpy(items_[item].data, reply.str, bytes);
  items_[item].size = reply.len;
  if (reply.len > room_[item]) larger_.push_back(item);
  return true;
}

// ---- Remove -------------------------------------------------------------------------------------

// DEL, not UNLINK: UNLINK frees strings at once, too, and older servers and some lists of permitted
// commands lack it.
void Remove::add_command(size_t item, Pipeline& commands) const {
  commands.add({command(), key(item)});
}

bool Remove::handle_reply(size_t, const redisReply& reply) {
  return reply.type == REDIS_REPLY_INTEGER && reply.integer > 0;
}

}  // namespace pkv::redis
