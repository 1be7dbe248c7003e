// Files with any tables behind right tags: the first byte chooses the cache they are loaded into, the rest are the tables, keys and values are made up. A file
// is refused with a documented status and nothing changed, or its sessions work: they are read, stepped, saved and loaded again.
#include "../tests/store/file.h"
#include "../tests/store/support.h"
#include "base/status.h"
#include "engine/store/format.h"
#include "target.h"

namespace {

using namespace store;

std::vector<Plan> plans() {
  const Model small = {.layers = 1, .query_heads = 1, .kv_heads = 1, .key_dim = 16, .dtype = PKV_BF16};
  const Model window = {.layers = 1, .query_heads = 1, .kv_heads = 1, .key_dim = 16, .dtype = PKV_F16, .window = 20, .sinks = 3};
  Plan one, two;
  one.groups = {small};
  two.groups = {small, window};
  one.prefix = two.prefix = true;
  one.blocks = two.blocks = 24;
  one.isa = two.isa = PKV_ISA_SCALAR;
  Plan larger = two, plain = one, contiguous = two, ids = two;
  larger.block_size = 32;
  plain.layout = PKV_LAYOUT_PLAIN;
  plain.block_size = 48;
  contiguous.storage = PKV_STORAGE_CONTIGUOUS;
  contiguous.prefix = false;
  ids.storage = PKV_STORAGE_NONE;
  return {one, two, larger, plain, contiguous, ids};
}

// Of what the tables ask for, unless that is more than any cache here has.
Bytes keys_and_values(const Bytes& tables) {
  uint64_t bytes = 0;
  try {
    bytes = pkv::parse_tables(tables).kv_bytes();
  } catch (const pkv::Error&) {
  }
  Bytes kv(bytes < (1 << 20) ? bytes : 0);
  for (size_t i = 0; i < kv.size(); i++) kv[i] = static_cast<unsigned char>(i * 2654435761u >> 24);
  return kv;
}

// The sessions are what sessions must be.
void use(pkv_cache cache, const Plan& plan, const std::vector<Session>& sessions) {
  CHECK(pkv_cache_validate(cache));
  for (const Session& session : sessions) {
    pkv_session_info info{};
    info.struct_size = sizeof info;
    CHECK(pkv_session_get_info(session, &info));
    tokens_of(session, info.total);
    for (uint32_t layer = 0; layer < plan.layers() && plan.storage != PKV_STORAGE_NONE; layer++)
      for (uint64_t at = 0; at < info.length; at++) position(session, plan.of_layer(layer), layer, at, PKV_F32, PKV_F32);
    const uint32_t one = 1;
    pkv_batch batch = nullptr;
    const pkv_session handle = session;
    if (pkv_batch_begin(cache, 1, &handle, &one, nullptr, &batch) != PKV_OK) continue;
    for (uint32_t layer = 0; layer < plan.layers() && plan.storage != PKV_STORAGE_NONE; layer++) {
      const Model& model = plan.of_layer(layer);
      KeysValues rows = rows_of(model, 1);
      Rows q(1, model.query_heads, model.key_dim), out(1, model.query_heads, model.values());
      write(batch, layer, model, rows);
      attend(batch, layer, q, out);
    }
    CHECK(pkv_batch_commit(batch, nullptr));
  }
  CHECK(pkv_cache_validate(cache));
}

}  // namespace

FUZZ_TARGET(const uint8_t* data, size_t size) {
  static const std::vector<Plan> all = plans();
  if (size == 0) return;
  const Plan& plan = all[data[0] % all.size()];
  Bytes tables(data + 1, data + size);
  tables.resize((tables.size() + 63) / 64 * 64);
  const Bytes file = store_file::file_of(tables, keys_and_values(tables));
  pkv_file_config config = file_config();
  config.prefix_index = data[0] / all.size() % 2;

  const Cache cache = create(plan);
  pkv_session handles[32];
  size_t count = 0;
  const pkv_stream from = buffer(file);
  const pkv_status status = pkv_file_load(cache, &config, &from, std::size(handles), handles, nullptr, &count);
  if (status != PKV_OK) {
    EXPECT_TRUE(status == PKV_CORRUPT || status == PKV_MISMATCH || status == PKV_OUT_OF_BLOCKS || status == PKV_TOO_LARGE || status == PKV_BUFFER_TOO_SMALL)
        << pkv_status_string(status) << ": " << pkv_last_error();
    EXPECT_EQ(0u, stats_of(cache).used_blocks);
    EXPECT_EQ(0u, stats_of(cache).sessions);
    return;
  }
  std::vector<Session> sessions;
  std::vector<pkv_session> opened(handles, handles + count);
  for (const pkv_session handle : opened) sessions.emplace_back(handle);
  CHECK(pkv_cache_validate(cache));
  {
    const Cache other = create(plan);
    const std::vector<Session> again = load(other, save(cache, opened, &config), &config);
    ASSERT_EQ(count, again.size());
    for (size_t i = 0; i < count; i++) EXPECT_EQ(length_of(sessions[i]), length_of(again[i]));
    CHECK(pkv_cache_validate(other));
  }
  use(cache, plan, sessions);
}
