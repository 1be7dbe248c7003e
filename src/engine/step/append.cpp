// Runs a batch of one session across the calls that give its layers.
#include "engine/step/append.h"

#include "base/status.h"
#include "engine/rows/rows.h"
#include "engine/step/batch.h"

namespace pkv {

namespace {

// The step of an append: a batch of one session, which the session owns.
class Append final : public Batch {
 public:
  Append(Session& session, uint32_t n) : Append(&session, n) {}

 private:
  Append(Session* session, uint32_t n)
      : Batch(session->cache(), std::span(&session, 1), std::span(&n, 1), nullptr, "append") {}
};

// Returns the session's step in flight, or begins one. Throws if it is one of another number of
// rows.
Append& find_or_begin(Session& session, uint32_t layer, uint32_t n) {
  std::unique_ptr<Step>& own = session.own_step();
  if (own == nullptr) own = std::make_unique<Append>(session, n);
  Append& step = static_cast<Append&>(*own);  // own_step() holds steps of this class only
  if (step.rows() != n)
    fail(PKV_INVALID_ARGUMENT, "layer %u: %u rows, but this append began with %zu", layer, n,
         step.rows());
  return step;
}

}  // namespace

void append(Session& session, uint32_t layer, size_t n, const pkv_tensor* k, const pkv_tensor* v) {
  Cache& cache = session.cache();
  const memory::Group& group = cache.group(cache.place(layer).group);
  for (const auto& each : cache.groups()) memory::check_has_rows(*each, "append");
  if (group.storage == PKV_STORAGE_NONE)
    fail(PKV_UNSUPPORTED, "append: storage NONE keeps no keys and values");
  if (n > UINT32_MAX) fail(PKV_TOO_LARGE, "append of %zu rows; at most 2^32 - 1 at once", n);
  // The rows are checked here, although write() checks them again: wrong rows must not begin a
  // step.
  rows::check_rows(k, n, group.shape.kv_heads, group.shape.key_dim, "k");
  rows::check_values(v, n, group.shape.kv_heads, group.shape.value_dim, group.shape.latent);
  if (n == 0) return;
  Append& step = find_or_begin(session, layer, static_cast<uint32_t>(n));
  step.write(layer, k, v);
  if (!step.complete()) return;
  step.commit(nullptr);
  session.own_step().reset();
}

}  // namespace pkv
