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

inline constexpr uint32_t plain_version = 1, encrypted_version = 2;
// Of files with rotations, states or dropped blocks, which older libraries do not know, the version
// is higher by this.
inline constexpr uint32_t extended_versions = 2;
inline constexpr size_t header_bytes = 48;
inline constexpr size_t sizes_bytes = 64;     // at the beginning of an encrypted body
inline constexpr uint32_t none = UINT32_MAX;  // no chain, no salt

struct Header {
  // In an encrypted file these three are at the beginning of the body instead of in the header.
  uint64_t table_bytes = 0, kv_bytes = 0, lengths_bytes = 0;
  uint64_t body_bytes = 0;
  bool encrypted = false;
  // True if the tables list rotations and states of layer groups, and dropped blocks.
  bool extended = false;
  std::array<unsigned char, 24> random{};  // of an encrypted file, different in each
  uint32_t version() const {
    return (encrypted ? encrypted_version : plain_version) + (extended ? extended_versions : 0);
  }
};

// Makes the header of a file with tables, keys and values, and lengths of these sizes, with random
// bytes if it is encrypted. Throws OVERFLOW.
Header make_header(uint64_t table_bytes, uint64_t kv_bytes, uint64_t lengths_bytes, bool encrypted,
                   bool extended);

using HeaderBytes = std::array<unsigned char, header_bytes>;
HeaderBytes encode(const Header& header);
// Throws CORRUPT or VERSION.
Header parse_header(std::span<const unsigned char> bytes);

// Encodes the three sizes for the beginning of an encrypted body.
std::array<unsigned char, sizes_bytes> encode_sizes(const Header& header);
// Reads them back into a header. Throws CORRUPT if they do not add up to its body.
void parse_sizes(std::span<const unsigned char, sizes_bytes> bytes, Header& header);

// The layers of one group. query_heads is 0, since keys and values do not depend on it. Of matrices
// of a rotation a file has the digest alone.
struct SavedGroup {
  memory::Shape shape;
  std::vector<uint32_t> layers;
};

// Returns true if any group has a rotation or states. Then names of items have a rotation of each
// group, and so have files.
bool any_extended(std::span<const SavedGroup> groups);

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
  saved_dropped = 8,
  saved_flags = 15
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
  uint32_t retention = 1;           // 0, which is evicted first, to 2, which is evicted last
  std::vector<uint64_t> kept_from;  // by group: the first position of the run held at the end
  std::vector<int32_t> remembered;  // tokens from before a suspension
  // With saved_dropped: see Content::forgotten_from(); and by group the positions that were
  // dropped, as runs of whole blocks.
  uint64_t forgotten_from = UINT64_MAX;
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

  // Returns true if a reader has to know of rotations, states or dropped blocks.
  bool extended() const;
  // Returns how many tokens a chain that others follow consists of whole multiples of.
  uint64_t chain_unit() const;
  // Returns the bytes of all keys and values. Throws OVERFLOW.
  uint64_t kv_bytes() const;
  // Returns the bytes of the lengths after keys and values, if the file has lengths: 8 for each
  // chain.
  uint64_t lengths_bytes() const { return round_up(chains.size() * sizeof(uint64_t), 64); }
};

// Appends the rotation of a group, as tables and names of items have it.
void put_rotation(ByteWriter& out, const memory::Rotations& rotations);

std::vector<unsigned char> encode(const Tables& tables);
// Throws CORRUPT. The tables it returns are consistent, whatever the bytes were: every index is in
// range, and every text ends in its chain. `extended` is what the header says.
Tables parse_tables(std::span<const unsigned char> bytes, bool extended);

}  // namespace pkv::file
