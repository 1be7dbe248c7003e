// Ownership of a server's replies as hiredis gives them, and questions that all readers ask.
#pragma once

#include <hiredis.h>

#include <memory>
#include <string_view>

namespace pkv::redis {

struct FreeReply {
  void operator()(redisReply* reply) const { freeReplyObject(reply); }
};
using Reply = std::unique_ptr<redisReply, FreeReply>;

inline bool is_error(const redisReply& reply) { return reply.type == REDIS_REPLY_ERROR; }

// The text of a string, a status or an error.
inline std::string_view text_of(const redisReply& reply) { return {reply.str, reply.len}; }

}  // namespace pkv::redis
