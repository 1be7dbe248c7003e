// What a file holds beside keys and values, and the bytes of it: see FORMAT.md.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/checked.h"
#include "engine/memory/layout.h"

namespace pkv::file {

inline constexpr uint32_t plain_version = 1, encrypted_version = 2;
inline constexpr size_t header_bytes = 48;
inline constexpr size_t sizes_bytes = 64;     // at the beginning of an encrypted body
inline constexpr uint32_t none = UINT32_MAX;  // no chain, no salt

struct Header {
  // With a key these are not in the header, but in the body.
  uint64_t table_bytes = 0, kv_bytes = 0, lengths_bytes = 0;
  uint64_t body_bytes = 0;
  bool encrypted = false;
  std::array<unsigned char, 24> random{};  // with a key: of this file alone
  uint32_t version() const { return encrypted ? encrypted_version : plain_version; }
};

// Of a file with tables, keys and values, and lengths of so many bytes. Throws OVERFLOW.
Header make_header(uint64_t table_bytes, uint64_t kv_bytes, uint64_t lengths_bytes, bool encrypted);

using HeaderBytes = std::array<unsigned char, header_bytes>;
HeaderBytes encode(const Header& header);
// Throws CORRUPT, VERSION.
Header parse_header(std::span<const unsigned char> bytes);

// With a key, sizes are part of what is encrypted.
std::array<unsigned char, sizes_bytes> encode_sizes(const Header& header);
// Throws CORRUPT.
void parse_sizes(std::span<const unsigned char, sizes_bytes> bytes, Header& header);

// The layers of one group, as far as it matters to keys and values (query_heads is 0).
struct SavedGroup {
  memory::Shape shape;
  std::vector<uint32_t> layers;
};

// A run of tokens that follows the end of another one, or nothing. A chain that others follow has
// whole tiles.
struct Chain {
  uint32_t parent = none;           // an earlier one
  std::vector<unsigned char> held;  // by group: 1 where its keys and values are in the file
  std::vector<int32_t> tokens;
  uint64_t start = 0;  // follows from the parent
  uint64_t end() const { return start + tokens.size(); }
};

enum SavedFlags : uint32_t {
  saved_suspended = 1,
  saved_matches = 2,
  saved_publishes = 4,
  saved_flags = 7
};

struct SavedSession {
  uint64_t label = 0;
  uint64_t length = 0;
  uint32_t chain = none;  // in which its tokens end
  uint32_t salt = none;
  int32_t priority = 0;
  uint32_t flags = 0;
  uint32_t retention = 1;           // 0 to 2: what goes first, to what goes last
  std::vector<uint64_t> kept_from;  // by group: of the end of its text, what it holds begins here
  std::vector<int32_t> remembered;  // tokens of before a suspension
};

// A text of the prefix index: all blocks up to there are cached.
struct SavedEntry {
  uint32_t salt = none;
  uint32_t chain = none;
  uint64_t length = 0;
  uint32_t retention = 1;
};

struct Tables {
  uint32_t block_size = 0;
  bool has_kv = true;
  std::vector<unsigned char> fingerprint;
  std::vector<SavedGroup> groups;
  std::vector<std::string> salts;
  std::vector<Chain> chains;
  std::vector<SavedSession> sessions;
  std::vector<SavedEntry> entries;  // those not used for longest first

  // Throws OVERFLOW.
  uint64_t kv_bytes() const;
  // How much of each chain there is, where a file says so: behind keys and values, 8 bytes for
  // each.
  uint64_t lengths_bytes() const { return round_up(chains.size() * sizeof(uint64_t), 64); }
};

std::vector<unsigned char> encode(const Tables& tables);
// Throws CORRUPT: what comes back is consistent in itself, whatever the bytes were.
Tables parse_tables(std::span<const unsigned char> bytes);

}  // namespace pkv::file
