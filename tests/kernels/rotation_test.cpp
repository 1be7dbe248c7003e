// Rows are rotated as pkv_rotation says, with the same bits in every instruction set, and back.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "../support/sanitizers.h"
#include "sequence.h"
#include "tables.h"

namespace pkv::kernels::test {
namespace {

class Rotate : public testing::TestWithParam<NamedTable> {};

// Minus where the bit of a dim is 1, in the first 576 bits of the fraction of pi.
double sign_of(uint32_t dim) {
  constexpr uint32_t pi[] = {0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344, 0xA4093822,
                             0x299F31D0, 0x082EFA98, 0xEC4E6C89, 0x452821E6, 0x38D01377,
                             0xBE5466CF, 0x34E90C6C, 0xC0AC29B7, 0xC97C50DD, 0x3F84D5B5,
                             0xB5470917, 0x9216D5D9, 0x8979FB1B};
  return (pi[dim / 32] >> (31 - dim % 32) & 1) != 0 ? -1 : 1;
}

uint32_t run_of(uint32_t dim) {
  uint32_t run = 16;
  while (dim % (2 * run) == 0) run *= 2;
  return run;
}

// The matrix by which a row is multiplied from the right.
std::vector<double> hadamard_matrix(uint32_t dim) {
  const uint32_t run = run_of(dim);
  std::vector<double> matrix(size_t{dim} * dim);
  for (uint32_t i = 0; i < dim; i++)
    for (uint32_t j = i / run * run; j < i / run * run + run; j++)
      matrix[size_t{i} * dim + j] =
          sign_of(i) * (std::popcount(i % run & j % run) % 2 != 0 ? -1 : 1) / std::sqrt(run);
  return matrix;
}

// An orthogonal matrix: a reflection at a random vector.
std::vector<float> reflection(uint32_t dim, Random& random) {
  std::vector<double> axis;
  double length = 0;
  for (uint32_t d = 0; d < dim; d++) {
    axis.push_back(static_cast<double>(real(random)));
    length += axis.back() * axis.back();
  }
  std::vector<float> matrix;
  for (uint32_t i = 0; i < dim; i++)
    for (uint32_t j = 0; j < dim; j++)
      matrix.push_back(static_cast<float>((i == j ? 1 : 0) - 2 * axis[i] * axis[j] / length));
  return matrix;
}

enum class Kind { hadamard, matrix };

// A rotation of some dim, and its matrix.
struct Rotated {
  Rotated(Kind kind, uint32_t dim, Random& random) {
    if (kind == Kind::hadamard) {
      rotation.block = run_of(dim);
      exact = hadamard_matrix(dim);
    } else {
      floats = reflection(dim, random);
      exact.assign(floats.begin(), floats.end());
      rotation.matrix = floats.data();
    }
  }
  Rotation rotation;
  std::vector<float> floats;
  std::vector<double> exact;
};

constexpr Kind rotations[] = {Kind::hadamard, Kind::matrix};

// A row times a matrix, or times its transpose.
std::vector<double> product(const std::vector<double>& row, const std::vector<double>& matrix,
                            bool transposed = false) {
  const size_t dim = row.size();
  std::vector<double> sums(dim);
  for (size_t i = 0; i < dim; i++)
    for (size_t j = 0; j < dim; j++)
      sums[transposed ? i : j] += row[transposed ? j : i] * matrix[i * dim + j];
  return sums;
}

std::vector<double> values_of(const Rows& rows, uint64_t row, uint32_t head) {
  std::vector<double> values;
  for (uint32_t d = 0; d < rows.dim; d++) values.push_back(rows.value(row, head, d));
  return values;
}

// Rows of numbers in [-1, 1] have results of at most sqrt(dim), from at most dim roundings.
double bound_of(uint32_t dim) { return 0x1p-24 * dim * std::sqrt(dim); }

TEST_P(Rotate, StoredRowsAreMultipliedByTheMatrix) {
  Random random(61);
  for (uint32_t dim = 16; dim <= max_dim; dim += 16) {
    for (const Kind kind : rotations) {
      const Rotated rotated(kind, dim, random);
      const Shape shape{PKV_LAYOUT_PLAIN, PKV_F32, PKV_F32, 1, 1, dim, dim, 16, true, false, 3};
      Sequence sequence(shape, random, 0xFF);
      Rows k(row_dtypes[dim / 16 % 3], 3, 1, dim, random), v(PKV_F32, 3, 1, dim);
      k.fill(random);
      v.fill(random);
      CopyTask task{sequence.view(), 0, 3, k.view(), v.view()};
      task.kv.k.rotation = rotated.rotation;
      GetParam().kernels->store(task);
      for (uint32_t row = 0; row < 3; row++) {
        const std::vector<double> expected = product(values_of(k, row, 0), rotated.exact);
        for (uint32_t d = 0; d < dim; d++) {
          ASSERT_NEAR(sequence.value(Side::K, row, 0, d), expected[d], bound_of(dim))
              << "dim " << d << " of " << dim;
          ASSERT_EQ(sequence.value(Side::V, row, 0, d), v.value(row, 0, d)) << "V has no rotation";
        }
      }
    }
  }
}

TEST_P(Rotate, TheBytesAreThoseOfEveryOtherInstructionSet) {
  Random random(62);
  for (const pkv_layout layout : layouts) {
    for (const pkv_dtype dtype : stored_dtypes) {
      for (int round = 0; round < pkv::test::rounds(6); round++) {
        const Shape shape = random_shape(random, layout, dtype, dtype);
        const Rotated rotated(rotations[round % 2], shape.key_dim, random);
        const uint64_t first = pick(random, 0, shape.length - 1), count = shape.length - first;
        Rows k(row_dtypes[round % 3], count, shape.kv_heads, shape.key_dim, random);
        k.fill(random);
        Sequence mine(shape, random, 0x5A), reference = mine;
        const auto store = [&](const Table& kernels, Sequence& to) {
          CopyTask task{to.view(), first, count, k.view(), {}};
          task.kv.k.rotation = rotated.rotation;
          kernels.store(task);
        };
        store(*GetParam().kernels, mine);
        store(select(PKV_ISA_SCALAR), reference);
        ASSERT_TRUE(mine.bytes == reference.bytes) << "dtype " << dtype;
      }
    }
  }
}

TEST_P(Rotate, LoadingTurnsRowsBack) {
  Random random(63);
  for (const pkv_layout layout : layouts) {
    for (const Kind kind : rotations) {
      for (int round = 0; round < pkv::test::rounds(10); round++) {
        Shape shape = random_shape(random, layout, PKV_F32, PKV_F32);
        const Rotated k_rotated(kind, shape.key_dim, random),
            v_rotated(kind, shape.value_dim, random);
        Sequence sequence(shape, random, 0xFF);
        Rows k(PKV_F32, shape.length, shape.kv_heads, shape.key_dim, random),
            v(PKV_F32, shape.length, shape.kv_heads, shape.value_dim, random);
        k.fill(random);
        v.fill(random);
        Rows k_read = k, v_read = v;
        k_read.fill(random);
        v_read.fill(random);
        CopyTask task{sequence.view(), 0, shape.length, k.view(), v.view()};
        task.kv.k.rotation = k_rotated.rotation;
        task.kv.v.rotation = v_rotated.rotation;
        GetParam().kernels->store(task);
        task.k = k_read.view();
        task.v = v_read.view();
        GetParam().kernels->load(task);
        for (uint64_t row = 0; row < shape.length; row++) {
          for (uint32_t head = 0; head < shape.kv_heads; head++) {
            for (uint32_t d = 0; d < shape.key_dim; d++)
              ASSERT_NEAR(k_read.value(row, head, d), k.value(row, head, d),
                          4 * bound_of(shape.key_dim));
            // Latent values are the first dims of K.
            const Rows& given = shape.latent ? k : v;
            for (uint32_t d = 0; d < shape.value_dim; d++)
              ASSERT_NEAR(v_read.value(row, head, d), given.value(row, head, d),
                          4 * bound_of(shape.key_dim));
          }
        }
      }
    }
  }
}

TEST_P(Rotate, QueriesAreRotatedAsKeys) {
  Random random(64);
  for (uint32_t dim = 16; dim <= max_dim; dim += 16) {
    const Rotated rotated(rotations[dim / 16 % 2], dim, random);
    Rows rows(row_dtypes[dim / 16 % 3], 2, 3, dim, random);
    rows.fill(random);
    std::vector<float> q(size_t{6} * dim);
    QueryTask task{};
    task.head_end = 1;
    task.heads_per_kv_head = 3;
    task.queries = 2;
    task.key_dim = dim;
    task.scale = 0.25f;
    task.rows = rows.view();
    task.q = q.data();
    task.head_rows = 6;
    task.rotation = rotated.rotation;
    GetParam().kernels->prepare(task);
    for (uint32_t row = 0; row < 6; row++) {
      const std::vector<double> expected =
          product(values_of(rows, row / 3, row % 3), rotated.exact);
      for (uint32_t d = 0; d < dim; d++)
        ASSERT_NEAR(q[size_t{row} * dim + d], 0.25 * expected[d], bound_of(dim));
    }
  }
}

TEST_P(Rotate, OutputsAreRotatedBack) {
  Random random(65);
  for (uint32_t dim = 16; dim <= max_dim; dim += 16) {
    const Rotated rotated(rotations[dim / 16 % 2], dim, random);
    std::vector<float> sums(dim);
    for (float& sum : sums) sum = real(random);
    const float max = 0, weight = 1;
    const Partial part{sums.data(), &max, &weight, 1};
    Rows rows(PKV_F32, 1, 1, dim);
    FinishTask task{};
    task.head_end = task.heads_per_kv_head = task.queries = task.parts = 1;
    task.value_dim = dim;
    task.part = &part;
    task.rows = rows.view();
    task.rotation = rotated.rotation;
    GetParam().kernels->finish(task);
    const std::vector<double> expected = product({sums.begin(), sums.end()}, rotated.exact, true);
    for (uint32_t d = 0; d < dim; d++) ASSERT_NEAR(rows.value(0, 0, d), expected[d], bound_of(dim));
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, Rotate, testing::ValuesIn(tables()),
                         [](const auto& table) { return table.param.name; });

}  // namespace
}  // namespace pkv::kernels::test
