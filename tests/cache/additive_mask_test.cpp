// Additive masks beside what attention_test.cpp compares with textbook attention: what they hide,
// numbers that are not finite, ALiBi, and what is refused.
#include <cmath>

#include "host.h"

namespace cache_test::additive_mask_test {
namespace {

constexpr uint32_t heads = 6, kv_heads = 2, dim = 32, value_dim = 48, columns = 70, rows = 40;
const Model model{1, heads, kv_heads, dim, value_dim, PKV_F32};

struct Result {
  Rows out;
  std::vector<float> lse;

  bool same(const Result& other, size_t row) const {
    return out.slice(row, 1) == other.out.slice(row, 1) &&
           std::equal(&lse[row * heads], &lse[row * heads] + heads, &other.lse[row * heads]);
  }
};

// Steps of few queries and of many, and a mask of numbers for them, [sequence][row][column].
class AdditiveMask : public testing::Test {
 protected:
  AdditiveMask() {
    KeysValues all = rows_of(model, memory.view.blocks * 16);
    std::vector<int64_t> slots(all.k.rows());
    std::iota(slots.begin(), slots.end(), 0);
    const pkv_tensor k = all.k.fill(random).tensor(), v = all.v.fill(random).tensor();
    CHECK(pkv_kv_write_slots(nullptr, &memory.view, slots.size(), slots.data(), &k, &v));
    q.fill(random);
  }

  float& number(size_t sequence, size_t row, size_t column) {
    return numbers[(sequence * rows + row) * columns + column];
  }
  uint64_t position(size_t sequence, size_t row) const {
    return host.kv_lengths[sequence] - host.rows[sequence] + row;
  }

  // The mask's numbers in a kind; for bytes, whether they are not -infinity.
  std::vector<unsigned char> data_of(pkv_mask_kind kind) const {
    std::vector<unsigned char> data(numbers.size() * 4);
    for (size_t i = 0; i < numbers.size(); i++) {
      if (kind == PKV_MASK_BYTES)
        data[i] = numbers[i] != -INFINITY;
      else
        store_element(kind == PKV_MASK_F16 ? PKV_F16 : PKV_F32, numbers[i],
                      &data[i * (kind == PKV_MASK_F16 ? 2 : 4)]);
    }
    return data;
  }

  Result attend(pkv_isa isa, AttentionParams params) {
    Result result{Rows(total, heads, value_dim), std::vector<float>(total * heads)};
    params.outputs.lse = result.lse.data();
    const pkv_kv_sequences sequences = host.get();
    const pkv_tensor from = q.tensor(), to = result.out.tensor();
    CHECK(pkv_kv_attend(make_compute(2, isa).get(), &memory.view, &sequences, &params, &from, &to,
                        &params.outputs));
    return result;
  }

  Result attend(pkv_isa isa, pkv_mask_kind kind, const float* factors = nullptr) {
    const std::vector<unsigned char> data = data_of(kind);
    AttentionParams params;
    pkv_mask& mask = params.add_mask(data.data());
    mask.kind = kind;
    mask.columns = mask.row_stride = columns;
    mask.batch_stride = rows * columns;
    mask.head_factors = factors;
    return attend(isa, params);
  }

  Random random{71};
  HostMemory memory{model, PKV_LAYOUT_PACKED, 16, 20};
  HostSequences host{memory, heads, {5, 1, 40}, {60, 33, 70}, random};
  const uint32_t total = host.total_rows();
  Rows q{total, heads, dim};
  std::vector<float> numbers = std::vector<float>(3 * rows * columns);
};

constexpr pkv_mask_kind additive[] = {PKV_MASK_F16, PKV_MASK_F32};

// 0 times -infinity hides, too.
TEST_F(AdditiveMask, HidesAsBytesDo) {
  for (float& one : numbers) one = random.chance(40) ? -INFINITY : random.pick({0.0f, -0.0f});
  const float factors[heads] = {0, -1, 2, 1, 0.5f, -0.0f};
  for (const pkv_isa isa : supported_isas()) {
    SCOPED_TRACE(pkv_isa_name(isa));
    const Result expected = attend(isa, PKV_MASK_BYTES);
    for (const pkv_mask_kind kind : additive)
      for (const float* const given : {static_cast<const float*>(nullptr), factors}) {
        const Result found = attend(isa, kind, given);
        for (size_t row = 0; row < total; row++) EXPECT_TRUE(found.same(expected, row)) << row;
      }
  }
}

TEST_F(AdditiveMask, FactorsOf0HideAndAddNothing) {
  for (float& one : numbers) one = random.chance(20) ? -INFINITY : random.uniform();
  const float factors[heads] = {};
  for (const pkv_isa isa : supported_isas()) {
    SCOPED_TRACE(pkv_isa_name(isa));
    const Result expected = attend(isa, PKV_MASK_BYTES), found = attend(isa, PKV_MASK_F16, factors);
    expected.out.each([&](size_t r, uint32_t h, uint32_t d) {
      ASSERT_NEAR(expected.out.get(r, h, d), found.out.get(r, h, d), 1e-5);
    });
  }
}

// The other queries keep their bits.
TEST_F(AdditiveMask, NumbersThatAreNotFiniteSpoilTheirQuery) {
  for (float& one : numbers) one = random.chance(20) ? -INFINITY : random.uniform();
  struct Place {
    size_t sequence, row, first_row;
  };
  for (const pkv_isa isa : supported_isas())
    for (const pkv_mask_kind kind : additive) {
      const Result whole = attend(isa, kind);
      for (const auto& [sequence, row, first_row] : {Place{0, 3, 0}, Place{2, 17, 6}})
        for (const float bad : {NAN, INFINITY}) {
          SCOPED_TRACE(testing::Message() << pkv_isa_name(isa) << ", kind " << kind << ", " << bad);
          const std::vector<float> before = numbers;
          number(sequence, row, 30) = bad;
          number(sequence, row, position(sequence, row) + 1) = bad;  // not seen
          number(sequence, row + 1, position(sequence, row + 1) + 1) = bad;
          const Result found = attend(isa, kind);
          numbers = before;
          for (size_t r = 0; r < total; r++) {
            if (r != first_row + row) {
              EXPECT_TRUE(found.same(whole, r)) << r;
              continue;
            }
            for (uint32_t h = 0; h < heads; h++) {
              EXPECT_TRUE(std::isnan(found.lse[r * heads + h]));
              for (uint32_t d = 0; d < value_dim; d++)
                EXPECT_TRUE(std::isnan(found.out.get(r, h, d)));
            }
          }
        }
    }
}

TEST_F(AdditiveMask, OfDistancesIsALiBi) {
  const float slopes[heads] = {0.5f, 0.25f, 0, 0.125f, -0.25f, 1};
  AttentionParams params;
  params.alibi_slopes = slopes;
  for (size_t s = 0; s < host.rows.size(); s++)
    for (size_t row = 0; row < host.rows[s]; row++)
      for (size_t column = 0; column < columns; column++)
        number(s, row, column) = static_cast<float>(column) - static_cast<float>(position(s, row));
  for (const pkv_isa isa : supported_isas())
    for (const pkv_mask_kind kind : additive) {
      SCOPED_TRACE(pkv_isa_name(isa));
      const Result expected = attend(isa, params), found = attend(isa, kind, slopes);
      expected.out.each([&](size_t r, uint32_t h, uint32_t d) {
        ASSERT_NEAR(expected.out.get(r, h, d), found.out.get(r, h, d), 1e-5);
      });
    }
}

TEST_F(AdditiveMask, Refusals) {
  const auto refused = [&](const AttentionParams& params,
                           pkv_status status = PKV_INVALID_ARGUMENT) -> std::string {
    const pkv_kv_sequences sequences = host.get();
    Rows out(total, heads, value_dim);
    const pkv_tensor from = q.tensor(), to = out.tensor();
    REFUSED(status, pkv_kv_attend(nullptr, &memory.view, &sequences, &params, &from, &to, nullptr));
    return pkv_last_error();
  };
  float factors[heads] = {1, 1, NAN, 1, 1, 1};
  AttentionParams params;
  pkv_mask& mask = params.add_mask(numbers.data());
  mask.columns = mask.row_stride = columns;
  mask.batch_stride = rows * columns;
  mask.head_factors = factors;
  EXPECT_EQ("mask: head_factors[2] is nan; it must be finite", refused(params));
  factors[2] = 1, factors[5] = -INFINITY;
  EXPECT_EQ("mask: head_factors[5] is -inf; it must be finite", refused(params));
  factors[5] = 1;
  mask.kind = PKV_MASK_BYTES;
  EXPECT_EQ("mask: head_factors are for kinds F16 and F32; the kind is BYTES", refused(params));
  mask.kind = PKV_MASK_F16;
  mask.columns = 69;
  EXPECT_EQ("mask: 69 columns from position 0 on do not reach the 70 positions of sequence 2",
            refused(params));
  mask.columns = 70;
  const std::vector<uint32_t> lists(total * kv_heads, PKV_NO_BLOCK_ID);
  params.choose(lists.data(), 1);
  EXPECT_EQ("chosen_blocks and a mask of kind F16 cannot be combined",
            refused(params, PKV_UNSUPPORTED));
}

}  // namespace
}  // namespace cache_test::additive_mask_test
