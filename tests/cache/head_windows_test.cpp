// Random combinations of windows of single KV heads, chosen blocks, masks and trees: outputs are
// those of textbook attention over the tokens that are seen and read, and the chosen blocks have
// the highest bounds among the blocks with a visible token.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "../support/rounds.h"
#include "block_bounds.h"
#include "host.h"
#include "reference.h"

namespace cache_test::head_windows_test {
namespace {

constexpr uint32_t block_size = 16;

enum class Masking { none, words, parents, bytes };

// One step of some sessions, drawn at random.
class Step {
 public:
  Step(const Model& model, pkv_layout layout, pkv_isa isa, uint64_t seed)
      : model_(model), random_(seed) {
    ModelConfig config = config_of(model, 200);
    config.layout = layout;
    config.isa = isa;
    config.threads = 2;
    cache_ = create(config);
    compute_ = make_compute(2, isa);
  }

  void run() {
    open_sessions();
    draw_params();
    SCOPED_TRACE(testing::Message()
                 << sessions_.size() << " sessions of " << start_ << " tokens, " << tokens_
                 << " new, masking " << static_cast<int>(masking_) << ", top "
                 << params_.own_blocks.top_blocks << ", together " << params_.own_blocks.together
                 << ", head windows " << (params_.head_windows != nullptr));
    std::vector<pkv_session> handles(sessions_.begin(), sessions_.end());
    Batch batch = begin(cache_, handles, std::vector<uint32_t>(handles.size(), tokens_));
    KeysValues rows = random_rows(model_, rows_count(), random_);
    write(batch, 0, model_, rows);
    Rows q(rows_count(), model_.query_heads, model_.key_dim),
        out(rows_count(), model_.query_heads, model_.values());
    q.fill(random_);
    std::vector<float> lse(size_t{rows_count()} * model_.query_heads);
    params_.lse = lse.data();
    const pkv_tensor queries = q.tensor(), outputs = out.tensor();
    CHECK(pkv_batch_attend(batch, 0, &params_, &queries, &outputs));
    for (uint32_t s = 0; s < sessions_.size(); s++) {
      const KeysValues all = stored(sessions_[s]);
      if (params_.own_blocks.top_blocks != 0) check_choice(s, q, all);
      EXPECT_LE(worst_error_of(s, q, out, all, lse), 1) << "session " << s;
    }
    check_lists(batch, q, out);
    check_mass(batch, q);
    commit(batch);
    CHECK(pkv_cache_validate(cache_));
  }

 private:
  uint32_t below(uint32_t n) { return static_cast<uint32_t>(random_.below(n)); }
  uint32_t rows_count() const { return static_cast<uint32_t>(sessions_.size()) * tokens_; }
  uint64_t length() const { return start_ + tokens_; }
  uint32_t blocks() const { return static_cast<uint32_t>((length() + 15) / block_size); }

  void open_sessions() {
    start_ = 1 + below(300);
    tokens_ = random_.chance(40) ? 1 : 1 + below(24);
    sessions_.push_back(open(cache_));
    step(cache_, sessions_[0], model_, static_cast<uint32_t>(start_), random_);
    dropped_.assign(blocks(), false);
    if (model_.window == 0 && start_ > 64 && random_.chance(25)) {
      const uint32_t block = 1 + below(static_cast<uint32_t>(start_ / block_size) - 2);
      CHECK(pkv_session_drop_blocks(sessions_[0], 0, 1, &block));
      dropped_[block] = true;
    }
    for (uint32_t forks = random_.chance(30) ? 1 + below(2) : 0; forks > 0; forks--)
      sessions_.push_back(fork(sessions_[0]));
  }

  void draw_params() {
    params_ = AttentionParams();
    masking_ = static_cast<Masking>(below(4));
    params_.bidirectional = !random_.chance(80);
    if (random_.chance(60)) draw_windows();
    if (masking_ == Masking::words) {
      for (uint32_t i = 0; i < rows_count(); i++) words_.push_back(random_.below(1ull << tokens_));
      params_.see_bits(words_.data(), 1);
    } else if (masking_ == Masking::parents) {
      for (uint32_t i = 0; i < rows_count(); i++)
        parents_.push_back(static_cast<int32_t>(below(i % tokens_ + 1)) - 1);
      params_.see_tree(parents_.data());
    } else if (masking_ == Masking::bytes) {
      first_position_ = draw_first_position();
      columns_ = length();
      bytes_.assign(size_t{columns_} * tokens_, 1);
      const bool whole_blocks = random_.chance(50);
      for (size_t i = 0; i < bytes_.size(); i++)
        bytes_[i] =
            whole_blocks && (i % columns_ + static_cast<uint64_t>(first_position_)) % 16 != 0
                ? bytes_[i - (i == 0 ? 0 : 1)]
                : random_.chance(50);
      first_positions_.assign(sessions_.size(), first_position_);
      params_.see_bytes(bytes_.data());
      params_.own_mask.columns = columns_;
      params_.own_mask.row_stride = static_cast<int64_t>(columns_);
      params_.own_mask.first_positions = first_positions_.data();
    }
    if (!random_.chance(70)) return;
    params_.choose(1 + below(6));
    params_.own_blocks.first_blocks = below(3);
    params_.own_blocks.last_blocks = below(3);
    params_.own_blocks.together = random_.chance(50);
    chosen_.assign(size_t{rows_count()} * model_.kv_heads * params_.own_blocks.top_blocks, 7);
    params_.own_blocks.chosen = chosen_.data();
  }

  // The mask begins with the sequence, anywhere, or near the beginning of a window.
  int64_t draw_first_position() {
    if (random_.chance(50)) return 0;
    const uint32_t window = windows_.empty() ? model_.window : windows_[below(model_.kv_heads)];
    if (window == 0 || window > start_ || random_.chance(30)) return below(100);
    return static_cast<int64_t>(start_ - window + below(16));
  }

  void draw_windows() {
    for (uint32_t head = 0; head < model_.kv_heads; head++) {
      const bool wide = random_.chance(35);
      windows_.push_back(model_.window != 0 ? 1 + below(model_.window) : wide ? 0 : 1 + below(150));
      sinks_.push_back(below(model_.window != 0 ? model_.sinks + 1 : 40));
    }
    params_.head_windows = windows_.data();
    given_sinks_ = sinks_;
    std::replace(given_sinks_.begin(), given_sinks_.end(), 0u, PKV_NO_SINKS);
    if (random_.chance(50))
      params_.head_sinks = given_sinks_.data();
    else
      sinks_.clear();
  }

  // Whether a query sees a position, whether or not its block is read.
  bool sees(uint32_t session, uint32_t query, uint32_t head, uint64_t j) const {
    const uint64_t position = start_ + query;
    const size_t row = size_t{session} * tokens_ + query;
    const uint32_t window = windows_.empty() ? model_.window : windows_[head],
                   sinks = sinks_.empty() ? model_.sinks : sinks_[head];
    if (dropped_[j / block_size]) return false;
    if (window != 0 && j + window <= position && j >= sinks) return false;
    if (j >= start_ && masking_ == Masking::words) return (words_[row] >> (j - start_) & 1) != 0;
    if (j >= start_ && masking_ == Masking::parents) {
      int64_t at = query;
      while (at >= 0 && at != static_cast<int64_t>(j - start_))
        at = parents_[size_t{session} * tokens_ + static_cast<size_t>(at)];
      return at >= 0;
    }
    if (masking_ == Masking::bytes && static_cast<int64_t>(j) >= first_position_ &&
        bytes_[query * columns_ + j - static_cast<uint64_t>(first_position_)] == 0)
      return false;
    return params_.bidirectional != 0 || j <= position;
  }

  // The queries that choose together with this one.
  std::pair<uint32_t, uint32_t> together(uint32_t query) const {
    if (params_.own_blocks.together != 0) return {0, tokens_};
    return {query, query + 1};
  }

  bool candidate(uint32_t session, uint32_t query, uint32_t head, uint32_t block) const {
    const auto [first, end] = together(query);
    for (uint32_t i = first; i < end; i++)
      for (uint64_t j = uint64_t{block} * block_size; j < (block + 1) * block_size; j++)
        if (sees(session, i, head, j)) return true;
    return false;
  }

  uint32_t step_block() const { return static_cast<uint32_t>(start_ / block_size); }
  uint32_t first() const { return std::min(params_.own_blocks.first_blocks, step_block()); }
  uint32_t last() const {
    return std::max(first(), step_block() - std::min(params_.own_blocks.last_blocks, step_block()));
  }

  std::vector<uint32_t> chosen(uint32_t session, uint32_t query, uint32_t head) const {
    const size_t row = size_t{session} * tokens_ + query, top = params_.own_blocks.top_blocks;
    const auto begin =
        chosen_.begin() + static_cast<std::ptrdiff_t>((row * model_.kv_heads + head) * top);
    return {begin, std::find(begin, begin + static_cast<std::ptrdiff_t>(top), PKV_NO_BLOCK)};
  }

  void check_choice(uint32_t session, const Rows& q, const KeysValues& all) const {
    for (uint32_t query = 0; query < tokens_; query++) {
      for (uint32_t head = 0; head < model_.kv_heads; head++) {
        const std::vector<uint32_t> list = chosen(session, query, head);
        double worst_chosen = HUGE_VAL, best_left = -HUGE_VAL;
        uint32_t candidates = 0;
        for (uint32_t block = first(); block < last(); block++) {
          const bool is_chosen = std::find(list.begin(), list.end(), block) != list.end();
          if (!candidate(session, query, head, block)) {
            EXPECT_FALSE(is_chosen) << "block " << block << ", of which nothing is seen";
            continue;
          }
          candidates++;
          double score = 0;
          for (auto [i, end] = together(query); i < end; i++)
            score += bound_of_block(q, session * tokens_ + i, head, all.k, block, block_size);
          if (is_chosen)
            worst_chosen = std::min(worst_chosen, score);
          else
            best_left = std::max(best_left, score);
        }
        ASSERT_EQ(std::min(params_.own_blocks.top_blocks, candidates), list.size());
        EXPECT_TRUE(std::is_sorted(list.begin(), list.end()));
        EXPECT_GE(worst_chosen, best_left - 1e-4 * (1 + std::abs(best_left)));
      }
    }
  }

  bool reads(uint32_t session, uint32_t query, uint32_t head, uint32_t block) const {
    if (params_.own_blocks.top_blocks == 0 || block < first() || block >= last()) return true;
    const std::vector<uint32_t> list = chosen(session, query, head);
    return std::find(list.begin(), list.end(), block) != list.end();
  }

  // Rows that left the window, or were dropped, may be anything.
  KeysValues stored(pkv_session session) const {
    KeysValues all = rows_of(model_, length());
    for (uint64_t p = 0; p < length(); p++) {
      const pkv_tensor k = all.k.tensor(p), v = all.v.tensor(p);
      const pkv_status status = pkv_session_read(session, 0, p, 1, &k, &v);
      if (status != PKV_OUT_OF_RANGE) CHECK(status);
    }
    return all;
  }

  double worst_error_of(uint32_t session, const Rows& q, const Rows& out, const KeysValues& all,
                        const std::vector<float>& lse) const {
    const Doubles queries(q), keys(all.k), values(all.v);
    double worst = 0;
    for (uint32_t query = 0; query < tokens_; query++) {
      for (uint32_t h = 0; h < model_.query_heads; h++) {
        const uint32_t row = session * tokens_ + query,
                       head = h / (model_.query_heads / model_.kv_heads);
        Attention attention = attention_of(model_);
        attention.window = 0;
        attention.causal = false;
        attention.mask_words = (length() + 63) / 64;
        attention.mask.assign(attention.mask_words, 0);
        for (uint64_t j = 0; j < length(); j++)
          if (sees(session, query, head, j) &&
              reads(session, query, head, static_cast<uint32_t>(j / block_size)))
            attention.mask[j / 64] |= uint64_t{1} << j % 64;
        const ReferenceRow expected(queries.row(row, h), {0, h, head, start_ + query, 0, length()},
                                    keys, values, attention);
        for (uint32_t d = 0; d < out.dim(); d++)
          worst = worse(std::abs(double{out.get(row, h, d)} - expected.out[d]) /
                            expected.tolerance(d, out.dtype()),
                        worst);
        const double found = double{lse[size_t{row} * model_.query_heads + h]};
        worst = worse(
            found == expected.lse ? 0 : std::abs(found - expected.lse) / expected.lse_tolerance,
            worst);
      }
    }
    return worst;
  }

  // The chosen blocks, given as lists, give the same result, also in the caller's memory.
  void check_lists(const Batch& batch, Rows& q, const Rows& out) {
    AttentionParams params = params_;
    params.lse = nullptr;
    if (params.own_blocks.top_blocks != 0) {
      params.own_blocks.lists = chosen_.data();
      params.own_blocks.list_blocks = std::exchange(params.own_blocks.top_blocks, 0);
      params.own_blocks.together = 0;
      params.own_blocks.chosen = nullptr;
    }
    Rows of_batch(rows_count(), model_.query_heads, model_.values()), of_memory = of_batch;
    const pkv_tensor queries = q.tensor(), to_batch = of_batch.tensor(),
                     to_memory = of_memory.tensor();
    CHECK(pkv_batch_attend(batch, 0, &params, &queries, &to_batch));
    expect_close(out, of_batch);
    if (model_.window != 0 || std::count(dropped_.begin(), dropped_.end(), true) != 0) return;
    const pkv_kv_view view = kv_view_of(cache_, 0);
    std::vector<uint32_t> tables;
    for (const Session& session : sessions_) {
      const std::vector<uint32_t> table = block_table(session);
      tables.insert(tables.end(), table.begin(), table.end());
      ASSERT_EQ(blocks(), table.size());
    }
    const std::vector<uint32_t> query_lengths(sessions_.size(), tokens_);
    const std::vector<uint64_t> kv_lengths(sessions_.size(), length());
    auto sequences = sequences_of(model_.query_heads, query_lengths, kv_lengths, tables);
    CHECK(pkv_kv_attend(compute_.get(), &view, &sequences, &params, &queries, &to_memory));
    EXPECT_TRUE(of_batch == of_memory);
  }

  // Queries with equal lists may be computed together now, so sums may have another order.
  void expect_close(const Rows& a, const Rows& b) const {
    a.each([&](size_t row, uint32_t h, uint32_t d) {
      ASSERT_NEAR(a.get(row, h, d), b.get(row, h, d), 1e-2 * (1 + std::abs(a.get(row, h, d))));
    });
  }

  // The mass of a head is spread over the blocks that it sees.
  void check_mass(const Batch& batch, Rows& q) {
    if (params_.own_blocks.top_blocks != 0) return;
    AttentionParams params = params_;
    params.lse = nullptr;
    std::vector<float> mass(sessions_.size() * model_.query_heads * blocks(), -1);
    params.weigh(mass.data(), blocks());
    Rows out(rows_count(), model_.query_heads, model_.values());
    const pkv_tensor queries = q.tensor(), outputs = out.tensor();
    CHECK(pkv_batch_attend(batch, 0, &params, &queries, &outputs));
    for (uint32_t s = 0; s < sessions_.size(); s++)
      for (uint32_t h = 0; h < model_.query_heads; h++) {
        const uint32_t head = h / (model_.query_heads / model_.kv_heads);
        double sum = 0, expected = 0;
        for (uint32_t block = 0; block < blocks(); block++) {
          const float one = mass[(size_t{s} * model_.query_heads + h) * blocks() + block];
          ASSERT_GE(one, 0) << "session " << s << ", head " << h << ", block " << block;
          sum += double{one};
          bool seen = false;
          for (uint32_t i = 0; i < tokens_; i++)
            for (uint64_t j = uint64_t{block} * block_size;
                 j < std::min(length(), (block + uint64_t{1}) * block_size); j++)
              seen |= sees(s, i, head, j);
          EXPECT_TRUE(seen || one == 0) << "session " << s << ", head " << h << ", block " << block;
        }
        for (uint32_t i = 0; i < tokens_; i++)
          for (uint64_t j = 0; j < length(); j++)
            if (sees(s, i, head, j)) {
              expected++;
              break;
            }
        EXPECT_NEAR(expected, sum, 1e-3 * (1 + expected));
      }
  }

  const Model model_;
  Random random_;
  Compute compute_;
  Cache cache_;
  std::vector<Session> sessions_;
  uint64_t start_ = 0;
  uint32_t tokens_ = 1;
  std::vector<bool> dropped_;  // blocks
  Masking masking_ = Masking::none;
  AttentionParams params_;
  std::vector<uint32_t> windows_, sinks_, given_sinks_;  // by KV head
  std::vector<uint64_t> words_;
  std::vector<int32_t> parents_;
  std::vector<uint8_t> bytes_;
  std::vector<int64_t> first_positions_;
  int64_t first_position_ = 0;
  uint64_t columns_ = 0;
  std::vector<uint32_t> chosen_;
};

const Model models[] = {
    {1, 4, 4, 32, 48, PKV_F32},
    {1, 6, 2, 64, 64, PKV_BF16},
    {1, 8, 2, 48, 32, PKV_F16},
    {1, 6, 3, 64, 64, PKV_INT8},
    {1, 4, 2, 32, 32, PKV_INT8, 0, PKV_INT4},
    {1, 4, 2, 64, 32, PKV_INT4, 0, PKV_FP8_E5M2},
    {1, 3, 3, 16, 16, PKV_FP8_E4M3},
};

TEST(HeadWindows, MasksAndChosenBlocksEqualTheReference) {
  uint64_t seed = pkv::test::first_seed() - 1;
  for (const pkv_isa isa : supported_isas()) {
    for (const Model& model : models) {
      for (const pkv_layout layout : {PKV_LAYOUT_PACKED, PKV_LAYOUT_PLAIN}) {
        for (uint64_t round = 0; round < pkv::test::rounds(3); round++) {
          SCOPED_TRACE(testing::Message() << pkv_isa_name(isa) << ", " << name_of(model.dtype)
                                          << ", layout " << layout << ", seed " << ++seed);
          Model drawn = model;
          if (round % 3 == 2) drawn.window = 90, drawn.sinks = 20;
          Step(drawn, layout, isa, seed).run();
          if (testing::Test::HasFailure()) return;
        }
      }
    }
  }
}

}  // namespace
}  // namespace cache_test::head_windows_test
