// The header and the tables of a file, and how they are encoded: see FORMAT.md.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/checked.h"
#include "engine/file/bytes.h"
#include "engine/memory/layout.h"

namespace pkv::file {

inline constexpr uint32_t format_version = 1;
inline constexpr size_t header_bytes = 48;
inline constexpr size_t sizes_bytes = 64;     // at the beginning of the body
inline constexpr uint32_t none = UINT32_MAX;  // no chain, no salt

// The parts of a body, in their order, in bytes. Padding follows the sizes themselves.
struct Sizes {
  uint64_t tables = 0, kv = 0, lengths = 0;
  // Returns the bytes of the whole body. Throws OVERFLOW.
  uint64_t body() const;
};

struct Header {
  uint64_t body_bytes = 0;
  bool encrypted = false;
  std::array<unsigned char, 24> random{};  // different in each encrypted file; 0 in the others
};

// Makes the header of a file with a body of this size, with random bytes if it is encrypted.
Header make_header(uint64_t body_bytes, bool encrypted);

std::vector<unsigned char> encode(const Header& header);
// Throws CORRUPT or WRONG_VERSION.
Header parse_header(std::span<const unsigned char> bytes);

std::vector<unsigned char> encode(const Sizes& sizes);
// Throws CORRUPT if they do not add up to the body of the header.
Sizes parse_sizes(std::span<const unsigned char> bytes, const Header& header);

// The layers of one group, which may be opaque. query_heads is 0, since keys and values do not
// depend on it. A file has only the digest of the matrices of a rotation.
struct SavedGroup {
  memory::Shape shape;
  std::vector<uint32_t> layers;
};

// A run of tokens that several texts may share. It follows the end of another chain, or begins a
// text. A chain that others follow consists of whole tiles of every group.
struct Chain {
  uint32_t parent = none;             // a chain before this one in the list
  std::vector<unsigned char> has_kv;  // by group: 1 if its keys and values are in the file
  std::vector<int32_t> tokens;
  uint64_t start = 0;  // the end of the parent; not written
  uint64_t end() const { return start + tokens.size(); }
};

enum SavedFlags : uint32_t {
  saved_suspended = 1,
  saved_matches = 2,
  saved_publishes = 4,
  saved_flags = 7
};

struct DroppedRun {
  uint64_t begin, end;
};

struct SavedSession {
  uint64_t label = 0;
  uint64_t length = 0;
  uint32_t chain = none;  // the one in which its tokens end
  uint32_t salt = none;
  int32_t priority = 0;
  uint32_t flags = 0;
  uint32_t retention = 1;                // 0, which is evicted first, to 2, which is evicted last
  std::vector<uint64_t> kept_from;       // by group: the first position of the run held at the end
  std::vector<int32_t> remembered;       // tokens from before a suspension
  uint64_t forgotten_from = UINT64_MAX;  // see Content::forgotten_from()
  // By group, the positions that were dropped, as runs of whole blocks.
  std::vector<std::vector<DroppedRun>> dropped;
};

// A text of the prefix index, of which all blocks up to its length are cached.
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
  std::vector<SavedEntry> entries;  // the least recently used first

  // Returns the unit of chains: the tokens of a chain that others follow are a multiple of it.
  uint64_t chain_unit() const;
  // Returns the bytes of all keys and values. Throws OVERFLOW.
  uint64_t kv_bytes() const;
  // Returns the bytes of the lengths after keys and values: 8 for each chain, then padding.
  uint64_t lengths_bytes() const { return round_up(chains.size() * sizeof(uint64_t), 64); }
};

// Appends a layer group. Tables of files contain it, and the key of an item is a hash of it.
void put_group(ByteWriter& out, const SavedGroup& group);

std::vector<unsigned char> encode(const Tables& tables);
// Throws CORRUPT. The tables it returns are consistent, whatever the bytes were: every index is in
// range, and every text ends in its chain.
Tables parse_tables(std::span<const unsigned char> bytes);

}  // namespace pkv::file
