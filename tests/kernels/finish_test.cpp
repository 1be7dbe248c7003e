// Tests the ends of an attention call: queries are prepared, partial results are merged and
// normalised, and results of several calls are merged.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "../support/sanitizers.h"
#include "reference.h"
#include "sequence.h"
#include "tables.h"

namespace pkv::kernels::test {
namespace {

constexpr float float_infinity = std::numeric_limits<float>::infinity();
const float float_nan = std::numeric_limits<float>::quiet_NaN();

class Finish : public testing::TestWithParam<NamedTable> {};

TEST_P(Finish, PreparesQueries) {
  Random random(51);
  for (int round = 0; round < pkv::test::rounds(60); round++) {
    const auto heads = static_cast<uint32_t>(pick(random, 1, 3)),
               heads_per_kv_head = static_cast<uint32_t>(pick(random, 1, 5));
    const auto queries = static_cast<uint32_t>(pick(random, 1, 5)),
               dim = static_cast<uint32_t>(16 * pick(random, 1, 36));
    Rows rows(row_dtypes[round % 3], queries, heads * heads_per_kv_head, dim, random);
    rows.fill(random);
    QueryTask task{};
    task.head_begin = static_cast<uint32_t>(pick(random, 0, heads - 1));
    task.head_end = static_cast<uint32_t>(pick(random, task.head_begin + 1, heads));
    task.heads_per_kv_head = heads_per_kv_head;
    task.queries = queries;
    task.key_dim = dim;
    task.scale = real(random);
    task.rows = rows.view();
    task.head_rows = queries * heads_per_kv_head + pick(random, 0, 3);
    constexpr float blank = 99.0f;
    std::vector<float> q((task.head_end - task.head_begin) * task.head_rows * dim + 1, blank);
    task.q = q.data();
    GetParam().kernels->prepare(task);
    for (size_t i = 0; i < q.size(); i++) {
      const size_t d = i % dim, row = i / dim % task.head_rows,
                   head = i / dim / task.head_rows + task.head_begin;
      if (head >= task.head_end || row >= queries * heads_per_kv_head) {
        ASSERT_EQ(q[i], blank);
      } else {
        const auto query_head =
            static_cast<uint32_t>(head * heads_per_kv_head + row % heads_per_kv_head);
        ASSERT_EQ(q[i], static_cast<float>(rows.value(row / heads_per_kv_head, query_head,
                                                      static_cast<uint32_t>(d))) *
                            task.scale);
      }
    }
  }
}

// Partial results as a kernel leaves them. They have seen nothing, or have a sum of at least 1.
struct RandomPart {
  std::vector<float> out, max, sum;
  uint64_t head_rows;

  RandomPart(uint64_t heads, uint64_t rows, uint32_t dim, Random& random)
      : head_rows(rows + pick(random, 0, 2)) {
    for (uint64_t row = 0; row < heads * head_rows; row++) {
      const bool empty = pick(random, 0, 3) == 0;
      max.push_back(empty ? -float_infinity : 20 * real(random));
      sum.push_back(empty ? 0 : 1 + 30 * std::fabs(real(random)));
      for (uint32_t d = 0; d < dim; d++) out.push_back(empty ? 0 : sum.back() * real(random));
    }
  }
  Partial view() const { return {out.data(), max.data(), sum.data(), head_rows}; }
};

struct FinishCase {
  FinishTask task{};
  std::vector<RandomPart> parts;
  std::vector<Partial> partials;
  std::vector<float> sink_logits;

  explicit FinishCase(Random& random) {
    task.head_begin = static_cast<uint32_t>(pick(random, 0, 2));
    task.head_end = task.head_begin + static_cast<uint32_t>(pick(random, 1, 2));
    task.heads_per_kv_head = static_cast<uint32_t>(pick(random, 1, 5));
    task.queries = static_cast<uint32_t>(pick(random, 1, 4));
    task.value_dim = static_cast<uint32_t>(16 * pick(random, 1, 36));
    task.parts = static_cast<uint32_t>(pick(random, 1, 4));
    for (uint32_t i = 0; i < task.parts; i++)
      parts.emplace_back(task.head_end - task.head_begin,
                         uint64_t{task.queries} * task.heads_per_kv_head, task.value_dim, random);
    for (const RandomPart& part : parts) partials.push_back(part.view());
    for (uint32_t head = 0; head < task.head_end * task.heads_per_kv_head; head++)
      sink_logits.push_back(20 * real(random));
    task.part = partials.data();
    task.sink_logits = pick(random, 0, 1) == 0 ? sink_logits.data() : nullptr;
  }
};

// One row in double precision. With u = 2^-24, each weight exp(max - largest) is off by 4 u, and by
// 2 u times the larger score for the difference. n parts and a sink give sums of n + 1 terms, each
// of which is a product. So the numerator and the denominator are off by r = (4 + 2 S + n + 3) u,
// relative, and the quotient rounds once more. The error of the logarithm is that of the sum, and 4
// u of the numbers added.
struct FinishedRow {
  double sum = 0, lse = -std::numeric_limits<double>::infinity(), relative = 0;
  double largest = -std::numeric_limits<double>::infinity();
  bool saw = false;

  FinishedRow(const FinishTask& task, uint64_t head, uint64_t row, uint32_t query_head)
      : task_(task), head_(head), row_(row) {
    double magnitude = 0;
    const bool sink = task.sink_logits != nullptr;
    if (sink) largest = task.sink_logits[query_head];
    for (uint32_t i = 0; i < task.parts; i++)
      largest = std::max(largest, double{task.part[i].max[at(i)]});
    for (uint32_t i = 0; i < task.parts; i++) {
      if (task.part[i].sum[at(i)] == 0) continue;
      saw = true;
      sum += weight(i) * task.part[i].sum[at(i)];
      magnitude = std::max(magnitude, std::fabs(double{task.part[i].max[at(i)]}));
    }
    if (sink) {
      sum += std::exp(task.sink_logits[query_head] - largest);
      magnitude = std::max(magnitude, std::fabs(double{task.sink_logits[query_head]}));
    }
    if (saw || sink) lse = largest + std::log(sum);
    relative = (4 + 2 * magnitude + task.parts + 3) * u;
  }

  uint64_t at(uint32_t part) const { return head_ * task_.part[part].head_rows + row_; }
  double weight(uint32_t part) const { return std::exp(task_.part[part].max[at(part)] - largest); }

  void expect_dim(uint32_t d, double got, pkv_dtype dtype) const {
    double value = 0, absolute = 0;
    for (uint32_t i = 0; i < task_.parts && saw; i++) {
      const double term = weight(i) * task_.part[i].out[at(i) * task_.value_dim + d] / sum;
      value += term;
      absolute += std::fabs(term);
    }
    const double min_rounding = dtype == PKV_F16 ? 0x1p-25 : 1e-37;
    const double bound =
        (2 * relative + u) * absolute + unit_roundoff(dtype) * std::fabs(value) + min_rounding;
    ASSERT_NEAR(got, value, saw ? bound : 0) << "dim " << d;
  }

 private:
  const FinishTask& task_;
  const uint64_t head_, row_;
};

TEST_P(Finish, MergesPartsAndSinkLogits) {
  Random random(52);
  for (int round = 0; round < pkv::test::rounds(200); round++) {
    FinishCase sample(random);
    FinishTask& task = sample.task;
    Rows rows(row_dtypes[round % 3], task.queries, (task.head_end + 1) * task.heads_per_kv_head,
              task.value_dim, random);
    const Rows blank = rows;
    constexpr float unset = 99.0f;
    task.lse_stride = rows.heads + pick(random, 0, 2);
    std::vector<float> lse(task.queries * task.lse_stride, unset);
    task.rows = rows.view();
    if (pick(random, 0, 3) != 0) task.lse = lse.data();
    GetParam().kernels->finish(task);
    for (uint32_t i = 0; i < task.queries; i++) {
      for (uint32_t query_head = 0; query_head < task.lse_stride; query_head++) {
        const uint32_t head = query_head / task.heads_per_kv_head;
        const float got = lse[i * task.lse_stride + query_head];
        if (head < task.head_begin || head >= task.head_end) {
          ASSERT_EQ(got, unset);
          for (uint32_t d = 0; d < task.value_dim && query_head < rows.heads; d++)
            ASSERT_EQ(rows.bits(i, query_head, d), blank.bits(i, query_head, d));
          continue;
        }
        const FinishedRow row(
            task, head - task.head_begin,
            uint64_t{i} * task.heads_per_kv_head + query_head % task.heads_per_kv_head, query_head);
        for (uint32_t d = 0; d < task.value_dim; d++)
          row.expect_dim(d, rows.value(i, query_head, d), rows.dtype);
        if (HasFatalFailure()) return;
        if (task.lse == nullptr)
          ASSERT_EQ(got, unset);
        else if (std::isinf(row.lse))
          ASSERT_EQ(got, row.lse);
        else
          ASSERT_NEAR(got, row.lse,
                      row.relative + 4 * u * (std::fabs(row.largest) + std::fabs(row.lse) + 1));
      }
    }
  }
}

// Results of several calls. Some saw nothing, and the content of their rows must not count.
struct MergeCase {
  uint64_t rows;
  uint32_t heads, dim;
  std::vector<Rows> outs;
  std::vector<std::vector<float>> lse;

  explicit MergeCase(Random& random)
      : rows(pick(random, 1, 4)),
        heads(static_cast<uint32_t>(pick(random, 1, 4))),
        dim(static_cast<uint32_t>(16 * pick(random, 1, 36))) {
    for (uint64_t count = pick(random, 1, 4); count > 0; count--) {
      outs.emplace_back(row_dtypes[pick(random, 0, 2)], rows, heads, dim, random);
      outs.back().fill(random);
      lse.emplace_back();
      for (uint64_t row = 0; row < rows * heads; row++) {
        const bool empty = pick(random, 0, 3) == 0;
        lse.back().push_back(empty ? -float_infinity : 20 * real(random));
        for (uint32_t d = 0; d < dim && empty; d++)
          outs.back().set_bits(row / heads, static_cast<uint32_t>(row % heads), d,
                               encode(outs.back().dtype, float_nan));
      }
    }
  }

  // The bound is that of FinishedRow, with sums of 1.
  void expect_row(uint64_t row, uint32_t head, const Rows& merged, float merged_lse) const {
    double largest = -float_infinity, magnitude = 0, sum = 0;
    for (const auto& one : lse) largest = std::max(largest, double{one[row * heads + head]});
    for (const auto& one : lse) {
      if (one[row * heads + head] == -float_infinity) continue;
      sum += std::exp(one[row * heads + head] - largest);
      magnitude = std::max(magnitude, std::fabs(double{one[row * heads + head]}));
    }
    const double relative = (4 + 2 * magnitude + static_cast<double>(lse.size()) + 3) * u;
    for (uint32_t d = 0; d < dim; d++) {
      double value = 0, absolute = 0;
      for (size_t i = 0; i < lse.size(); i++) {
        if (lse[i][row * heads + head] == -float_infinity) continue;
        const double term =
            std::exp(lse[i][row * heads + head] - largest) * outs[i].value(row, head, d) / sum;
        value += term;
        absolute += std::fabs(term);
      }
      const double min_rounding = merged.dtype == PKV_F16 ? 0x1p-25 : 1e-37;
      const double bound = (2 * relative + u) * absolute +
                           unit_roundoff(merged.dtype) * std::fabs(value) + min_rounding;
      ASSERT_NEAR(merged.value(row, head, d), value, bound);
    }
    if (sum == 0)
      ASSERT_EQ(merged_lse, -float_infinity);
    else
      ASSERT_NEAR(merged_lse, largest + std::log(sum),
                  relative + 4 * u * (std::fabs(largest) + std::fabs(merged_lse) + 1));
  }
};

TEST_P(Finish, MergesResultsOfSeveralCalls) {
  Random random(53);
  for (int round = 0; round < pkv::test::rounds(200); round++) {
    MergeCase sample(random);
    Rows merged(row_dtypes[round % 3], sample.rows, sample.heads, sample.dim, random);
    std::vector<float> merged_lse(sample.rows * sample.heads, 99.0f);
    std::vector<RowsView> outs;
    std::vector<const float*> lse;
    for (size_t i = 0; i < sample.outs.size(); i++) {
      outs.push_back(sample.outs[i].view());
      lse.push_back(sample.lse[i].data());
    }
    const MergeTask task = {
        sample.rows, sample.heads, sample.dim,    static_cast<uint32_t>(outs.size()),
        outs.data(), lse.data(),   merged.view(), merged_lse.data()};
    GetParam().kernels->merge(task);
    for (uint64_t row = 0; row < sample.rows; row++)
      for (uint32_t head = 0; head < sample.heads; head++) {
        sample.expect_row(row, head, merged, merged_lse[row * sample.heads + head]);
        if (HasFatalFailure()) return;
      }
    const std::vector<unsigned char> with_lse = merged.bytes;
    MergeTask without = task;
    without.merged_lse = nullptr;
    GetParam().kernels->merge(without);
    ASSERT_TRUE(merged.bytes == with_lse);
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, Finish, testing::ValuesIn(tables()),
                         [](const auto& table) { return table.param.name; });

}  // namespace
}  // namespace pkv::kernels::test
