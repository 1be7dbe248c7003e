// Stores, loads and transfers touch the right elements and nothing else, and every instruction set
// gives the same bytes.
#include <gtest/gtest.h>

#include <cmath>

#include "../support/sanitizers.h"
#include "reference.h"
#include "sequence.h"
#include "tables.h"

namespace pkv::kernels::test {
namespace {

class Copy : public testing::TestWithParam<NamedTable> {};

struct CopyCase {
  CopyCase(Random& random, pkv_layout layout, pkv_dtype k_dtype, pkv_dtype v_dtype,
           pkv_dtype caller)
      : shape(random_shape(random, layout, k_dtype, v_dtype)),
        first(pick(random, 0, shape.length - 1)),
        count(pick(random, 1, shape.length - first)),
        k(caller, count, shape.kv_heads, shape.key_dim, random),
        v(caller, count, shape.kv_heads, shape.value_dim, random) {}

  Rows& rows(Side side) { return side == Side::K ? k : v; }
  CopyTask task(Sequence& sequence) { return {sequence.view(), first, count, k.view(), v.view()}; }

  Shape shape;
  uint64_t first, count;
  Rows k, v;
};

template <class Check>
void for_each_case(unsigned seed, const Check& check) {
  Random random(seed);
  for (const pkv_layout layout : layouts)
    for (const pkv_dtype k_dtype : stored_dtypes)
      for (const pkv_dtype caller : row_dtypes)
        for (int round = 0; round < pkv::test::rounds(2); round++) {
          const pkv_dtype v_dtype = round % 2 == 0 ? k_dtype : pick_dtype(random);
          CopyCase sample(random, layout, k_dtype, v_dtype, caller);
          check(random, sample);
          if (testing::Test::HasFatalFailure()) return;
        }
}

// Fills rows with numbers, or with any bits: NaN, infinities, denormals, and numbers of very
// different sizes.
void fill_rows(Rows& rows, Random& random) {
  if (pick(random, 0, 1) == 0)
    rows.fill(random);
  else
    rows.fill_bits(random);
}

Sequence random_bytes(const Shape& shape, Random& random) {
  Sequence sequence(shape, random, 0);
  for (unsigned char& byte : sequence.bytes) byte = static_cast<unsigned char>(random());
  return sequence;
}

void expect_number(double number, pkv_dtype to, uint32_t got) {
  const uint32_t expected = encode(to, number);
  if (is_nan(to, expected))
    ASSERT_TRUE(is_nan(to, got)) << number << " became " << std::hex << got;
  else
    ASSERT_EQ(got, expected) << number;
}

void expect_element(pkv_dtype from, uint32_t bits, pkv_dtype to, uint32_t got) {
  if (from == to)
    ASSERT_EQ(got, bits);
  else
    expect_number(decode(from, bits), to, got);
}

// Checks elements of a row that share a scale against the bounds in common.h. Let m be the largest
// magnitude and s the scale. An element n s is off by s / 2, and by the roundings of s, of 1 / s
// and of the product, which are 3 * 2^-24 of up to m. For INT8, s = m / 127, so the bound is m /
// 254 (1 + 254 * 3 * 2^-24). For INT4, s has 8 bits and is at most m / 7 (1 + 2^-7), so the bound
// is less than m / 13.8.
void expect_quantised(const Rows& rows, uint64_t row, uint32_t head, uint32_t begin, uint32_t end,
                      const Sequence& stored, Side side, uint64_t position) {
  double largest = 0;
  bool finite = true;
  for (uint32_t d = begin; d < end; d++) {
    largest = std::max(largest, std::fabs(rows.value(row, head, d)));
    finite &= std::isfinite(rows.value(row, head, d));
  }
  const double bound =
      stored.dtype(side) == PKV_INT8 ? largest / 254 * (1 + 254 * 3 * 0x1p-24) : largest / 13.8;
  for (uint32_t d = begin; d < end; d++) {
    const double given = rows.value(row, head, d), got = stored.value(side, position, head, d);
    if (!finite)
      ASSERT_TRUE(std::isnan(got)) << "dim " << d;
    else if (static_cast<float>(largest) < 1e-30f)
      ASSERT_EQ(got, 0) << "dim " << d;
    else
      ASSERT_LE(std::fabs(got - given), bound)
          << given << " became " << got << ", the largest is " << largest;
  }
}

void expect_row(const Rows& rows, uint64_t row, uint32_t head, const Sequence& stored, Side side,
                uint64_t position) {
  const pkv_dtype dtype = stored.dtype(side);
  if (is_integer(dtype)) {
    const uint32_t scale_dims = dtype == PKV_INT8 ? rows.dim : 32;
    for (uint32_t begin = 0; begin < rows.dim; begin += scale_dims)
      expect_quantised(rows, row, head, begin, std::min(begin + scale_dims, rows.dim), stored, side,
                       position);
    return;
  }
  for (uint32_t d = 0; d < rows.dim; d++)
    expect_element(rows.dtype, rows.bits(row, head, d), dtype,
                   stored.bits(side, position, head, d));
}

TEST_P(Copy, StoresWhatItShouldAndNothingElse) {
  for_each_case(11, [&](Random& random, CopyCase& sample) {
    fill_rows(sample.k, random);
    fill_rows(sample.v, random);
    Sequence sequence = random_bytes(sample.shape, random), expected = sequence;
    GetParam().kernels->store(sample.task(sequence));
    for (const Side side : sides) {
      // The values are part of K.
      if (side == Side::V && sample.shape.latent) break;
      for (uint64_t i = 0; i < sample.count; i++) {
        for (uint32_t head = 0; head < sample.shape.kv_heads; head++) {
          expect_row(sample.rows(side), i, head, sequence, side, sample.first + i);
          expected.copy_row(side, sample.first + i, head, sequence, sample.first + i);
        }
      }
    }
    ASSERT_TRUE(expected.bytes == sequence.bytes) << "bytes outside of the task changed";
  });
}

// Rows lie around the limits of INT8 and INT4: the least number that is not 0, numbers of very
// different sizes, the largest numbers.
TEST_P(Copy, QuantisesRowsOfAnySize) {
  Random random(15);
  for (const pkv_layout layout : layouts) {
    for (const pkv_dtype dtype : {PKV_INT8, PKV_INT4}) {
      for (const double size : {1e-45, 0.9e-30, 1.1e-30, 1e-25, 1e-3, 1.0, 1e10, 1e30, 3.3e38}) {
        CopyCase sample(random, layout, dtype, dtype, PKV_F32);
        for (Rows* const rows : {&sample.k, &sample.v})
          for (uint64_t i = 0; i < sample.count; i++)
            for (uint32_t head = 0; head < sample.shape.kv_heads; head++)
              for (uint32_t d = 0; d < rows->dim; d++)
                rows->set_bits(i, head, d, encode(PKV_F32, size * double{real(random)}));
        Sequence sequence(sample.shape, random, 0xFF);
        GetParam().kernels->store(sample.task(sequence));
        for (const Side side : sides) {
          if (side == Side::V && sample.shape.latent) break;
          for (uint64_t i = 0; i < sample.count; i++)
            for (uint32_t head = 0; head < sample.shape.kv_heads; head++) {
              expect_row(sample.rows(side), i, head, sequence, side, sample.first + i);
              if (HasFatalFailure()) return;
            }
        }
      }
    }
  }
}

TEST_P(Copy, LoadsWhatIsThereAndNothingElse) {
  for_each_case(12, [&](Random& random, CopyCase& sample) {
    Sequence sequence = random_bytes(sample.shape, random);
    const std::vector<unsigned char> before = sequence.bytes;
    Rows expected[] = {sample.k, sample.v};
    GetParam().kernels->load(sample.task(sequence));
    ASSERT_TRUE(before == sequence.bytes) << "a load wrote to the sequence";
    for (const Side side : sides) {
      Rows& copy = expected[side == Side::V];
      const Rows& rows = sample.rows(side);
      for (uint64_t i = 0; i < sample.count; i++) {
        for (uint32_t head = 0; head < sample.shape.kv_heads; head++) {
          for (uint32_t d = 0; d < rows.dim; d++) {
            const uint32_t got = rows.bits(i, head, d);
            // These are products in fp32, which are then converted.
            if (is_integer(sequence.dtype(side)))
              expect_number(
                  decode(PKV_F32, encode(PKV_F32, sequence.value(side, sample.first + i, head, d))),
                  rows.dtype, got);
            else
              expect_element(sequence.dtype(side), sequence.bits(side, sample.first + i, head, d),
                             rows.dtype, got);
            copy.set_bits(i, head, d, got);
          }
        }
      }
      ASSERT_TRUE(rows.bytes == copy.bytes) << "bytes between the caller's rows changed";
    }
  });
}

TEST_P(Copy, ASideThatIsNullIsLeftOut) {
  Random random(13);
  for (const pkv_layout layout : layouts) {
    for (const pkv_dtype dtype : stored_dtypes) {
      CopyCase sample(random, layout, dtype, dtype, PKV_F32);
      sample.shape.latent = false;
      sample.k.fill(random);
      sample.v.fill(random);
      Sequence only_k(sample.shape, random, 0), only_v = only_k, both = only_k;
      const Table& kernels = *GetParam().kernels;
      kernels.store({only_k.view(), sample.first, sample.count, sample.k.view(), {}});
      kernels.store({only_v.view(), sample.first, sample.count, {}, sample.v.view()});
      kernels.store(sample.task(both));
      ASSERT_TRUE(only_k.bytes != both.bytes && only_v.bytes != both.bytes);
      // The background is 0, and both sides are disjoint.
      for (size_t i = 0; i < both.bytes.size(); i++) only_k.bytes[i] |= only_v.bytes[i];
      ASSERT_TRUE(only_k.bytes == both.bytes);

      const Rows k_before = sample.k, v_before = sample.v;
      Sequence zeros(sample.shape, random, 0);
      kernels.load({zeros.view(), sample.first, sample.count, sample.k.view(), {}});
      ASSERT_TRUE(k_before.bytes != sample.k.bytes && v_before.bytes == sample.v.bytes);
      sample.k.bytes = k_before.bytes;
      kernels.load({zeros.view(), sample.first, sample.count, {}, sample.v.view()});
      ASSERT_TRUE(k_before.bytes == sample.k.bytes && v_before.bytes != sample.v.bytes);
    }
  }
}

TEST_P(Copy, TransfersTheBitsOfAPositionWithinASequenceAndNothingElse) {
  Random random(16);
  for (const pkv_layout layout : layouts) {
    for (const pkv_dtype k_dtype : stored_dtypes) {
      for (int round = 0; round < pkv::test::rounds(8); round++) {
        const Shape shape = random_shape(random, layout, k_dtype, pick_dtype(random));
        Sequence sequence = random_bytes(shape, random), expected = sequence;
        const Sequence before = sequence;
        const uint64_t to = pick(random, 0, shape.length - 1),
                       from = pick(random, 0, shape.length - 1);
        for (const Side side : sides)
          for (uint32_t head = 0; head < shape.kv_heads && !(side == Side::V && shape.latent);
               head++)
            expected.copy_row(side, to, head, before, from);
        GetParam().kernels->transfer({sequence.view(), from, sequence.view(), to, 1});
        ASSERT_TRUE(expected.bytes == sequence.bytes)
            << "from " << from << " to " << to << " dtypes " << k_dtype << "/" << shape.v_dtype;
      }
    }
  }
}

TEST_P(Copy, TransfersBitsBetweenSequencesOfAnyLayoutAndBlockSize) {
  Random random(17);
  for (const pkv_layout from_layout : layouts) {
    for (const pkv_layout to_layout : layouts) {
      for (const pkv_dtype k_dtype : stored_dtypes) {
        for (int round = 0; round < pkv::test::rounds(4); round++) {
          const Shape shape = random_shape(random, from_layout, k_dtype, pick_dtype(random));
          Shape other = random_shape(random, to_layout, k_dtype, shape.v_dtype);
          other.kv_heads = shape.kv_heads, other.key_dim = shape.key_dim,
          other.value_dim = shape.value_dim, other.latent = shape.latent;
          other.v_dtype = shape.v_dtype;
          Sequence source = random_bytes(shape, random), target = random_bytes(other, random),
                   expected = target;
          const uint64_t count = pick(random, 1, std::min(shape.length, other.length));
          const uint64_t from = pick(random, 0, shape.length - count),
                         to = pick(random, 0, other.length - count);
          for (const Side side : sides)
            for (uint32_t head = 0; head < shape.kv_heads && !(side == Side::V && shape.latent);
                 head++)
              for (uint64_t i = 0; i < count; i++)
                expected.copy_row(side, to + i, head, source, from + i);
          GetParam().kernels->transfer({source.view(), from, target.view(), to, count});
          ASSERT_TRUE(expected.bytes == target.bytes)
              << count << " from " << from << " to " << to << " dtypes " << k_dtype << "/"
              << shape.v_dtype;
        }
      }
    }
  }
}

TEST_P(Copy, TheBytesAreThoseOfEveryOtherInstructionSet) {
  for_each_case(14, [&](Random& random, CopyCase& sample) {
    fill_rows(sample.k, random);
    fill_rows(sample.v, random);
    Sequence mine(sample.shape, random, 0x5A), reference = mine;
    GetParam().kernels->store(sample.task(mine));
    select(PKV_ISA_SCALAR).store(sample.task(reference));
    ASSERT_TRUE(mine.bytes == reference.bytes)
        << "dtypes " << sample.shape.k_dtype << "/" << sample.shape.v_dtype;
  });
}

INSTANTIATE_TEST_SUITE_P(Kernels, Copy, testing::ValuesIn(tables()),
                         [](const auto& table) { return table.param.name; });

}  // namespace
}  // namespace pkv::kernels::test
