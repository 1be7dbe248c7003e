// Rows, positions and masks as hosts have them: padded batches with heads before or after tokens,
// padding on either side, queries at positions that the host names, masks of bytes, and trees by
// their parents. Each gives the bits of the same call with dense rows and words. `attention`
// compares such calls with textbook attention.
#include <cstring>
#include <functional>

#include "host.h"

namespace cache_test::host_rows_test {
namespace {

constexpr uint32_t heads = 6, kv_heads = 2, dim = 32, value_dim = 48;
const Model model{1, heads, kv_heads, dim, value_dim, PKV_F32};

// [batch][n][heads][dim], [batch][heads][n][dim], [n][batch][heads][dim] and
// [heads][n][batch][dim].
enum class Order { tokens_heads, heads_tokens, batch_inside, heads_outside };
constexpr Order orders[] = {Order::tokens_heads, Order::heads_tokens, Order::batch_inside,
                            Order::heads_outside};

// A padded batch of fp32 rows. Padding holds 7.
class Padded {
 public:
  Padded(const std::vector<uint32_t>& rows, uint32_t n, uint32_t head_count, uint32_t width,
         Order order, bool left)
      : rows_(rows),
        n_(n),
        heads_(head_count),
        width_(width),
        order_(order),
        left_(left),
        data_(rows.size() * n * head_count * width, 7.0f) {}
  Padded(const Rows& dense, const std::vector<uint32_t>& rows, uint32_t n, Order order, bool left)
      : Padded(rows, n, dense.heads(), dense.dim(), order, left) {
    each([&](size_t at, size_t row, uint32_t head, uint32_t d) {
      data_[at] = dense.get(row, head, d);
    });
  }

  pkv_tensor tensor() {
    const Strides strides = strides_of();
    // Dense strides are left to the library.
    const uint64_t bytes = data_.size() * sizeof data_[0];
    if (order_ == Order::tokens_heads)
      return {data_.data(), PKV_F32, 0, 0, 0, strides.batch, bytes};
    return {data_.data(), PKV_F32, 0, strides.row, strides.head, strides.batch, bytes};
  }
  std::vector<uint32_t> first_rows() const {
    std::vector<uint32_t> first;
    for (const uint32_t count : rows_) first.push_back(left_ ? n_ - count : 0);
    return first;
  }
  Rows dense() const {
    Rows all(std::accumulate(rows_.begin(), rows_.end(), size_t{0}), heads_, width_);
    each([&](size_t at, size_t row, uint32_t head, uint32_t d) {
      all.set(row, head, d, data_[at]);
    });
    return all;
  }
  bool padding_untouched() const {
    std::vector<bool> used(data_.size());
    each([&](size_t at, size_t, uint32_t, uint32_t) { used[at] = true; });
    for (size_t i = 0; i < data_.size(); i++)
      if (!used[i] && data_[i] != 7.0f) return false;
    return true;
  }

 private:
  struct Strides {
    int64_t batch, row, head;
  };
  Strides strides_of() const {
    const int64_t batch = static_cast<int64_t>(rows_.size()), n = n_, h = heads_, d = width_;
    switch (order_) {
      case Order::tokens_heads:
        return {n * h * d, h * d, d};
      case Order::heads_tokens:
        return {n * h * d, d, n * d};
      case Order::batch_inside:
        return {h * d, batch * h * d, d};
      default:
        return {d, batch * d, n * batch * d};
    }
  }

  void each(const std::function<void(size_t, size_t, uint32_t, uint32_t)>& visit) const {
    const Strides strides = strides_of();
    size_t row = 0;
    for (size_t s = 0; s < rows_.size(); s++)
      for (uint32_t i = 0; i < rows_[s]; i++, row++) {
        const uint32_t at = left_ ? n_ - rows_[s] + i : i;
        for (uint32_t h = 0; h < heads_; h++)
          for (uint32_t d = 0; d < width_; d++)
            visit(s * static_cast<size_t>(strides.batch) + at * static_cast<size_t>(strides.row) +
                      h * static_cast<size_t>(strides.head) + d,
                  row, h, d);
      }
  }

  std::vector<uint32_t> rows_;
  uint32_t n_, heads_, width_;
  Order order_;
  bool left_;
  std::vector<float> data_;
};

// Sequences of a host whose positions before the step are written already.
class HostRows : public testing::Test {
 protected:
  HostRows(std::vector<uint32_t> rows = {5, 1, 0, 20},
           std::vector<uint64_t> lengths = {60, 33, 2, 20})
      : host(memory, heads, std::move(rows), std::move(lengths), random),
        total(host.total_rows()),
        written(rows_of(model, total)),
        q(total, heads, dim) {
    for (size_t s = 0; s < host.rows.size(); s++) {
      const uint64_t before = host.kv_lengths[s] - host.rows[s];
      KeysValues old = rows_of(model, before);
      const pkv_tensor k = old.k.fill(random).tensor(), v = old.v.fill(random).tensor();
      std::vector<int64_t> slots;
      for (uint64_t p = 0; p < before; p++) slots.push_back(host.slot(s, p));
      CHECK(pkv_kv_write_slots(nullptr, &memory.view, before, slots.data(), &k, &v));
    }
    written.k.fill(random);
    written.v.fill(random);
    q.fill(random);
    write(host.get(), written.k.tensor(), written.v.tensor());
  }

  void write(const pkv_kv_sequences& sequences, const pkv_tensor& k, const pkv_tensor& v) {
    CHECK(pkv_kv_write(nullptr, &memory.view, &sequences, &k, &v));
  }
  pkv_status try_attend(const pkv_kv_sequences& sequences, const pkv_attention_params& given,
                        Rows& out) {
    const pkv_tensor queries = q.tensor(), outputs = out.tensor();
    return pkv_kv_attend(nullptr, &memory.view, &sequences, &given, &queries, &outputs, nullptr);
  }
  pkv_status try_attend(const pkv_kv_sequences& sequences, const pkv_attention_params& given) {
    Rows out(total, heads, value_dim);
    return try_attend(sequences, given, out);
  }
  Rows attend(const pkv_kv_sequences& sequences, const pkv_attention_params& given) {
    Rows out(total, heads, value_dim);
    CHECK(try_attend(sequences, given, out));
    return out;
  }

  Random random{71};
  HostMemory memory{model, PKV_LAYOUT_PACKED, 16, 20};
  HostSequences host;
  const uint32_t total;
  KeysValues written;
  Rows q;
};

TEST_F(HostRows, PaddedBatches) {
  const Rows expected = attend(host.get(), AttentionParams());
  const std::vector<unsigned char> bytes = memory.bytes;
  for (const bool left : {false, true})
    for (const Order order : orders)
      for (const Order out_order : orders) {
        Padded k(written.k, host.rows, 23, order, left), v(written.v, host.rows, 23, order, left),
            queries(q, host.rows, 23, order, left),
            out(host.rows, 23, heads, value_dim, out_order, left);
        const std::vector<uint32_t> first = k.first_rows();
        pkv_kv_sequences sequences = host.get();
        if (left) sequences.first_rows = first.data();
        write(sequences, k.tensor(), v.tensor());
        EXPECT_TRUE(bytes == memory.bytes);
        const AttentionParams given;
        const pkv_tensor from = queries.tensor(), to = out.tensor();
        CHECK(pkv_kv_attend(nullptr, &memory.view, &sequences, &given, &from, &to, nullptr));
        EXPECT_TRUE(expected == out.dense());
        EXPECT_TRUE(out.padding_untouched());
      }
}

// The memory of a padded batch ends with the last row of its last sequence.
TEST_F(HostRows, RefusesRowsThatReachPastTheirMemory) {
  for (const Order order : orders) {
    Padded queries(q, host.rows, 20, order, true),
        out(host.rows, 20, heads, value_dim, order, true);
    const std::vector<uint32_t> first = queries.first_rows();
    pkv_kv_sequences sequences = host.get();
    sequences.first_rows = first.data();
    const auto attend_to = [&](const pkv_tensor& from, const pkv_tensor& to) {
      return pkv_kv_attend(nullptr, &memory.view, &sequences, nullptr, &from, &to, nullptr);
    };
    const pkv_tensor from = queries.tensor(), to = out.tensor();
    CHECK(attend_to(from, to));
    pkv_tensor shorter = from;
    shorter.bytes--;
    REFUSED(PKV_INVALID_ARGUMENT, attend_to(shorter, to));
    EXPECT_EQ("q: 80 rows of 6 heads of 32 reach over " + std::to_string(from.bytes) +
                  " bytes; bytes is " + std::to_string(shorter.bytes),
              pkv_last_error());
    shorter = to;
    shorter.bytes--;
    REFUSED(PKV_INVALID_ARGUMENT, attend_to(from, shorter));
    shorter.bytes = 0;  // not known
    CHECK(attend_to(from, shorter));
  }
}

// Rows with gaps between sequences, and the cumulative lengths of a batch without gaps.
TEST_F(HostRows, PackedRowsFromFirstRows) {
  const Rows expected = attend(host.get(), AttentionParams());
  pkv_kv_sequences sequences = host.get();
  const uint32_t cumulative[] = {0, 5, 6, 6};
  sequences.first_rows = cumulative;
  EXPECT_TRUE(expected == attend(sequences, AttentionParams()));
  const uint32_t gaps[] = {3, 10, 0, 11};
  sequences.first_rows = gaps;
  Rows apart(31, heads, dim), out(31, heads, value_dim);
  apart.copy(3, q, 0, 5);
  apart.copy(10, q, 5, 1);
  apart.copy(11, q, 6, 20);
  const pkv_tensor from = apart.tensor(), to = out.tensor();
  CHECK(pkv_kv_attend(nullptr, &memory.view, &sequences, nullptr, &from, &to, nullptr));
  EXPECT_TRUE(expected.slice(0, 5) == out.slice(3, 5));
  EXPECT_TRUE(expected.slice(5, 21) == out.slice(10, 21));
  const uint32_t same[] = {0, 4, 4, 5};
  sequences.first_rows = same;
  REFUSED(PKV_INVALID_ARGUMENT,
          pkv_kv_attend(nullptr, &memory.view, &sequences, nullptr, &from, &to, nullptr));
}

// A sequence has the same rows of a mask of bytes wherever its rows are in a tensor. (The last row
// of the mask is that of the last query, so an offset would read beyond it.)
TEST_F(HostRows, PackedRowsFromFirstRowsKeepTheirMasks) {
  constexpr size_t columns = 60, rows = 20;
  std::vector<uint8_t> bytes(4 * rows * columns);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random.between(0, 1));
  const auto mask = made<pkv_mask>({.kind = PKV_MASK_BYTES,
                                    .data = bytes.data(),
                                    .row_stride = columns,
                                    .batch_stride = rows * columns,
                                    .columns = columns});
  AttentionParams given;
  given.mask = &mask;
  const Rows expected = attend(host.get(), given);
  pkv_kv_sequences sequences = host.get();
  const uint32_t cumulative[] = {0, 5, 6, 6};
  sequences.first_rows = cumulative;
  EXPECT_TRUE(expected == attend(sequences, given));
}

TEST_F(HostRows, RefusesPaddedBatchesWhoseSequencesMeet) {
  const pkv_kv_sequences sequences = host.get();
  Rows wide(4 * 64, heads, value_dim);
  constexpr int64_t all = heads * value_dim;
  for (const auto& [batch, row, head] : {std::tuple<int64_t, int64_t, int64_t>{20 * all - 1, 0, 0},
                                         {20 * all, value_dim, 0},
                                         {20 * all - 1, value_dim, 20 * value_dim},
                                         {all - 1, 4 * all, 0},
                                         {all, 4 * all - 1, 0},
                                         {value_dim, 4 * value_dim, 80 * value_dim - 1}}) {
    pkv_tensor out = wide.tensor();
    out.row_stride = row, out.head_stride = head, out.batch_stride = batch;
    const pkv_tensor from = q.tensor();
    REFUSED(PKV_INVALID_ARGUMENT,
            pkv_kv_attend(nullptr, &memory.view, &sequences, nullptr, &from, &out, nullptr))
        << batch;
    EXPECT_TRUE(std::strstr(pkv_last_error(), "overlap") != nullptr) << pkv_last_error();
  }
}

// The two defaults that could be taken for a broadcast.
TEST_F(HostRows, RefusesHeadStridesBesideDenseRows) {
  const pkv_kv_sequences sequences = host.get();
  pkv_tensor from = q.tensor(), out = Rows(total, heads, value_dim).tensor();
  from.row_stride = 0, from.head_stride = 2 * dim;
  REFUSED(PKV_INVALID_ARGUMENT,
          pkv_kv_attend(nullptr, &memory.view, &sequences, nullptr, &from, &out, nullptr));
  EXPECT_STREQ("q: row_stride is 0 (dense), but head_stride is 64; dense heads are 32 apart",
               pkv_last_error());
}

TEST_F(HostRows, QueriesAtTheLastPositionsAreWhatTheyAreWithoutNames) {
  pkv_kv_sequences sequences = host.get();
  std::vector<int64_t> last;
  for (size_t s = 0; s < host.rows.size(); s++)
    for (uint32_t i = 0; i < host.rows[s]; i++)
      last.push_back(static_cast<int64_t>(host.kv_lengths[s] - host.rows[s] + i));
  sequences.query_positions = last.data();
  for (const uint32_t window : {0u, 7u}) {
    AttentionParams given;
    given.window = window;
    given.sink_tokens = window == 0 ? 0 : 2;
    const Rows expected = attend(host.get(), given);
    EXPECT_TRUE(expected == attend(sequences, given));
  }
  const std::vector<unsigned char> bytes = memory.bytes;
  write(sequences, written.k.tensor(), written.v.tensor());
  EXPECT_TRUE(bytes == memory.bytes);
}

// What is said of the new tokens of a text, and the choice of its blocks, need the queries to be
// its last positions.
TEST_F(HostRows, RefusesChoicesAndMasksOfMoreQueriesThanPositions) {
  pkv_kv_sequences sequences = host.get();
  const std::vector<uint64_t> short_lengths = {3, 33, 2, 20};
  const std::vector<int64_t> anywhere(total, 0);
  sequences.kv_lengths = short_lengths.data();
  sequences.query_positions = anywhere.data();
  const std::vector<int32_t> parents(total, -1);
  const std::vector<uint64_t> words(total, 1);
  AttentionParams tree, mask, choice;
  tree.see_tree(parents.data());
  mask.see_bits(words.data(), 1);
  const std::vector<uint32_t> first_blocks(total * model.kv_heads, 0);
  choice.choose(first_blocks.data(), 1);
  for (const pkv_attention_params* given : {&tree, &mask}) {
    REFUSED(PKV_INVALID_ARGUMENT, try_attend(sequences, *given));
    EXPECT_NE(nullptr, std::strstr(pkv_last_error(), "5 new tokens but 3 positions"))
        << pkv_last_error();
  }
  REFUSED(PKV_UNSUPPORTED, try_attend(sequences, choice));
  EXPECT_NE(nullptr, std::strstr(pkv_last_error(), "query_positions")) << pkv_last_error();
  sequences.query_positions = nullptr;
  REFUSED(PKV_OUT_OF_RANGE, try_attend(sequences, choice));
}

// With causal, a query before the step would see only a part of what was there before.
TEST_F(HostRows, RefusesNewTokensAtPositionsBeforeTheStep) {
  pkv_kv_sequences sequences = host.get();
  std::vector<int64_t> positions;
  for (size_t s = 0; s < host.rows.size(); s++)  // where every new token is a root of a tree
    positions.insert(positions.end(), host.rows[s],
                     static_cast<int64_t>(host.kv_lengths[s] - host.rows[s]));
  sequences.query_positions = positions.data();
  const std::vector<int32_t> parents(total, -1);
  AttentionParams given;
  given.see_tree(parents.data());
  CHECK(try_attend(sequences, given));
  positions[2] = 54;
  CHECK(try_attend(sequences, given));
  positions[2] = 53;
  REFUSED(PKV_OUT_OF_RANGE, try_attend(sequences, given));
  EXPECT_NE(nullptr, std::strstr(pkv_last_error(), "53 in sequence 0")) << pkv_last_error();
  EXPECT_NE(nullptr, std::strstr(pkv_last_error(), "at least 54")) << pkv_last_error();
  given.bidirectional = 1;
  CHECK(try_attend(sequences, given));
  given.window = 100;  // It ends before some tokens that were there before the step.
  REFUSED(PKV_OUT_OF_RANGE, try_attend(sequences, given));
  positions[2] = 54;
  CHECK(try_attend(sequences, given));
}

// Without causal, a window reaches as far after a query as before it, wherever the query is.
TEST_F(HostRows, AWindowOnBothSidesIsABand) {
  constexpr uint64_t columns = 60;
  constexpr int64_t reach = 7, sinks = 3;
  pkv_kv_sequences sequences = host.get();
  std::vector<int64_t> positions;
  std::vector<uint8_t> band(4 * 20 * columns);
  for (size_t s = 0; s < host.rows.size(); s++)
    for (uint32_t i = 0; i < host.rows[s]; i++) {
      positions.push_back(static_cast<int64_t>(random.below(host.kv_lengths[s])));
      for (int64_t j = 0; j < static_cast<int64_t>(columns); j++)
        band[(s * 20 + i) * columns + static_cast<uint64_t>(j)] =
            std::abs(positions.back() - j) < reach || j < sinks;
    }
  sequences.query_positions = positions.data();
  AttentionParams windowed, masked;
  windowed.bidirectional = masked.bidirectional = 1;
  windowed.window = reach;
  windowed.sink_tokens = sinks;
  pkv_mask& mask = masked.see_bytes(band.data());
  mask.columns = mask.row_stride = columns;
  mask.batch_stride = 20 * columns;
  const Rows expected = attend(sequences, masked), found = attend(sequences, windowed);
  for (size_t row = 0; row < total; row++)
    for (uint32_t head = 0; head < heads; head++)
      for (uint32_t d = 0; d < value_dim; d++)
        ASSERT_NEAR(expected.get(row, head, d), found.get(row, head, d), 1e-5) << "row " << row;
}

TEST_F(HostRows, RefusesSlopesOnBothSides) {
  const std::vector<float> slopes(heads, 0.5f);
  AttentionParams given;
  given.alibi_slopes = slopes.data();
  CHECK(try_attend(host.get(), given));
  given.bidirectional = 1;
  REFUSED(PKV_UNSUPPORTED, try_attend(host.get(), given));
}

// With a mask of new tokens, the positions of queries are those of their keys, too. So a window
// hides what is far before them, but not each other, however far they are.
TEST_F(HostRows, NewTokensMoveTogether) {
  pkv_kv_sequences sequences = host.get();
  const std::vector<uint64_t> words(total, (1 << 20) - 1);
  std::vector<int64_t> positions(total, 1000);
  AttentionParams given, moved;
  for (AttentionParams* params : {&given, &moved}) {
    params->see_bits(words.data(), 1);
    params->window = 3;
  }
  REFUSED(PKV_INVALID_ARGUMENT, try_attend(sequences, given));
  EXPECT_NE(nullptr, std::strstr(pkv_last_error(), "needs them")) << pkv_last_error();
  moved.own_mask.positions = positions.data();
  const Rows expected = attend(sequences, moved);
  sequences.query_positions = positions.data();
  EXPECT_TRUE(expected == attend(sequences, given));
  REFUSED(PKV_INVALID_ARGUMENT, try_attend(sequences, moved));
  EXPECT_NE(nullptr, std::strstr(pkv_last_error(), "both set")) << pkv_last_error();
  positions.assign(total, INT64_MAX);
  EXPECT_TRUE(expected == attend(sequences, given));

  // So all blocks of new tokens are read, also those that are far before the last.
  ASSERT_EQ(20u, host.rows[3]);
  host.tables[3 * host.stride] = PKV_NO_BLOCK_ID;
  sequences.block_tables = host.tables.data();
  REFUSED(PKV_OUT_OF_RANGE, try_attend(sequences, given));
}

// A tree by its parents, by words, and by bytes over the new tokens or over all positions.
TEST_F(HostRows, TreesByParents) {
  std::vector<int32_t> parents;
  std::vector<uint64_t> words(total);
  std::vector<uint8_t> bytes(4 * 20 * 20), whole(4 * 20 * 60, 1);
  uint32_t row = 0;
  for (size_t s = 0; s < host.rows.size(); s++) {
    const uint32_t first = row;
    const uint64_t start = host.kv_lengths[s] - host.rows[s];
    for (uint32_t i = 0; i < host.rows[s]; i++, row++) {
      parents.push_back(static_cast<int32_t>(i) - 1 -
                        static_cast<int32_t>(random.below(std::min(i, 4u) + 1)));
      words[row] = uint64_t{1} << i;
      if (parents.back() >= 0) words[row] |= words[first + static_cast<uint32_t>(parents.back())];
      for (uint32_t j = 0; j < host.rows[s]; j++) {
        const uint8_t seen = words[row] >> j & 1 ? static_cast<uint8_t>(1 + random.below(255)) : 0;
        bytes[(s * 20 + i) * 20 + j] = whole[(s * 20 + i) * 60 + start + j] = seen;
      }
    }
  }
  AttentionParams given;
  given.see_bits(words.data(), 1);
  const Rows expected = attend(host.get(), given);
  EXPECT_FALSE(expected == attend(host.get(), AttentionParams()));

  given = AttentionParams();
  given.see_tree(parents.data());
  EXPECT_TRUE(expected == attend(host.get(), given));

  const int64_t starts[] = {55, 32, 2, 0};
  given = AttentionParams();
  pkv_mask& of_new_tokens = given.see_bytes(bytes.data());
  of_new_tokens.columns = of_new_tokens.row_stride = 20;
  of_new_tokens.batch_stride = 20 * 20;
  of_new_tokens.first_positions = starts;
  EXPECT_TRUE(expected == attend(host.get(), given));
  pkv_mask& of_all = given.see_bytes(whole.data());
  of_all.columns = of_all.row_stride = 60;
  of_all.batch_stride = 20 * 60;
  const Rows over_all = attend(host.get(), given);
  expected.each([&](size_t r, uint32_t h, uint32_t d) {
    ASSERT_NEAR(expected.get(r, h, d), over_all.get(r, h, d), 1e-6);
  });

  given = AttentionParams();
  given.see_tree(parents.data());
  for (const int32_t bad : {-2, 2, 3, INT32_MAX}) {
    parents[2] = bad;
    REFUSED(PKV_INVALID_ARGUMENT, try_attend(host.get(), given)) << bad;
  }
}

// The same rows through a cache: padded batches, and trees by parents.
TEST(CacheRows, PaddedBatchesAndTrees) {
  Random random(72);
  const std::vector<uint32_t> rows = {5, 1, 20};
  KeysValues written = random_rows(model, 26, random);
  Rows q(26, heads, dim), expected(26, heads, value_dim);
  q.fill(random);
  std::vector<int32_t> parents;
  for (const uint32_t count : rows)
    for (uint32_t i = 0; i < count; i++)
      parents.push_back(i == 0 ? -1 : static_cast<int32_t>(i / 2));
  parents[1] = 0, parents[7] = 0;
  for (const bool tree : {false, true})
    for (const bool left : {false, true})
      for (const Order order : orders) {
        Cache cache = create(config_of(model, 20));
        std::vector<Session> owned;
        std::vector<pkv_session> sessions;
        for (int i = 0; i < 3; i++) sessions.push_back(owned.emplace_back(open(cache)));
        AttentionParams given;
        if (tree) given.see_tree(parents.data());
        Batch batch = begin(cache, sessions, rows);
        write(batch, 0, written.k, written.v);
        attend(batch, 0, q, expected, &given);
        const KeysValues stored = materialize(sessions[2], 0, model, 0, 20);

        Padded k(written.k, rows, 21, order, left), v(written.v, rows, 21, order, left),
            queries(q, rows, 21, order, left), out(rows, 21, heads, value_dim, order, left);
        const std::vector<uint32_t> first = k.first_rows();
        if (left) CHECK(pkv_batch_set_first_rows(batch, first.size(), first.data()));
        const pkv_tensor keys = k.tensor(), values = v.tensor(), from = queries.tensor(),
                         to = out.tensor();
        CHECK(pkv_batch_write(batch, 0, &keys, &values));
        CHECK(pkv_batch_attend(batch, 0, &given, &from, &to, nullptr));
        EXPECT_TRUE(expected == out.dense());
        EXPECT_TRUE(out.padding_untouched());
        EXPECT_TRUE(stored == materialize(sessions[2], 0, model, 0, 20));
        CHECK(pkv_batch_set_first_rows(batch, 0, nullptr));
        attend(batch, 0, q, expected, &given);
        commit(batch);
      }
}

}  // namespace
}  // namespace cache_test::host_rows_test
