// Tests the conversions between stored types and callers' types, each by a store and a load.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/scalar_convert.h"
#include "reference.h"
#include "sequence.h"
#include "tables.h"

namespace pkv::kernels::test {
namespace {

class Convert : public testing::TestWithParam<NamedTable> {
 protected:
  // Converts bits of `from` by storing them as `to`.
  std::vector<uint32_t> convert(pkv_dtype from, pkv_dtype to, const std::vector<uint32_t>& bits) {
    Random random(1);
    const uint64_t rows = (bits.size() + dim - 1) / dim;
    Sequence sequence(shape_of(to, rows), random, 0);
    Rows k(from, rows, 1, dim, random);
    for (size_t i = 0; i < bits.size(); i++) k.set_bits(i / dim, 0, i % dim, bits[i]);
    GetParam().kernels->store({sequence.view(), 0, rows, k.view(), {}});
    std::vector<uint32_t> result;
    for (size_t i = 0; i < bits.size(); i++)
      result.push_back(sequence.bits(Side::K, i / dim, 0, i % dim));
    return result;
  }

  // Converts stored bits by loading them as `to`.
  std::vector<uint32_t> convert_back(pkv_dtype from, pkv_dtype to,
                                     const std::vector<uint32_t>& bits) {
    Random random(1);
    const uint64_t rows = (bits.size() + dim - 1) / dim;
    Sequence sequence(shape_of(from, rows), random, 0);
    for (size_t i = 0; i < bits.size(); i++)
      sequence.set_bits(Side::K, i / dim, 0, i % dim, bits[i]);
    Rows k(to, rows, 1, dim, random);
    GetParam().kernels->load({sequence.view(), 0, rows, k.view(), {}});
    std::vector<uint32_t> result;
    for (size_t i = 0; i < bits.size(); i++) result.push_back(k.bits(i / dim, 0, i % dim));
    return result;
  }

  static constexpr uint32_t dim = 64;
  static Shape shape_of(pkv_dtype dtype, uint64_t rows) {
    return {PKV_LAYOUT_PLAIN, dtype, dtype, 1, 1, dim, dim, 0, false, true, rows};
  }

  void expect_nearest(pkv_dtype from, pkv_dtype to, const std::vector<uint32_t>& bits) {
    const std::vector<uint32_t> stored = convert(from, to, bits);
    for (size_t i = 0; i < bits.size(); i++) {
      const uint32_t expected = encode(to, decode(from, bits[i]));
      if (is_nan(to, expected))
        ASSERT_TRUE(is_nan(to, stored[i])) << std::hex << bits[i] << " became " << stored[i];
      else
        ASSERT_EQ(stored[i], expected) << std::hex << bits[i];
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

// Every code means the number of its definition, and that number is stored as the code.
TEST_P(Convert, EveryFp8CodeIsItsNumber) {
  std::vector<uint32_t> codes;
  for (uint32_t bits = 0; bits < 256; bits++) codes.push_back(bits);
  for (const pkv_dtype dtype : {PKV_FP8_E4M3, PKV_FP8_E5M2}) {
    for (const pkv_dtype rows : row_dtypes) {  // All of these types have all these numbers.
      const std::vector<uint32_t> numbers = convert_back(dtype, rows, codes),
                                  back = convert(rows, dtype, numbers);
      for (uint32_t bits = 0; bits < 256; bits++) {
        if (is_nan(dtype, bits)) {
          ASSERT_TRUE(is_nan(rows, numbers[bits])) << std::hex << bits;
          ASSERT_TRUE(is_nan(dtype, back[bits])) << std::hex << bits;
        } else {
          ASSERT_EQ(decode(rows, numbers[bits]), decode(dtype, bits)) << std::hex << bits;
          ASSERT_EQ(back[bits], bits);
        }
      }
    }
  }
}

// Checks the test's own definitions at the ends of the ranges (OCP 8-bit Floating Point
// Specification, tables 1 and 2).
TEST(ConvertDefinition, Fp8HasTheEndsOfTheSpecification) {
  EXPECT_EQ(decode(PKV_FP8_E4M3, 0x7E), 448);
  EXPECT_EQ(decode(PKV_FP8_E4M3, 0x08), 0x1p-6);
  EXPECT_EQ(decode(PKV_FP8_E4M3, 0x01), 0x1p-9);
  EXPECT_TRUE(is_nan(PKV_FP8_E4M3, 0x7F) && is_nan(PKV_FP8_E4M3, 0xFF));
  EXPECT_EQ(decode(PKV_FP8_E5M2, 0x7B), 57344);
  EXPECT_EQ(decode(PKV_FP8_E5M2, 0x04), 0x1p-14);
  EXPECT_EQ(decode(PKV_FP8_E5M2, 0x01), 0x1p-16);
  EXPECT_EQ(decode(PKV_FP8_E5M2, 0xFC), -std::numeric_limits<double>::infinity());
  EXPECT_TRUE(is_nan(PKV_FP8_E5M2, 0x7D) && is_nan(PKV_FP8_E5M2, 0xFF));
}

TEST_P(Convert, Fp8Saturates) {
  const auto stored = [&](pkv_dtype dtype, double value) {
    return convert(PKV_F32, dtype, {encode(PKV_F32, value)})[0];
  };
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double beyond : {448.0, 449.0, 463.0, 464.0, 465.0, 480.0, 1e6, 3e38}) {
    EXPECT_EQ(stored(PKV_FP8_E4M3, beyond), 0x7Eu) << beyond;
    EXPECT_EQ(stored(PKV_FP8_E4M3, -beyond), 0xFEu) << beyond;
  }
  for (const double beyond : {57344.0, 61439.0, 61440.0, 61441.0, 65536.0, 1e10, 3e38}) {
    EXPECT_EQ(stored(PKV_FP8_E5M2, beyond), 0x7Bu) << beyond;
    EXPECT_EQ(stored(PKV_FP8_E5M2, -beyond), 0xFBu) << beyond;
  }
  EXPECT_TRUE(is_nan(PKV_FP8_E4M3, stored(PKV_FP8_E4M3, infinity)) &&
              is_nan(PKV_FP8_E4M3, stored(PKV_FP8_E4M3, -infinity)));
  EXPECT_EQ(stored(PKV_FP8_E5M2, infinity), 0x7Cu);
  EXPECT_EQ(stored(PKV_FP8_E5M2, -infinity), 0xFCu);
}

TEST_P(Convert, RoundsToNearestEvenAroundEveryTie) {
  for (const pkv_dtype dtype : {PKV_F16, PKV_BF16, PKV_FP8_E4M3, PKV_FP8_E5M2}) {
    std::vector<uint32_t> near_ties;
    for (uint32_t bits = 0; bits < 1u << bits_of(dtype); bits++) {
      const double value = decode(dtype, bits), next = decode(dtype, bits + 1);
      if (!std::isfinite(value)) continue;
      // Beyond the largest finite number the tie is half a unit away, as if a next number existed.
      const double last_step = value - decode(dtype, bits - 1);
      const uint32_t tie =
          encode(PKV_F32, std::isfinite(next) ? (value + next) / 2 : value + last_step / 2);
      for (const uint32_t f32 : {tie - 1, tie, tie + 1}) near_ties.push_back(f32);
    }
    expect_nearest(PKV_F32, dtype, near_ties);
  }
}

TEST_P(Convert, EdgesAndRandomBits) {
  Random random(7);
  std::vector<uint32_t> bits = {0,          0x80000000, 1,          0x80000001, 0x007FFFFF,
                                0x00800000, 0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000, 0xFF800000,
                                0x7F800001, 0xFFFFFFFF, 0x7FC00000, 0x477FF000, 0x477FEFFF,
                                0x33000000, 0x33000001, 0x387FFFFF};
  for (int i = 0; i < 20000; i++) bits.push_back(static_cast<uint32_t>(random()));
  for (int i = 0; i < 20000; i++)
    // The range of binary16.
    bits.push_back(static_cast<uint32_t>(0x32000000 + random() % 0x16000000));
  for (int i = 0; i < 20000; i++)
    // The range of the 8-bit types.
    bits.push_back(
        static_cast<uint32_t>(0x36800000 + random() % 0x11800000 + (random() % 2 << 31)));
  for (const pkv_dtype dtype : {PKV_F16, PKV_BF16, PKV_FP8_E4M3, PKV_FP8_E5M2})
    expect_nearest(PKV_F32, dtype, bits);
  ASSERT_EQ(convert(PKV_F32, PKV_F32, bits), bits);
  expect_nearest(PKV_F16, PKV_BF16, all_16_bit_values());
  expect_nearest(PKV_BF16, PKV_F16, all_16_bit_values());
  for (const pkv_dtype dtype : {PKV_FP8_E4M3, PKV_FP8_E5M2})
    for (const pkv_dtype rows : {PKV_F16, PKV_BF16})
      expect_nearest(rows, dtype, all_16_bit_values());
}

TEST_P(Convert, AgreesWithTheDefinitionInEveryBitOfANaN) {
  const std::vector<uint32_t> f16 = convert(PKV_F16, PKV_F32, all_16_bit_values());
  for (uint32_t bits = 0; bits < 65536; bits++)
    ASSERT_EQ(f16[bits], std::bit_cast<uint32_t>(scalar::f16_to_f32(static_cast<uint16_t>(bits))))
        << std::hex << bits;
  std::vector<uint32_t> nans;
  Random random(8);
  for (int i = 0; i < 10000; i++) nans.push_back(static_cast<uint32_t>(random()) | 0x7F800000);
  const std::vector<uint32_t> to_f16 = convert(PKV_F32, PKV_F16, nans),
                              to_bf16 = convert(PKV_F32, PKV_BF16, nans);
  for (size_t i = 0; i < nans.size(); i++) {
    ASSERT_EQ(to_f16[i], scalar::f32_to_f16(std::bit_cast<float>(nans[i]))) << std::hex << nans[i];
    ASSERT_EQ(to_bf16[i], scalar::f32_to_bf16(std::bit_cast<float>(nans[i])))
        << std::hex << nans[i];
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, Convert, testing::ValuesIn(tables()),
                         [](const auto& table) { return table.param.name; });

}  // namespace
}  // namespace pkv::kernels::test
