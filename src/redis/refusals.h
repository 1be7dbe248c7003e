// What a server's error means, in words of this library. The server's own text is never repeated:
// it may hold a password, or bytes of anybody's choice.
#pragma once

#include <string>
#include <string_view>

namespace pkv::redis {

// A sentence for the error `text` in answer to `command`.
std::string describe_refusal(std::string_view command, std::string_view text);

// Has the user no right to the command?
bool is_without_right(std::string_view text);

}  // namespace pkv::redis
