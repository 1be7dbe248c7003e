// Checks the positions that a caller asks for, and copies their rows or states.
#include "engine/session/read.h"

#include <cstring>

#include "base/checked.h"
#include "base/status.h"
#include "engine/rows/rows.h"

namespace pkv {

kernels::CopyTask check_read(const Session& session, uint32_t layer, uint64_t first, size_t n,
                             const pkv_tensor* k, const pkv_tensor* v) {
  const LayerPlace place = session.cache().place(layer);
  const memory::Group& group = session.cache().group(place.group);
  check_keeps_rows(group, "read");
  check_range(first, n, session.layer_length(layer), "rows of the layer");
  const memory::KvTable& table = session.content().kv_table(place.group);
  if (n > 0 && !table.holds(first, first + n) && table.dropped() > 0)
    fail(PKV_OUT_OF_RANGE,
         "some of positions %llu to %llu were dropped or left the window; %zu blocks are dropped",
         llu(first), llu(first + n - 1), table.dropped());
  if (n > 0 && !table.holds(first, first + n))
    fail(PKV_OUT_OF_RANGE,
         "some of positions %llu to %llu left the window; this layer keeps positions from %llu on",
         llu(first), llu(first + n - 1), llu(table.first_kept()));
  kernels::CopyTask task{};
  if (k != nullptr) task.k = rows::check_rows(k, n, group.shape.kv_heads, group.shape.key_dim, "k");
  if (v != nullptr)
    task.v = rows::check_rows(v, n, group.shape.kv_heads, group.shape.value_dim, "v");
  if (n == 0 || (k == nullptr && v == nullptr)) return task;
  task.kv = table.view(place.layer);
  task.first = first;
  task.count = n;
  return task;
}

void read_rows(const Session& session, uint32_t layer, const kernels::CopyTask& task) {
  if (task.count == 0) return;
  Cache& cache = session.cache();
  const memory::Group& group = cache.group(cache.place(layer).group);
  rows::copy_rows(cache.workers(), cache.kernels().load, std::span(&task, 1),
                  group.layout.token_bytes() / group.shape.layers);
}

void read_state(const Session& session, uint32_t layer, uint64_t tokens,
                std::span<unsigned char> out) {
  const LayerPlace place = session.cache().place(layer);
  check_has_states(session.cache().group(place.group), layer);
  const memory::StateTable& table = session.content().state_table(place.group);
  const memory::Block block =
      tokens > session.length() ? memory::no_block : table.state_block(tokens);
  if (block == memory::no_block)
    fail(PKV_OUT_OF_RANGE, "layer %u: no state after %llu tokens is held; the session has %llu",
         layer, llu(tokens), llu(session.length()));
  if (out.size() != table.group().shape.layer_bytes)
    fail(PKV_INVALID_ARGUMENT, "layer %u: a state has %llu bytes, not %zu", layer,
         llu(table.group().shape.layer_bytes), out.size());
  std::memcpy(out.data(), table.state(block, place.layer), out.size());
}

}  // namespace pkv
