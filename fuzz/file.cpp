// Files with any tables and valid tags. The first byte chooses the cache that they are loaded into
// and whether parts of chains are missing; the rest are the tables; keys and values are made up. A
// file is refused with a documented status and nothing has changed, or its sessions work: they are
// read, stepped, saved and loaded again. Some caches have blocks that only an engine can read,
// which fails at times. Caches are reused for the next input, so no input may leave anything in
// them.
#include "../tests/store/file.h"

#include <memory>

#include "../tests/store/support.h"
#include "base/status.h"
#include "engine/file/format.h"
#include "target.h"

namespace {

using namespace store;

std::vector<Plan> plans() {
  const Model small = {
      .layers = 1, .query_heads = 1, .kv_heads = 1, .key_dim = 16, .dtype = PKV_BF16};
  const Model window = {.layers = 1,
                        .query_heads = 1,
                        .kv_heads = 1,
                        .key_dim = 16,
                        .dtype = PKV_F16,
                        .window = 20,
                        .sinks = 3};
  Plan one, two;
  one.groups = {small};
  two.groups = {small, window};
  one.prefix = two.prefix = true;
  one.blocks = two.blocks = 24;
  one.isa = two.isa = PKV_ISA_SCALAR;
  Plan larger = two, plain = one, ids = two;
  larger.block_size = 32;
  plain.layout = PKV_LAYOUT_PLAIN;
  plain.block_size = 48;
  ids.storage = PKV_STORAGE_EXTERNAL;
  return {one, two, larger, plain, ids};
}

// A plan with the two kinds of rotation.
Plan rotated_plan() {
  static const std::vector<float> exchange = [] {
    std::vector<float> matrix(256);
    for (size_t i = 0; i < 16; i++) matrix[i * 16 + (i + 8) % 16] = 1;
    return matrix;
  }();
  static const auto matrices = made<pkv_rotation_matrices>({.value = exchange.data()});
  Plan plan = plans()[1];
  plan.groups[0].rotation = PKV_ROTATION_HADAMARD;
  plan.groups[1].rotation_matrices = &matrices;
  return plan;
}

// Plans with groups whose blocks only an engine can read.
std::vector<Plan> plans_elsewhere() {
  constexpr uint64_t bytes = EngineMemory::block_bytes;
  const Model full{.kind = PKV_LAYERS_OPAQUE_KV, .layer_bytes = bytes},
      window{.window = 20, .sinks = 3, .kind = PKV_LAYERS_OPAQUE_KV, .layer_bytes = bytes},
      states{.layers = 2, .kind = PKV_LAYERS_OPAQUE_STATES, .layer_bytes = bytes / 2};
  Plan all = plans()[1], with_states = all, mixed = all;
  all.groups = {full, window};
  with_states.groups = {states, full};
  all.storage = with_states.storage = PKV_STORAGE_EXTERNAL;
  mixed.groups = {mixed.groups[0], states};
  return {all, with_states, mixed};
}

// Empty if the file is refused because of its tables.
pkv::file::Tables parsed(const Bytes& bytes) {
  try {
    pkv::file::Tables tables = pkv::file::parse_tables(bytes);
    static_cast<void>(tables.kv_bytes());
    return tables;
  } catch (const pkv::Error&) {
    return {};
  }
}

// The bytes that the tables need, unless that is more than any cache here has, 147,456 bytes.
Bytes keys_and_values(const pkv::file::Tables& tables) {
  const uint64_t bytes = tables.kv_bytes();
  Bytes kv(bytes <= (1 << 18) ? bytes : 0);
  for (size_t i = 0; i < kv.size(); i++) kv[i] = static_cast<unsigned char>(i * 2654435761u >> 24);
  return kv;
}

// The last `size` bytes before `end` give the saved length of each chain, one byte for each: 255
// means all of it, 254 too much.
Bytes lengths(const pkv::file::Tables& tables, const uint8_t* end, size_t size) {
  std::vector<uint64_t> all(tables.lengths_bytes() / sizeof(uint64_t));
  for (size_t c = 0; c < tables.chains.size(); c++) {
    const uint64_t whole = tables.chains[c].tokens.size(),
                   asked = c < size ? end[-1 - static_cast<ptrdiff_t>(c)] : 255;
    all[c] = asked == 255 ? whole : asked == 254 ? whole + 1 : std::min(whole, asked);
  }
  const auto* bytes = reinterpret_cast<const unsigned char*>(all.data());
  return {bytes, bytes + all.size() * sizeof(uint64_t)};
}

// Checks the loaded sessions.
void use(pkv_cache cache, const Plan& plan, const std::vector<Session>& sessions) {
  CHECK(pkv_cache_validate(cache));
  for (const Session& session : sessions) {
    pkv_session_info info{};
    info.struct_size = sizeof info;
    CHECK(pkv_session_get_info(session, &info));
    tokens_of(session, info.total);
    for (uint32_t layer = 0; layer < plan.layers(); layer++)
      for (uint64_t at = 0; plan.has_rows(layer) && at < info.length; at++)
        position(session, plan.of_layer(layer), layer, at, PKV_F32, PKV_F32);
    const uint32_t one = 1;
    pkv_batch batch = nullptr;
    const pkv_session handle = session;
    if (pkv_batch_begin(cache, 1, &handle, &one, &batch) != PKV_OK) continue;
    for (uint32_t layer = 0; layer < plan.layers(); layer++) {
      if (!plan.has_rows(layer)) continue;
      const Model& model = plan.of_layer(layer);
      KeysValues rows = rows_of(model, 1);
      Rows q(1, model.query_heads, model.key_dim), out(1, model.query_heads, model.values());
      write(batch, layer, model, rows);
      attend(batch, layer, q, out);
    }
    CHECK(pkv_batch_commit(batch, 0, nullptr));
  }
  CHECK(pkv_cache_validate(cache));
}

// A plan with the cache that files are loaded into, and one with the cache for files saved from it.
struct Caches {
  explicit Caches(const Plan& of)
      : plan(of),
        one(create(with(of, engine))),
        other(create(with(of, other_engine))),
        blocks(pool_stats_of(one).blocks) {
    engine.any_bytes = other_engine.any_bytes = true;
  }
  Plan plan;
  EngineMemory engine{plan.groups.size(), plan.blocks},
      other_engine = {plan.groups.size(), plan.blocks};
  Cache one, other;
  uint64_t blocks;

  void expect_empty(const Cache& cache) const {
    if (plan.prefix) CHECK(pkv_prefix_clear(cache, nullptr, PKV_ALL_SALTS));
    CHECK(pkv_cache_validate(cache));
    EXPECT_EQ(0u, stats_of(cache).sessions);
    EXPECT_EQ(blocks, pool_stats_of(cache).free_blocks);
  }
};

std::vector<Session> owned(const pkv_session* handles, size_t count) {
  std::vector<Session> sessions;
  for (size_t i = 0; i < count; i++) sessions.emplace_back(handles[i]);
  return sessions;
}

void save_and_load_again(const Caches& caches, const std::vector<Session>& sessions,
                         const pkv_file_config& config) {
  const std::vector<pkv_session> opened(sessions.begin(), sessions.end());
  const std::vector<Session> again = load(caches.other, save(caches.one, opened, &config), &config);
  ASSERT_EQ(sessions.size(), again.size());
  for (size_t i = 0; i < again.size(); i++) EXPECT_EQ(length_of(sessions[i]), length_of(again[i]));
  CHECK(pkv_cache_validate(caches.other));
}

std::vector<std::unique_ptr<Caches>> caches_of(const std::vector<Plan>& plans) {
  std::vector<std::unique_ptr<Caches>> all;
  for (const Plan& plan : plans) all.push_back(std::make_unique<Caches>(plan));
  return all;
}

}  // namespace

FUZZ_TARGET(const uint8_t* data, size_t size) {
  static const std::vector<std::unique_ptr<Caches>> all = caches_of(plans()),
                                                    elsewhere = caches_of(plans_elsewhere());
  if (size == 0) return;
  static Caches of_rotated(rotated_plan());
  const bool rotated = data[0] / all.size() / 8 % 2 == 1;
  const size_t kind = data[0] / all.size() / 16;  // 1, 2: elsewhere, with a device that fails
  Caches& caches = kind > 0  ? *elsewhere[data[0] % elsewhere.size()]
                   : rotated ? of_rotated
                             : *all[data[0] % all.size()];
  Bytes tables(data + 1, data + size);
  tables.resize((tables.size() + 63) / 64 * 64);
  const pkv::file::Tables read = parsed(tables);
  const bool partial = data[0] / all.size() / 4 % 2 == 1;
  const Bytes file = store_file::file_of(tables, keys_and_values(read),
                                         lengths(read, data + size, partial ? size - 1 : 0));
  auto config = made<pkv_file_config>();
  config.prefix_index = data[0] / all.size() % 2;
  config.trust_salts = data[0] / all.size() / 2 % 2 == 0;

  pkv_session handles[32];
  size_t count = 0;
  const pkv_stream from = buffer(file);
  if (kind == 2) caches.engine.fail_after(data[0] % 4);
  const pkv_status status =
      pkv_file_load(caches.one, &config, &from, std::size(handles), handles, nullptr, &count);
  EXPECT_EQ(caches.engine.failed(), status == PKV_IO);
  caches.engine.work();
  if (status == PKV_OK) {
    const std::vector<Session> sessions = owned(handles, count);
    CHECK(pkv_cache_validate(caches.one));
    save_and_load_again(caches, sessions, config);
    caches.expect_empty(caches.other);
    use(caches.one, caches.plan, sessions);
  } else {
    EXPECT_TRUE(status == PKV_CORRUPT || status == PKV_MISMATCH || status == PKV_WRONG_KEY ||
                status == PKV_OUT_OF_BLOCKS || status == PKV_TOO_LARGE ||
                status == PKV_BUFFER_TOO_SMALL || status == PKV_IO)
        << pkv_status_name(status) << ": " << pkv_last_error();
  }
  caches.expect_empty(caches.one);
}
