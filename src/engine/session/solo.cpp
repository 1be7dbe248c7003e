#include "engine/session/solo.h"

#include "base/status.h"
#include "engine/attention/rows.h"
#include "engine/session/batch.h"

namespace pkv {

namespace {

class Solo final : public Batch {
 public:
  enum class Kind { prefill, push };
  static const char* name_of(Kind kind) { return kind == Kind::prefill ? "prefill" : "push"; }

  // Replaces what the session holds. Throws before anything is lost.
  static std::unique_ptr<Solo> prefill(Session& session, uint32_t n) {
    auto solo = std::unique_ptr<Solo>(new Solo(session));
    session.replace_by_room_for(n);
    solo->begin_with_room(session, n);
    return solo;
  }
  static std::unique_ptr<Solo> push(Session& session) {
    session.make_room_for_tokens(1);  // so that the commit cannot fail
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

// The step under way, which a first layer begins.
Solo& step_of(Session& session, Solo::Kind kind, uint32_t layer, uint32_t n) {
  std::unique_ptr<Step>& own = session.own_step();
  if (own == nullptr)
    own = kind == Solo::Kind::prefill ? Solo::prefill(session, n) : Solo::push(session);
  Solo& solo = static_cast<Solo&>(*own);  // nothing else is put there
  if (solo.kind() != kind) session.check_idle(Solo::name_of(kind));
  if (solo.rows() != n)
    fail(PKV_INVALID_ARGUMENT, "layer %u: %u rows, but this %s began with %zu", layer, n,
         solo.name(), solo.rows());
  return solo;
}

void run(Session& session, Solo::Kind kind, uint32_t layer, size_t n, const pkv_tensor* k,
         const pkv_tensor* v) {
  const char* const name = Solo::name_of(kind);
  Cache& cache = session.cache();
  const memory::Group& group = cache.group(cache.place(layer).group);
  if (group.storage == PKV_STORAGE_NONE)
    fail(PKV_UNSUPPORTED, "%s: storage NONE keeps no keys and values", name);
  if (n > UINT32_MAX) fail(PKV_TOO_LARGE, "%s of %zu rows; at most 2^32 - 1 at once", name, n);
  // Before anything is replaced.
  attention::check_rows(k, n, group.shape.kv_heads, group.shape.key_dim, "k");
  attention::check_values(v, n, group.shape);
  if (n == 0) return;
  Solo& solo = step_of(session, kind, layer, static_cast<uint32_t>(n));
  solo.write(layer, k, v);
  if (!solo.complete()) return;
  solo.commit(nullptr);
  session.own_step().reset();
}

}  // namespace

void prefill(Session& session, uint32_t layer, size_t n, const pkv_tensor* k, const pkv_tensor* v) {
  run(session, Solo::Kind::prefill, layer, n, k, v);
}

void push(Session& session, uint32_t layer, const pkv_tensor* k, const pkv_tensor* v) {
  run(session, Solo::Kind::push, layer, 1, k, v);
}

}  // namespace pkv
