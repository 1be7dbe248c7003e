// Tests every stored type, and keys and values of different types. What is stored is within the
// documented bounds, is the same for every storage and layout, and never changes.
#include <algorithm>
#include <limits>

#include "memory_kinds.h"
#include "reference.h"

namespace cache_test::dtypes_test {
namespace {

struct Pair {
  pkv_dtype keys, values;
};

constexpr Pair pairs[] = {
    {PKV_F32, PKV_F32},           {PKV_F16, PKV_F16},   {PKV_BF16, PKV_BF16},
    {PKV_INT8, PKV_INT8},         {PKV_INT4, PKV_INT4}, {PKV_FP8_E4M3, PKV_FP8_E4M3},
    {PKV_FP8_E5M2, PKV_FP8_E5M2}, {PKV_INT8, PKV_INT4}, {PKV_FP8_E5M2, PKV_FP8_E4M3},
    {PKV_BF16, PKV_INT8},         {PKV_INT4, PKV_F16},  {PKV_F16, PKV_BF16},
    {PKV_F32, PKV_FP8_E4M3}};

Model model_of(const Pair& pair, uint32_t key_dim = 48, uint32_t value_dim = 80) {
  return {1, 6, 2, key_dim, value_dim, pair.keys, 0, pair.values};
}

Cache make(const Model& model, const MemoryKind& kind, pkv_isa isa = PKV_ISA_AUTO,
           uint32_t block_size = 16) {
  ModelConfig config = config_of(model, 64);
  config.layout = kind.layout;
  config.isa = isa;
  config.block_size = block_size;
  return create(config);
}

class Dtypes : public testing::TestWithParam<Pair> {
 protected:
  const Model model = model_of(GetParam());
};

// Takes a session through all operations that move or add rows. No bit of its earlier rows may
// change.
class Life {
 public:
  Life(pkv_cache cache, const Model& model) : cache_(cache), model_(model), session_(open(cache)) {
    KeysValues rows{Rows(50, model.kv_heads, model.key_dim),
                    Rows(50, model.kv_heads, model.values())};
    append(50, rows);
    for (const uint32_t tokens : {1u, 1u, 13u, 16u, 2u}) grow(tokens);
    append(1, rows);

    Session child = fork(session_);
    Snapshot snapshot = freeze(session_);
    grow(5);
    std::swap(child, session_);
    held_ = materialize(session_, 0, model_, 0, length_of(session_));
    grow(7);
    CHECK(pkv_session_trim(session_, 37));
    held_ = {held_.k.slice(0, 37), held_.v.slice(0, 37)};
    expect_kept();
    grow(20);
    Session thawed = thaw(snapshot);
    EXPECT_EQ(84u, length_of(thawed));
    EXPECT_TRUE(materialize(thawed, 0, model_, 0, 84) == materialize(child, 0, model_, 0, 84))
        << "snapshot and parent";
    EXPECT_TRUE(materialize(thawed, 0, model_, 0, 37) == materialize(session_, 0, model_, 0, 37))
        << "snapshot and trimmed fork";
    CHECK(pkv_cache_validate(cache_));
  }

  const KeysValues& held() const { return held_; }

 private:
  void grow(uint32_t tokens) {
    step(cache_, session_, model_, tokens, random_);
    expect_kept();
  }

  // Adds tokens with rows of type f32, whatever the cache stores.
  void append(uint32_t tokens, KeysValues& rows) {
    rows.k.fill(random_), rows.v.fill(random_);
    step(cache_, session_, model_, tokens, rows);
    expect_kept();
  }

  void expect_kept() {
    const size_t before = held_.k.rows(), now = length_of(session_);
    KeysValues found = materialize(session_, 0, model_, 0, now);
    if (before > 0) {
      EXPECT_TRUE(held_ == (KeysValues{found.k.slice(0, before), found.v.slice(0, before)}))
          << "what was there before " << now;
    }
    held_ = std::move(found);
  }

  pkv_cache cache_;
  const Model model_;
  Session session_;
  Random random_{21};
  KeysValues held_;
};

TEST_P(Dtypes, WhatIsStoredNeverChangesAndIsTheSameEverywhere) {
  KeysValues first;
  for (const MemoryKind& kind : memory_kinds) {
    for (const uint32_t block_size : {16u, 48u}) {
      SCOPED_TRACE(testing::Message() << kind.name << ", block size " << block_size);
      Cache cache = make(model, kind, PKV_ISA_AUTO, block_size);
      const Life life(cache, model);
      if (first.k.rows() == 0) first = life.held();
      EXPECT_TRUE(first == life.held());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Pairs, Dtypes, testing::ValuesIn(pairs), [](const auto& test) {
  return std::string(name_of(test.param.keys)) + "_" + name_of(test.param.values);
});

// ---- What a row becomes -----------------------------------------------------------------------

// Returns the largest error that common.h allows an element x of a row. m is the largest magnitude
// that shares its scale: in the row (int8) or in the 32 dims (int4). int8 allows m / 254 and four
// roundings of m in fp32: of the inverse scale, the product with it, the scale, and the product
// with that. fp8 rounds to 3 or 2 bits of mantissa, and below its smallest normal number to a
// multiple of 2^-9 or 2^-16.
double bound(pkv_dtype dtype, double x, double m) {
  switch (dtype) {
    case PKV_F32:
      return 0;
    case PKV_F16:
      return std::max(std::ldexp(std::abs(x), -11), std::ldexp(1, -25));
    case PKV_BF16:
      return std::ldexp(std::abs(x), -8);
    case PKV_INT8:
      return m / 254 + std::ldexp(m, -22);
    case PKV_INT4:
      return m / 13.8;
    case PKV_FP8_E4M3:
      return std::max(std::ldexp(std::abs(x), -4), std::ldexp(1, -10));
    case PKV_FP8_E5M2:
      return std::max(std::ldexp(std::abs(x), -3), std::ldexp(1, -17));
    default:
      break;
  }
  return 0;
}

struct Stored {
  Rows given, found;
};

// Stores rows of 80 dims as keys and values of one type, and reads them back.
Stored through(pkv_dtype dtype, const Rows& given, pkv_layout layout, pkv_isa isa) {
  const Model model = model_of({dtype, dtype}, given.dim(), given.dim());
  Cache cache = make(model, {"", layout}, isa);
  Session session = open(cache);
  Rows k = given, v = given;
  Batch batch = begin(cache, {session}, {static_cast<uint32_t>(given.rows())});
  write(batch, 0, k, v);
  commit(batch);
  Rows keys(given.rows(), 2, given.dim()), values(keys);
  const pkv_tensor to_keys = keys.tensor(), to_values = values.tensor();
  CHECK(pkv_session_read(session, 0, 0, given.rows(), &to_keys, &to_values));
  EXPECT_TRUE(keys == values) << name_of(dtype);
  return {given, keys};
}

class StoredRows : public testing::TestWithParam<pkv_dtype> {
 protected:
  template <class Check>
  void each_way(const Rows& given, const Check& check) const {
    for (const pkv_isa isa : supported_isas())
      for (const pkv_layout layout : {PKV_LAYOUT_PACKED, PKV_LAYOUT_PLAIN}) {
        SCOPED_TRACE(testing::Message() << pkv_isa_name(isa) << ", layout " << layout);
        check(through(GetParam(), given, layout, isa));
      }
  }
};

TEST_P(StoredRows, AreWithinTheDocumentedBounds) {
  Random random(41);
  for (const pkv_dtype from : {PKV_F32, PKV_F16, PKV_BF16}) {
    Rows given(40, 2, 80, from, {3, 5, 0});
    // Rows have amplitudes from 2^-19 to 1. In every third row each element has its own amplitude.
    given.each([&](size_t r, uint32_t h, uint32_t d) {
      const auto exponent = static_cast<int>(r % 3 == 0 ? random.below(20) : r % 20);
      given.set(r, h, d, std::ldexp(random.uniform(), -exponent));
    });
    each_way(given, [&](const Stored& stored) {
      const uint32_t step = scaled_dims(GetParam(), 80);
      double worst = 0;
      stored.given.each([&](size_t r, uint32_t h, uint32_t d) {
        double largest = 0;
        for (uint32_t i = d / step * step; i < std::min(80u, (d / step + 1) * step); i++)
          largest = std::max(largest, std::abs(double{stored.given.get(r, h, i)}));
        const double x = double{stored.given.get(r, h, d)},
                     error = std::abs(double{stored.found.get(r, h, d)} - x);
        worst = worse(error == 0 ? 0 : error / bound(GetParam(), x, largest), worst);
      });
      EXPECT_LE(worst, 1.0) << "from " << name_of(from);
    });
  }
}

// A number that is not finite spoils the elements that share its scale, and no others.
TEST_P(StoredRows, NumbersThatAreNotFinite) {
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    Rows given(3, 2, 80);
    given.each([&](size_t r, uint32_t h, uint32_t d) { given.set(r, h, d, 0.5f); });
    given.set(1, 1, 40, bad);
    const bool becomes_nan = std::isnan(bad) || integers(GetParam()) || GetParam() == PKV_FP8_E4M3;
    const uint32_t step = integers(GetParam()) ? scaled_dims(GetParam(), 80) : 1;
    each_way(given, [&](const Stored& stored) {
      stored.found.each([&](size_t r, uint32_t h, uint32_t d) {
        const float found = stored.found.get(r, h, d);
        if (r == 1 && h == 1 && d / step == 40 / step)
          EXPECT_TRUE(becomes_nan ? std::isnan(found) : found == bad) << found << " at " << d;
        else
          EXPECT_NEAR(0.5, found, bound(GetParam(), 0.5, 0.5)) << d;
      });
    });
  }
}

TEST_P(StoredRows, VeryLargeAndVerySmall) {
  const float largest = GetParam() == PKV_FP8_E4M3 ? 448.0f : 57344.0f;
  Rows given(2, 2, 80);
  given.each([&](size_t r, uint32_t h, uint32_t d) {
    given.set(r, h, d, (d % 2 == 0 ? 1.0f : -1.0f) * (r == 0 ? 1e6f : 0.9e-30f));
  });
  each_way(given, [&](const Stored& stored) {
    stored.found.each([&](size_t r, uint32_t h, uint32_t d) {
      const float x = stored.given.get(r, h, d), found = stored.found.get(r, h, d);
      if (r == 0 && (GetParam() == PKV_FP8_E4M3 || GetParam() == PKV_FP8_E5M2)) {
        EXPECT_EQ(std::copysign(largest, x), found);
      } else if (r == 0 && integers(GetParam())) {
        EXPECT_NEAR(x, found, bound(GetParam(), 1e6, 1e6));
      } else if (r == 1 && GetParam() > PKV_BF16) {
        EXPECT_EQ(0.0f, std::abs(found));
      }
    });
  });
}

INSTANTIATE_TEST_SUITE_P(Types, StoredRows, testing::ValuesIn(stored_dtypes),
                         [](const auto& test) { return name_of(test.param); });

}  // namespace
}  // namespace cache_test::dtypes_test
