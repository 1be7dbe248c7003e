// Compares attention with a double-precision reference over random shapes, and tests what must not
// change its bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "../support/sanitizers.h"
#include "expected.h"

namespace pkv::kernels::test {
namespace {

class Attend : public testing::TestWithParam<NamedTable> {};

bool one_in(Random& random, uint64_t n) { return pick(random, 1, n) == 1; }

// Makes a mask of the tokens from `begin` on: a tree whose nodes see themselves and their
// ancestors, or random bits.
std::vector<uint64_t> random_mask(uint32_t queries, uint64_t words, Random& random) {
  std::vector<uint64_t> mask(queries * words);
  const bool tree = one_in(random, 2);
  for (uint32_t i = 0; i < queries; i++) {
    uint64_t* const row = &mask[i * words];
    if (tree && i > 0 && i < 64 * words) {
      const uint64_t parent = pick(random, 0, i - 1);
      std::copy_n(&mask[parent * words], words, row);
    }
    if (tree && i < 64 * words) row[i / 64] |= uint64_t{1} << (i % 64);
    for (uint64_t word = 0; word < words && !tree; word++) row[word] = random();
  }
  return mask;
}

Call random_call(const Shape& shape, Random& random) {
  Call call;
  call.head_begin =
      static_cast<uint32_t>(one_in(random, 3) ? pick(random, 0, shape.kv_heads - 1) : 0);
  call.head_end = static_cast<uint32_t>(
      one_in(random, 3) ? pick(random, call.head_begin + 1, shape.kv_heads) : shape.kv_heads);
  call.queries = static_cast<uint32_t>(
      pick(random, 1, std::min<uint64_t>(shape.length, one_in(random, 2) ? 40 : 4)));
  call.first_query = one_in(random, 4) ? pick(random, 0, shape.length - call.queries)
                                       : shape.length - call.queries;
  call.causal = !one_in(random, 4);
  call.window = one_in(random, 2) ? static_cast<uint32_t>(pick(random, 1, 60)) : 0;
  call.sinks = one_in(random, 3) ? pick(random, 1, 20) : 0;
  if (one_in(random, 4)) {
    call.mask_begin = pick(random, 0, 2) != 0 ? call.first_query : pick(random, 0, shape.length);
    call.mask_words = (shape.length - call.mask_begin) / 64 + pick(random, 1, 2);
    call.mask = random_mask(call.queries, call.mask_words, random);
    call.causal = false;
  }
  call.results = row_dtypes[pick(random, 0, 2)];
  call.softcap = one_in(random, 4) ? 0.5f + 20 * std::fabs(real(random)) : 0;
  if (one_in(random, 4))
    for (uint32_t head = 0; head < shape.kv_heads * shape.heads_per_kv_head; head++)
      call.alibi_slopes.push_back(real(random));
  if (one_in(random, 2)) {
    call.shifts_begin = pick(random, 0, shape.length / tile_tokens) * tile_tokens;
    const uint64_t tiles = (shape.length + tile_tokens - 1) / tile_tokens * tile_tokens;
    for (uint64_t at = call.shifts_begin; at < tiles; at++)
      call.key_shifts.push_back(-static_cast<float>(pick(random, 0, std::min<uint64_t>(at, 40))));
  }
  if (one_in(random, 4))
    for (uint32_t head = 0; head < shape.kv_heads * shape.heads_per_kv_head; head++)
      call.sink_logits.push_back(10 * real(random));
  call.cuts = {one_in(random, 3) ? pick(random, 0, shape.length) : 0, shape.length};
  for (uint64_t extra = pick(random, 0, 3); extra > 0; extra--)
    call.cuts.push_back(pick(random, call.cuts[0], shape.length));
  std::sort(call.cuts.begin(), call.cuts.end());
  return call;
}

struct Case {
  Shape shape;
  Call call;
  double products() const {
    const double rows =
        double(call.queries) * shape.heads_per_kv_head * (call.head_end - call.head_begin);
    return rows * static_cast<double>(shape.length) * (shape.key_dim + shape.value_dim);
  }
};

constexpr double enough_for_scalar = 1e6;

// Draws a case so small that the reference takes some milliseconds for it.
Case random_case(Random& random, pkv_layout layout, pkv_dtype k_dtype, pkv_dtype v_dtype) {
  Case drawn;
  do {
    drawn.shape = random_shape(random, layout, k_dtype, v_dtype);
    drawn.call = random_call(drawn.shape, random);
  } while (drawn.products() > 8e6);
  return drawn;
}

// Draws queries with a random scale. All rows, some or none are bf16 numbers times the scale.
std::vector<float> scaled_queries(const Shape& shape, Call& call, Random& random) {
  std::vector<float> q = random_queries(shape, call.queries, random);
  call.scale = one_in(random, 2) ? 1.0f : 1.0f / std::sqrt(static_cast<float>(shape.key_dim));
  const uint64_t whole = pick(random, 0, 2);
  call.whole_queries = whole == 2;
  for (size_t row = 0; row < q.size(); row += shape.key_dim) {
    const bool cut = whole == 2 || (whole == 1 && one_in(random, 2));
    for (size_t i = row; i < row + shape.key_dim; i++)
      q[i] = (cut ? std::bit_cast<float>(std::bit_cast<uint32_t>(q[i]) & 0xFFFF0000u) : q[i]) *
             call.scale;
  }
  return q;
}

// Some of the queries and heads of a call.
struct Subset {
  uint32_t first, queries, head_begin, head_end;
};

Call call_of_subset(const Call& call, const Subset& subset) {
  Call some = call;
  some.first_query += subset.first;
  some.queries = subset.queries;
  some.head_begin = subset.head_begin;
  some.head_end = subset.head_end;
  if (!call.mask.empty()) {
    const uint64_t* const first = &call.mask[subset.first * call.mask_words];
    some.mask.assign(first, first + subset.queries * call.mask_words);
  }
  return some;
}

std::vector<float> queries_of_subset(const Shape& shape, const Call& call,
                                     const std::vector<float>& q, const Subset& subset) {
  std::vector<float> some;
  const size_t row = size_t{shape.heads_per_kv_head} * shape.key_dim;
  for (uint32_t head = 0; head < shape.kv_heads; head++) {
    const float* const from = q.data() + (size_t{head} * call.queries + subset.first) * row;
    some.insert(some.end(), from, from + subset.queries * row);
  }
  return some;
}

void expect_same_bits(const Table& kernels, Sequence& sequence, Call call, const Subset& subset,
                      Random& random) {
  const Shape& shape = sequence.shape;
  const std::vector<float> q = scaled_queries(shape, call, random);
  const Rows all = attend(kernels, sequence, call, q);
  const Rows some = attend(kernels, sequence, call_of_subset(call, subset),
                           queries_of_subset(shape, call, q, subset));
  for (uint32_t i = 0; i < subset.queries; i++)
    for (uint32_t head = subset.head_begin * shape.heads_per_kv_head;
         head < subset.head_end * shape.heads_per_kv_head; head++)
      for (uint32_t d = 0; d < shape.value_dim; d++)
        ASSERT_EQ(some.bits(i, head, d), all.bits(subset.first + i, head, d))
            << "matmul " << takes_matmul(shape, call) << " dtypes " << shape.k_dtype << "/"
            << shape.v_dtype << " query " << i << " of " << subset.queries << " from "
            << subset.first << " of " << call.queries << " window " << call.window << " sinks "
            << call.sinks;
}

// All tables run on the same case, because the reference takes most of the time.
TEST(AttendAll, MatchesTheReference) {
  Random random(21);
  int direct = 0, matmul = 0;
  for (int round = 0; round < pkv::test::rounds(3); round++) {
    for (const pkv_layout layout : layouts) {
      for (const pkv_dtype k_dtype : stored_dtypes) {
        for (const pkv_dtype v_dtype : stored_dtypes) {
          Case drawn = random_case(random, layout, k_dtype, v_dtype);
          Sequence sequence(drawn.shape, random,
                            // This is NaN in every type that has one, and in every scale.
                            0xFF);
          sequence.fill(random);
          const std::vector<float> q = scaled_queries(drawn.shape, drawn.call, random);
          const Expected expected(sequence, drawn.call, q);
          const Rows blank(row_dtypes[pick(random, 0, 2)], drawn.call.queries,
                           drawn.shape.kv_heads * drawn.shape.heads_per_kv_head,
                           drawn.shape.value_dim, random);
          for (const NamedTable& table : tables()) {
            if (table.kernels->isa == PKV_ISA_SCALAR && drawn.products() > enough_for_scalar)
              continue;
            Rows out = blank;
            std::vector<float> lse(size_t{out.rows} * out.heads, unset);
            attend_and_finish(*table.kernels, sequence, drawn.call, q, out, lse);
            ASSERT_EQ(expected.difference(table, out, lse), "") << "round " << round;
          }
          (takes_matmul(drawn.shape, drawn.call) ? matmul : direct)++;
        }
      }
    }
  }
  EXPECT_GT(std::min(direct, matmul), pkv::test::rounds(3) * 20) << "both ways are taken";
}

// These are the dims of DeepSeek's latent attention.
TEST_P(Attend, LatentOfMlaMatchesTheReference) {
  Random random(22);
  for (const pkv_layout layout : layouts) {
    for (const pkv_dtype dtype : stored_dtypes) {
      for (const uint32_t queries : {1u, 2u}) {  // Each query has 8 rows.
        const Shape shape{layout, dtype, dtype, 1, 8, 576, 512, 32, true, true, 70};
        Sequence sequence(shape, random, 0xFF);
        sequence.fill(random);
        Call call = call_of(shape, 70 - queries, queries, {0, 70});
        const std::vector<float> q = scaled_queries(shape, call, random);
        Rows out(PKV_F32, queries, 8, 512);
        std::vector<float> lse(queries * 8, unset);
        attend_and_finish(*GetParam().kernels, sequence, call, q, out, lse);
        ASSERT_EQ(Expected(sequence, call, q).difference(GetParam(), out, lse), "");
      }
    }
  }
}

// Few rows of bf16 have kernels of their own in some tables.
TEST_P(Attend, FewRowsOfBf16MatchTheReference) {
  Random random(29);
  for (const pkv_layout layout : layouts) {
    for (const uint32_t dim : {16u, 48u, 64u, 80u, 128u}) {
      for (const auto& [group, queries] : {std::pair{4u, 1u}, {4u, 3u}, {5u, 1u}, {8u, 1u}}) {
        const uint64_t length = pick(random, 40, 90);
        const Shape shape{layout, PKV_BF16, PKV_BF16, 2, group, dim, dim, 16, true, false, length};
        Sequence sequence(shape, random, 0xFF);
        sequence.fill(random);
        Call call = call_of(shape, length - queries, queries, {0, 37, length});
        call.results = PKV_BF16;
        call.window = one_in(random, 2) ? 30 : 0;
        const std::vector<float> q = scaled_queries(shape, call, random);
        Rows out(PKV_F32, queries, 2 * group, dim);
        std::vector<float> lse(queries * 2 * group, unset);
        attend_and_finish(*GetParam().kernels, sequence, call, q, out, lse);
        ASSERT_EQ(Expected(sequence, call, q).difference(GetParam(), out, lse), "")
            << "dim " << dim << " rows " << group * queries;
        if (queries == 1) continue;
        expect_same_bits(*GetParam().kernels, sequence, call, {1, 1, 0, 2}, random);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// The largest score has weight 1, although its distance to others is far more than an exponential
// can have.
TEST_P(Attend, LargeScoresHaveWeights) {
  Random random(31);
  for (const pkv_layout layout : layouts)
    for (const pkv_dtype dtype : stored_dtypes)
      for (const uint32_t queries : {1u, 20u}) {
        const Shape shape{layout, dtype, dtype, 2, 4, 64, 64, 16, true, false, 150};
        Sequence sequence(shape, random, 0xFF);
        sequence.fill(random);
        Call call = call_of(shape, 150 - queries, queries, {0, 37, 150});
        for (const float factor : {1e6f, 1e12f, 4e16f}) {
          std::vector<float> q = scaled_queries(shape, call, random);
          for (float& x : q) x *= factor;
          Rows out(PKV_F32, queries, 8, 64);
          std::vector<float> lse(queries * 8, unset);
          attend_and_finish(*GetParam().kernels, sequence, call, q, out, lse);
          for (const float value : lse) ASSERT_TRUE(std::isfinite(value)) << factor;
          for (uint32_t row = 0; row < queries; row++)
            for (uint32_t head = 0; head < 8; head++) {
              double largest = 0;
              for (uint32_t d = 0; d < 64; d++)
                largest = std::max(largest, std::abs(out.value(row, head, d)));
              ASSERT_TRUE(largest > 0 && std::isfinite(largest)) << factor << " row " << row;
            }
        }
      }
}

// A window begins in the tile in which the sinks end, and a mask covers sinks. Tiles and tokens are
// counted once.
TEST_P(Attend, SinksBesideAWindowAndAMask) {
  Random random(27);
  for (const uint32_t queries : {1u, 20u}) {
    for (const uint64_t sinks : {1u, 4u, 15u, 16u, 17u}) {
      for (const uint32_t window : {1u, 5u, 20u, 27u, 29u, 40u}) {
        for (const bool masked : {false, true}) {
          const Shape shape{PKV_LAYOUT_PACKED, PKV_F32, PKV_F32, 1, 1, 32, 32, 16, true, false, 37};
          Sequence sequence(shape, random, 0xFF);
          sequence.fill(random);
          Call call = call_of(shape, 37 - queries, queries, {0, 37});
          call.sinks = sinks;
          call.window = window;
          if (masked) {
            call.mask_begin = 2;
            call.mask_words = 1;
            call.mask = random_mask(queries, 1, random);
          }
          const std::vector<float> q = scaled_queries(shape, call, random);
          Rows out(PKV_F32, queries, 1, 32);
          std::vector<float> lse(queries, unset);
          attend_and_finish(*GetParam().kernels, sequence, call, q, out, lse);
          ASSERT_EQ(Expected(sequence, call, q).difference(GetParam(), out, lse), "");
        }
      }
    }
  }
}

// The same numbers in another layout, in other blocks and at other places. A few plain rows that
// are multiplied where they are have other sums.
TEST_P(Attend, BothLayoutsGiveTheSameBits) {
  Random random(23);
  for (const pkv_dtype k_dtype : stored_dtypes) {
    for (const pkv_dtype v_dtype : stored_dtypes) {
      for (int round = 0; round < pkv::test::rounds(1); round++) {
        Case drawn = random_case(random, PKV_LAYOUT_PACKED, k_dtype, v_dtype);
        Shape shape = drawn.shape;
        const bool in_place = k_dtype <= PKV_INT8 || v_dtype <= PKV_INT8;
        if (in_place && !takes_matmul(shape, drawn.call)) continue;
        Sequence packed(shape, random, 0xFF);
        packed.fill(random);
        shape.layout = PKV_LAYOUT_PLAIN;
        shape.block_size = static_cast<uint32_t>(pick(random, 1, 40));
        shape.paged = one_in(random, 2);
        Sequence plain(shape, random, 0x7F);
        for (uint64_t position = 0; position < shape.length; position++)
          for (uint32_t head = 0; head < shape.kv_heads; head++)
            for (const Side side : sides) plain.copy_row(side, position, head, packed, position);
        const std::vector<float> q = scaled_queries(shape, drawn.call, random);
        const Rows from_packed = attend(*GetParam().kernels, packed, drawn.call, q);
        const Rows from_plain = attend(*GetParam().kernels, plain, drawn.call, q);
        ASSERT_TRUE(from_packed.bytes == from_plain.bytes)
            << "dtypes " << k_dtype << "/" << v_dtype << " matmul "
            << takes_matmul(shape, drawn.call);
      }
    }
  }
}

// A row gets the same bits whatever rows and heads are computed beside it, if both calls are on the
// same side of min_matmul_rows.
TEST_P(Attend, ARowGetsTheBitsItGetsBesideOthers) {
  Random random(24);
  // These are the rounds of each way. A random case takes either.
  const int enough = pkv::test::rounds(60) / 10 + 1;
  int compared[2] = {};
  for (int round = 0; round < pkv::test::rounds(60) || std::min(compared[0], compared[1]) < enough;
       round++) {
    ASSERT_LT(round, 3000);
    Case drawn = random_case(random, layouts[round % 2], pick_dtype(random), pick_dtype(random));
    const Call& call = drawn.call;
    Subset subset{};
    subset.first = static_cast<uint32_t>(pick(random, 0, call.queries - 1));
    subset.queries = static_cast<uint32_t>(pick(random, 1, call.queries - subset.first));
    subset.head_begin = static_cast<uint32_t>(pick(random, call.head_begin, call.head_end - 1));
    subset.head_end = static_cast<uint32_t>(pick(random, subset.head_begin + 1, call.head_end));
    const bool matmul = takes_matmul(drawn.shape, call);
    if (matmul != takes_matmul(drawn.shape, call_of_subset(call, subset))) continue;
    if (GetParam().kernels->isa == PKV_ISA_SCALAR && drawn.products() > enough_for_scalar) continue;
    Sequence sequence(drawn.shape, random, 0xFF);
    sequence.fill(random);
    expect_same_bits(*GetParam().kernels, sequence, call, subset, random);
    if (HasFatalFailure()) return;
    compared[matmul]++;
  }
}

// The windows of the first queries reach back to the sinks, and those of the last ones do not. The
// last one of 28 sees all tokens of its tiles.
TEST_P(Attend, ARowGetsItsBitsWhereverTheWindowsOfOthersBegin) {
  Random random(28);
  for (const pkv_dtype dtype : {PKV_F32, PKV_F16, PKV_BF16}) {
    for (const auto& [queries, some] : {std::pair{40u, 16u}, {40u, 28u}, {15u, 2u}}) {
      const Shape shape{PKV_LAYOUT_PACKED, dtype, dtype, 1, 1, 64, 64, 16, true, false, 90};
      Sequence sequence(shape, random, 0xFF);
      sequence.fill(random);
      Call call = call_of(shape, 20, queries, {0, 90});
      call.sinks = 4;
      call.results = dtype;
      for (const uint32_t window : {0u, 3u, 10u, 16u, 20u})
        for (const uint32_t first : {0u, queries - some}) {
          call.window = window;
          for (int round = 0; round < 3; round++)
            expect_same_bits(*GetParam().kernels, sequence, call, {first, some, 0, 1}, random);
          if (HasFatalFailure()) return;
        }
    }
  }
}

// Results of heads outside the task are not touched.
TEST_P(Attend, WritesItsOwnHeadsOnly) {
  Random random(25);
  for (const uint32_t queries : {2u, 9u}) {
    const Shape shape{PKV_LAYOUT_PACKED, PKV_BF16, PKV_INT8, 3, 2, 32, 48, 16, true, false, 40};
    Sequence sequence(shape, random, 0xFF);
    sequence.fill(random);
    Call call = call_of(shape, 40 - queries, queries, {0, 40});
    call.head_begin = 1;
    call.head_end = 2;
    Rows out(PKV_F32, queries, 6, 48);
    std::vector<float> lse(queries * 6, unset);
    const Rows blank = out;
    attend_and_finish(*GetParam().kernels, sequence, call, random_queries(shape, queries, random),
                      out, lse);
    for (uint32_t i = 0; i < queries; i++) {
      for (uint32_t head = 0; head < 6; head++) {
        const bool own = head / 2 == 1;
        ASSERT_EQ(lse[i * 6 + head] != unset, own);
        for (uint32_t d = 0; d < 48; d++)
          ASSERT_EQ(out.bits(i, head, d) != blank.bits(i, head, d), own);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, Attend, testing::ValuesIn(tables()),
                         [](const auto& table) { return table.param.name; });

}  // namespace
}  // namespace pkv::kernels::test
