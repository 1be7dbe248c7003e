// NaN, infinities, denormals and empty rows: numbers outside a row's range have no effect, and
// numbers inside are computed by IEEE 754. Each test runs with few rows and with many.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "expected.h"

namespace pkv::kernels::test {
namespace {

constexpr uint64_t length = 40;
constexpr uint32_t kv_heads = 2, heads_per_kv_head = 3, query_heads = kv_heads * heads_per_kv_head,
                   key_dim = 32, value_dim = 48;

// INT8 and INT4 have no infinity, and NaN only in their scales. E4M3 has no infinity.
bool has_infinity(pkv_dtype dtype) { return !is_integer(dtype) && dtype != PKV_FP8_E4M3; }

class Special : public testing::TestWithParam<NamedTable> {
 protected:
  // Runs a check for both layouts and all dtypes, with K and V of the same or of different ones, on
  // a sequence of 40 tokens in garbage.
  template <class Check>
  void for_each_sequence(const Check& check) {
    Random random(31);
    for (const pkv_layout layout : layouts) {
      constexpr size_t n = std::size(stored_dtypes);
      for (size_t i = 0; i < 2 * n; i++) {
        const pkv_dtype k = stored_dtypes[i % n], v = stored_dtypes[(i + i / n * 3) % n];
        const Shape shape{layout,
                          k,
                          v,
                          kv_heads,
                          heads_per_kv_head,
                          key_dim,
                          value_dim,
                          layout == PKV_LAYOUT_PACKED ? 32u : 7u,
                          true,
                          false,
                          length};
        Sequence sequence(shape, random, 0xFF);
        sequence.fill(random);
        check(sequence, random);
        if (HasFatalFailure()) FAIL() << "layout " << layout << " dtypes " << k << "/" << v;
      }
    }
  }

  // q is positive in dim 0, so an infinity in that dim of K gives an infinite score in every row.
  Rows run(Sequence& sequence, const Call& call) {
    Random random(32);
    std::vector<float> q = random_queries(sequence.shape, call.queries, random);
    for (size_t i = 0; i < q.size(); i += key_dim) q[i] = std::fabs(q[i]) + 0.1f;
    return attend(*GetParam().kernels, sequence, call, q);
  }

  static void put(Sequence& sequence, Side side, uint64_t position, uint32_t dim, double number) {
    for (uint32_t head = 0; head < kv_heads; head++)
      sequence.put(side, position, head, dim, number);
  }

  // Overwrites all elements and scales of a position.
  static void spoil(Sequence& sequence, uint64_t position, double garbage) {
    for (const Side side : sides) {
      for (uint32_t head = 0; head < kv_heads; head++) {
        for (uint32_t d = 0; d < sequence.dim(side); d++)
          sequence.set_bits(
              side, position, head, d,
              is_integer(sequence.dtype(side)) ? d % 16 : encode(sequence.dtype(side), garbage));
        for (uint32_t i = 0; i < sequence.scales(side); i++)
          sequence.set_scale_bits(side, position, head, i,
                                  encode(sequence.scale_dtype(side), garbage));
      }
    }
  }

  static bool row_is_nan(const Rows& out, uint32_t query, uint32_t head) {
    bool all = true, any = false;
    for (uint32_t d = 0; d < out.dim; d++) {
      const bool is = is_nan(PKV_F32, out.bits(query, head, d));
      all &= is;
      any |= is;
    }
    EXPECT_EQ(all, any) << "a row is NaN in some dims only";
    return all;
  }

  static Call queries_of(uint64_t first, uint32_t n, std::vector<uint64_t> cuts,
                         uint32_t window = 0) {
    return Call{.head_end = kv_heads,
                .queries = n,
                .first_query = first,
                .window = window,
                .cuts = std::move(cuts)};
  }
};

// 4 queries are few rows and 25 are many.
TEST(SpecialCalls, TakeBothWays) {
  const Shape shape{PKV_LAYOUT_PACKED,
                    PKV_F32,
                    PKV_F32,
                    kv_heads,
                    heads_per_kv_head,
                    key_dim,
                    value_dim,
                    16,
                    true,
                    false,
                    length};
  EXPECT_FALSE(takes_matmul(shape, call_of(shape, 0, 4, {0, length})));
  EXPECT_TRUE(takes_matmul(shape, call_of(shape, 0, 6, {0, length})));
}

TEST_P(Special, GarbageOutsideOfTheRangeChangesNoBit) {
  for_each_sequence([&](Sequence& sequence, Random&) {
    Call masked = queries_of(30, 3, {0, 37});
    masked.mask = {0x15, 0x51, 0x14};
    masked.mask_begin = 28;
    masked.mask_words = 1;
    Call many_masked = queries_of(20, 8, {0, 30});
    many_masked.mask = {0x15, 0x51, 0x14, 0x15, 0x51, 0x14, 0x15, 0x51};
    many_masked.mask_begin = 20;
    many_masked.mask_words = 1;
    Call sinks = queries_of(36, 3, {0, length}, 8);
    sinks.sinks = 3;
    for (const Call& call : {queries_of(17, 9, {3, 30}, 5), queries_of(20, 6, {7, 19, 40}, 6),
                             queries_of(9, 1, {0, 40}, 3), queries_of(17, 4, {3, 30}, 5), masked,
                             many_masked, sinks}) {
      const Rows clean = run(sequence, call);
      for (const double garbage : {nan, infinity, -infinity, 0.0, 1e38}) {
        Sequence dirty = sequence;
        for (uint64_t position = 0; position < length; position++) {
          bool seen = false;
          for (uint32_t i = 0; i < call.queries; i++) seen |= call.sees(i, position);
          if (!seen) spoil(dirty, position, garbage);
        }
        ASSERT_TRUE(run(dirty, call).bytes == clean.bytes)
            << "garbage " << garbage << " matmul " << takes_matmul(sequence.shape, call);
      }
    }
  });
}

TEST_P(Special, NanAndInfinityInKReachJustTheRowsThatSeeThem) {
  for_each_sequence([&](Sequence& sequence, Random&) {
    for (const Call& call : {queries_of(10, 25, {0, 13, 40}, 8), queries_of(15, 4, {0, 13, 40}, 8),
                             queries_of(30, 4, {0, 40}, 17)}) {
      const Rows clean = run(sequence, call);
      for (const double bad : {nan, infinity}) {
        if (bad == infinity && !has_infinity(sequence.dtype(Side::K))) continue;
        for (const uint64_t position : {uint64_t{12}, uint64_t{17}, uint64_t{31}, uint64_t{32}}) {
          Sequence dirty = sequence;
          put(dirty, Side::K, position, 0, bad);
          const Rows out = run(dirty, call);
          for (uint32_t i = 0; i < call.queries; i++) {
            for (uint32_t head = 0; head < query_heads; head++) {
              ASSERT_EQ(row_is_nan(out, i, head), call.sees(i, position))
                  << bad << " at " << position << ", query " << i;
              for (uint32_t d = 0; d < value_dim && !call.sees(i, position); d++)
                ASSERT_EQ(out.bits(i, head, d), clean.bits(i, head, d))
                    << bad << " at " << position << ", query " << i;
            }
          }
        }
      }
    }
  });
}

// In dtypes with scales it reaches at least the dims that share its scale. It may reach the whole
// row, because the weights of a tile share a factor.
TEST_P(Special, NanInVReachesJustTheRowsThatSeeIt) {
  for_each_sequence([&](Sequence& sequence, Random&) {
    const pkv_dtype dtype = sequence.dtype(Side::V);
    for (const Call& call : {queries_of(10, 25, {0, 13, 40}, 8), queries_of(15, 4, {0, 13, 40}, 8),
                             queries_of(34, 4, {0, 40})}) {
      const Rows clean = run(sequence, call);
      Sequence dirty = sequence;
      put(dirty, Side::V, 17, 5, nan);
      if (has_infinity(dtype)) put(dirty, Side::V, 24, 20, infinity);
      const Rows out = run(dirty, call);
      for (uint32_t i = 0; i < call.queries; i++) {
        const bool sees_nan = call.sees(i, 17),
                   sees_infinity = has_infinity(dtype) && call.sees(i, 24);
        for (uint32_t head = 0; head < query_heads; head++) {
          for (uint32_t d = 0; d < value_dim; d++) {
            const bool same_scale =
                is_integer(dtype) && sequence.scale_of(Side::V, d) == sequence.scale_of(Side::V, 5);
            if (sees_nan && (d == 5 || same_scale))
              ASSERT_TRUE(is_nan(PKV_F32, out.bits(i, head, d))) << "query " << i << " dim " << d;
            else if (sees_nan && is_integer(dtype))
              continue;
            else if (d == 20 && sees_infinity)
              ASSERT_EQ(out.value(i, head, d), infinity) << "query " << i;
            else
              ASSERT_EQ(out.bits(i, head, d), clean.bits(i, head, d))
                  << "query " << i << " dim " << d;
          }
        }
      }
    }
  });
}

// A score of -infinity has the weight 0, so the row is what it is without the token, wherever tiles
// and parts begin.
TEST_P(Special, MinusInfinityScoresWeighNothing) {
  for_each_sequence([&](Sequence& sequence, Random&) {
    if (!has_infinity(sequence.dtype(Side::K))) return;
    for (const uint32_t queries : {1u, 6u}) {
      for (const std::vector<uint64_t>& cuts :
           {std::vector<uint64_t>{0, 40}, {0, 16, 20, 40}, {0, 35, 40}}) {
        Sequence dirty = sequence;
        for (uint64_t position = 0; position < 33; position++)
          put(dirty, Side::K, position, 0, -infinity);
        const Rows masked = run(dirty, queries_of(40 - queries, queries, cuts));
        const Call call = queries_of(40 - queries, queries, {33, 40});
        const Rows without = run(sequence, call);
        const bool integers = GetParam().multiplies_integer_pairs &&
                              is_integer(sequence.dtype(Side::V)) &&
                              takes_matmul(sequence.shape, call);
        const double rounding = integers ? 14 * 0x1p-17 : 16 * 0x1p-24;
        for (uint32_t i = 0; i < queries; i++)
          for (uint32_t head = 0; head < query_heads; head++)
            for (uint32_t d = 0; d < value_dim; d++)
              // The same seven tokens are summed in the same order. Only the merge may round, and
              // integer weights, whose units depend on where parts begin. Results are at most 1.
              ASSERT_NEAR(masked.value(i, head, d), without.value(i, head, d), rounding);
      }
    }
  });
}

TEST_P(Special, NothingButMinusInfinityIsNan) {
  for_each_sequence([&](Sequence& sequence, Random&) {
    if (!has_infinity(sequence.dtype(Side::K))) return;
    for (uint64_t position = 0; position < length; position++)
      put(sequence, Side::K, position, 0, -infinity);
    for (const uint32_t queries : {2u, 7u}) {
      for (const std::vector<uint64_t>& cuts : {std::vector<uint64_t>{0, 40}, {0, 5, 16, 40}}) {
        const Rows out = run(sequence, queries_of(40 - queries, queries, cuts));
        for (uint32_t i = 0; i < queries; i++)
          for (uint32_t head = 0; head < query_heads; head++) ASSERT_TRUE(row_is_nan(out, i, head));
      }
    }
  });
}

TEST_P(Special, ARowThatSeesNothingIsZero) {
  for_each_sequence([&](Sequence& sequence, Random&) {
    // Queries 0 to 9 lie before the range. From 10 on each query sees something.
    for (const uint64_t first : {0u, 8u}) {
      const auto queries = static_cast<uint32_t>(first == 0 ? 20 : 4);
      for (const std::vector<uint64_t>& cuts :
           {std::vector<uint64_t>{10, 40}, {10, 12, 31, 40}, {10, 10, 40, 40}}) {
        const Rows out = run(sequence, queries_of(first, queries, cuts));
        for (uint32_t i = 0; i < queries; i++) {
          for (uint32_t head = 0; head < query_heads; head++) {
            bool zero = true;
            for (uint32_t d = 0; d < value_dim; d++) zero &= out.bits(i, head, d) == 0;
            ASSERT_EQ(zero, first + i < 10) << "query " << i;
          }
        }
      }
    }
    // The window ends before the range begins.
    for (const uint32_t queries : {1u, 6u}) {
      const Rows out = run(sequence, queries_of(40 - queries, queries, {0, 20}, 5));
      for (uint32_t i = 0; i < queries; i++)
        for (uint32_t head = 0; head < query_heads; head++)
          for (uint32_t d = 0; d < value_dim; d++) ASSERT_EQ(out.bits(i, head, d), 0u);
    }
  });
}

TEST_P(Special, AnEmptyPartReportsThatItIsEmpty) {
  for_each_sequence([&](Sequence& sequence, Random& random) {
    for (const uint32_t queries : {1u, 6u}) {
      const Call call = queries_of(0, queries, {10, 40});
      const std::vector<float> q = random_queries(sequence.shape, queries, random);
      Part part(*GetParam().kernels, sequence, call, 10, 40, q);
      part.attend();
      for (const float x : part.out) ASSERT_EQ(x, 0.0f);
      for (const float x : part.max) ASSERT_EQ(x, -infinity);
      for (const float x : part.sum) ASSERT_EQ(x, 0.0f);
    }
  });
}

// Denormals are numbers like all others.
TEST_P(Special, DenormalsCount) {
  Random random(33);
  for (const pkv_layout layout : layouts) {
    for (const pkv_dtype dtype : {PKV_F16, PKV_FP8_E4M3, PKV_FP8_E5M2}) {
      for (const uint32_t queries : {4u, 25u}) {
        const Shape shape{layout, dtype, dtype, kv_heads, heads_per_kv_head, key_dim, value_dim,
                          32,     true,  false, length};
        Sequence sequence(shape, random, 0xFF);
        const uint32_t sign = 1u << (bits_of(dtype) - 1), denormals = dtype == PKV_F16        ? 1024
                                                                      : dtype == PKV_FP8_E4M3 ? 8
                                                                                              : 4;
        for (const Side side : sides)
          for (uint64_t position = 0; position < length; position++)
            for (uint32_t head = 0; head < kv_heads; head++)
              for (uint32_t d = 0; d < sequence.dim(side); d++)
                sequence.set_bits(
                    side, position, head, d,
                    static_cast<uint32_t>(pick(random, 0, denormals - 1) | (random() & sign)));
        const Call call = queries_of(length - queries, queries, {0, length});
        std::vector<float> q = random_queries(shape, queries, random),
                           lse(queries * query_heads, unset);
        for (float& x : q) x *= 100;
        Rows out(PKV_F32, queries, query_heads, value_dim);
        attend_and_finish(*GetParam().kernels, sequence, call, q, out, lse);
        ASSERT_EQ(Expected(sequence, call, q).difference(GetParam(), out, lse), "");
        double largest = 0;
        for (uint32_t d = 0; d < value_dim; d++)
          largest = std::max(largest, std::fabs(out.value(0, 0, d)));
        ASSERT_GT(largest, 0) << "they do not vanish";
      }
    }
  }
}

// A denormal is not 0. Infinity times a denormal is infinity, not NaN, whichever of query and K it
// is in.
TEST_P(Special, InfinityTimesADenormalIsInfinity) {
  Random random(35);
  for (const pkv_layout layout : layouts) {
    for (const pkv_dtype dtype : {PKV_F32, PKV_F16, PKV_BF16, PKV_FP8_E5M2}) {
      for (const uint32_t queries : {1u, 4u, 25u}) {
        for (const bool infinite_query : {true, false}) {
          const Shape shape{layout, dtype, dtype, kv_heads, heads_per_kv_head, key_dim, value_dim,
                            32,     true,  false, length};
          Sequence sequence(shape, random, 0xFF);
          for (uint64_t position = 0; position < length; position++)
            for (uint32_t head = 0; head < kv_heads; head++)
              for (uint32_t d = 0; d < key_dim; d++) {
                if (infinite_query)
                  sequence.set_bits(Side::K, position, head, d, 1);
                else
                  sequence.put(Side::K, position, head, d, d == position % key_dim ? infinity : 1);
              }
          Call call = queries_of(length - queries, queries, {0, length});
          call.causal = false;
          call.softcap = 1;
          std::vector<float> q(size_t{queries} * query_heads * key_dim, 1e-40f),
              lse(queries * query_heads, unset);
          for (size_t row = 0; row < q.size() / key_dim && infinite_query; row++)
            q[row * key_dim + row % key_dim] = infinity;
          Rows out(PKV_F32, queries, query_heads, value_dim);
          attend_and_finish(*GetParam().kernels, sequence, call, q, out, lse);
          // Each capped score is 1.
          for (const float x : lse)
            ASSERT_NEAR(x, 1 + std::log(static_cast<double>(length)), 1e-4)
                << "dtype " << dtype << ", " << queries << " queries, " << infinite_query;
        }
      }
    }
  }
}

// There is one KV head for each code, with one token 16 times. The output is its V, and the
// log-sum-exp is its score plus log 16.
TEST_P(Special, EveryFp8CodeIsMultipliedAsItsNumber) {
  Random random(34);
  for (const pkv_layout layout : layouts) {
    for (const pkv_dtype dtype : {PKV_FP8_E4M3, PKV_FP8_E5M2}) {
      for (const uint32_t queries : {1u, 16u}) {
        const Shape shape{layout, dtype, dtype, 256, 1, 16, 16, 16, true, false, 16};
        Call call = call_of(shape, 0, queries, {0, 16});
        call.causal = false;
        std::vector<float> q(256 * queries * 16, 0.0f), lse(queries * 256, unset);
        for (size_t i = 0; i < q.size(); i += 16) q[i] = 1;
        for (const Side side : sides) {
          Sequence sequence(shape, random, 0xFF);
          for (uint64_t position = 0; position < 16; position++)
            for (uint32_t code = 0; code < 256; code++)
              for (uint32_t d = 0; d < 16; d++) {
                sequence.set_bits(Side::K, position, code, d, side == Side::K && d == 0 ? code : 0);
                sequence.set_bits(Side::V, position, code, d, side == Side::V ? code : 0);
              }
          Rows out(PKV_F32, queries, 256, 16);
          attend_and_finish(*GetParam().kernels, sequence, call, q, out, lse);
          for (uint32_t code = 0; code < 256; code++) {
            const double number = decode(dtype, code), score = side == Side::K ? number : 0;
            const double weighed = side == Side::V ? number : std::isfinite(number) ? 0 : nan;
            // The logarithm, and the sum with it, are rounded once each.
            const double log_sum = std::isfinite(score) ? score + std::log(16.0) : nan,
                         bound = (std::fabs(score) + 3) * 0x1p-23;
            for (uint32_t i = 0; i < queries; i++) {
              const double got = out.value(i, code, 5), got_log_sum = lse[i * 256 + code];
              ASSERT_TRUE(std::isnan(weighed) ? std::isnan(got) : got == weighed)
                  << code << " in V gave " << got;
              ASSERT_TRUE(std::isnan(log_sum) ? std::isnan(got_log_sum)
                                              : std::fabs(got_log_sum - log_sum) <= bound)
                  << code << " in K gave " << got_log_sum;
            }
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, Special, testing::ValuesIn(tables()),
                         [](const auto& table) { return table.param.name; });

}  // namespace
}  // namespace pkv::kernels::test
