// A session that grows step by step, kept beside the rows that it should hold and compared with the
// reference.
#pragma once

#include "../support/cache.h"
#include "../support/rows.h"
#include "reference.h"

namespace cache_test {

class Grown {
 public:
  Grown(pkv_cache cache, const Model& model, uint64_t seed, Session session = {})
      : cache_(cache),
        model_(model),
        session_(session == nullptr ? open(cache) : std::move(session)),
        random_(seed) {}

  pkv_session session() const { return session_; }
  uint64_t length() const { return length_of(session_); }

  // Makes one step. Returns the worst error of its outputs and log-sum-exps as a fraction of their
  // tolerances. The reference takes keys and values as the layer has stored them.
  double step(uint32_t tokens, const Attention& attention) {
    Batch batch = begin(cache_, {session_}, {tokens});
    KeysValues rows = random_rows(model_, tokens, random_);
    write(batch, 0, model_, rows);
    Rows q(tokens, model_.query_heads, model_.key_dim),
        out(tokens, model_.query_heads, model_.values());
    std::vector<float> lse(tokens * model_.query_heads);
    const AttentionParams params = attention.params(lse.data());
    attend(batch, 0, q.fill(random_), out, &params);
    const double worst = worst_error(q, out, 0, tokens, stored(length() + tokens),
                                     length() + tokens, attention, lse);
    commit(batch);
    return worst;
  }

 private:
  // Rows at positions that left the window may be anything, because no query sees them.
  KeysValues stored(uint64_t length) const {
    KeysValues all = rows_of(model_, length);
    for (uint64_t p = 0; p < length; p++) {
      const pkv_tensor k = all.k.tensor(p), v = all.v.tensor(p);
      const pkv_status status = pkv_session_read(session_, 0, p, 1, &k, &v);
      if (status != PKV_OUT_OF_RANGE || model_.window == 0) CHECK(status);
    }
    return all;
  }

  pkv_cache cache_;
  const Model model_;
  Session session_;
  Random random_;
};

}  // namespace cache_test
