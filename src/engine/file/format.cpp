// Encodes headers and tables, and parses them from bytes that may be anything.
#include "engine/file/format.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/checked.h"
#include "base/enums.h"
#include "base/status.h"
#include "engine/file/cipher.h"
#include "engine/file/tiles.h"
#include "kernels/kernels.h"

namespace pkv::file {

namespace {

// Contains a byte that is no text and both line ends, so a transfer that converts text breaks it.
constexpr std::array<unsigned char, 8> magic = {0x89, 'P', 'K', 'V', '\r', '\n', 0x1A, '\n'};
constexpr uint32_t flag_encrypted = 1;
// Tables are padded to this, so that the tiles after them are aligned for vector instructions.
constexpr size_t table_alignment = 64;
// Stands for a rotation by matrices of the caller. No pkv_rotation may have this value.
constexpr uint32_t by_matrices = 2;
static_assert(PKV_ROTATION_HADAMARD < by_matrices);

}  // namespace

uint64_t Sizes::body() const {
  uint64_t bytes = sizes_bytes;
  for (const uint64_t part : {tables, kv, lengths})
    bytes = checked_add(bytes, part, "bytes of the file");
  return bytes;
}

Header make_header(uint64_t body_bytes, bool encrypted) {
  Header header{body_bytes, encrypted};
  if (encrypted) fill_with_random(header.random);
  return header;
}

std::vector<unsigned char> encode(const Header& header) {
  ByteWriter out;
  out.put(magic, format_version, header.encrypted ? flag_encrypted : uint32_t{0}, header.body_bytes,
          header.random);
  return out.take();
}

namespace {

constexpr uint64_t max_body_bytes = uint64_t{1} << 62;  // so that no sum of sizes can overflow

bool all_zero(std::span<const unsigned char> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](unsigned char byte) { return byte == 0; });
}

}  // namespace

Header parse_header(std::span<const unsigned char> bytes) {
  if (bytes.size() < magic.size() || !std::equal(magic.begin(), magic.end(), bytes.begin()))
    fail(PKV_CORRUPT, "this is not a pagedkv file");
  ByteReader in(bytes.subspan(magic.size()));
  uint32_t version, flags;
  in.read(version, flags);
  if (version != format_version)
    fail(PKV_WRONG_VERSION, "the file has format version %u; this library knows %u", version,
         format_version);
  if (flags > flag_encrypted) fail(PKV_CORRUPT, "the flags of the header are %#x", flags);
  Header header;
  header.encrypted = flags == flag_encrypted;
  in.read(header.body_bytes, header.random);
  if (header.body_bytes > max_body_bytes || header.body_bytes < sizes_bytes)
    fail(PKV_CORRUPT, "the header of the file gives %llu bytes", llu(header.body_bytes));
  if (!header.encrypted && !all_zero(header.random))
    fail(PKV_CORRUPT, "reserved bytes of the header are set");
  return header;
}

std::vector<unsigned char> encode(const Sizes& sizes) {
  ByteWriter out;
  out.put(sizes.tables, sizes.kv, sizes.lengths);
  std::vector<unsigned char> bytes = out.take();
  bytes.resize(sizes_bytes);
  return bytes;
}

Sizes parse_sizes(std::span<const unsigned char> bytes, const Header& header) {
  ByteReader in(bytes);
  Sizes sizes;
  for (uint64_t* const part : {&sizes.tables, &sizes.kv, &sizes.lengths})
    if ((*part = in.get<uint64_t>()) > max_body_bytes)
      fail(PKV_CORRUPT, "the header of the file gives more bytes than any file has");
  if (!all_zero(in.rest())) fail(PKV_CORRUPT, "reserved bytes of the sizes are set");
  if (sizes.body() != header.body_bytes)
    fail(PKV_CORRUPT, "the sizes in the file are not those of its header");
  return sizes;
}

// ---- Tables -------------------------------------------------------------------------------------

uint64_t Tables::chain_unit() const {
  uint64_t unit = kernels::tile_tokens;
  for (const SavedGroup& group : groups)
    unit = std::max(unit, saved_tile_tokens(group.shape, block_size));
  return unit;
}

uint64_t Tables::kv_bytes() const {
  uint64_t bytes = 0;
  for (const Chain& chain : chains)
    for (size_t g = 0; g < groups.size() && has_kv; g++)
      if (chain.has_kv[g] != 0) {
        const uint64_t tiles =
            ceil_div(chain.tokens.size(), saved_tile_tokens(groups[g].shape, block_size));
        bytes = checked_add(
            bytes, checked_mul(tiles, saved_tile_bytes(groups[g].shape), "bytes of a chain"),
            "bytes of all chains");
      }
  return bytes;
}

void put_group(ByteWriter& out, const SavedGroup& group) {
  const memory::Shape& shape = group.shape;
  const memory::Rotations& rotations = shape.rotations;
  for (const uint32_t number :
       {shape.layers, shape.kv_heads, shape.key_dim, shape.value_dim,
        static_cast<uint32_t>(shape.dtype), static_cast<uint32_t>(shape.value_dtype), shape.window,
        shape.sinks, static_cast<uint32_t>(shape.kind),
        rotations.matrices ? by_matrices : static_cast<uint32_t>(rotations.kind)})
    out.put(number);
  out.put(rotations.matrices ? rotations.matrices->digest : std::array<uint64_t, 2>{},
          shape.layer_bytes);
  out.put_all(group.layers);
}

std::vector<unsigned char> encode(const Tables& tables) {
  ByteWriter out;
  const auto put_count = [&](const auto& list) { out.put(static_cast<uint32_t>(list.size())); };
  out.put(tables.block_size, uint32_t{tables.has_kv});
  out.put_list<uint32_t>(tables.fingerprint);
  put_count(tables.groups);
  for (const SavedGroup& group : tables.groups) put_group(out, group);
  put_count(tables.salts);
  for (const std::string& salt : tables.salts) out.put_list<uint32_t>(salt);
  put_count(tables.chains);
  for (const Chain& chain : tables.chains) {
    out.put(chain.parent);
    put_count(chain.tokens);
    out.put_all(chain.has_kv);
    out.put_all(chain.tokens);
  }
  put_count(tables.sessions);
  for (const SavedSession& session : tables.sessions) {
    out.put(session.label, session.length, session.chain, session.salt, session.priority,
            session.flags, session.retention);
    out.put_all(session.kept_from);
    out.put_list<uint64_t>(session.remembered);
    out.put(session.forgotten_from);
    for (const std::vector<DroppedRun>& runs : session.dropped) out.put_list<uint32_t>(runs);
  }
  put_count(tables.entries);
  for (const SavedEntry& entry : tables.entries)
    out.put(entry.salt, entry.chain, entry.length, entry.retention);
  std::vector<unsigned char> bytes = out.take();
  bytes.resize(round_up(bytes.size(), table_alignment));
  return bytes;
}

namespace {

uint32_t check_limits(uint32_t number, uint32_t min, uint32_t max, const char* what) {
  if (number < min || number > max)
    fail(PKV_CORRUPT, "the tables of the file: %s is %u; it must be %u to %u", what, number, min,
         max);
  return number;
}

uint32_t get_limited(ByteReader& in, uint32_t min, uint32_t max, const char* what) {
  return check_limits(in.get<uint32_t>(), min, max, what);
}

uint32_t get_retention(ByteReader& in) { return get_limited(in, 0, 2, "a retention"); }

memory::Rotations get_rotation(ByteReader& in, uint32_t last) {
  const uint32_t rotation = get_limited(in, 0, last, "a rotation");
  auto matrices = std::make_shared<memory::RotationMatrices>();
  in.read(matrices->digest);
  if (rotation == by_matrices) return {PKV_ROTATION_NONE, std::move(matrices)};
  if ((matrices->digest[0] | matrices->digest[1]) != 0)
    fail(PKV_CORRUPT, "a group of the file has a digest of matrices, and no matrices");
  return {static_cast<pkv_rotation>(rotation), nullptr};
}

// Fields that the kind of a group does not use are 0.
SavedGroup get_group(ByteReader& in) {
  std::array<uint32_t, 9> numbers;
  in.read(numbers);
  memory::Shape shape{};
  shape.kind = static_cast<pkv_layer_kind>(
      check_limits(numbers[8], 0, PKV_LAYERS_OPAQUE_STATES, "the kind of layers"));
  const bool rows = !shape.has_states() && !shape.opaque();
  const auto row = [&](size_t i, uint32_t min, uint32_t max, const char* what) {
    return rows ? check_limits(numbers[i], min, max, what) : check_limits(numbers[i], 0, 0, what);
  };
  shape.layers = check_limits(numbers[0], 1, UINT32_MAX, "layers");
  shape.kv_heads = row(1, 1, UINT32_MAX, "KV heads");
  shape.key_dim = row(2, 16, kernels::max_dim, "the key dim");
  shape.value_dim = row(3, 16, kernels::max_dim, "the value dim");
  shape.dtype = static_cast<pkv_dtype>(row(4, PKV_F32, kernels::last_dtype, "a dtype"));
  shape.value_dtype = static_cast<pkv_dtype>(row(5, PKV_F32, kernels::last_dtype, "a dtype"));
  const uint32_t longest = shape.has_states() ? 0 : UINT32_MAX;
  shape.window = check_limits(numbers[6], 0, longest, "the window");
  shape.sinks = check_limits(numbers[7], 0, longest, "the sinks");
  shape.rotations = get_rotation(in, rows ? by_matrices : 0);
  shape.layer_bytes = in.get<uint64_t>();
  if ((shape.layer_bytes == 0) != rows ||
      (shape.opaque() && shape.layer_bytes > memory::max_opaque_block_bytes / shape.layers))
    fail(PKV_CORRUPT, "a group of the file has kind %s, %u layers and %llu bytes of a layer",
         enum_name(shape.kind), shape.layers, llu(shape.layer_bytes));
  SavedGroup group{shape, {}};
  in.read_all(group.layers, shape.layers);
  return group;
}

Chain get_chain(ByteReader& in, const Tables& tables) {
  Chain chain;
  chain.parent = in.get<uint32_t>();
  const uint32_t tokens = get_limited(in, 1, UINT32_MAX, "the tokens of a chain");
  in.read_all(chain.has_kv, tables.groups.size());
  if (std::any_of(chain.has_kv.begin(), chain.has_kv.end(),
                  [](unsigned char has_kv) { return has_kv > 1; }))
    fail(PKV_CORRUPT, "a flag of a chain is not 0 or 1");
  in.read_all(chain.tokens, tokens);
  if (chain.parent == none) return chain;
  if (chain.parent >= tables.chains.size())
    fail(PKV_CORRUPT, "chain %zu follows chain %u", tables.chains.size(), chain.parent);
  const Chain& parent = tables.chains[chain.parent];
  if (parent.tokens.size() % tables.chain_unit() != 0)
    fail(PKV_CORRUPT, "chain %zu follows %zu tokens, which are not whole tiles",
         tables.chains.size(), parent.tokens.size());
  chain.start = parent.end();
  return chain;
}

// Checks that a text of this length ends inside this chain.
void check_end(const Tables& tables, uint32_t chain, uint64_t length) {
  if (chain == none && length == 0) return;
  if (chain >= tables.chains.size())
    fail(PKV_CORRUPT, "chain %u; the file has %zu", chain, tables.chains.size());
  if (length <= tables.chains[chain].start || length > tables.chains[chain].end())
    fail(PKV_CORRUPT, "a text of %llu tokens ends in a chain of tokens %llu to %llu", llu(length),
         llu(tables.chains[chain].start), llu(tables.chains[chain].end()));
}

void check_salt(const Tables& tables, uint32_t salt) {
  if (salt != none && salt >= tables.salts.size())
    fail(PKV_CORRUPT, "salt %u; the file has %zu", salt, tables.salts.size());
}

// Reads the runs that a session dropped in one group: whole blocks, in ascending order, not
// adjacent.
std::vector<DroppedRun> get_dropped(ByteReader& in, const Tables& tables,
                                    const SavedSession& session) {
  std::vector<DroppedRun> runs;
  in.read_all(runs, in.get<uint32_t>());
  const uint64_t length = session.length;
  uint64_t first = session.forgotten_from;
  for (const DroppedRun& run : runs) {
    if (run.begin < first || run.end <= run.begin || run.end > length ||
        run.begin % tables.block_size != 0 || run.end % tables.block_size != 0)
      fail(PKV_CORRUPT, "a session of %llu tokens cannot have dropped tokens %llu to %llu",
           llu(length), llu(run.begin), llu(run.end));
    first = run.end + 1;
  }
  return runs;
}

SavedSession get_session(ByteReader& in, const Tables& tables) {
  SavedSession session;
  in.read(session.label, session.length, session.chain, session.salt, session.priority);
  session.flags = get_limited(in, 0, saved_flags, "the flags of a session");
  session.retention = get_retention(in);
  in.read_all(session.kept_from, tables.groups.size());
  in.read_all(session.remembered, in.get<uint64_t>());
  in.read(session.forgotten_from);
  if (session.forgotten_from != UINT64_MAX &&
      (session.forgotten_from >= session.length || session.forgotten_from % tables.block_size != 0))
    fail(PKV_CORRUPT, "a session of %llu tokens cannot have dropped tokens from %llu on",
         llu(session.length), llu(session.forgotten_from));
  for (size_t g = 0; g < tables.groups.size(); g++)
    session.dropped.push_back(get_dropped(in, tables, session));
  check_end(tables, session.chain, session.length);
  check_salt(tables, session.salt);
  if ((session.flags & saved_suspended) != 0
          ? session.length > 0
          : !session.remembered.empty() && session.remembered.size() <= session.length)
    fail(PKV_CORRUPT, "a session of %llu tokens cannot remember %zu", llu(session.length),
         session.remembered.size());
  return session;
}

}  // namespace

Tables parse_tables(std::span<const unsigned char> bytes) {
  ByteReader in(bytes);
  Tables tables;
  tables.block_size =
      get_limited(in, kernels::tile_tokens, memory::max_block_size, "the block size");
  if (tables.block_size % kernels::tile_tokens != 0)
    fail(PKV_CORRUPT, "the block size is %u", tables.block_size);
  tables.has_kv = get_limited(in, 0, 1, "storage") != 0;
  in.read_all(tables.fingerprint, get_limited(in, 0, 64, "the size of the fingerprint"));
  tables.groups.resize(in.get_count(8 * sizeof(uint64_t)));
  for (SavedGroup& group : tables.groups) group = get_group(in);
  tables.salts.resize(in.get_count(sizeof(uint32_t)));
  for (std::string& salt : tables.salts)
    in.read_all(salt, get_limited(in, 0, 256, "the size of a salt"));
  const size_t chains = in.get_count(3 * sizeof(uint32_t));
  tables.chains.reserve(chains);
  for (size_t i = 0; i < chains; i++) tables.chains.push_back(get_chain(in, tables));
  const size_t sessions = in.get_count(6 * sizeof(uint64_t));
  tables.sessions.reserve(sessions);
  for (size_t i = 0; i < sessions; i++) tables.sessions.push_back(get_session(in, tables));
  tables.entries.resize(in.get_count(2 * sizeof(uint64_t)));
  for (SavedEntry& entry : tables.entries) {
    in.read(entry.salt, entry.chain, entry.length);
    entry.retention = get_retention(in);
    check_salt(tables, entry.salt);
    check_end(tables, entry.chain, entry.length);
  }
  if (in.rest().size() >= table_alignment || !all_zero(in.rest()))
    fail(PKV_CORRUPT, "the tables of the file are followed by %zu bytes", in.rest().size());
  return tables;
}

}  // namespace pkv::file
