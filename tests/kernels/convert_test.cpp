// Conversions between stored and callers' types, each through a store and a load.
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/scalar_convert.h"
#include "reference.h"
#include "sequence.h"
#include "tables.h"

namespace pkv::test {
namespace {

class Convert : public testing::TestWithParam<NamedTable> {
 protected:
  // bits of `from`, stored as `to`.
  std::vector<uint32_t> convert(pkv_dtype from, pkv_dtype to, const std::vector<uint32_t>& bits) {
    constexpr uint32_t dim = 64;
    Random random(1);
    const uint64_t rows = (bits.size() + dim - 1) / dim;
    Sequence sequence({PKV_LAYOUT_PLAIN, to, 1, 1, dim, dim, 0, false, rows}, random, 0);
    Rows k(from, rows, 1, dim, random);
    for (size_t i = 0; i < bits.size(); i++) k.set_bits(i / dim, 0, i % dim, bits[i]);
    of(*GetParam().kernels, PKV_LAYOUT_PLAIN, to).store({sequence.view(), 0, rows, k.view(), {}});
    std::vector<uint32_t> result;
    for (size_t i = 0; i < bits.size(); i++) result.push_back(read_bits(to, sequence.k(i / dim, 0, i % dim)));
    return result;
  }

  void expect_nearest(pkv_dtype from, pkv_dtype to, const std::vector<uint32_t>& bits) {
    const std::vector<uint32_t> stored = convert(from, to, bits);
    for (size_t i = 0; i < bits.size(); i++) {
      const double value = decode(from, bits[i]);
      if (std::isnan(value))
        ASSERT_TRUE(is_nan(to, stored[i])) << std::hex << bits[i] << " became " << stored[i];
      else
        ASSERT_EQ(stored[i], encode(to, value)) << std::hex << bits[i];
    }
  }
};

std::vector<uint32_t> all_16_bit_values() {
  std::vector<uint32_t> all;
  for (uint32_t bits = 0; bits < 65536; bits++) all.push_back(bits);
  return all;
}

TEST_P(Convert, Every16BitValueIsExactInF32AndComesBack) {
  for (const pkv_dtype dtype : {PKV_F16, PKV_BF16}) {
    const std::vector<uint32_t> all = all_16_bit_values(), wide = convert(dtype, PKV_F32, all),
                                back = convert(PKV_F32, dtype, wide);
    for (uint32_t bits = 0; bits < 65536; bits++) {
      if (is_nan(dtype, bits)) {
        ASSERT_TRUE(is_nan(PKV_F32, wide[bits])) << std::hex << bits;
        ASSERT_TRUE(is_nan(dtype, back[bits])) << std::hex << bits;
      } else {
        ASSERT_EQ(wide[bits], encode(PKV_F32, decode(dtype, bits))) << std::hex << bits;
        ASSERT_EQ(back[bits], bits);
      }
    }
    ASSERT_EQ(convert(dtype, dtype, all), all) << "the same type keeps every bit";
  }
}

TEST_P(Convert, RoundsToNearestEvenAroundEveryTie) {
  for (const pkv_dtype dtype : {PKV_F16, PKV_BF16}) {
    std::vector<uint32_t> near_ties;
    for (uint32_t bits = 0; bits < 65536; bits++) {
      const double value = decode(dtype, bits), next = decode(dtype, bits + 1);
      if (!std::isfinite(value)) continue;
      // Beyond the largest finite number the tie is half a unit away, as if the next one existed.
      const double last_step = value - decode(dtype, bits - 1);
      const uint32_t tie = encode(PKV_F32, std::isfinite(next) ? (value + next) / 2 : value + last_step / 2);
      for (const uint32_t f32 : {tie - 1, tie, tie + 1}) near_ties.push_back(f32);
    }
    expect_nearest(PKV_F32, dtype, near_ties);
  }
}

TEST_P(Convert, EdgesAndRandomBits) {
  Random random(7);
  std::vector<uint32_t> bits = {0,          0x80000000, 1,          0x80000001, 0x007FFFFF, 0x00800000,
                                0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000, 0xFF800000, 0x7F800001, 0xFFFFFFFF,
                                0x7FC00000, 0x477FF000, 0x477FEFFF, 0x33000000, 0x33000001, 0x387FFFFF};
  for (int i = 0; i < 20000; i++) bits.push_back(static_cast<uint32_t>(random()));
  for (int i = 0; i < 20000; i++)
    bits.push_back(static_cast<uint32_t>(0x32000000 + random() % 0x16000000));  // the range of binary16
  expect_nearest(PKV_F32, PKV_F16, bits);
  expect_nearest(PKV_F32, PKV_BF16, bits);
  ASSERT_EQ(convert(PKV_F32, PKV_F32, bits), bits);
  expect_nearest(PKV_F16, PKV_BF16, all_16_bit_values());
  expect_nearest(PKV_BF16, PKV_F16, all_16_bit_values());
}

TEST_P(Convert, AgreesWithTheDefinitionInEveryBitOfANaN) {
  const std::vector<uint32_t> f16 = convert(PKV_F16, PKV_F32, all_16_bit_values());
  for (uint32_t bits = 0; bits < 65536; bits++)
    ASSERT_EQ(f16[bits], std::bit_cast<uint32_t>(scalar::f16_to_f32(static_cast<uint16_t>(bits)))) << std::hex << bits;
  std::vector<uint32_t> nans;
  Random random(8);
  for (int i = 0; i < 10000; i++) nans.push_back(static_cast<uint32_t>(random()) | 0x7F800000);
  const std::vector<uint32_t> to_f16 = convert(PKV_F32, PKV_F16, nans), to_bf16 = convert(PKV_F32, PKV_BF16, nans);
  for (size_t i = 0; i < nans.size(); i++) {
    ASSERT_EQ(to_f16[i], scalar::f32_to_f16(std::bit_cast<float>(nans[i]))) << std::hex << nans[i];
    ASSERT_EQ(to_bf16[i], scalar::f32_to_bf16(std::bit_cast<float>(nans[i]))) << std::hex << nans[i];
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, Convert, testing::ValuesIn(tables()), [](const auto& table) { return table.param.name; });

}  // namespace
}  // namespace pkv::test
