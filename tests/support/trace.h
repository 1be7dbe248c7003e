// A recorded workload of a chat service: for each request, in order of arrival, the blocks of 512
// tokens of its text.
#pragma once

#include <cctype>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace trace {

inline constexpr uint32_t tokens_per_block = 512;
inline constexpr const char* file_name = "mooncake_conversation_trace.jsonl";

using Request = std::vector<uint32_t>;  // ids of blocks; the same id means the same text up to the
                                        // end of the block

// Returns the path of the trace: in PAGEDKV_DATA, or in ../shared/data beside the repository.
inline std::filesystem::path path(const char* repository) {
  const char* const given = std::getenv("PAGEDKV_DATA");
  const std::filesystem::path root = repository;
  return (given != nullptr ? std::filesystem::path(given)
                           : root.parent_path() / "shared" / "data") /
         file_name;
}

// Reads the list "hash_ids" of each line.
inline std::vector<Request> read(const std::filesystem::path& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot read " + path.string());
  std::vector<Request> requests;
  for (std::string line; std::getline(file, line);) {
    const size_t key = line.find("\"hash_ids\""), begin = line.find('[', key);
    if (key == std::string::npos || begin == std::string::npos)
      throw std::runtime_error("a line without hash_ids in " + path.string());
    Request& request = requests.emplace_back();
    for (const char* at = line.c_str() + begin + 1; *at != ']' && *at != 0; at++) {
      if (!std::isdigit(static_cast<unsigned char>(*at))) continue;
      char* end = nullptr;
      request.push_back(static_cast<uint32_t>(std::strtoul(at, &end, 10)));
      at = end - 1;
    }
  }
  return requests;
}

// The tokens of a request's prompt, and of its answer.
struct Lengths {
  uint32_t input = 0, output = 0;
};

// Reads "input_length" and "output_length" of each line.
inline std::vector<Lengths> read_lengths(const std::filesystem::path& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot read " + path.string());
  std::vector<Lengths> requests;
  for (std::string line; std::getline(file, line);) {
    const auto number = [&](const char* name) {
      const size_t key = line.find(name), colon = line.find(':', key);
      if (key == std::string::npos || colon == std::string::npos)
        throw std::runtime_error("a line without " + std::string(name) + " in " + path.string());
      return static_cast<uint32_t>(std::strtoul(line.c_str() + colon + 1, nullptr, 10));
    };
    requests.push_back({number("\"input_length\""), number("\"output_length\"")});
  }
  return requests;
}

// Appends the first n tokens of a block's 512. They depend on the id alone; a finaliser of
// MurmurHash3 by Austin Appleby makes them.
inline void append_tokens(uint32_t id, uint32_t n, std::vector<int32_t>& tokens) {
  for (uint32_t i = 0; i < n; i++) {
    uint32_t x = id * tokens_per_block + i + 1;
    x = (x ^ x >> 16) * 0x85ebca6bu;
    x = (x ^ x >> 13) * 0xc2b2ae35u;
    tokens.push_back(static_cast<int32_t>((x ^ x >> 16) % 128000));
  }
}

}  // namespace trace
