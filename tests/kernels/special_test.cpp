// NaN, infinities and empty rows: what lies outside of a row's range never shows, what lies inside is computed as IEEE says.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "reference.h"
#include "run.h"

namespace pkv::test {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
const double nan = std::numeric_limits<double>::quiet_NaN();

class Special : public testing::TestWithParam<NamedTable> {
 protected:
  // Runs a check for both layouts and all dtypes, on a sequence of 40 tokens in garbage.
  template <class Check>
  void for_each_sequence(const Check& check) {
    Random random(31);
    for (const pkv_layout layout : layouts) {
      for (const pkv_dtype dtype : dtypes) {
        const Shape shape{layout, dtype, 2, 3, 32, 48, layout == PKV_LAYOUT_PACKED ? 32u : 7u, true, 40};
        Sequence sequence(shape, random, 0xFF);
        sequence.fill(random);
        check(sequence, random);
        if (HasFatalFailure()) return;
      }
    }
  }

  // All queries of the last tokens; q is positive in dim 0, so that an infinity in K there gives that score in every row.
  Rows run(Sequence& sequence, const Call& call) {
    Random random(32);
    std::vector<float> q = random_queries(sequence.shape, call.queries, random);
    for (size_t i = 0; i < q.size(); i += sequence.shape.key_dim) q[i] = std::fabs(q[i]) + 0.1f;
    Rows out(PKV_F32, call.queries, 6, 48, random);
    attend_and_finish(*GetParam().kernels, sequence, call, q, out);
    return out;
  }

  static void put_k(Sequence& s, uint64_t position, double value) {
    for (uint32_t head = 0; head < 2; head++) write_bits(s.shape.dtype, s.k(position, head, 0), encode(s.shape.dtype, value));
  }
  static void put_v(Sequence& s, uint64_t position, uint32_t dim, double value) {
    for (uint32_t head = 0; head < 2; head++) write_bits(s.shape.dtype, s.v(position, head, dim), encode(s.shape.dtype, value));
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

  static Call queries_of(uint64_t first, uint32_t n, std::vector<uint64_t> cuts, uint32_t window = 0) {
    Call call;
    call.queries = n;
    call.first_query = first;
    call.window = window;
    call.cuts = std::move(cuts);
    return call;
  }
};

TEST_P(Special, GarbageOutsideOfTheRangeChangesNoBit) {
  for_each_sequence([&](Sequence& sequence, Random&) {
    for (const Call& call : {queries_of(17, 9, {3, 30}, 5), queries_of(20, 6, {7, 19, 40}, 6), queries_of(9, 1, {0, 40}, 3)}) {
      const uint64_t lo = call.lo(0), hi = call.hi(call.queries - 1);
      const Rows clean = run(sequence, call);
      for (const double garbage : {nan, infinity, -infinity, 0.0, 1e38}) {
        Sequence dirty = sequence;
        for (uint64_t position = 0; position < 40; position++) {
          if (position >= lo && position < hi) continue;
          for (uint32_t head = 0; head < 2; head++) {
            for (uint32_t d = 0; d < 32; d++)
              write_bits(dirty.shape.dtype, dirty.k(position, head, d), encode(dirty.shape.dtype, garbage));
            for (uint32_t d = 0; d < 48; d++)
              write_bits(dirty.shape.dtype, dirty.v(position, head, d), encode(dirty.shape.dtype, garbage));
          }
        }
        ASSERT_TRUE(run(dirty, call).bytes == clean.bytes) << "garbage " << garbage;
      }
    }
  });
}

TEST_P(Special, NanAndInfinityReachJustTheRowsThatSeeThem) {
  for_each_sequence([&](Sequence& sequence, Random&) {
    const Call call = queries_of(10, 25, {0, 13, 40}, 8);
    const Rows clean = run(sequence, call);
    for (const double bad : {nan, infinity}) {
      for (const uint64_t position : {uint64_t{12}, uint64_t{17}, uint64_t{31}, uint64_t{32}}) {
        Sequence dirty = sequence;
        put_k(dirty, position, bad);
        const Rows out = run(dirty, call);
        for (uint32_t i = 0; i < call.queries; i++) {
          const bool sees = position >= call.lo(i) && position < call.hi(i);
          for (uint32_t head = 0; head < 6; head++) {
            ASSERT_EQ(row_is_nan(out, i, head), sees) << "K " << bad << " at " << position << ", query " << i;
            for (uint32_t d = 0; d < 48 && !sees; d++) ASSERT_EQ(out.bits(i, head, d), clean.bits(i, head, d));
          }
        }
      }
    }
  });
}

TEST_P(Special, NanInVReachesJustItsDim) {
  for_each_sequence([&](Sequence& sequence, Random&) {
    const Call call = queries_of(10, 25, {0, 13, 40}, 8);
    const Rows clean = run(sequence, call);
    Sequence dirty = sequence;
    put_v(dirty, 17, 5, nan);
    put_v(dirty, 24, 20, infinity);
    const Rows out = run(dirty, call);
    for (uint32_t i = 0; i < call.queries; i++) {
      const bool sees_nan = 17 >= call.lo(i) && 17 < call.hi(i), sees_infinity = 24 >= call.lo(i) && 24 < call.hi(i);
      for (uint32_t head = 0; head < 6; head++) {
        for (uint32_t d = 0; d < 48; d++) {
          if (d == 5 && sees_nan)
            ASSERT_TRUE(is_nan(PKV_F32, out.bits(i, head, d)));
          else if (d == 20 && sees_infinity)
            ASSERT_EQ(decode(PKV_F32, out.bits(i, head, d)), infinity);
          else
            ASSERT_EQ(out.bits(i, head, d), clean.bits(i, head, d)) << "query " << i << " dim " << d;
        }
      }
    }
  });
}

// A score of -infinity has the weight 0: the row is what it is without the token, however tiles and parts fall.
TEST_P(Special, MinusInfinityScoresWeighNothing) {
  for_each_sequence([&](Sequence& sequence, Random&) {
    for (const std::vector<uint64_t>& cuts : {std::vector<uint64_t>{0, 40}, {0, 16, 20, 40}, {0, 35, 40}}) {
      Sequence dirty = sequence;
      for (uint64_t position = 0; position < 36; position++) put_k(dirty, position, -infinity);
      const Rows masked = run(dirty, queries_of(39, 1, cuts)), without = run(sequence, queries_of(39, 1, {36, 40}));
      for (uint32_t head = 0; head < 6; head++)
        for (uint32_t d = 0; d < 48; d++)
          // The same four tokens, summed in the same order: only the merge may round.
          ASSERT_NEAR(decode(PKV_F32, masked.bits(0, head, d)), decode(PKV_F32, without.bits(0, head, d)), 1e-6);
    }
  });
}

TEST_P(Special, NothingButMinusInfinityIsNan) {
  for_each_sequence([&](Sequence& sequence, Random&) {
    for (uint64_t position = 0; position < 40; position++) put_k(sequence, position, -infinity);
    for (const std::vector<uint64_t>& cuts : {std::vector<uint64_t>{0, 40}, {0, 5, 16, 40}}) {
      const Rows out = run(sequence, queries_of(38, 2, cuts));
      for (uint32_t head = 0; head < 6; head++) ASSERT_TRUE(row_is_nan(out, 0, head) && row_is_nan(out, 1, head));
    }
  });
}

TEST_P(Special, ARowThatSeesNothingIsZero) {
  for_each_sequence([&](Sequence& sequence, Random&) {
    // Queries 0 to 9 lie before the range; from 10 on each sees something.
    for (const std::vector<uint64_t>& cuts : {std::vector<uint64_t>{10, 40}, {10, 12, 31, 40}, {10, 10, 40, 40}}) {
      const Call call = queries_of(0, 20, cuts);
      const Rows out = run(sequence, call);
      for (uint32_t i = 0; i < 20; i++) {
        for (uint32_t head = 0; head < 6; head++) {
          bool zero = true;
          for (uint32_t d = 0; d < 48; d++) zero &= out.bits(i, head, d) == 0;
          ASSERT_EQ(zero, i < 10) << "query " << i;
        }
      }
    }
    // The window ends before the range begins.
    const Rows out = run(sequence, queries_of(39, 1, {0, 20}, 5));
    for (uint32_t head = 0; head < 6; head++)
      for (uint32_t d = 0; d < 48; d++) ASSERT_EQ(out.bits(0, head, d), 0u);
  });
}

TEST_P(Special, AnEmptyPartReportsThatItIsEmpty) {
  for_each_sequence([&](Sequence& sequence, Random& random) {
    const std::vector<float> q = random_queries(sequence.shape, 1, random);
    std::vector<float> out(6 * 48, 9), max(6, 9), sum(6, 9);
    of(*GetParam().kernels, sequence.shape.layout, sequence.shape.dtype)
        .attend({sequence.view(), 3, 1, 5, 10, 40, 1, 0, q.data(), out.data(), max.data(), sum.data()});
    for (const float x : out) ASSERT_EQ(x, 0.0f);
    for (const float x : max) ASSERT_EQ(x, -std::numeric_limits<float>::infinity());
    for (const float x : sum) ASSERT_EQ(x, 0.0f);
  });
}

INSTANTIATE_TEST_SUITE_P(Kernels, Special, testing::ValuesIn(tables()), [](const auto& table) { return table.param.name; });

}  // namespace
}  // namespace pkv::test
