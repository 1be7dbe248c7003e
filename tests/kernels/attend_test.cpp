// Attention against a double-precision reference over random shapes, and what must not change its bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "reference.h"
#include "run.h"

namespace pkv::test {
namespace {

class Attend : public testing::TestWithParam<NamedTable> {};

Call random_call(const Shape& shape, Random& random) {
  Call call;
  call.queries = static_cast<uint32_t>(pick(random, 1, std::min<uint64_t>(shape.length, pick(random, 0, 2) == 0 ? 24 : 3)));
  call.first_query = pick(random, 0, 3) != 0 ? shape.length - call.queries : pick(random, 0, shape.length - call.queries);
  call.causal = pick(random, 0, 3) != 0;
  call.window = pick(random, 0, 1) != 0 ? 0 : static_cast<uint32_t>(pick(random, 1, 40));
  call.cuts = {pick(random, 0, 2) != 0 ? 0 : pick(random, 0, shape.length), shape.length};
  for (uint64_t extra = pick(random, 0, 3); extra > 0; extra--) call.cuts.push_back(pick(random, call.cuts[0], shape.length));
  std::sort(call.cuts.begin(), call.cuts.end());
  return call;
}

void expect_reference(const NamedTable& table, Sequence& sequence, const Call& call, const std::vector<float>& q,
                      const Rows& out) {
  const Shape& s = sequence.shape;
  const double output_unit = out.dtype == PKV_F32 ? 0x1p-24 : out.dtype == PKV_F16 ? 0x1p-11 : 0x1p-8;
  const double least_unit = out.dtype == PKV_F16 ? 0x1p-25 : 1e-38;  // half of the smallest denormal
  const double steps = static_cast<double>(s.length / 16 + 2 * call.cuts.size() + 2);
  for (uint32_t head = 0; head < s.kv_heads; head++) {
    for (uint32_t i = 0; i < call.queries; i++) {
      const uint64_t lo = call.lo(i), hi = std::max(lo, call.hi(i));
      const auto k = sequence.k_rows(head, lo, hi), v = sequence.v_rows(head, lo, hi);
      for (uint32_t g = 0; g < s.group; g++) {
        const float* row = q.data() + ((size_t{head} * call.queries + i) * s.group + g) * s.key_dim;
        const bool split = table.splits_queries && s.dtype == PKV_BF16;
        const Attention expected = attend_reference(std::vector<double>(row, row + s.key_dim), k, v, s.value_dim, steps, split);
        for (uint32_t d = 0; d < s.value_dim; d++) {
          const double got = decode(out.dtype, out.bits(i, head * s.group + g, d));
          ASSERT_NEAR(got, expected.out[d], expected.bound[d] + std::fabs(expected.out[d]) * output_unit + least_unit)
              << "layout " << s.layout << " dtype " << s.dtype << " dims " << s.key_dim << "/" << s.value_dim << " head " << head
              << " query " << i << " g " << g << " d " << d << " sees [" << lo << ", " << hi << ")";
        }
      }
    }
  }
}

TEST_P(Attend, MatchesTheReference) {
  Random random(21);
  for (const pkv_layout layout : layouts) {
    for (const pkv_dtype dtype : dtypes) {
      for (int round = 0; round < 40; round++) {
        const Shape shape = random_shape(random, layout, dtype);
        Sequence sequence(shape, random, 0xFF);  // NaN in every type
        sequence.fill(random);
        const Call call = random_call(shape, random);
        const std::vector<float> q = random_queries(shape, call.queries, random);
        Rows out(dtypes[pick(random, 0, 2)], call.queries, shape.kv_heads * shape.group, shape.value_dim, random);
        attend_and_finish(*GetParam().kernels, sequence, call, q, out);
        expect_reference(GetParam(), sequence, call, q, out);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(Attend, PreparesQueries) {
  Random random(22);
  for (int round = 0; round < 60; round++) {
    const Shape s = random_shape(random, PKV_LAYOUT_PACKED, PKV_F32);
    const auto queries = static_cast<uint32_t>(pick(random, 1, 5));
    Rows rows(dtypes[round % 3], queries, s.kv_heads * s.group, s.key_dim, random);
    rows.fill(random);
    const float scale = real(random);
    std::vector<float> q(size_t{s.kv_heads} * queries * s.group * s.key_dim + 1, 99.0f);
    GetParam().kernels->prepare({s.kv_heads, s.group, queries, s.key_dim, scale, rows.view(), q.data()});
    for (uint32_t head = 0; head < s.kv_heads; head++)
      for (uint32_t r = 0; r < queries * s.group; r++)
        for (uint32_t d = 0; d < s.key_dim; d++)
          ASSERT_EQ(q[(size_t{head} * queries * s.group + r) * s.key_dim + d],
                    static_cast<float>(decode(rows.dtype, rows.bits(r / s.group, head * s.group + r % s.group, d))) * scale);
    ASSERT_EQ(q.back(), 99.0f);
  }
}

// The same numbers in another layout, other blocks and other places.
TEST_P(Attend, BothLayoutsGiveTheSameBits) {
  Random random(23);
  for (const pkv_dtype dtype : dtypes) {
    for (int round = 0; round < 15; round++) {
      Shape shape = random_shape(random, PKV_LAYOUT_PACKED, dtype);
      Sequence packed(shape, random, 0xFF);
      packed.fill(random);
      shape.layout = PKV_LAYOUT_PLAIN;
      shape.block_size = static_cast<uint32_t>(pick(random, 1, 40));
      shape.paged = pick(random, 0, 1) != 0;
      Sequence plain(shape, random, 0x7F);
      for (uint64_t position = 0; position < shape.length; position++) {
        for (uint32_t head = 0; head < shape.kv_heads; head++) {
          for (uint32_t d = 0; d < shape.key_dim; d++)
            write_bits(dtype, plain.k(position, head, d), read_bits(dtype, packed.k(position, head, d)));
          for (uint32_t d = 0; d < shape.value_dim; d++)
            write_bits(dtype, plain.v(position, head, d), read_bits(dtype, packed.v(position, head, d)));
        }
      }
      const Call call = random_call(shape, random);
      const std::vector<float> q = random_queries(shape, call.queries, random);
      Rows from_packed(PKV_F32, call.queries, shape.kv_heads * shape.group, shape.value_dim, random), from_plain = from_packed;
      attend_and_finish(*GetParam().kernels, packed, call, q, from_packed);
      attend_and_finish(*GetParam().kernels, plain, call, q, from_plain);
      ASSERT_TRUE(from_packed.bytes == from_plain.bytes);
    }
  }
}

// Register tiles of rows, and walks over some of the rows or heads at a time, are not seen from outside.
TEST_P(Attend, ARowGetsTheBitsItGetsAlone) {
  Random random(24);
  for (const pkv_layout layout : layouts) {
    for (const pkv_dtype dtype : dtypes) {
      const Shape shape{layout, dtype, 5, 3, 256, 32, 48, true, 70};
      Sequence sequence(shape, random, 0xFF);
      sequence.fill(random);
      Call call;
      call.queries = 50;  // 150 rows of 256 dims: more than one walk takes
      call.first_query = 20;
      call.window = 30;
      call.cuts = {0, 70};
      const std::vector<float> q = random_queries(shape, call.queries, random);
      Rows together(PKV_F32, call.queries, 15, 32, random);
      attend_and_finish(*GetParam().kernels, sequence, call, q, together);
      for (uint32_t i = 0; i < 50; i += 7) {
        Call alone = call;
        alone.queries = 1;
        alone.first_query = call.first_query + i;
        std::vector<float> q_alone;
        for (uint32_t head = 0; head < 5; head++) {
          const auto row = q.begin() + static_cast<long>((head * 50 + i) * 3 * 256);
          q_alone.insert(q_alone.end(), row, row + 3 * 256);
        }
        Rows out(PKV_F32, 1, 15, 32, random);
        attend_and_finish(*GetParam().kernels, sequence, alone, q_alone, out);
        for (uint32_t head = 0; head < 15; head++)
          for (uint32_t d = 0; d < 32; d++)
            ASSERT_EQ(out.bits(0, head, d), together.bits(i, head, d)) << "query " << i << " head " << head;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, Attend, testing::ValuesIn(tables()), [](const auto& table) { return table.param.name; });

}  // namespace
}  // namespace pkv::test
