// NaN and infinity in K, V and Q only affect the rows that see them, and the old bytes of a block
// are never seen again.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "world.h"

namespace hostile::nan_test {
namespace {

constexpr float nan = std::numeric_limits<float>::quiet_NaN(),
                infinity = std::numeric_limits<float>::infinity();

struct Model {
  pkv_dtype dtype;
  pkv_layout layout;
  pkv_isa isa;
};

std::vector<Model> models() {
  std::vector<Model> result;
  for (const pkv_isa isa : pkv::test::instruction_sets) {
    if (!pkv::test::isa_supported(isa)) continue;
    for (const pkv_dtype dtype : {PKV_F32, PKV_F16, PKV_BF16})
      for (const pkv_layout layout : {PKV_LAYOUT_PACKED, PKV_LAYOUT_PLAIN})
        result.push_back({dtype, layout, isa});
  }
  return result;
}

class Cache {
 public:
  explicit Cache(const Model& model) {
    ModelConfig config = small_model(8);
    config.model.dtype = model.dtype;
    config.layout = model.layout;
    config.isa = model.isa;
    OK(pkv_cache_create(&config, &cache));
  }
  ~Cache() { pkv_cache_destroy(cache); }
  pkv_session open() {
    pkv_session session = nullptr;
    OK(pkv_session_open(cache, nullptr, &session));
    return session;
  }
  pkv_cache cache = nullptr;
};

// Runs one step with the same rows in every layer. Returns the outputs of layer 0.
std::vector<float> attend(pkv_cache cache, const std::vector<pkv_session>& sessions,
                          const std::vector<uint32_t>& new_tokens, const std::vector<float>& k,
                          const std::vector<float>& v, const std::vector<float>& q) {
  pkv_batch batch = nullptr;
  OK(pkv_batch_begin(cache, sessions.size(), sessions.data(), new_tokens.data(), &batch));
  std::vector<float> outputs(q.size());
  const pkv_tensor kt = tensor(k.data()), vt = tensor(v.data()), qt = tensor(q.data()),
                   out = tensor(outputs.data());
  for (uint32_t layer = 0; layer < layers; layer++) OK(pkv_batch_write(batch, layer, &kt, &vt));
  OK(pkv_batch_attend(batch, 0, nullptr, &qt, &out, nullptr));
  OK(pkv_batch_commit(batch, 0, nullptr));
  return outputs;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b, size_t first, size_t n) {
  return std::memcmp(a.data() + first, b.data() + first, n * sizeof(float)) == 0;
}

bool any_nan(const std::vector<float>& values, size_t first, size_t n) {
  for (size_t i = first; i < first + n; i++)
    if (std::isnan(values[i])) return true;
  return false;
}

// Runs two sessions in one step, one of which has a bad number at `at` of its K, V or Q (`where` is
// 0, 1 or 2).
void check_bad_number(const Model& model, float bad, int where) {
  Cache cache(model);
  const std::vector<uint32_t> tokens = {20, 21};
  // The bad row is position 5 of the second session.
  const size_t all = 41, bad_row = 25;
  std::vector<float> rows[] = {numbers(all * kv_floats, 1), numbers(all * kv_floats, 2),
                               numbers(all * q_floats, 3)};
  const std::vector<float> clean =
      attend(cache.cache, {cache.open(), cache.open()}, tokens, rows[0], rows[1], rows[2]);
  HOSTILE_CHECK(!any_nan(clean, 0, clean.size()), "NaN out of finite numbers");
  const size_t width = where == 2 ? q_floats : kv_floats;
  rows[where][bad_row * width + 2] = bad;
  const std::vector<float> got =
      attend(cache.cache, {cache.open(), cache.open()}, tokens, rows[0], rows[1], rows[2]);
  const char* const names[] = {"K", "V", "Q"};
  HOSTILE_CHECK(same_bits(clean, got, 0, bad_row * q_floats),
                "%g in %s reached another session or an earlier row", static_cast<double>(bad),
                names[where]);
  // Element 2 belongs to KV head 0 and query head 0. The query heads of the other KV head do not
  // see it.
  constexpr size_t half = q_floats / 2;
  for (size_t row = bad_row; row < all; row++)
    HOSTILE_CHECK(same_bits(clean, got, row * q_floats + half, half),
                  "%g in %s reached another KV head, row %zu", static_cast<double>(bad),
                  names[where], row);
  if (where == 2) {
    HOSTILE_CHECK(same_bits(clean, got, (bad_row + 1) * q_floats, (all - bad_row - 1) * q_floats),
                  "one query's reached another");
    if (std::isnan(bad)) HOSTILE_CHECK(any_nan(got, bad_row * q_floats, dim), "NaN in Q was lost");
  } else if (std::isnan(bad)) {
    for (size_t row = bad_row; row < all; row++)
      HOSTILE_CHECK(any_nan(got, row * q_floats, half),
                    "NaN in %s was lost in row %zu that sees it", names[where], row);
  } else if (where == 1) {
    for (size_t row = bad_row; row < all; row++)
      HOSTILE_CHECK(got[row * q_floats + 2] == bad, "infinity in V gives %g in row %zu",
                    static_cast<double>(got[row * q_floats + 2]), row);
  }
  OK(pkv_cache_validate(cache.cache));
}

TEST(Nan, OnlyTheRowsThatSeeThemShowThem) {
  for (const Model& model : models())
    EXPECT_EQ(in_child([&] {
                for (const float bad : {nan, infinity, -infinity})
                  for (const int where : {0, 1, 2}) check_bad_number(model, bad, where);
              }),
              "")
        << pkv_isa_name(model.isa) << ", dtype " << model.dtype << ", layout " << model.layout;
}

// Blocks that their last user left full of NaN give the same bits as fresh memory, at every length.
TEST(Nan, RecycledBlocksShowNothing) {
  for (const Model& model : models())
    EXPECT_EQ(in_child([&] {
                Cache fresh(model), used(model);
                const pkv_session poison = used.open();
                const std::vector<float> bad(128 * kv_floats, nan), queries(128 * q_floats, nan);
                attend(used.cache, {poison}, {128}, bad, bad, queries);
                OK(pkv_session_close(poison));
                const pkv_session a = fresh.open(), b = used.open();
                for (const uint32_t n : {1u, 2u, 13u, 1u, 15u, 1u, 30u, 17u}) {
                  const std::vector<float> k = numbers(n * kv_floats, n),
                                           v = numbers(n * kv_floats, n + 1),
                                           q = numbers(n * q_floats, n + 2);
                  const std::vector<float> expected = attend(fresh.cache, {a}, {n}, k, v, q),
                                           got = attend(used.cache, {b}, {n}, k, v, q);
                  HOSTILE_CHECK(same_bits(expected, got, 0, got.size()), "at %llu tokens",
                                static_cast<unsigned long long>(length_of(b)));
                  HOSTILE_CHECK(!any_nan(got, 0, got.size()), "NaN at %llu tokens",
                                static_cast<unsigned long long>(length_of(b)));
                }
              }),
              "")
        << pkv_isa_name(model.isa) << ", dtype " << model.dtype << ", layout " << model.layout;
}

// The same is true after an abort and a trim, for slots that were written and given back.
TEST(Nan, GivenUpSlotsShowNothing) {
  for (const Model& model : models())
    EXPECT_EQ(in_child([&] {
                Cache fresh(model), used(model);
                const pkv_session a = fresh.open(), b = used.open();
                const std::vector<float> k = numbers(9 * kv_floats, 1),
                                         v = numbers(9 * kv_floats, 2),
                                         q = numbers(9 * q_floats, 3);
                attend(fresh.cache, {a}, {9}, k, v, q);
                attend(used.cache, {b}, {9}, k, v, q);
                const std::vector<float> bad(4 * kv_floats, nan), queries(4 * q_floats, nan);
                attend(used.cache, {b}, {4}, bad, bad, queries);
                OK(pkv_session_trim(b, 9));
                pkv_batch batch = nullptr;
                const uint32_t four = 4;
                const pkv_tensor rows = tensor(bad.data());
                OK(pkv_batch_begin(used.cache, 1, &b, &four, &batch));
                for (uint32_t layer = 0; layer < layers; layer++)
                  OK(pkv_batch_write(batch, layer, &rows, &rows));
                OK(pkv_batch_abort(batch));
                const std::vector<float> k1 = numbers(kv_floats, 4), v1 = numbers(kv_floats, 5),
                                         q1 = numbers(q_floats, 6);
                const std::vector<float> expected = attend(fresh.cache, {a}, {1}, k1, v1, q1),
                                         got = attend(used.cache, {b}, {1}, k1, v1, q1);
                HOSTILE_CHECK(same_bits(expected, got, 0, got.size()), "after an abort and a trim");
              }),
              "")
        << pkv_isa_name(model.isa) << ", dtype " << model.dtype << ", layout " << model.layout;
}

}  // namespace
}  // namespace hostile::nan_test
