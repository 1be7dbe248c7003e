// Rows that only a view of the caller's memory can have: blocks of Q8_0 and Q4_0, and dims that are
// no multiple of 16. Attention is compared with sums in double precision, and no byte behind the
// last row is read.
#include <cmath>
#include <optional>
#include <span>

#include "../support/portable.h"
#include "host.h"

namespace cache_test::view_rows_test {
namespace {

bool in_blocks(pkv_dtype dtype) { return dtype == PKV_Q8_0 || dtype == PKV_Q4_0; }
bool has_scales(pkv_dtype dtype) { return in_blocks(dtype) || dtype == PKV_INT8; }
size_t row_bytes(pkv_dtype dtype, uint32_t dim) {
  return dtype == PKV_Q8_0   ? dim / 32 * 34
         : dtype == PKV_Q4_0 ? dim / 32 * 18
         : dtype == PKV_INT8 ? dim + 4
                             : dim * bytes_of(dtype);
}

constexpr size_t page = 4096;

// K or V: [token][head], with gaps that are NaN. The last row ends where the memory ends.
class Side {
 public:
  Side(pkv_dtype type, uint64_t tokens, uint32_t heads, uint32_t dims, Random& random)
      : dtype(type), dim(dims), unit_(has_scales(dtype) ? 1 : bytes_of(dtype)) {
    const size_t row = row_bytes(dtype, dim), gap = unit_ * random.below(4);
    head_bytes_ = row + gap;
    token_bytes_ = heads * head_bytes_ + unit_ * random.below(4);
    const size_t size = (tokens - 1) * token_bytes_ + (heads - 1) * head_bytes_ + row;
    pages_ = (size + page - 1) / page * page;
    memory_ = static_cast<unsigned char*>(portable::map_guarded(pages_));
    if (memory_ == nullptr) throw std::bad_alloc();
    begin = memory_ + (pages_ - size);
    std::memset(memory_, 0xFF, pages_);
    for (uint64_t token = 0; token < tokens; token++)
      for (uint32_t head = 0; head < heads; head++) fill(row_of(token, head), random);
  }
  ~Side() { portable::unmap_guarded(memory_, pages_); }
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;

  int64_t row_stride() const { return static_cast<int64_t>(token_bytes_ / unit_); }
  int64_t head_stride() const { return static_cast<int64_t>(head_bytes_ / unit_); }

  unsigned char* row_of(uint64_t token, uint32_t head) const {
    return begin + token * token_bytes_ + head * head_bytes_;
  }

  // The definition, from common.h.
  float get(uint64_t token, uint32_t head, uint32_t d) const {
    const unsigned char* const row = row_of(token, head);
    if (dtype == PKV_INT8)
      return load_element(PKV_F32, row + dim) * static_cast<float>(static_cast<int8_t>(row[d]));
    if (!in_blocks(dtype)) return load_element(dtype, row + d * bytes_of(dtype));
    const unsigned char* const block = row + d / 32 * (dtype == PKV_Q8_0 ? 34 : 18);
    const float scale = load_element(PKV_F16, block);
    const uint32_t i = d % 32;
    if (dtype == PKV_Q8_0) return scale * static_cast<float>(static_cast<int8_t>(block[2 + i]));
    return scale * static_cast<float>((i < 16 ? block[2 + i] & 15 : block[2 + i - 16] >> 4) - 8);
  }

  const pkv_dtype dtype;
  const uint32_t dim;
  unsigned char* begin;

 private:
  void fill(unsigned char* row, Random& random) const {
    if (dtype == PKV_INT8) {
      for (uint32_t d = 0; d < dim; d++) row[d] = static_cast<unsigned char>(random.below(256));
      store_element(PKV_F32, std::abs(random.uniform()) / 128, row + dim);  // as the library has it
      return;
    }
    if (!in_blocks(dtype)) {
      for (uint32_t d = 0; d < dim; d++)
        store_element(dtype, random.uniform(), row + d * bytes_of(dtype));
      return;
    }
    const size_t block = dtype == PKV_Q8_0 ? 34 : 18;
    for (size_t at = 0; at < row_bytes(dtype, dim); at += block) {
      // The largest element is about 1. ggml's scales of Q4_0 may be negative.
      store_element(PKV_F16, random.uniform() / (dtype == PKV_Q8_0 ? 128.0f : 8.0f), row + at);
      for (size_t i = 2; i < block; i++)
        row[at + i] = static_cast<unsigned char>(random.below(256));
    }
  }

  const size_t unit_;
  size_t head_bytes_, token_bytes_, pages_;
  unsigned char* memory_;
};

struct Case {
  pkv_dtype keys, values;
  uint32_t key_dim, value_dim;
  bool latent = false;
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << name_of(c.keys) << " " << c.key_dim << ", " << (c.latent ? "latent" : name_of(c.values))
       << " " << c.value_dim;
}

constexpr Case cases[] = {{PKV_Q8_0, PKV_Q8_0, 64, 64},         {PKV_Q4_0, PKV_Q4_0, 128, 128},
                          {PKV_Q8_0, PKV_Q4_0, 96, 32},         {PKV_Q4_0, PKV_F16, 32, 72},
                          {PKV_F16, PKV_Q8_0, 40, 160},         {PKV_Q8_0, PKV_BF16, 256, 64},
                          {PKV_Q8_0, PKV_Q8_0, 576, 512, true}, {PKV_Q4_0, PKV_Q4_0, 96, 64, true},
                          {PKV_F16, PKV_F16, 72, 72},           {PKV_F32, PKV_F32, 65, 67},
                          {PKV_BF16, PKV_F16, 1, 100},          {PKV_F16, PKV_F32, 120, 1},
                          {PKV_F16, PKV_INT8, 575, 32},         {PKV_F32, PKV_BF16, 8, 575},
                          {PKV_BF16, PKV_BF16, 90, 41, true},   {PKV_F16, PKV_F16, 80, 56, true}};

constexpr uint32_t kv_heads = 2;

class ViewRows : public testing::TestWithParam<Case> {
 protected:
  static constexpr uint32_t block_size = 7, blocks = 30;

  explicit ViewRows(uint64_t seed = 1)
      : random_(seed),
        k_(GetParam().keys, block_size * blocks, kv_heads, GetParam().key_dim, random_) {
    const Case& c = GetParam();
    view_ = made<pkv_kv_view>({.layout = PKV_LAYOUT_PLAIN,
                               .block_size = block_size,
                               .kv_heads = kv_heads,
                               .key_dim = c.key_dim,
                               .value_dim = c.value_dim,
                               .dtype = c.keys,
                               .value_dtype = c.values,
                               .blocks = blocks,
                               .k = k_.begin,
                               .k_block_stride = block_size * k_.row_stride(),
                               .k_row_stride = k_.row_stride(),
                               .k_head_stride = k_.head_stride(),
                               .latent = c.latent ? 1u : 0});
    if (c.latent) return;
    v_.emplace(c.values, block_size * blocks, kv_heads, c.value_dim, random_);
    view_.v = v_->begin;
    view_.v_block_stride = block_size * v_->row_stride();
    view_.v_row_stride = v_->row_stride();
    view_.v_head_stride = v_->head_stride();
  }

  const Side& values() const { return v_ ? *v_ : k_; }

  // Returns a result of one query head in double precision. The query sees `tokens`.
  std::vector<double> expected(const Rows& q, size_t row, uint32_t head, uint32_t kv_head,
                               std::span<const uint64_t> tokens) const {
    const Case& c = GetParam();
    std::vector<double> scores, out(c.value_dim);
    double max = -INFINITY, sum = 0;
    for (const uint64_t token : tokens) {
      double score = 0;
      for (uint32_t d = 0; d < c.key_dim; d++)
        score += double{q.get(row, head, d)} * k_.get(token, kv_head, d);
      scores.push_back(score / std::sqrt(c.key_dim));
      max = std::max(max, scores.back());
    }
    for (size_t i = 0; i < tokens.size(); i++) {
      const double weight = std::exp(scores[i] - max);
      sum += weight;
      for (uint32_t d = 0; d < c.value_dim; d++)
        out[d] += weight * values().get(tokens[i], kv_head, d);
    }
    for (double& x : out) x /= sum;
    return out;
  }

  Random random_;
  Side k_;
  std::optional<Side> v_;
  pkv_kv_view view_;
};

// Sequences whose last rows are queries: a decode step, some rows, and enough for matrix products.
TEST_P(ViewRows, AttendAsInDoublePrecision) {
  const Case& c = GetParam();
  const std::vector<uint32_t> queries = {1, 5, 23};
  const std::vector<uint64_t> lengths = {90, 5, 60};
  std::vector<uint32_t> ids(blocks), tables;
  std::iota(ids.begin(), ids.end(), 0u);
  for (size_t i = ids.size(); i > 1; i--) std::swap(ids[i - 1], ids[random_.below(i)]);
  constexpr size_t stride = 13;
  for (const size_t first : {0, 13, 17})
    for (size_t i = 0; i < stride; i++) tables.push_back(ids.at(first + i));
  constexpr uint32_t query_heads = 3 * kv_heads;
  Rows q(29, query_heads, c.key_dim, PKV_F32, {1, 2, 0});
  const pkv_tensor q_tensor = q.fill(random_).tensor();
  const pkv_kv_sequences sequences = sequences_of(query_heads, queries, lengths, tables);
  const double bound = has_scales(c.keys) || has_scales(c.values) ? 1e-3 : 2e-5;
  for (const pkv_isa isa : supported_isas()) {
    SCOPED_TRACE(pkv_isa_name(isa));
    Rows out(29, query_heads, c.value_dim, PKV_F32, {3, 1, 0});
    const pkv_tensor out_tensor = out.tensor();
    CHECK(pkv_kv_attend(make_compute(2, isa), &view_, &sequences, nullptr, &q_tensor, &out_tensor,
                        nullptr));
    EXPECT_TRUE(out.gaps_untouched());
    size_t row = 0;
    for (size_t s = 0; s < queries.size(); s++)
      for (uint32_t i = 0; i < queries[s]; i++, row++) {
        std::vector<uint64_t> tokens;
        for (uint64_t p = 0; p <= lengths[s] - queries[s] + i; p++)
          tokens.push_back(uint64_t{tables[s * stride + p / block_size]} * block_size +
                           p % block_size);
        for (const uint32_t head : {0u, 5u}) {
          const std::vector<double> wanted = expected(q, row, head, head / 3, tokens);
          for (uint32_t d = 0; d < c.value_dim; d++)
            ASSERT_NEAR(wanted[d], out.get(row, head, d), bound)
                << "row " << row << ", head " << head << ", dim " << d;
        }
      }
  }
}

// Rows of blocks become exactly what they stand for. Others keep their bits.
TEST_P(ViewRows, AreReadAsTheyAre) {
  const Case& c = GetParam();
  for (const pkv_isa isa : supported_isas())
    for (const pkv_dtype dtype : {PKV_F32, c.keys <= PKV_BF16 ? c.keys : PKV_F32}) {
      SCOPED_TRACE(pkv_isa_name(isa));
      Rows k(3, kv_heads, c.key_dim, dtype, {2, 1, 0}), v(3, kv_heads, c.value_dim, PKV_F32, {1});
      const pkv_tensor keys = k.tensor(), values_tensor = v.tensor();
      const std::vector<int64_t> slots = {blocks * block_size - 1, 0, 8};
      CHECK(
          pkv_kv_read_slots(make_compute(1, isa), &view_, 3, slots.data(), &keys, &values_tensor));
      for (size_t row = 0; row < 3; row++)
        for (uint32_t head = 0; head < kv_heads; head++) {
          const auto token = static_cast<uint64_t>(slots[row]);
          for (uint32_t d = 0; d < c.key_dim; d++)
            EXPECT_EQ(k_.get(token, head, d), k.get(row, head, d));
          for (uint32_t d = 0; d < c.value_dim; d++)
            EXPECT_EQ(values().get(token, head, d), v.get(row, head, d));
        }
      EXPECT_TRUE(k.gaps_untouched() && v.gaps_untouched());
    }
}

// Writes round to nearest even, and only to the elements of a row.
TEST_P(ViewRows, AreWrittenUnlessInBlocks) {
  const Case& c = GetParam();
  const int64_t slot = blocks * block_size - 1;
  for (const pkv_isa isa : supported_isas())
    for (const pkv_dtype dtype : {PKV_F32, PKV_F16, PKV_BF16}) {
      SCOPED_TRACE(pkv_isa_name(isa));
      Rows k(1, kv_heads, c.key_dim, dtype), v(1, kv_heads, c.value_dim, dtype);
      const pkv_tensor keys = k.fill(random_).tensor(), new_values = v.fill(random_).tensor();
      const pkv_status status = pkv_kv_write_slots(make_compute(1, isa), &view_, 1, &slot, &keys,
                                                   c.latent ? nullptr : &new_values);
      if (in_blocks(c.keys) || in_blocks(c.values)) {
        EXPECT_EQ(PKV_UNSUPPORTED, status);
        const bool of_keys = in_blocks(c.keys);
        EXPECT_EQ(std::string(of_keys ? "kv.k" : "kv.v") + ": rows of " +
                      ((of_keys ? c.keys : c.values) == PKV_Q8_0 ? "Q8_0" : "Q4_0") +
                      " can be read but not written",
                  pkv_last_error());
        continue;
      }
      ASSERT_EQ(PKV_OK, status) << pkv_last_error();
      const auto as = [](pkv_dtype type, float value) {
        unsigned char bytes[4];
        store_element(type, value, bytes);
        return load_element(type, bytes);
      };
      for (uint32_t head = 0; head < kv_heads; head++) {
        for (uint32_t d = 0; d < c.key_dim; d++)
          EXPECT_EQ(as(c.keys, k.get(0, head, d)), k_.get(static_cast<uint64_t>(slot), head, d));
        for (uint32_t d = 0; d < c.value_dim && v_ && !has_scales(c.values); d++)
          EXPECT_EQ(as(c.values, v.get(0, head, d)), v_->get(static_cast<uint64_t>(slot), head, d));
      }
      const unsigned char* const gap = k_.row_of(1, 0) - 1;
      if (k_.row_of(0, kv_heads - 1) + row_bytes(c.keys, c.key_dim) <= gap) {
        EXPECT_EQ(0xFF, *gap);
      }
    }
}

INSTANTIATE_TEST_SUITE_P(Rows, ViewRows, testing::ValuesIn(cases));

// The parts of attention over odd dims can be merged.
TEST(ViewRowsMerge, AnyDim) {
  Random random(3);
  for (const uint32_t dim : {1u, 41u, 72u, 575u})
    for (const pkv_isa isa : supported_isas()) {
      Rows a(2, 3, dim, PKV_F16, {1, 0, 0}), b(2, 3, dim, PKV_F32), merged(2, 3, dim, PKV_F32, {2});
      const pkv_tensor outs[] = {a.fill(random).tensor(), b.fill(random).tensor()};
      std::vector<float> a_lse, b_lse;
      for (int i = 0; i < 6; i++)
        a_lse.push_back(random.uniform()), b_lse.push_back(random.uniform());
      const float* const lse[] = {a_lse.data(), b_lse.data()};
      const pkv_tensor to = merged.tensor();
      CHECK(pkv_attention_merge(make_compute(1, isa), 2, outs, lse, 2, 3, dim, &to, nullptr));
      merged.each([&](size_t row, uint32_t head, uint32_t d) {
        const double x = std::exp(double{a_lse[row * 3 + head]}),
                     y = std::exp(double{b_lse[row * 3 + head]});
        EXPECT_NEAR((x * a.get(row, head, d) + y * b.get(row, head, d)) / (x + y),
                    merged.get(row, head, d), 1e-6);
      });
      EXPECT_TRUE(merged.gaps_untouched());
    }
}

// Nothing else has such rows, and errors say what is missing.
TEST(ViewRowsErrors, SayWhatIsWrong) {
  HostMemory memory({1, 1, 1, 64}, PKV_LAYOUT_PLAIN, 16, 1);
  Rows row(1, 1, 64);
  const pkv_tensor given = row.tensor();
  const int64_t slot = 0;
  const auto refused = [&](pkv_status status, auto change) -> std::string {
    pkv_kv_view view = memory.view;
    view.k_bytes = view.v_bytes = 0;
    change(view);
    EXPECT_EQ(status, pkv_kv_read_slots(nullptr, &view, 1, &slot, &given, &given));
    return pkv_last_error();
  };
  EXPECT_EQ(
      "kv: key_dim is 80; with Q8_0 in layout PLAIN it must be a multiple of 32, to 576",
      refused(PKV_INVALID_ARGUMENT, [](pkv_kv_view& kv) { kv.dtype = PKV_Q8_0, kv.key_dim = 80; }));
  EXPECT_EQ("kv: value_dim is 72; with INT8 in layout PLAIN it must be a multiple of 16, to 576",
            refused(PKV_INVALID_ARGUMENT,
                    [](pkv_kv_view& kv) { kv.value_dtype = PKV_INT8, kv.value_dim = 72; }));
  EXPECT_EQ("kv: value_dim is 577; it must be 1 to 576",
            refused(PKV_INVALID_ARGUMENT, [](pkv_kv_view& kv) { kv.value_dim = 577; }));
  EXPECT_EQ("kv: key_dim is 0; it must be 1 to 576",
            refused(PKV_INVALID_ARGUMENT, [](pkv_kv_view& kv) { kv.key_dim = 0; }));
  EXPECT_EQ("kv: key_dim is 72; with F32 in layout PACKED it must be a multiple of 16, to 576",
            refused(PKV_INVALID_ARGUMENT,
                    [](pkv_kv_view& kv) { kv.layout = PKV_LAYOUT_PACKED, kv.key_dim = 72; }));
  EXPECT_EQ("kv: dtype is Q4_0, which only layout PLAIN can have; the layout is PACKED",
            refused(PKV_UNSUPPORTED,
                    [](pkv_kv_view& kv) { kv.layout = PKV_LAYOUT_PACKED, kv.dtype = PKV_Q4_0; }));
  EXPECT_EQ("kv: rotated rows need dims that are multiples of 16; key_dim is 64, value_dim 40",
            refused(PKV_INVALID_ARGUMENT, [](pkv_kv_view& kv) {
              kv.rotation = PKV_ROTATION_HADAMARD, kv.value_dim = 40;
            }));
  // A tensor, and a cache.
  pkv_tensor quantised = given;
  quantised.dtype = PKV_Q8_0;
  REFUSED(PKV_INVALID_ARGUMENT,
          pkv_kv_read_slots(nullptr, &memory.view, 1, &slot, &quantised, nullptr));
  EXPECT_STREQ("k: dtype is Q8_0; rows are F32, F16 or BF16", pkv_last_error());
  for (const bool of_values : {false, true}) {
    ModelConfig config = config_of({1, 1, 1, 64, 64, PKV_F16}, 4);
    (of_values ? config.model.value_dtype : config.model.dtype) = PKV_Q4_0;
    pkv_cache cache = nullptr;
    REFUSED(PKV_UNSUPPORTED, pkv_cache_create(&config, &cache));
    EXPECT_STREQ("group 0: a cache cannot store Q4_0; only a pkv_kv_view can have it",
                 pkv_last_error());
  }
}

}  // namespace
}  // namespace cache_test::view_rows_test
