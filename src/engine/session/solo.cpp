// Runs a batch of one session across the calls that give its layers.
#include "engine/session/solo.h"

#include "base/status.h"
#include "engine/attention/rows.h"
#include "engine/session/batch.h"

namespace pkv {

namespace {

// The step of a prefill or a push: a batch of one session, which the session owns.
class Solo final : public Batch {
 public:
  enum class Kind { prefill, push };
  static const char* name_of(Kind kind) { return kind == Kind::prefill ? "prefill" : "push"; }

  // Empties the session and begins a step of n tokens. If it throws, the session is unchanged.
  static std::unique_ptr<Solo> prefill(Session& session, uint32_t n) {
    auto solo = std::unique_ptr<Solo>(new Solo(session));
    session.clear_and_reserve(n);
    solo->begin_reserved(session, n);
    return solo;
  }
  static std::unique_ptr<Solo> push(Session& session) {
    session.reserve_more_ids(1);  // so that the commit cannot fail
    Session* const self = &session;
    const uint32_t one = 1;
    return std::unique_ptr<Solo>(new Solo(session, std::span(&self, 1), std::span(&one, 1)));
  }

  Kind kind() const { return kind_; }
  const char* name() const override { return name_of(kind_); }

 private:
  explicit Solo(Session& session) : Batch(session.cache(), 1), kind_(Kind::prefill) {}
  Solo(Session& session, std::span<Session* const> self, std::span<const uint32_t> count)
      : Batch(session.cache(), self, count, nullptr), kind_(Kind::push) {}

  const Kind kind_;
};

// Returns the session's step in flight, or begins one. Throws if it is a step of the other kind or
// of another number of rows.
Solo& find_or_begin(Session& session, Solo::Kind kind, uint32_t layer, uint32_t n) {
  std::unique_ptr<Step>& own = session.own_step();
  if (own == nullptr)
    own = kind == Solo::Kind::prefill ? Solo::prefill(session, n) : Solo::push(session);
  Solo& solo = static_cast<Solo&>(*own);  // own_step() holds steps of this class only
  if (solo.kind() != kind) session.check_idle(Solo::name_of(kind));
  if (solo.rows() != n)
    fail(PKV_INVALID_ARGUMENT, "layer %u: %u rows, but this %s began with %zu", layer, n,
         solo.name(), solo.rows());
  return solo;
}

// Writes one layer of a step and commits the step when it was the last one missing.
void write_layer(Session& session, Solo::Kind kind, uint32_t layer, size_t n, const pkv_tensor* k,
                 const pkv_tensor* v) {
  const char* const name = Solo::name_of(kind);
  Cache& cache = session.cache();
  const memory::Group& group = cache.group(cache.place(layer).group);
  for (const auto& each : cache.groups()) memory::check_has_rows(*each, name);
  if (group.storage == PKV_STORAGE_NONE)
    fail(PKV_UNSUPPORTED, "%s: storage NONE keeps no keys and values", name);
  if (n > UINT32_MAX) fail(PKV_TOO_LARGE, "%s of %zu rows; at most 2^32 - 1 at once", name, n);
  // The rows are checked here, although write() checks them again: beginning a prefill empties the
  // session, and wrong rows must not cost it its tokens.
  attention::check_rows(k, n, group.shape.kv_heads, group.shape.key_dim, "k");
  attention::check_values(v, n, group.shape.kv_heads, group.shape.value_dim, group.shape.latent);
  if (n == 0) return;
  Solo& solo = find_or_begin(session, kind, layer, static_cast<uint32_t>(n));
  solo.write(layer, k, v);
  if (!solo.complete()) return;
  solo.commit(nullptr);
  session.own_step().reset();
}

}  // namespace

void prefill(Session& session, uint32_t layer, size_t n, const pkv_tensor* k, const pkv_tensor* v) {
  write_layer(session, Solo::Kind::prefill, layer, n, k, v);
}

void push(Session& session, uint32_t layer, const pkv_tensor* k, const pkv_tensor* v) {
  write_layer(session, Solo::Kind::push, layer, 1, k, v);
}

}  // namespace pkv
