// Stores and loads: the right elements, nothing else, the same bytes from every instruction set.
#include <gtest/gtest.h>

#include "reference.h"
#include "sequence.h"
#include "tables.h"

namespace pkv::test {
namespace {

class Copy : public testing::TestWithParam<NamedTable> {};

struct CopyCase {
  CopyCase(Random& random, pkv_layout layout, pkv_dtype dtype, pkv_dtype caller)
      : shape(random_shape(random, layout, dtype)),
        first(pick(random, 0, shape.length - 1)),
        count(pick(random, 1, shape.length - first)),
        k(caller, count, shape.kv_heads, shape.key_dim, random),
        v(caller, count, shape.kv_heads, shape.value_dim, random) {}

  Shape shape;
  uint64_t first, count;
  Rows k, v;
};

void expect_element(pkv_dtype from, uint32_t bits, pkv_dtype to, uint32_t got, const char* what) {
  if (from == to)
    ASSERT_EQ(got, bits) << what;
  else if (is_nan(from, bits))
    ASSERT_TRUE(is_nan(to, got)) << what;
  else
    ASSERT_EQ(got, encode(to, decode(from, bits))) << what;
}

template <class Check>
void for_each_case(unsigned seed, const Check& check) {
  Random random(seed);
  for (const pkv_layout layout : layouts)
    for (const pkv_dtype dtype : dtypes)
      for (const pkv_dtype caller : dtypes)
        for (int round = 0; round < 6; round++) check(random, layout, dtype, caller);
}

TEST_P(Copy, StoresWhatItShouldAndNothingElse) {
  for_each_case(11, [&](Random& random, pkv_layout layout, pkv_dtype dtype, pkv_dtype caller) {
    CopyCase c(random, layout, dtype, caller);
    c.k.fill_bits(random);
    c.v.fill_bits(random);
    Sequence sequence(c.shape, random, 0);
    for (unsigned char& byte : sequence.bytes) byte = static_cast<unsigned char>(random());
    std::vector<unsigned char> expected = sequence.bytes;
    of(*GetParam().kernels, layout, dtype).store({sequence.view(), c.first, c.count, c.k.view(), c.v.view()});

    const unsigned bytes = dtype_bytes(dtype);
    const auto check = [&](const Rows& rows, uint64_t i, uint32_t head, uint32_t d, unsigned char* place, const char* what) {
      expect_element(caller, rows.bits(i, head, d), dtype, read_bits(dtype, place), what);
      std::copy(place, place + bytes, expected.data() + (place - sequence.bytes.data()));
    };
    for (uint64_t i = 0; i < c.count; i++) {
      for (uint32_t head = 0; head < c.shape.kv_heads; head++) {
        for (uint32_t d = 0; d < c.shape.key_dim; d++) check(c.k, i, head, d, sequence.k(c.first + i, head, d), "k");
        for (uint32_t d = 0; d < c.shape.value_dim; d++) check(c.v, i, head, d, sequence.v(c.first + i, head, d), "v");
      }
    }
    ASSERT_TRUE(expected == sequence.bytes) << "bytes outside of the task changed";
  });
}

TEST_P(Copy, LoadsWhatIsThereAndNothingElse) {
  for_each_case(12, [&](Random& random, pkv_layout layout, pkv_dtype dtype, pkv_dtype caller) {
    CopyCase c(random, layout, dtype, caller);
    Sequence sequence(c.shape, random, 0);
    for (unsigned char& byte : sequence.bytes) byte = static_cast<unsigned char>(random());
    const std::vector<unsigned char> before = sequence.bytes;
    Rows k_before = c.k, v_before = c.v;
    of(*GetParam().kernels, layout, dtype).load({sequence.view(), c.first, c.count, c.k.view(), c.v.view()});

    ASSERT_TRUE(before == sequence.bytes) << "a load wrote to the sequence";
    const auto check = [&](const Rows& rows, Rows& copy, uint64_t i, uint32_t head, uint32_t d, const unsigned char* place,
                           const char* what) {
      expect_element(dtype, read_bits(dtype, place), caller, rows.bits(i, head, d), what);
      copy.set_bits(i, head, d, rows.bits(i, head, d));
    };
    for (uint64_t i = 0; i < c.count; i++) {
      for (uint32_t head = 0; head < c.shape.kv_heads; head++) {
        for (uint32_t d = 0; d < c.shape.key_dim; d++) check(c.k, k_before, i, head, d, sequence.k(c.first + i, head, d), "k");
        for (uint32_t d = 0; d < c.shape.value_dim; d++) check(c.v, v_before, i, head, d, sequence.v(c.first + i, head, d), "v");
      }
    }
    ASSERT_TRUE(c.k.bytes == k_before.bytes && c.v.bytes == v_before.bytes) << "bytes between the caller's rows changed";
  });
}

TEST_P(Copy, ASideThatIsNullIsLeftOut) {
  Random random(13);
  for (const pkv_layout layout : layouts) {
    for (const pkv_dtype dtype : dtypes) {
      CopyCase c(random, layout, dtype, PKV_F32);
      c.k.fill(random);
      c.v.fill(random);
      Sequence only_k(c.shape, random, 0), only_v = only_k, both = only_k;
      const KvKernels& kernels = of(*GetParam().kernels, layout, dtype);
      kernels.store({only_k.view(), c.first, c.count, c.k.view(), {}});
      kernels.store({only_v.view(), c.first, c.count, {}, c.v.view()});
      kernels.store({both.view(), c.first, c.count, c.k.view(), c.v.view()});
      ASSERT_TRUE(only_k.bytes != both.bytes && only_v.bytes != both.bytes);
      // The background is 0 and both sides are disjoint.
      for (size_t i = 0; i < both.bytes.size(); i++) only_k.bytes[i] |= only_v.bytes[i];
      ASSERT_TRUE(only_k.bytes == both.bytes);

      const Rows untouched = c.v;
      kernels.load({both.view(), c.first, c.count, c.k.view(), {}});
      ASSERT_TRUE(untouched.bytes == c.v.bytes);
    }
  }
}

TEST_P(Copy, TheBytesAreThoseOfEveryOtherInstructionSet) {
  for_each_case(14, [&](Random& random, pkv_layout layout, pkv_dtype dtype, pkv_dtype caller) {
    CopyCase c(random, layout, dtype, caller);
    c.k.fill_bits(random);
    c.v.fill_bits(random);
    Sequence mine(c.shape, random, 0x5A), reference = mine;
    of(*GetParam().kernels, layout, dtype).store({mine.view(), c.first, c.count, c.k.view(), c.v.view()});
    of(select_kernels(PKV_ISA_SCALAR), layout, dtype).store({reference.view(), c.first, c.count, c.k.view(), c.v.view()});
    ASSERT_TRUE(mine.bytes == reference.bytes);
  });
}

INSTANTIATE_TEST_SUITE_P(Kernels, Copy, testing::ValuesIn(tables()), [](const auto& table) { return table.param.name; });

}  // namespace
}  // namespace pkv::test
