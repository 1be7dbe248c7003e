// Encodes headers and tables, and parses them from bytes that may be anything.
#include "engine/file/format.h"

#include <algorithm>
#include <cstring>

#include "base/checked.h"
#include "base/status.h"
#include "engine/file/cipher.h"
#include "engine/file/tiles.h"
#include "kernels/kernels.h"

namespace pkv::file {

namespace {

// Contains a byte that is no text and both line ends, so a transfer that converts text breaks it.
constexpr std::array<unsigned char, 8> magic = {0x89, 'P', 'K', 'V', '\r', '\n', 0x1A, '\n'};
constexpr uint32_t flag_keyed = 1;
// Tables are padded to this, so that the tiles after them are aligned for vector instructions.
constexpr size_t table_alignment = 64;

}  // namespace

Header make_header(uint64_t table_bytes, uint64_t kv_bytes, uint64_t lengths_bytes, bool encrypted,
                   bool extended) {
  const char* const what = "bytes of the file";
  Header header{
      table_bytes,   kv_bytes,
      lengths_bytes, checked_add(checked_add(table_bytes, kv_bytes, what), lengths_bytes, what),
      encrypted,     extended};
  if (!encrypted) return header;
  header.body_bytes = checked_add(header.body_bytes, sizes_bytes, "bytes of the file");
  fill_with_random(header.random);
  return header;
}

HeaderBytes encode(const Header& header) {
  ByteWriter out;
  out.put_all(std::span<const unsigned char>(magic));
  out.put(header.version());
  out.put(header.encrypted ? flag_keyed : uint32_t{0});
  if (header.encrypted) {
    out.put(header.body_bytes);
    out.put_all(std::span<const unsigned char>(header.random));
  } else {
    out.put(header.table_bytes);
    out.put(header.kv_bytes);
    out.put(header.lengths_bytes);
  }
  HeaderBytes bytes{};  // the rest is reserved and 0
  std::copy(out.bytes().begin(), out.bytes().end(), bytes.begin());
  return bytes;
}

namespace {

constexpr uint64_t max_body_bytes = uint64_t{1} << 62;  // so that no sum of sizes can overflow

void check_zeros(ByteReader& in, const char* where) {
  const std::vector<unsigned char> zeros = in.get_all<unsigned char>(in.left());
  if (std::count(zeros.begin(), zeros.end(), 0) != static_cast<std::ptrdiff_t>(zeros.size()))
    fail(PKV_CORRUPT, "reserved bytes of %s are set", where);
}

void get_sizes(ByteReader& in, Header& header) {
  header.table_bytes = in.get<uint64_t>();
  header.kv_bytes = in.get<uint64_t>();
  header.lengths_bytes = in.get<uint64_t>();
  if (std::max({header.table_bytes, header.kv_bytes, header.lengths_bytes}) > max_body_bytes)
    fail(PKV_CORRUPT, "the header of the file gives more bytes than any file has");
}

}  // namespace

Header parse_header(std::span<const unsigned char> bytes) {
  if (bytes.size() < magic.size() || !std::equal(magic.begin(), magic.end(), bytes.begin()))
    fail(PKV_CORRUPT, "this is no file of pagedkv's");
  ByteReader in(bytes.subspan(magic.size()));
  const uint32_t version = in.get<uint32_t>(), flags = in.get<uint32_t>();
  constexpr uint32_t last_version = encrypted_version + extended_versions;
  if (version < plain_version || version > last_version)
    fail(PKV_VERSION, "the file has format version %u; this library knows %u to %u", version,
         plain_version, last_version);
  if (version == plain_version && flags == flag_keyed)
    fail(PKV_VERSION,
         "the file was saved with a key by a library that did not encrypt (version %u); save it "
         "again without a key, or with this library",
         version);
  Header header;
  header.extended = version > extended_versions;
  header.encrypted = version - (header.extended ? extended_versions : 0) == encrypted_version;
  if (flags != (header.encrypted ? flag_keyed : 0))
    fail(PKV_CORRUPT, "the flags of the header are %#x", flags);
  if (header.encrypted) {
    header.body_bytes = in.get<uint64_t>();
    const std::vector<unsigned char> random = in.get_all<unsigned char>(header.random.size());
    std::copy(random.begin(), random.end(), header.random.begin());
    if (header.body_bytes > max_body_bytes || header.body_bytes < sizes_bytes)
      fail(PKV_CORRUPT, "the header of the file gives %llu bytes",
           (unsigned long long)header.body_bytes);
  } else {
    get_sizes(in, header);
    header.body_bytes = header.table_bytes + header.kv_bytes + header.lengths_bytes;
  }
  check_zeros(in, "the header");
  return header;
}

std::array<unsigned char, sizes_bytes> encode_sizes(const Header& header) {
  std::array<unsigned char, sizes_bytes> bytes{};
  const uint64_t sizes[] = {header.table_bytes, header.kv_bytes, header.lengths_bytes};
  std::memcpy(bytes.data(), sizes, sizeof sizes);
  return bytes;
}

void parse_sizes(std::span<const unsigned char, sizes_bytes> bytes, Header& header) {
  ByteReader in(bytes);
  get_sizes(in, header);
  check_zeros(in, "the sizes");
  if (header.table_bytes + header.kv_bytes + header.lengths_bytes + sizes_bytes !=
      header.body_bytes)
    fail(PKV_CORRUPT, "the sizes in the file are not those of its header");
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

bool any_extended(std::span<const SavedGroup> groups) {
  return std::any_of(groups.begin(), groups.end(), [](const SavedGroup& group) {
    return group.shape.rotations.kind != PKV_ROTATION_NONE || group.shape.state_bytes != 0;
  });
}

bool Tables::extended() const {
  return any_extended(groups) ||
         std::any_of(sessions.begin(), sessions.end(), [](const SavedSession& session) {
           return (session.flags & saved_dropped) != 0;
         });
}

void put_rotation(ByteWriter& out, const memory::Rotations& rotations) {
  out.put(static_cast<uint32_t>(rotations.kind));
  if (rotations.matrices) out.put_all(std::span<const uint64_t>(rotations.matrices->digest));
}

namespace {

void put_group(ByteWriter& out, const SavedGroup& group, bool extended) {
  const memory::Shape& shape = group.shape;
  for (const uint32_t number :
       {shape.layers, shape.kv_heads, shape.key_dim, shape.value_dim,
        static_cast<uint32_t>(shape.dtype), static_cast<uint32_t>(shape.value_dtype), shape.window,
        shape.sinks, uint32_t{shape.latent}})
    out.put(number);
  if (extended) put_rotation(out, shape.rotations);
  if (shape.state_bytes != 0) out.put(shape.state_bytes);
  out.put_all(std::span<const uint32_t>(group.layers));
}

}  // namespace

std::vector<unsigned char> encode(const Tables& tables) {
  ByteWriter out;
  out.put(tables.block_size);
  out.put(uint32_t{tables.has_kv});
  out.put(static_cast<uint32_t>(tables.fingerprint.size()));
  out.put_all(std::span<const unsigned char>(tables.fingerprint));
  out.put(static_cast<uint32_t>(tables.groups.size()));
  for (const SavedGroup& group : tables.groups) put_group(out, group, tables.extended());
  out.put(static_cast<uint32_t>(tables.salts.size()));
  for (const std::string& salt : tables.salts) {
    out.put(static_cast<uint32_t>(salt.size()));
    out.put_all(std::span<const char>(salt));
  }
  out.put(static_cast<uint32_t>(tables.chains.size()));
  for (const Chain& chain : tables.chains) {
    out.put(chain.parent);
    out.put(static_cast<uint32_t>(chain.tokens.size()));
    out.put_all(std::span<const unsigned char>(chain.has_kv));
    out.put_all(std::span<const int32_t>(chain.tokens));
  }
  out.put(static_cast<uint32_t>(tables.sessions.size()));
  for (const SavedSession& session : tables.sessions) {
    out.put(session.label);
    out.put(session.length);
    out.put(session.chain);
    out.put(session.salt);
    out.put(session.priority);
    out.put(session.flags);
    out.put(session.retention);
    out.put_all(std::span<const uint64_t>(session.kept_from));
    out.put(static_cast<uint64_t>(session.remembered.size()));
    out.put_all(std::span<const int32_t>(session.remembered));
    if ((session.flags & saved_dropped) != 0) out.put(session.forgotten_from);
    for (const std::vector<DroppedRun>& runs : session.dropped) {
      out.put(static_cast<uint32_t>(runs.size()));
      for (const DroppedRun& run : runs) out.put(run.begin), out.put(run.end);
    }
  }
  out.put(static_cast<uint32_t>(tables.entries.size()));
  for (const SavedEntry& entry : tables.entries) {
    out.put(entry.salt);
    out.put(entry.chain);
    out.put(entry.length);
    out.put(entry.retention);
  }
  while (out.bytes().size() % table_alignment != 0) out.put(uint8_t{0});
  return {out.bytes().begin(), out.bytes().end()};
}

namespace {

uint32_t get_limited(ByteReader& in, uint32_t min, uint32_t max, const char* what) {
  const uint32_t number = in.get<uint32_t>();
  if (number < min || number > max)
    fail(PKV_CORRUPT, "the tables of the file: %s is %u; %u to %u are possible", what, number, min,
         max);
  return number;
}

uint32_t get_retention(ByteReader& in) { return get_limited(in, 0, 2, "a retention"); }
pkv_dtype get_dtype(ByteReader& in) {
  return static_cast<pkv_dtype>(get_limited(in, PKV_F32, kernels::last_dtype, "a dtype"));
}

memory::Rotations get_rotation(ByteReader& in) {
  const auto kind =
      static_cast<pkv_rotation>(get_limited(in, 0, kernels::last_rotation, "a rotation"));
  if (kind != PKV_ROTATION_MATRIX) return {kind, nullptr};
  auto matrices = std::make_shared<memory::RotationMatrices>();
  for (uint64_t& half : matrices->digest) half = in.get<uint64_t>();
  return {kind, std::move(matrices)};
}

// Reads the rest of a group of states, whose other numbers are 0.
SavedGroup get_state_group(ByteReader& in, uint32_t layers) {
  memory::Shape shape{};
  shape.layers = layers;
  for (int i = 0; i < 8; i++) get_limited(in, 0, 0, "a number of a group of states");
  shape.state_bytes = in.get<uint64_t>();
  if (shape.state_bytes == 0) fail(PKV_CORRUPT, "a group of the file has neither heads nor states");
  return {shape, in.get_all<uint32_t>(layers)};
}

SavedGroup get_group(ByteReader& in, bool extended) {
  memory::Shape shape{};
  shape.layers = get_limited(in, 1, UINT32_MAX, "layers");
  shape.kv_heads = get_limited(in, extended ? 0 : 1, UINT32_MAX, "KV heads");
  if (shape.kv_heads == 0) return get_state_group(in, shape.layers);
  shape.key_dim = get_limited(in, 16, kernels::max_dim, "the key dim");
  shape.value_dim = get_limited(in, 16, kernels::max_dim, "the value dim");
  shape.dtype = get_dtype(in);
  shape.value_dtype = get_dtype(in);
  shape.window = in.get<uint32_t>();
  shape.sinks = in.get<uint32_t>();
  shape.latent = get_limited(in, 0, 1, "latent") != 0;
  if (extended) shape.rotations = get_rotation(in);
  return {shape, in.get_all<uint32_t>(shape.layers)};
}

Chain get_chain(ByteReader& in, const Tables& tables) {
  Chain chain;
  chain.parent = in.get<uint32_t>();
  const uint32_t tokens = get_limited(in, 1, UINT32_MAX, "the tokens of a chain");
  chain.has_kv = in.get_all<unsigned char>(tables.groups.size());
  if (std::any_of(chain.has_kv.begin(), chain.has_kv.end(),
                  [](unsigned char has_kv) { return has_kv > 1; }))
    fail(PKV_CORRUPT, "what a chain holds is not 0 or 1");
  chain.tokens = in.get_all<int32_t>(tokens);
  if (chain.parent == none) return chain;
  if (chain.parent >= tables.chains.size())
    fail(PKV_CORRUPT, "chain %zu follows chain %u", tables.chains.size(), chain.parent);
  const Chain& parent = tables.chains[chain.parent];
  if (parent.tokens.size() % tables.chain_unit() != 0)
    fail(PKV_CORRUPT, "chain %zu follows %zu tokens, which are no whole tiles",
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
    fail(PKV_CORRUPT, "a text of %llu tokens ends in a chain of tokens %llu to %llu",
         (unsigned long long)length, (unsigned long long)tables.chains[chain].start,
         (unsigned long long)tables.chains[chain].end());
}

void check_salt(const Tables& tables, uint32_t salt) {
  if (salt != none && salt >= tables.salts.size())
    fail(PKV_CORRUPT, "salt %u; the file has %zu", salt, tables.salts.size());
}

// Reads the runs of a session that were dropped in one group: whole blocks, in rising order, apart.
std::vector<DroppedRun> get_dropped(ByteReader& in, const Tables& tables,
                                    const SavedSession& session) {
  std::vector<DroppedRun> runs(in.get_count<uint32_t>(2 * sizeof(uint64_t)));
  const uint64_t length = session.length;
  uint64_t first = session.forgotten_from;
  for (DroppedRun& run : runs) {
    run.begin = in.get<uint64_t>();
    run.end = in.get<uint64_t>();
    if (run.begin < first || run.end <= run.begin || run.end > length ||
        run.begin % tables.block_size != 0 || run.end % tables.block_size != 0)
      fail(PKV_CORRUPT, "a session of %llu tokens dropped those from %llu to %llu",
           (unsigned long long)length, (unsigned long long)run.begin, (unsigned long long)run.end);
    first = run.end + 1;
  }
  return runs;
}

SavedSession get_session(ByteReader& in, const Tables& tables, bool extended) {
  SavedSession session;
  session.label = in.get<uint64_t>();
  session.length = in.get<uint64_t>();
  session.chain = in.get<uint32_t>();
  session.salt = in.get<uint32_t>();
  session.priority = in.get<int32_t>();
  session.flags =
      get_limited(in, 0, extended ? saved_flags : saved_dropped - 1u, "the flags of a session");
  session.retention = get_retention(in);
  session.kept_from = in.get_all<uint64_t>(tables.groups.size());
  session.remembered = in.get_all<int32_t>(in.get<uint64_t>());
  if ((session.flags & saved_dropped) != 0) {
    session.forgotten_from = in.get<uint64_t>();
    if (session.forgotten_from >= session.length || session.forgotten_from % tables.block_size != 0)
      fail(PKV_CORRUPT, "a session of %llu tokens dropped some from %llu on",
           (unsigned long long)session.length, (unsigned long long)session.forgotten_from);
    for (size_t g = 0; g < tables.groups.size(); g++)
      session.dropped.push_back(get_dropped(in, tables, session));
  }
  check_end(tables, session.chain, session.length);
  check_salt(tables, session.salt);
  if ((session.flags & saved_suspended) != 0
          ? session.length > 0
          : !session.remembered.empty() && session.remembered.size() <= session.length)
    fail(PKV_CORRUPT, "a session of %llu tokens remembers %zu", (unsigned long long)session.length,
         session.remembered.size());
  return session;
}

}  // namespace

Tables parse_tables(std::span<const unsigned char> bytes, bool extended) {
  ByteReader in(bytes);
  Tables tables;
  tables.block_size =
      get_limited(in, kernels::tile_tokens, memory::max_block_size, "the block size");
  if (tables.block_size % kernels::tile_tokens != 0)
    fail(PKV_CORRUPT, "the block size is %u", tables.block_size);
  tables.has_kv = get_limited(in, 0, 1, "storage") != 0;
  tables.fingerprint =
      in.get_all<unsigned char>(get_limited(in, 0, 64, "the size of the fingerprint"));
  tables.groups.resize(in.get_count<uint32_t>(9 * sizeof(uint32_t)));
  for (SavedGroup& group : tables.groups) group = get_group(in, extended);
  tables.salts.resize(in.get_count<uint32_t>(sizeof(uint32_t)));
  for (std::string& salt : tables.salts) {
    const std::vector<char> text = in.get_all<char>(get_limited(in, 0, 256, "the size of a salt"));
    salt.assign(text.begin(), text.end());
  }
  const size_t chains = in.get_count<uint32_t>(3 * sizeof(uint32_t));
  tables.chains.reserve(chains);
  for (size_t i = 0; i < chains; i++) tables.chains.push_back(get_chain(in, tables));
  const size_t sessions = in.get_count<uint32_t>(5 * sizeof(uint64_t));
  tables.sessions.reserve(sessions);
  for (size_t i = 0; i < sessions; i++)
    tables.sessions.push_back(get_session(in, tables, extended));
  tables.entries.resize(in.get_count<uint32_t>(2 * sizeof(uint64_t)));
  for (SavedEntry& entry : tables.entries) {
    entry.salt = in.get<uint32_t>();
    entry.chain = in.get<uint32_t>();
    entry.length = in.get<uint64_t>();
    entry.retention = get_retention(in);
    check_salt(tables, entry.salt);
    check_end(tables, entry.chain, entry.length);
  }
  const std::vector<unsigned char> padding = in.get_all<unsigned char>(in.left());
  if (padding.size() >= table_alignment ||
      std::count(padding.begin(), padding.end(), 0) != static_cast<std::ptrdiff_t>(padding.size()))
    fail(PKV_CORRUPT, "the tables of the file are followed by %zu bytes", padding.size());
  return tables;
}

}  // namespace pkv::file
