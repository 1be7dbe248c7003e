// Draws one attention call: any layout, block size, strides, dtypes, dims, sequences, windows,
// masks, block lists and choices, and a cache that can make it, whose sessions share and drop
// blocks. It tells what each query sees of it, by the interface's description.
#pragma once

#include <algorithm>
#include <optional>
#include <set>

#include "host.h"

namespace cache_test {

class DrawnCall {
 public:
  // Says what this call has, so that a test can ask whether everything happens.
  std::vector<std::pair<const char*, bool>> features() const {
    return {
        {"over memory", !drops_},
        {"in a cache", cached_},
        {"in a file", in_file_},
        {"forks", forks_},
        {"dropped blocks", drops_},
        {"dropped blocks and slopes", drops_ && !slopes_.empty()},
        {"dropped blocks and mass", drops_ && wants_mass_},
        {"window of the layer", model_.window != 0},
        {"rotation", model_.rotation != PKV_ROTATION_NONE},
        {"rotation and choice", model_.rotation != PKV_ROTATION_NONE && top_ != 0},
        {"latent values", model_.latent()},
        {"latent values and choice", model_.latent() && top_ != 0},
        {"large dims", model_.key_dim > 256},
        {"long prompt", has_long_prompt()},
        {"long prompt and mass", has_long_prompt() && wants_mass_},
        {"choice", top_ != 0},
        {"choice together", top_ != 0 && together_ == UINT32_MAX},
        {"choice by several", top_ != 0 && choose_together()},
        {"choice and head windows", top_ != 0 && !windows_.empty()},
        {"choice and dropped blocks", top_ != 0 && drops_},
        {"choice and bits", top_ != 0 && masking_ == Masking::words},
        {"choice and parents", top_ != 0 && masking_ == Masking::parents},
        {"choice and bytes", top_ != 0 && masking_ == Masking::bytes},
        {"additive mask", masking_ == Masking::numbers},
        {"additive mask of f16", params_.own_mask.kind == PKV_MASK_F16},
        {"additive mask and mass", masking_ == Masking::numbers && wants_mass_},
        {"additive mask and slopes", masking_ == Masking::numbers && !slopes_.empty()},
        {"additive mask in a cache", masking_ == Masking::numbers && cached_},
        {"additive mask of a long prompt", masking_ == Masking::numbers && has_long_prompt()},
        {"lists", list_size_ != 0 && top_ == 0},
        {"lists of several", list_size_ != 0 && top_ == 0 && choose_together()},
        {"mass of the last queries", wants_mass_ && params_.block_outputs.mass_queries != 0},
        {"mass in a cache", wants_mass_ && cached_},
        {"mass and head windows in a cache", wants_mass_ && cached_ && !windows_.empty()},
        {"padding in a cache", cached_ && padding_ != Padding::none},
        {"positions of queries", !positions_.empty()},
        {"positions of queries and parents", !positions_.empty() && masking_ == Masking::parents},
        {"tree that leaves a window", has_tree() && hides_drafts_},
        {"tree that leaves a window in a cache", has_tree() && hides_drafts_ && cached_},
        {"tree that leaves a window, and lists",
         has_tree() && hides_drafts_ && (top_ != 0 || !lists_.empty())},
        {"tree that leaves a window, and mass", has_tree() && hides_drafts_ && wants_mass_},
        {"tree among sinks", has_tree() && shows_new_sinks_},
        {"tree with slopes", has_tree() && !slopes_.empty()},
        {"tree with slopes in a cache", has_tree() && !slopes_.empty() && cached_},
        {"tree with slopes and mass", has_tree() && !slopes_.empty() && wants_mass_},
        {"tree of bits", has_tree() && masking_ == Masking::words},
        {"tree of latent values", has_tree() && model_.latent()},
        {"tree beside a long chain", has_tree() && has_long_chain_},
        {"bits at any positions", !has_tree() && !places_.empty()},
        {"bits at any positions with slopes", !has_tree() && !places_.empty() && !slopes_.empty()}};
  }

 protected:
  explicit DrawnCall(Random random) : random_(std::move(random)) {
    draw_shape();
    draw_sequences();
    draw_params();
    draw_cache();
    find_seen();
  }

  enum class Masking { none, words, parents, bytes, numbers };
  // Which rows of its tensors a sequence has: rows that follow each other, rows with gaps between
  // sequences, or those of a padded batch.
  enum class Padding { none, gaps, batch };

  struct Sequence {
    uint64_t length;
    uint32_t queries;
    uint32_t first_query = 0, first_row = 0;
    std::vector<uint32_t> table;
    uint64_t shared = 0;  // tokens at its start that it has from a fork of the sequence before it
    std::vector<bool> dropped = {};  // blocks

    uint64_t start() const { return length - queries; }
  };
  struct QueryOf {
    uint32_t sequence, index;
  };

  uint32_t below(uint64_t n) { return static_cast<uint32_t>(random_.below(n)); }
  uint32_t between(uint32_t first, uint32_t last) {
    return static_cast<uint32_t>(random_.between(first, last));
  }
  bool has_long_prompt() const {
    return std::any_of(sequences_.begin(), sequences_.end(),
                       [](const Sequence& one) { return one.queries > 120; });
  }
  uint32_t total_queries() const { return static_cast<uint32_t>(queries_.size()); }
  uint32_t group() const { return model_.query_heads / model_.kv_heads; }
  uint32_t block_size() const { return view_.block_size; }
  uint32_t blocks_of(const Sequence& s) const {
    return static_cast<uint32_t>((s.length + block_size() - 1) / block_size());
  }

  // ---- what the call is over

  void draw_shape() {
    large_ = random_.chance(10);
    model_.kv_heads = between(1, large_ ? 8 : 3);
    model_.query_heads =
        model_.kv_heads * (large_ || random_.chance(85) ? between(1, 4) : between(5, 40));
    model_.key_dim = 16 * between(1, large_ ? 36 : 6);
    model_.dtype = stored_dtypes[below(std::size(stored_dtypes))];
    if (random_.chance(15)) model_.kind = PKV_LAYERS_LATENT;
    model_.value_dim = 16 * between(1, model_.latent() ? model_.key_dim / 16 : large_ ? 36 : 6);
    model_.value_dtype =
        model_.latent() ? model_.dtype : stored_dtypes[below(std::size(stored_dtypes))];
    if (!model_.latent() && random_.chance(20)) model_.rotation = PKV_ROTATION_HADAMARD;
    const bool plain = random_.chance(60);
    view_.struct_size = sizeof view_;
    view_.layout = plain ? PKV_LAYOUT_PLAIN : PKV_LAYOUT_PACKED;
    view_.block_size = !plain || random_.chance(30) ? 16 * between(1, random_.chance(80) ? 4 : 16)
                       : random_.chance(50)         ? between(1, 20)
                                                    : between(1, 64);
    view_.kv_heads = model_.kv_heads;
    view_.key_dim = model_.key_dim;
    view_.value_dim = model_.value_dim;
    view_.dtype = model_.dtype;
    view_.value_dtype = model_.value_dtype;
    view_.rotation = model_.rotation;
  }

  void draw_sequences() {
    const uint32_t count = between(1, 4);
    const bool prompt = random_.chance(30);
    names_positions_ = random_.chance(15);
    for (uint32_t s = 0; s < count; s++) {
      Sequence one{};
      one.length = random_.chance(5)               ? 0
                   : large_ || !random_.chance(30) ? between(1, 90)
                                                   : between(1, 400);
      const uint32_t most = !prompt  ? (random_.chance(50) ? 1 : 6)
                            : large_ ? 12
                            : model_.query_heads > 12 || random_.chance(70) ? 40
                                                                            : 200;
      const auto room = static_cast<uint32_t>(one.length);
      // Queries at positions of their own may outnumber the positions.
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
        sequences_[s].shared = std::min({uint64_t{table.size()} * block_size(),
                                         sequences_[s].start(), sequences_[s - 1].start()});
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

  // ---- what it asks for

  void draw_params() {
    params_ = AttentionParams();
    params_.bidirectional = !random_.chance(75);
    if (random_.chance(20)) params_.scale = 0.3f * random_.pick({1.0f, -1.0f});
    if (random_.chance(20)) params_.softcap = static_cast<float>(between(1, 40));
    if (random_.chance(15)) params_.sink_logits = numbers(logits_, 2);
    draw_windows();
    draw_mask();
    if (random_.chance(40) && positions_.empty() && masking_ != Masking::numbers)
      draw_lists();
    else if (random_.chance(20) && !far_away() && params_.bidirectional == 0)
      params_.alibi_slopes = numbers(slopes_, 0.2f);
    if (masking_ == Masking::words && positions_.empty()) draw_places();
    if (lists_.empty() && top_ == 0 && random_.chance(60)) draw_mass();
  }

  float number(float amplitude) { return amplitude * (static_cast<float>(below(256)) / 128 - 1); }

  const float* numbers(std::vector<float>& list, float amplitude) {
    for (uint32_t h = 0; h < model_.query_heads; h++) list.push_back(number(amplitude));
    return list.data();
  }

  void draw_windows() {
    if (random_.chance(50)) return;
    if (random_.chance(50)) {
      params_.window = draw_window();
      params_.sink_tokens = random_.chance(50) ? below(40) : 0;
      return;
    }
    for (uint32_t head = 0; head < model_.kv_heads; head++) {
      windows_.push_back(random_.chance(25) ? 0 : draw_window());
      sinks_.push_back(random_.chance(50) ? below(40) : 0);
    }
    params_.kv_head_windows = windows_.data();
    if (random_.chance(50))
      params_.kv_head_sink_tokens = sinks_.data();
    else
      sinks_.clear();
  }

  // Draws the window of some queries, often one that trees are deeper than.
  uint32_t draw_window() { return 1 + below(random_.chance(40) ? 6 : 70); }

  void draw_mask() {
    masking_ = random_.chance(40) ? Masking::none : static_cast<Masking>(1 + below(4));
    const bool of_new_tokens = masking_ == Masking::words || masking_ == Masking::parents;
    if (of_new_tokens && !all_are_positions())
      masking_ = Masking::none;
    else if (of_new_tokens &&
             (params_.bidirectional == 0 || params_.window != 0 || !windows_.empty()))
      move_into_step();
    if (masking_ == Masking::words) {
      for (const Sequence& one : sequences_)
        mask_words_ = std::max<uint64_t>(mask_words_, (one.queries + 63) / 64);
      mask_words_ = std::max<uint64_t>(mask_words_, 1) + below(2);
      words_.assign(std::max<size_t>(1, total_queries() * mask_words_), 0);
      if (random_.chance(50)) {
        draw_parents();
        for (uint32_t row = 0; row < total_queries(); row++)
          for (uint32_t j = 0; j <= queries_[row].index; j++)
            words_[row * mask_words_ + j / 64] |= uint64_t{is_ancestor(row, j)} << j % 64;
      } else {
        const unsigned shown = random_.pick({0u, 20u, 60u, 100u});
        for (size_t i = 0; i < words_.size() * 64; i++)
          words_[i / 64] |= uint64_t{random_.chance(shown)} << i % 64;
      }
      params_.see_bits(words_.data(), static_cast<int64_t>(mask_words_));
    } else if (masking_ == Masking::parents) {
      draw_parents();
      params_.see_tree(parents_.data());
    } else if (masks_columns()) {
      draw_bytes();
      if (masking_ == Masking::numbers) draw_numbers();
    }
  }
  bool masks_columns() const { return masking_ == Masking::bytes || masking_ == Masking::numbers; }

  // Draws chains, trees that are deep, and trees that are wide.
  void draw_parents() {
    for (const Sequence& one : sequences_) {
      const uint32_t reach = random_.pick({1u, 3u, UINT32_MAX});
      has_long_chain_ |= reach == 1 && one.queries >= 16;
      for (uint32_t i = 0; i < one.queries; i++) {
        const bool root = reach != 1 && random_.chance(10);
        parents_.push_back(root ? -1
                                : static_cast<int32_t>(i) - 1 -
                                      static_cast<int32_t>(below(std::min(reach, i + 1))));
      }
    }
    parents_.push_back(-1);
  }

  // The tokens of the texts of a tree's nodes are at their places in it. Others may be anywhere.
  void draw_places() {
    if (slopes_.empty() && params_.window == 0 && windows_.empty() && random_.chance(50)) return;
    const bool far = slopes_.empty() && random_.chance(5);
    for (uint32_t row = 0; row < total_queries(); row++) {
      const Sequence& one = sequences_[queries_[row].sequence];
      const uint64_t place = has_tree() ? depth_of(row) : below(far ? uint64_t{1} << 40 : 40);
      places_.push_back(static_cast<int64_t>(one.start() + place));
    }
    places_.push_back(0);
    params_.own_mask.positions = places_.data();
  }

  bool has_tree() const { return !parents_.empty(); }
  // How many new tokens are before a row's in the text from the root of its tree.
  uint32_t depth_of(uint32_t row) const {
    uint32_t depth = 0;
    for (int32_t at = parents_[row]; at >= 0;
         at = parents_[row - queries_[row].index + static_cast<uint32_t>(at)])
      depth++;
    return depth;
  }

  // Whether fp32 cannot tell the distances from a query to the tokens apart.
  bool far_away() const {
    return std::any_of(positions_.begin(), positions_.end(),
                       [](int64_t position) { return position > 1 << 20; });
  }

  // Moves positions that a query of a mask of new tokens may not have if it is causal or has a
  // window.
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
    const size_t size = columns_ + static_cast<size_t>(mask.row_stride) * (rows - 1) +
                        static_cast<size_t>(mask.batch_stride) * (sequences_.size() - 1);
    bytes_.assign(std::max<size_t>(1, size), 0);  // so that there is an address
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

  // Draws an additive mask that hides what the bytes hide.
  void draw_numbers() {
    const bool f16 = random_.chance(50);
    const unsigned added = random_.pick({0u, 40u, 100u});
    const float amplitude = random_.pick({1.0f, 8.0f});
    numbers_ = Rows(bytes_.size(), 1, 1, f16 ? PKV_F16 : PKV_F32);
    for (size_t i = 0; i < bytes_.size(); i++)
      numbers_.set(i, 0, 0,
                   bytes_[i] == 0          ? -INFINITY
                   : random_.chance(added) ? number(amplitude)
                                           : 0.0f);
    pkv_mask& mask = params_.own_mask;
    mask.kind = f16 ? PKV_MASK_F16 : PKV_MASK_F32;
    mask.data = numbers_.tensor().data;
    if (random_.chance(50)) mask.head_factors = numbers(factors_, 2);
  }

  uint32_t mask_row(const Sequence& one) const {
    return padding_ == Padding::batch ? one.first_row : 0;
  }

  // Draws which blocks are read: by lists, or by a choice of the library's, which needs a cache.
  void draw_lists() {
    const uint32_t first = below(3), last = below(3);
    together_ = random_.chance(40)   ? below(2)
                : random_.chance(40) ? UINT32_MAX
                                     : between(2, random_.chance(50) ? 8 : 100);
    for (const Sequence& one : sequences_) {
      first_choices_.push_back(choices_);
      choices_ += (one.queries + queries_per_choice() - 1) / queries_per_choice();
    }
    list_size_ = 1 + below(6);
    if (can_be_cached() && random_.chance(60)) {
      top_ = list_size_;
      list_size_ = 0;
    } else {
      for (uint32_t row = 0; row < total_queries(); row++) {
        if (queries_[row].index % queries_per_choice() != 0) continue;
        for (uint32_t head = 0; head < model_.kv_heads; head++) {
          std::set<uint32_t> list;
          for (uint32_t n = below(list_size_ + 1); n > 0; n--)
            list.insert(below(blocks_of(sequences_[queries_[row].sequence])));
          lists_.insert(lists_.end(), list.begin(), list.end());
          lists_.insert(lists_.end(), list_size_ - list.size(), PKV_NO_BLOCK_ID);
        }
      }
      lists_.push_back(0);
    }
    pkv_chosen_blocks& chosen = params_.choose(top_ != 0 ? nullptr : lists_.data(), list_size_);
    chosen.first_blocks = first;
    chosen.last_blocks = last;
    chosen.tokens_per_choice = together_;
  }

  uint32_t queries_per_choice() const {
    const uint32_t rows = std::max(1u, total_queries());
    return std::clamp(together_, 1u, rows);
  }
  bool choose_together() const { return together_ > 1 && together_ != UINT32_MAX; }
  uint32_t choice_of(uint32_t row) const {
    return first_choices_[queries_[row].sequence] + queries_[row].index / queries_per_choice();
  }
  // The first query that chooses together with a query, and the one after its last.
  std::pair<uint32_t, uint32_t> queries_of_choice(uint32_t row) const {
    const Sequence& s = sequences_[queries_[row].sequence];
    const uint32_t first = row - queries_[row].index % queries_per_choice();
    return {first, std::min(first + queries_per_choice(), s.first_query + s.queries)};
  }

  void draw_mass() {
    for (const Sequence& one : sequences_)
      params_.block_outputs.mass_blocks =
          std::max<uint64_t>(params_.block_outputs.mass_blocks, blocks_of(one));
    params_.block_outputs.mass_blocks += random_.chance(50) ? 0 : below(4);
    params_.block_outputs.mass_queries = random_.chance(30) ? 1 + below(5) : 0;
    wants_mass_ = true;
  }

  // ---- the cache that makes the same call

  bool can_be_cached() const { return positions_.empty() && block_size() % 16 == 0; }

  void draw_cache() {
    cached_ = can_be_cached() && (top_ != 0 || random_.chance(90));
    if (!cached_) return;
    in_file_ = random_.chance(5);
    if (random_.chance(40)) draw_layer_window();
    for (size_t s = 1; s < sequences_.size(); s++) {
      // What left the window of a layer is gone, so a fork cannot be trimmed to before it.
      if (model_.window != 0 && sequences_[s].shared != sequences_[s - 1].start())
        sequences_[s].shared = 0;
      forks_ |= sequences_[s].shared != 0;
    }
    for (Sequence& one : sequences_) one.dropped.assign(blocks_of(one), false);
    if (model_.window != 0 || !random_.chance(50)) return;
    for (Sequence& one : sequences_)
      for (size_t b = 0; b < one.start() / block_size(); b++)
        if (random_.chance(30)) drops_ = one.dropped[b] = true;
  }

  // Draws a window and sinks of the layer that keep all that this call sees.
  void draw_layer_window() {
    uint32_t widest = params_.window, sinks = params_.sink_tokens;
    if (!windows_.empty() && std::count(windows_.begin(), windows_.end(), 0u) == 0)
      widest = *std::max_element(windows_.begin(), windows_.end());
    for (const uint32_t of_head : sinks_) sinks = std::max(sinks, of_head);
    if (widest == 0) return;
    model_.window = widest + (random_.chance(50) ? 0 : below(20));
    model_.sinks = sinks + (random_.chance(50) ? 0 : below(20));
  }

  // ---- what each query sees

  int64_t position_of(uint32_t row) const {
    if (!positions_.empty()) return positions_[row];
    if (!places_.empty()) return places_[row];
    const QueryOf& query = queries_[row];
    const uint64_t place = masking_ == Masking::parents ? depth_of(row) : query.index;
    return static_cast<int64_t>(sequences_[query.sequence].start() + place);
  }

  bool masks_new_tokens() const {
    return masking_ == Masking::words || masking_ == Masking::parents;
  }

  // The position of a token in the text of the queries that see it.
  uint64_t place_of(const Sequence& s, uint64_t j) const {
    if (!masks_new_tokens() || j < s.start()) return j;
    return static_cast<uint64_t>(position_of(s.first_query + static_cast<uint32_t>(j - s.start())));
  }

  bool sees(uint32_t row, uint32_t head, uint64_t j) const {
    return reads(row, head, static_cast<uint32_t>(j / block_size())) && shown(row, head, j);
  }

  // Whether a query sees a position if its block is read.
  bool shown(uint32_t row, uint32_t head, uint64_t j) const {
    const Sequence& s = sequences_[queries_[row].sequence];
    const auto position = static_cast<uint64_t>(position_of(row));
    if (left_window(row, head, j)) return false;
    if (drops_ && s.dropped[j / block_size()]) return false;
    const bool is_new = j >= s.start();
    if (masking_ == Masking::words && is_new)
      return (words_[row * mask_words_ + (j - s.start()) / 64] >> (j - s.start()) % 64 & 1) != 0;
    if (masking_ == Masking::parents && is_new) return is_ancestor(row, j - s.start());
    return (params_.bidirectional != 0 || j <= position) && shown_by_columns(row, j);
  }

  bool left_window(uint32_t row, uint32_t head, uint64_t j) const {
    const uint64_t place = place_of(sequences_[queries_[row].sequence], j);
    const uint32_t window = windows_.empty() ? params_.window : windows_[head],
                   sinks = sinks_.empty() ? params_.sink_tokens : sinks_[head];
    const auto position = static_cast<uint64_t>(position_of(row));
    const bool near =
        place + window > position && (params_.bidirectional == 0 || position + window > place);
    return window != 0 && !near && place >= sinks;
  }

  bool is_ancestor(uint32_t row, uint64_t token) const {
    const QueryOf& query = queries_[row];
    int64_t at = query.index;
    while (at >= 0 && at != static_cast<int64_t>(token))
      at = parents_[row - query.index + static_cast<size_t>(at)];
    return at >= 0;
  }

  // The element of a mask with columns for a row and a position, unless that is before them.
  std::optional<size_t> element_of(uint32_t row, uint64_t j) const {
    const QueryOf& query = queries_[row];
    const int64_t first = first_positions_.empty() ? 0 : first_positions_[query.sequence];
    if (static_cast<int64_t>(j) < first) return {};
    const uint64_t line = mask_row(sequences_[query.sequence]) + query.index;
    return query.sequence * static_cast<size_t>(params_.own_mask.batch_stride) +
           line * static_cast<size_t>(params_.own_mask.row_stride) +
           static_cast<size_t>(static_cast<int64_t>(j) - first);
  }

  bool shown_by_columns(uint32_t row, uint64_t j) const {
    if (!masks_columns()) return true;
    const std::optional<size_t> element = element_of(row, j);
    return !element || bytes_[*element] != 0;
  }

  // What a mask adds to the score of a position that a query sees.
  double added(uint32_t row, uint32_t query_head, uint64_t j) const {
    const std::optional<size_t> element = element_of(row, j);
    const float factor = factors_.empty() ? 1 : factors_[query_head];
    return element ? double{factor} * double{numbers_.get(*element, 0, 0)} : 0;
  }

  bool reads(uint32_t row, uint32_t head, uint32_t block) const {
    if (lists_.empty()) return true;
    if (!choosable(row, block)) return true;
    const auto list =
        lists_.begin() +
        static_cast<std::ptrdiff_t>((size_t{choice_of(row)} * model_.kv_heads + head) * list_size_);
    return std::find(list, list + list_size_, block) != list + list_size_;
  }

  // Returns whether a block is one that a query does not read anyway.
  bool choosable(uint32_t row, uint32_t block) const {
    const Sequence& s = sequences_[queries_[row].sequence];
    const auto [first, end] = queries_of_choice(row);
    const uint64_t own = (s.start() + (first - s.first_query)) / block_size(),
                   last = (s.start() + (end - 1 - s.first_query)) / block_size();
    if (block < params_.own_blocks.first_blocks) return false;
    return block + params_.own_blocks.last_blocks < own || block > last;
  }

  uint64_t slot_of(const Sequence& s, uint64_t j) const {
    return uint64_t{s.table[j / block_size()]} * block_size() + j % block_size();
  }

  void find_seen() {
    seen_.assign(view_.blocks * block_size() * model_.kv_heads, false);
    for (uint32_t row = 0; row < total_queries(); row++) {
      const Sequence& s = sequences_[queries_[row].sequence];
      for (uint32_t head = 0; head < model_.kv_heads; head++)
        for (uint64_t j = 0; j < s.length; j++) {
          if (top_ != 0 || sees(row, head, j)) seen_[slot_of(s, j) * model_.kv_heads + head] = true;
          if (!has_tree() || j < s.start() || !is_ancestor(row, j - s.start())) continue;
          hides_drafts_ |= left_window(row, head, j);
          shows_new_sinks_ |=
              !left_window(row, head, j) && params_.window != 0 &&
              place_of(s, j) + params_.window <= place_of(s, s.start() + queries_[row].index);
        }
    }
  }

  std::string describe(pkv_isa isa) const {
    std::ostringstream text;
    text << pkv_isa_name(isa) << ", " << (view_.layout == PKV_LAYOUT_PLAIN ? "plain" : "packed")
         << ", blocks of " << block_size() << ", " << name_of(model_.dtype) << "/"
         << name_of(model_.values_dtype()) << ", dims " << model_.key_dim << "/" << model_.value_dim
         << (model_.latent() ? " latent" : "") << ", heads " << model_.query_heads << "/"
         << model_.kv_heads << ", bidirectional " << params_.bidirectional << ", window "
         << params_.window << "/" << params_.sink_tokens << ", head windows " << windows_.size()
         << "/" << sinks_.size() << ", masking " << static_cast<int>(masking_) << ", lists "
         << list_size_ << ", positions " << positions_.size() << ", padding "
         << static_cast<int>(padding_) << ", softcap " << params_.softcap << ", slopes "
         << slopes_.size() << ", logits " << logits_.size() << ", top " << top_ << " together "
         << together_ << ", window of layer " << model_.window << "/" << model_.sinks
         << ", rotation " << model_.rotation << ", threads " << threads_ << "; sequences";
    for (const Sequence& one : sequences_)
      text << " " << one.queries << "/" << one.length << "/" << one.shared;
    return text.str();
  }

  Random random_;
  Model model_;
  pkv_kv_view view_{};
  std::vector<Sequence> sequences_;
  std::vector<QueryOf> queries_;
  std::vector<int64_t> positions_;  // of queries, or none
  Padding padding_ = Padding::none;
  bool names_positions_ = false, large_ = false;
  uint32_t tensor_rows_ = 0, batch_rows_ = 0;
  AttentionParams params_{};
  Masking masking_ = Masking::none;
  std::vector<float> slopes_, logits_;
  std::vector<uint32_t> windows_, sinks_;  // by KV head
  std::vector<uint64_t> words_;
  std::vector<int32_t> parents_;  // also of a tree of bits
  std::vector<int64_t> places_;   // positions of new tokens with a mask of bits, or none
  std::vector<uint8_t> bytes_;    // of a mask with columns
  Rows numbers_;                  // of an additive one, by element
  std::vector<float> factors_;    // of an additive one, by query head, or none
  uint64_t columns_ = 0;
  std::vector<int64_t> first_positions_;
  std::vector<uint32_t> lists_;  // those given, or what was chosen
  uint32_t list_size_ = 0, top_ = 0;
  uint32_t together_ = 0, choices_ = 0;
  std::vector<uint32_t> first_choices_;  // by sequence
  bool cached_ = false, in_file_ = false, forks_ = false, drops_ = false;
  bool wants_mass_ = false;
  bool has_long_chain_ = false, hides_drafts_ = false, shows_new_sinks_ = false;
  std::vector<bool> seen_;  // [slots][KV heads], whether a query may see it
  const bool wants_lse_ = random_.chance(70);
  const uint32_t threads_ = between(1, 3);
  const uint64_t seed_ = below(1 << 16);
  uint64_t mask_words_ = 0;
};

}  // namespace cache_test
