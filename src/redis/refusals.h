// What a server's error means, in sentences of this library. The server's own text is never
// repeated, because it may contain a password, or bytes that somebody else chose.
#pragma once

#include <string>
#include <string_view>

namespace pkv::redis {

// Returns a sentence about a command that the server answered with the error `text`.
std::string describe_refusal(std::string_view command, std::string_view text);

// The errno that stands for the error.
int errno_of_refusal(std::string_view text);

// Whether the error says that the user has no right to the command.
bool is_missing_right(std::string_view text);

// Whether the command can never work on this server, as far as the error tells.
bool is_final(std::string_view text);

// Whether the error is about the value of one key, and not about the server or the user.
bool concerns_one_key(std::string_view text);

// Whether a server refuses a key because its cluster is down, as far as it knows.
bool is_cluster_down(std::string_view text);

}  // namespace pkv::redis
