// Draws one call of pkv_kv_attend over the caller's memory: any layout, block size, strides,
// dtypes, dims, sequences, windows, masks and block lists. Every instruction set that runs here
// must give the outputs, the lse and the block mass of textbook attention over the tokens that each
// query sees by the call's description. Numbers that no query may read are not finite, and such
// entries of block tables are not blocks.
#pragma once

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "host.h"
#include "reference.h"

namespace cache_test {

class StatelessPlay {
 public:
  explicit StatelessPlay(Random random) : random_(std::move(random)) {}

  void run() {
    draw_shape();
    draw_sequences();
    draw_params();
    find_seen();
    write_rows();
    hide_table_entries();
    expect();
    for (const pkv_isa isa : supported_isas()) {
      SCOPED_TRACE(describe(isa));
      attend_and_compare(isa);
      if (testing::Test::HasFailure()) return;
    }
  }

 private:
  enum class Masking { none, words, parents, bytes };
  // The rows of a sequence in its tensors: rows that follow each other, rows with gaps between
  // sequences, or those of a padded batch.
  enum class Padding { none, gaps, batch };

  struct Sequence {
    uint64_t length;
    uint32_t queries;
    uint32_t first_query = 0, first_row = 0;
    std::vector<uint32_t> table;

    uint64_t start() const { return length - queries; }
  };
  struct QueryOf {
    uint32_t sequence, index;
  };
  // The reference's result for one query and one query head.
  struct Expected {
    bool poisoned = false;  // it sees a number that is not finite
    std::vector<double> out, tolerance;
    double lse = 0, lse_tolerance = 0;
  };
  struct Mass {
    double sum = 0, tolerance = 0;
    bool poisoned = false;
  };

  uint32_t below(uint64_t n) { return static_cast<uint32_t>(random_.below(n)); }
  uint32_t between(uint32_t first, uint32_t last) {
    return static_cast<uint32_t>(random_.between(first, last));
  }
  uint32_t total_queries() const { return static_cast<uint32_t>(queries_.size()); }
  uint32_t group() const { return model_.query_heads / model_.kv_heads; }
  uint32_t block_size() const { return view_.block_size; }
  uint32_t blocks_of(const Sequence& s) const {
    return static_cast<uint32_t>((s.length + block_size() - 1) / block_size());
  }

  // ---- the memory of the call

  void draw_shape() {
    model_.kv_heads = between(1, 3);
    model_.query_heads = model_.kv_heads * (random_.chance(85) ? between(1, 4) : between(5, 40));
    model_.key_dim = 16 * between(1, 6);
    model_.dtype = stored_dtypes[below(std::size(stored_dtypes))];
    model_.latent = random_.chance(15);
    model_.value_dim = 16 * between(1, model_.latent != 0 ? model_.key_dim / 16 : 6);
    model_.value_dtype =
        model_.latent != 0 ? model_.dtype : stored_dtypes[below(std::size(stored_dtypes))];
    const bool plain = random_.chance(75);
    view_.struct_size = sizeof view_;
    view_.layout = plain ? PKV_LAYOUT_PLAIN : PKV_LAYOUT_PACKED;
    view_.block_size = !plain               ? 16 * between(1, 4)
                       : random_.chance(50) ? between(1, 20)
                                            : between(1, 64);
    view_.kv_heads = model_.kv_heads;
    view_.key_dim = model_.key_dim;
    view_.value_dim = model_.value_dim;
    view_.dtype = model_.dtype;
    view_.value_dtype = model_.value_dtype;
  }

  void draw_sequences() {
    const uint32_t count = between(1, 4);
    const bool prompt = random_.chance(30);
    names_positions_ = random_.chance(15);
    for (uint32_t s = 0; s < count; s++) {
      Sequence one{};
      one.length = random_.chance(5) ? 0 : random_.chance(70) ? between(1, 90) : between(1, 400);
      const uint32_t most = prompt ? 40 : random_.chance(50) ? 1 : 6;
      const auto room = static_cast<uint32_t>(one.length);
      // Queries at given positions may outnumber the positions.
      one.queries = std::min(names_positions_ && room > 0 ? UINT32_MAX : room, below(most + 1));
      sequences_.push_back(one);
    }
    view_.blocks = 1 + below(10);
    for (const Sequence& one : sequences_) view_.blocks += blocks_of(one);
    draw_tables();
    for (uint32_t s = 0; s < count; s++) {
      sequences_[s].first_query = total_queries();
      for (uint32_t i = 0; i < sequences_[s].queries; i++) queries_.push_back({s, i});
    }
    draw_rows();
    if (names_positions_)
      for (const QueryOf& query : queries_)
        positions_.push_back(draw_position(sequences_[query.sequence]));
  }

  int64_t draw_position(const Sequence& one) {
    if (random_.chance(4)) return random_.pick({INT64_MAX, int64_t{1} << 40});
    return static_cast<int64_t>(below(one.length + 40));
  }

  // A sequence may begin with blocks of the one before it.
  void draw_tables() {
    std::vector<uint32_t> ids(view_.blocks);
    std::iota(ids.begin(), ids.end(), 0u);
    for (size_t i = ids.size(); i > 1; i--) std::swap(ids[i - 1], ids[below(i)]);
    const bool shares = random_.chance(40);
    for (size_t s = 0; s < sequences_.size(); s++) {
      std::vector<uint32_t>& table = sequences_[s].table;
      if (s > 0 && shares) {
        table = sequences_[s - 1].table;
        table.resize(std::min(table.size(), size_t{blocks_of(sequences_[s])}));
        if (!table.empty()) table.resize(table.size() - below(std::min<size_t>(3, table.size())));
      }
      while (table.size() < blocks_of(sequences_[s])) {
        table.push_back(ids.back());
        ids.pop_back();
      }
    }
  }

  void draw_rows() {
    padding_ = random_.chance(70)   ? Padding::none
               : random_.chance(50) ? Padding::gaps
                                    : Padding::batch;
    tensor_rows_ = 0;
    for (Sequence& one : sequences_) {
      const uint32_t gap = padding_ == Padding::none ? 0 : below(3);
      if (padding_ == Padding::batch) {
        one.first_row = gap;
        batch_rows_ = std::max(batch_rows_, gap + one.queries + below(2));
      } else {
        one.first_row = tensor_rows_ + gap;
        tensor_rows_ = one.first_row + one.queries;
      }
    }
    if (padding_ == Padding::batch) {
      batch_rows_ = std::max(batch_rows_, 1u);
      tensor_rows_ = batch_rows_ * static_cast<uint32_t>(sequences_.size());
    }
  }

  uint32_t row_of(const QueryOf& query) const {
    return (padding_ == Padding::batch ? query.sequence * batch_rows_ : 0) +
           sequences_[query.sequence].first_row + query.index;
  }

  // ---- the parameters

  void draw_params() {
    params_ = AttentionParams();
    params_.bidirectional = !random_.chance(75);
    if (random_.chance(20)) params_.scale = 0.3f * random_.pick({1.0f, -1.0f});
    if (random_.chance(20)) params_.softcap = static_cast<float>(between(1, 40));
    if (random_.chance(15)) params_.sink_logits = numbers(logits_, 2);
    draw_windows();
    draw_mask();
    if (random_.chance(25) && positions_.empty())
      draw_lists();
    else if (random_.chance(20) && !far_away())
      params_.alibi_slopes = numbers(slopes_, 0.2f);
    if (lists_.empty() && random_.chance(60)) draw_mass();
  }

  const float* numbers(std::vector<float>& list, float amplitude) {
    for (uint32_t h = 0; h < model_.query_heads; h++)
      list.push_back(amplitude * (static_cast<float>(below(256)) / 128 - 1));
    return list.data();
  }

  void draw_windows() {
    if (random_.chance(50)) return;
    if (random_.chance(50)) {
      params_.window = 1 + below(70);
      params_.sinks = random_.chance(50) ? below(40) : 0;
      return;
    }
    for (uint32_t head = 0; head < model_.kv_heads; head++) {
      windows_.push_back(random_.chance(25) ? 0 : 1 + below(70));
      sinks_.push_back(random_.chance(50) ? below(40) : 0);
    }
    params_.head_windows = windows_.data();
    if (random_.chance(50))
      params_.head_sinks = sinks_.data();
    else
      sinks_.clear();
  }

  void draw_mask() {
    masking_ = random_.chance(40) ? Masking::none : static_cast<Masking>(1 + below(3));
    const bool of_new_tokens = masking_ == Masking::words || masking_ == Masking::parents;
    if (of_new_tokens && !all_are_positions())
      masking_ = Masking::none;
    else if (of_new_tokens && params_.bidirectional == 0)
      move_into_step();
    if (masking_ == Masking::words) {
      mask_words_ = 1 + below(2);
      const unsigned shown = random_.pick({0u, 20u, 60u, 100u});
      words_.assign(std::max<size_t>(1, total_queries() * mask_words_), 0);
      for (size_t i = 0; i < words_.size() * 64; i++)
        words_[i / 64] |= uint64_t{random_.chance(shown)} << i % 64;
      params_.see_bits(words_.data(), static_cast<int64_t>(mask_words_));
    } else if (masking_ == Masking::parents) {
      for (const QueryOf& query : queries_)
        parents_.push_back(static_cast<int32_t>(below(query.index + 1)) - 1);
      parents_.push_back(-1);
      params_.see_tree(parents_.data());
    } else if (masking_ == Masking::bytes) {
      draw_bytes();
    }
  }

  // Whether fp32 cannot distinguish the distances from a query to the tokens.
  bool far_away() const {
    return std::any_of(positions_.begin(), positions_.end(),
                       [](int64_t position) { return position > 1 << 20; });
  }

  // Moves positions that are not allowed with a causal mask of new tokens.
  void move_into_step() {
    for (uint32_t row = 0; row < positions_.size(); row++) {
      const auto start = static_cast<int64_t>(sequences_[queries_[row].sequence].start());
      positions_[row] = std::max(positions_[row], start - 1);
    }
  }

  // Whether each query is one of the positions of its sequence.
  bool all_are_positions() const {
    return std::all_of(sequences_.begin(), sequences_.end(),
                       [](const Sequence& one) { return one.queries <= one.length; });
  }

  void draw_bytes() {
    uint64_t longest = 0, rows = 1;
    for (const Sequence& one : sequences_) {
      longest = std::max(longest, one.length);
      rows = std::max(rows, uint64_t{mask_row(one)} + one.queries);
    }
    columns_ = longest + below(3);
    if (random_.chance(50)) {
      for (const Sequence& one : sequences_) {
        const int64_t first = random_.chance(50) ? -static_cast<int64_t>(below(5))
                                                 : static_cast<int64_t>(below(one.length + 2));
        first_positions_.push_back(first);
      }
      columns_ += 5;
    }
    pkv_mask& mask = params_.see_bytes(nullptr);
    if (!first_positions_.empty()) mask.first_positions = first_positions_.data();
    mask.columns = columns_;
    mask.row_stride = random_.chance(20) ? 0 : static_cast<int64_t>(columns_ + below(3));
    mask.batch_stride = random_.chance(20) ? 0 : mask.row_stride * static_cast<int64_t>(rows) + 1;
    bytes_.assign(columns_ + static_cast<size_t>(mask.row_stride) * (rows - 1) +
                      static_cast<size_t>(mask.batch_stride) * (sequences_.size() - 1),
                  0);
    // Runs of equal bytes, so that whole blocks are hidden as well.
    const unsigned shown = random_.pick({0u, 15u, 50u, 100u});
    for (size_t i = 0, left = 0; i < bytes_.size(); i++, left--) {
      if (left == 0) left = 1 + below(random_.chance(50) ? 4 : 80);
      bytes_[i] = left > 1 && i > 0 && !random_.chance(3)
                      ? bytes_[i - 1]
                      : static_cast<uint8_t>(random_.chance(shown) ? 1 + below(255) : 0);
    }
    mask.data = bytes_.data();
  }

  uint32_t mask_row(const Sequence& one) const {
    return padding_ == Padding::none ? 0 : one.first_row;
  }

  void draw_lists() {
    const uint32_t first = below(3), last = below(3);
    list_size_ = 1 + below(6);
    for (const QueryOf& query : queries_)
      for (uint32_t head = 0; head < model_.kv_heads; head++) {
        std::set<uint32_t> list;
        for (uint32_t n = below(list_size_ + 1); n > 0; n--)
          list.insert(below(blocks_of(sequences_[query.sequence])));
        lists_.insert(lists_.end(), list.begin(), list.end());
        lists_.insert(lists_.end(), list_size_ - list.size(), PKV_NO_BLOCK);
      }
    lists_.push_back(0);
    pkv_chosen_blocks& chosen = params_.choose(lists_.data(), list_size_);
    chosen.first_blocks = first;
    chosen.last_blocks = last;
  }

  void draw_mass() {
    for (const Sequence& one : sequences_)
      params_.own_mass.blocks = std::max<uint64_t>(params_.own_mass.blocks, blocks_of(one));
    params_.own_mass.blocks += random_.chance(50) ? 0 : below(4);
    params_.own_mass.queries = random_.chance(30) ? 1 + below(5) : 0;
    wants_mass_ = true;
  }

  // ---- what each query sees

  int64_t position_of(uint32_t row) const {
    if (!positions_.empty()) return positions_[row];
    const QueryOf& query = queries_[row];
    return static_cast<int64_t>(sequences_[query.sequence].start() + query.index);
  }

  bool sees(uint32_t row, uint32_t head, uint64_t j) const {
    const Sequence& s = sequences_[queries_[row].sequence];
    const auto position = static_cast<uint64_t>(position_of(row));
    const uint32_t window = windows_.empty() ? params_.window : windows_[head],
                   sinks = sinks_.empty() ? params_.sinks : sinks_[head];
    if (window != 0 && j + window <= position && j >= sinks) return false;
    if (!reads(row, head, static_cast<uint32_t>(j / block_size()))) return false;
    const bool is_new = j >= s.start();
    if (masking_ == Masking::words && is_new)
      return (words_[row * mask_words_ + (j - s.start()) / 64] >> (j - s.start()) % 64 & 1) != 0;
    if (masking_ == Masking::parents && is_new) return is_ancestor(row, j - s.start());
    return (params_.bidirectional != 0 || j <= position) && shown_by_bytes(row, j);
  }

  bool is_ancestor(uint32_t row, uint64_t token) const {
    const QueryOf& query = queries_[row];
    int64_t at = query.index;
    while (at >= 0 && at != static_cast<int64_t>(token))
      at = parents_[row - query.index + static_cast<size_t>(at)];
    return at >= 0;
  }

  bool shown_by_bytes(uint32_t row, uint64_t j) const {
    if (masking_ != Masking::bytes) return true;
    const QueryOf& query = queries_[row];
    const int64_t first = first_positions_.empty() ? 0 : first_positions_[query.sequence];
    if (static_cast<int64_t>(j) < first) return true;
    const uint64_t line = mask_row(sequences_[query.sequence]) + query.index;
    return bytes_[query.sequence * static_cast<size_t>(params_.own_mask.batch_stride) +
                  line * static_cast<size_t>(params_.own_mask.row_stride) +
                  static_cast<size_t>(static_cast<int64_t>(j) - first)] != 0;
  }

  bool reads(uint32_t row, uint32_t head, uint32_t block) const {
    if (lists_.empty()) return true;
    const Sequence& s = sequences_[queries_[row].sequence];
    const auto step = static_cast<uint32_t>(s.start() / block_size());
    if (block < std::min(params_.own_blocks.first_blocks, step)) return true;
    if (block + std::min(params_.own_blocks.last_blocks, step) >= step) return true;
    const auto list = lists_.begin() + static_cast<std::ptrdiff_t>(
                                           (size_t{row} * model_.kv_heads + head) * list_size_);
    return std::find(list, list + list_size_, block) != list + list_size_;
  }

  uint64_t slot_of(const Sequence& s, uint64_t j) const {
    return uint64_t{s.table[j / block_size()]} * block_size() + j % block_size();
  }

  void find_seen() {
    seen_.assign(view_.blocks * block_size() * model_.kv_heads, false);
    for (uint32_t row = 0; row < total_queries(); row++) {
      const Sequence& s = sequences_[queries_[row].sequence];
      for (uint32_t head = 0; head < model_.kv_heads; head++)
        for (uint64_t j = 0; j < s.length; j++)
          if (sees(row, head, j)) seen_[slot_of(s, j) * model_.kv_heads + head] = true;
    }
  }

  // ---- the content of the memory

  // Makes a view with its own strides: blocks, rows and heads in any order, with gaps.
  void lay_out() {
    pkv_kv_view unit = view_;
    unit.kv_heads = 2, unit.block_size = view_.layout == PKV_LAYOUT_PACKED ? 16 : 1,
    unit.blocks = 1;
    unit.k = nullptr;
    uint64_t size = 0;
    CHECK(pkv_kv_view_plan(&unit, model_.latent, &size));
    const size_t offset = view_.layout == PKV_LAYOUT_PACKED ? 0 : 4 * below(3);
    const auto side = [&](int64_t extent, pkv_dtype dtype, int64_t& block, int64_t& row,
                          int64_t& head, std::vector<unsigned char>& bytes) {
      struct Axis {
        int64_t* stride;
        uint64_t count;
      };
      std::vector<Axis> axes = {
          {&block, view_.blocks},
          {&row, view_.layout == PKV_LAYOUT_PACKED ? block_size() / 16 : block_size()},
          {&head, view_.kv_heads}};
      for (size_t i = axes.size(); i > 1; i--) std::swap(axes[i - 1], axes[below(i)]);
      for (const Axis& axis : axes) {
        *axis.stride = extent + (view_.layout == PKV_LAYOUT_PACKED ? 64 * below(2) : below(4));
        extent = *axis.stride * static_cast<int64_t>(axis.count);
      }
      const size_t element = dtype == PKV_F32 ? 4 : dtype == PKV_F16 || dtype == PKV_BF16 ? 2 : 1;
      bytes.assign(static_cast<size_t>(extent) * element + offset + 64,
                   random_.pick<unsigned char>({0xEE, 0xFF, 0x7F}));
      void* to = bytes.data();
      size_t room = bytes.size();
      return static_cast<void*>(static_cast<unsigned char*>(std::align(64, room - 64, to, room)) +
                                offset);
    };
    view_.k = side(unit.k_head_stride, model_.dtype, view_.k_block_stride, view_.k_row_stride,
                   view_.k_head_stride, k_bytes_);
    if (model_.latent == 0)
      view_.v = side(unit.v_head_stride, model_.values_dtype(), view_.v_block_stride,
                     view_.v_row_stride, view_.v_head_stride, v_bytes_);
  }

  // Fills the memory. Numbers that no query sees are not finite, and sometimes a number that some
  // queries see.
  void write_rows() {
    lay_out();
    Random random(below(1 << 16));
    const size_t slots = view_.blocks * block_size();
    stored_ = rows_of(model_, slots);
    stored_.k.fill(random, random_.pick({1.0f, 1.0f, 8.0f}));
    stored_.v.fill(random);
    poisoned_.assign(slots * model_.kv_heads, false);
    const unsigned few = random_.chance(15) ? 2 : 0;
    for (size_t i = 0; i < poisoned_.size(); i++)
      if (random.chance(seen_[i] ? few : 60)) poison(i, random);
    std::vector<int64_t> ids(slots);
    std::iota(ids.begin(), ids.end(), 0);
    const pkv_tensor k = stored_.k.tensor(), v = stored_.v.tensor();
    const pkv_tensor* const values = model_.latent != 0 ? nullptr : &v;
    CHECK(pkv_kv_write_slots(nullptr, &view_, slots, ids.data(), &k, values));
    CHECK(pkv_kv_read_slots(nullptr, &view_, slots, ids.data(), &k, &v));
    q_ = Rows(tensor_rows_, model_.query_heads, model_.key_dim,
              random_.pick({PKV_F32, PKV_F16, PKV_BF16}), draw_placement());
    q_.fill(random, random_.pick({1.0f, 1.0f, 10.0f}));
    out_dtype_ = random_.pick({PKV_F32, PKV_F16, PKV_BF16});
    out_placement_ = draw_placement();
  }

  Placement draw_placement() {
    if (!random_.chance(25)) return {};
    return {below(4), below(4), random_.chance(50) ? 0 : size_t{below(4)}};
  }

  void poison(size_t slot_and_head, Random& random) {
    poisoned_[slot_and_head] = true;
    const size_t slot = slot_and_head / model_.kv_heads;
    const auto head = static_cast<uint32_t>(slot_and_head % model_.kv_heads);
    const float what = random.pick({NAN, INFINITY, -INFINITY});
    if (random.chance(50))
      stored_.k.set(slot, head, static_cast<uint32_t>(random.below(model_.key_dim)), what);
    if (random.chance(50) || model_.latent != 0)
      stored_.v.set(slot, head, static_cast<uint32_t>(random.below(model_.value_dim)), what);
  }

  // Entries that the interface says are not read become invalid block ids, also those of an empty
  // list.
  void hide_table_entries() {
    stride_ = below(3);
    for (const Sequence& one : sequences_) stride_ = std::max<uint64_t>(stride_, one.table.size());
    for (uint32_t s = 0; s < sequences_.size(); s++) {
      const Sequence& one = sequences_[s];
      std::vector<uint32_t> table = one.table;
      const uint64_t first = first_visible(s);
      uint64_t sinks = params_.sinks;
      for (const uint32_t head_sinks : sinks_) sinks = std::max<uint64_t>(sinks, head_sinks);
      for (uint64_t b = 0; b < table.size(); b++)
        if (one.queries == 0 || ((b + 1) * block_size() <= first && b * block_size() >= sinks))
          table[b] = UINT32_MAX;
      table.resize(stride_, UINT32_MAX);
      tables_.insert(tables_.end(), table.begin(), table.end());
    }
    tables_.push_back(0);
  }

  // The first position in a window of any query and head, or the last position.
  uint64_t first_visible(uint32_t s) const {
    uint64_t first = sequences_[s].length;
    for (uint32_t row = 0; row < total_queries(); row++)
      for (uint32_t head = 0; head < model_.kv_heads && queries_[row].sequence == s; head++) {
        const uint32_t window = windows_.empty() ? params_.window : windows_[head];
        const auto visible = static_cast<uint64_t>(position_of(row)) + 1;
        first = std::min(first, window == 0 || visible < window ? 0 : visible - window);
      }
    return std::min(first, sequences_[s].length - 1);
  }

  // ---- the expected results

  void expect() {
    const Doubles queries(q_);
    mass_.assign(sequences_.size() * model_.query_heads * params_.own_mass.blocks, {});
    expected_.resize(size_t{total_queries()} * model_.query_heads);
    for (uint32_t s = 0; s < sequences_.size(); s++) {
      const Sequence& one = sequences_[s];
      KeysValues all = rows_of(model_, one.length);
      for (uint64_t j = 0; j < one.length; j++) {
        all.k.copy(j, stored_.k, slot_of(one, j), 1);
        all.v.copy(j, stored_.v, slot_of(one, j), 1);
      }
      const Doubles k(all.k), v(all.v);
      for (uint32_t i = 0; i < one.queries; i++)
        for (uint32_t h = 0; h < model_.query_heads; h++)
          expect_row(one.first_query + i, h, queries, k, v);
    }
  }

  void expect_row(uint32_t row, uint32_t h, const Doubles& queries, const Doubles& k,
                  const Doubles& v) {
    const QueryOf& query = queries_[row];
    const Sequence& s = sequences_[query.sequence];
    const uint32_t head = h / group();
    Attention attention;
    attention.causal = false;
    attention.scale = params_.scale;
    attention.softcap = params_.softcap;
    attention.alibi_slopes = slopes_;
    attention.sink_logits = logits_;
    attention.keys = model_.dtype;
    attention.values = model_.values_dtype();
    attention.mask_words = (s.length + 63) / 64;
    attention.mask.assign(attention.mask_words, 0);
    Expected& wanted = expected_[size_t{row} * model_.query_heads + h];
    for (uint64_t j = 0; j < s.length; j++)
      if (sees(row, head, j)) {
        attention.mask[j / 64] |= uint64_t{1} << j % 64;
        wanted.poisoned |= poisoned_[slot_of(s, j) * model_.kv_heads + head];
      }
    const ReferenceRow reference(queries.row(row_of(query), h),
                                 {0, h, head, static_cast<uint64_t>(position_of(row)), 0, s.length},
                                 k, v, attention);
    wanted.out = reference.out;
    for (uint32_t d = 0; d < model_.value_dim; d++)
      wanted.tolerance.push_back(reference.tolerance(d, out_dtype_));
    wanted.lse = reference.lse;
    wanted.lse_tolerance = reference.lse_tolerance;
    const uint32_t counted = params_.own_mass.queries;
    if (!wants_mass_ || (counted != 0 && query.index + counted < s.queries)) return;
    Mass* const mass = &mass_[(query.sequence * model_.query_heads + h) * params_.own_mass.blocks];
    for (size_t n = 0; n < reference.positions().size(); n++) {
      Mass& block = mass[reference.positions()[n] / block_size()];
      block.sum += reference.weights()[n];
      block.tolerance += reference.weight_tolerance(reference.weights()[n]);
      block.poisoned |= wanted.poisoned;
    }
  }

  pkv_kv_sequences sequences() {
    query_lengths_.clear(), kv_lengths_.clear(), first_rows_.clear();
    for (const Sequence& one : sequences_) {
      query_lengths_.push_back(one.queries);
      kv_lengths_.push_back(one.length);
      first_rows_.push_back(one.first_row);
    }
    return made<pkv_kv_sequences>(
        {.query_heads = model_.query_heads,
         .count = sequences_.size(),
         .query_lengths = query_lengths_.data(),
         .kv_lengths = kv_lengths_.data(),
         .block_tables = tables_.data(),
         .block_table_stride = stride_,
         .first_rows = padding_ == Padding::none ? nullptr : first_rows_.data(),
         .query_positions = positions_.empty() ? nullptr : positions_.data()});
  }

  pkv_compute compute_of(pkv_isa isa) {
    static std::map<std::pair<pkv_isa, uint32_t>, Compute> all;
    Compute& compute = all[{isa, threads_}];
    if (compute.get() == nullptr) compute = make_compute(threads_, isa);
    return compute;
  }

  void attend_and_compare(pkv_isa isa) {
    const pkv_kv_sequences given = sequences();
    AttentionParams params = params_;
    std::vector<float> lse(size_t{total_queries()} * model_.query_heads + 1, 7.0f);
    std::vector<float> mass(mass_.size() + 1, 7.0f);
    if (wants_lse_) params.lse = lse.data();
    params.own_mass.masses = mass.data();
    if (wants_mass_) params.block_mass = &params.own_mass;
    Rows out(tensor_rows_, model_.query_heads, model_.value_dim, out_dtype_, out_placement_);
    pkv_tensor q = q_.tensor(), to = out.tensor();
    q.batch_rows = to.batch_rows = padding_ == Padding::batch ? batch_rows_ : 0;
    ASSERT_EQ(PKV_OK, pkv_kv_attend(compute_of(isa), &view_, &given, &params, &q, &to))
        << pkv_last_error();
    EXPECT_TRUE(out.gaps_untouched());
    for (uint32_t row = 0; row < total_queries(); row++)
      for (uint32_t h = 0; h < model_.query_heads; h++) compare_row(row, h, out, lse);
    EXPECT_EQ(7, lse.back());
    if (wants_mass_) compare_mass(mass);
  }

  void compare_row(uint32_t row, uint32_t h, const Rows& out, const std::vector<float>& lse) const {
    const size_t index = size_t{row} * model_.query_heads + h;
    const Expected& wanted = expected_[index];
    if (wanted.poisoned) return;
    for (uint32_t d = 0; d < model_.value_dim; d++)
      ASSERT_NEAR(wanted.out[d], double{out.get(row_of(queries_[row]), h, d)}, wanted.tolerance[d])
          << "query " << row << ", head " << h << ", dim " << d;
    if (!wants_lse_) return;
    if (wanted.lse == -HUGE_VAL)
      ASSERT_EQ(-HUGE_VAL, double{lse[index]}) << "query " << row << ", head " << h;
    else
      ASSERT_NEAR(wanted.lse, double{lse[index]}, wanted.lse_tolerance)
          << "query " << row << ", head " << h;
  }

  // Entries that belong to no block stay as they were.
  void compare_mass(const std::vector<float>& mass) const {
    for (size_t i = 0; i < mass_.size(); i++) {
      const size_t size = params_.own_mass.blocks, s = i / size / model_.query_heads;
      const bool written = sequences_[s].queries > 0 && i % size < blocks_of(sequences_[s]);
      if (mass_[i].poisoned) continue;
      ASSERT_NEAR(written ? mass_[i].sum : 7, double{mass[i]}, mass_[i].tolerance)
          << "mass of sequence " << s << ", head " << i / size % model_.query_heads << ", block "
          << i % size;
    }
    EXPECT_EQ(7, mass.back());
  }

  std::string describe(pkv_isa isa) const {
    std::ostringstream text;
    text << pkv_isa_name(isa) << ", " << (view_.layout == PKV_LAYOUT_PLAIN ? "plain" : "packed")
         << ", blocks of " << block_size() << ", " << name_of(model_.dtype) << "/"
         << name_of(model_.values_dtype()) << ", dims " << model_.key_dim << "/" << model_.value_dim
         << (model_.latent != 0 ? " latent" : "") << ", heads " << model_.query_heads << "/"
         << model_.kv_heads << ", bidirectional " << params_.bidirectional << ", window "
         << params_.window << "/" << params_.sinks << ", head windows " << windows_.size() << "/"
         << sinks_.size() << ", masking " << static_cast<int>(masking_) << ", lists " << list_size_
         << ", positions " << positions_.size() << ", padding " << static_cast<int>(padding_)
         << ", softcap " << params_.softcap << ", slopes " << slopes_.size() << ", logits "
         << logits_.size() << "; sequences";
    for (const Sequence& one : sequences_) text << " " << one.queries << "/" << one.length;
    return text.str();
  }

  Random random_;
  Model model_;
  pkv_kv_view view_{};
  std::vector<unsigned char> k_bytes_, v_bytes_;
  std::vector<Sequence> sequences_;
  std::vector<QueryOf> queries_;
  std::vector<int64_t> positions_;  // of queries, or none
  Padding padding_ = Padding::none;
  bool names_positions_ = false;
  uint32_t tensor_rows_ = 0, batch_rows_ = 0;
  AttentionParams params_{};
  Masking masking_ = Masking::none;
  std::vector<float> slopes_, logits_;
  std::vector<uint32_t> windows_, sinks_;  // by KV head
  std::vector<uint64_t> words_;
  std::vector<int32_t> parents_;
  std::vector<uint8_t> bytes_;
  uint64_t columns_ = 0;
  std::vector<int64_t> first_positions_;
  std::vector<uint32_t> lists_;
  uint32_t list_size_ = 0;
  bool wants_mass_ = false;
  const bool wants_lse_ = random_.chance(70);
  const uint32_t threads_ = between(1, 3);
  std::vector<bool> seen_, poisoned_;  // [slots][KV heads]
  KeysValues stored_;                  // by slot, as they are read back
  Rows q_;
  pkv_dtype out_dtype_ = PKV_F32;
  Placement out_placement_;
  std::vector<uint32_t> tables_, query_lengths_, first_rows_;
  std::vector<uint64_t> kv_lengths_;
  uint64_t stride_ = 0;
  std::vector<Expected> expected_;  // [queries][query heads]
  uint64_t mask_words_ = 0;
  std::vector<Mass> mass_;  // [sequences][query heads][block_mass_size]
};

}  // namespace cache_test
