// Makes a drawn attention call over the caller's memory and, if a cache can make it, by a batch.
// Every instruction set that runs here must give the outputs, the lse and the block mass of
// textbook attention over what each query sees. What no query may read is not finite, or is no
// block.
#pragma once

#include <bit>
#include <map>
#include <tuple>

#include "drawn_call.h"
#include "reference.h"

namespace cache_test {

class CallPlay : public DrawnCall {
 public:
  explicit CallPlay(Random random) : DrawnCall(std::move(random)) {}

  void run() {
    write_rows();
    hide_table_entries();
    if (top_ == 0) expect();
    // The scalar kernels would take half of the time of all.
    const bool with_scalar = below(3) == 0;
    for (const pkv_isa isa : supported_isas()) {
      if (isa == PKV_ISA_SCALAR && !with_scalar) continue;
      SCOPED_TRACE(describe(isa));
      if (cached_) attend_in_cache(isa);
      if (!drops_) attend_over_memory(isa);
      if (testing::Test::HasFailure()) return;
    }
  }

 private:
  // What the reference says of one query and one query head.
  struct Expected {
    bool poisoned = false;  // it sees a number that is not finite
    std::vector<double> out, tolerance;
    double lse = 0, lse_tolerance = 0;
  };
  struct Result {
    Rows out;
    std::vector<float> lse, mass;
  };
  struct Mass {
    double sum = 0, tolerance = 0;
    bool poisoned = false;
  };

  // ---- what is in the memory

  // Makes a view with strides of its own: blocks, rows and heads in any order, with gaps.
  void lay_out() {
    pkv_kv_view unit = view_;
    unit.kv_heads = 2, unit.block_size = view_.layout == PKV_LAYOUT_PACKED ? 16 : 1,
    unit.blocks = 1;
    unit.latent = view_.latent = model_.latent() ? 1 : 0;
    uint64_t size = 0;
    CHECK(pkv_kv_view_init(&unit, &size));
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
    if (!model_.latent())
      view_.v = side(unit.v_head_stride, model_.values_dtype(), view_.v_block_stride,
                     view_.v_row_stride, view_.v_head_stride, v_bytes_);
  }

  // Fills the memory. What no query sees is not finite, and now and then something that some see.
  void write_rows() {
    lay_out();
    Random random(below(1 << 16));
    const size_t slots = view_.blocks * block_size();
    const pkv_dtype given = random_.pick({PKV_F32, PKV_F16, PKV_BF16});
    const Placement placement = draw_placement();
    given_ = {Rows(slots, model_.kv_heads, model_.key_dim, given, placement),
              Rows(slots, model_.kv_heads, model_.value_dim, given, placement)};
    given_.k.fill(random, rotated() ? 1.0f : random_.pick({1.0f, 1.0f, 8.0f}));
    given_.v.fill(random);
    poisoned_.assign(slots * model_.kv_heads, false);
    const unsigned few = random_.chance(15) ? 2 : 0;
    for (size_t i = 0; i < poisoned_.size() && top_ == 0; i++)
      if (random.chance(seen_[i] ? few : 60)) poison(i, random);
    std::vector<int64_t> ids(slots);
    std::iota(ids.begin(), ids.end(), 0);
    stored_ = rows_of(model_, slots);
    const pkv_tensor k = given_.k.tensor(), v = given_.v.tensor(), read_k = stored_.k.tensor(),
                     read_v = stored_.v.tensor();
    CHECK(
        pkv_kv_write_slots(nullptr, &view_, slots, ids.data(), &k, model_.latent() ? nullptr : &v));
    CHECK(pkv_kv_read_slots(nullptr, &view_, slots, ids.data(), &read_k, &read_v));
    expect_rounded(given_.k, stored_.k, model_.dtype);
    if (!model_.latent()) expect_rounded(given_.v, stored_.v, model_.values_dtype());
    for (const Sequence& one : sequences_)
      contents_.push_back(rows_at(one, 0, one.length, stored_));
    for (size_t s = 0; s < sequences_.size() && top_ != 0; s++) bounds_.push_back(bounds_of(s));
    q_ = Rows(tensor_rows_, model_.query_heads, model_.key_dim,
              random_.pick({PKV_F32, PKV_F16, PKV_BF16}), draw_placement());
    q_.fill(random, rotated() ? 1.0f : random_.pick({1.0f, 1.0f, 10.0f}));
    out_dtype_ = random_.pick({PKV_F32, PKV_F16, PKV_BF16});
    out_placement_ = draw_placement();
  }

  // Types of floating point of 16 bits and more hold what was given, rounded once.
  void expect_rounded(const Rows& given, const Rows& stored, pkv_dtype dtype) const {
    if (rotated() || rows_dtype(dtype) != dtype) return;
    Rows rounded(given.rows(), given.heads(), given.dim(), dtype);
    rounded.copy(0, given, 0, given.rows());
    given.each([&](size_t row, uint32_t head, uint32_t d) {
      ASSERT_TRUE(poisoned_[row * model_.kv_heads + head] ||
                  rounded.get(row, head, d) == stored.get(row, head, d));
    });
  }

  bool rotated() const { return model_.rotation != PKV_ROTATION_NONE; }

  // Returns rows of positions [first, end) of a sequence, from rows by slot.
  KeysValues rows_at(const Sequence& s, uint64_t first, uint64_t end,
                     const KeysValues& by_slot) const {
    KeysValues rows{Rows(end - first, model_.kv_heads, model_.key_dim, by_slot.k.dtype()),
                    Rows(end - first, model_.kv_heads, model_.value_dim, by_slot.v.dtype())};
    for (uint64_t j = first; j < end; j++) {
      rows.k.copy(j - first, by_slot.k, slot_of(s, j), 1);
      rows.v.copy(j - first, by_slot.v, slot_of(s, j), 1);
    }
    return rows;
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
      given_.k.set(slot, head, static_cast<uint32_t>(random.below(model_.key_dim)), what);
    if (random.chance(50) || model_.latent())
      given_.v.set(slot, head, static_cast<uint32_t>(random.below(model_.value_dim)), what);
  }

  // Entries that the interface says are not read become no block. Those of an empty list, too.
  void hide_table_entries() {
    stride_ = below(3);
    for (const Sequence& one : sequences_) stride_ = std::max<uint64_t>(stride_, one.table.size());
    for (uint32_t s = 0; s < sequences_.size(); s++) {
      const Sequence& one = sequences_[s];
      std::vector<uint32_t> table = one.table;
      const uint64_t first = first_visible(s);
      uint64_t sinks = params_.sink_tokens;
      for (const uint32_t of_head : sinks_) sinks = std::max<uint64_t>(sinks, of_head);
      for (uint64_t b = 0; b < table.size(); b++)
        if (one.queries == 0 || ((b + 1) * block_size() <= first && b * block_size() >= sinks))
          table[b] = UINT32_MAX;
      table.resize(stride_, UINT32_MAX);
      tables_.insert(tables_.end(), table.begin(), table.end());
    }
    tables_.push_back(0);
  }

  // The first position in a window of any query and head, or the last position. Where a mask
  // decides which new tokens are seen, all of them are read.
  uint64_t first_visible(uint32_t s) const {
    uint64_t first = sequences_[s].length;
    for (uint32_t row = 0; row < total_queries(); row++)
      for (uint32_t head = 0; head < model_.kv_heads && queries_[row].sequence == s; head++) {
        const uint32_t window = windows_.empty() ? params_.window : windows_[head];
        const uint64_t at = static_cast<uint64_t>(position_of(row)),
                       visible = (places_.empty() ? at : sequences_[s].start()) + 1;
        first = std::min(first, window == 0 || visible < window ? 0 : visible - window);
      }
    if (masks_new_tokens()) first = std::min(first, sequences_[s].start());
    return std::min(first, sequences_[s].length - 1);
  }

  // ---- what must come out

  void expect() {
    const Doubles queries(q_);
    mass_.assign(mass_size(), {});
    expected_.assign(size_t{total_queries()} * model_.query_heads, {});
    for (uint32_t s = 0; s < sequences_.size(); s++) {
      const Sequence& one = sequences_[s];
      const Doubles k(contents_[s].k), v(contents_[s].v);
      for (uint32_t i = 0; i < one.queries; i++)
        for (uint32_t h = 0; h < model_.query_heads; h++)
          expect_row(one.first_query + i, h, queries, k, v);
    }
  }

  size_t mass_size() const {
    return sequences_.size() * model_.query_heads * params_.block_outputs.mass_blocks;
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
    attention.isa = PKV_ISA_AUTO;
    attention.mask_words = (s.length + 63) / 64;
    attention.mask.assign(attention.mask_words, 0);
    Expected& wanted = expected_[size_t{row} * model_.query_heads + h];
    for (uint64_t j = 0; j < s.length; j++)
      if (sees(row, head, j)) {
        attention.mask[j / 64] |= uint64_t{1} << j % 64;
        wanted.poisoned |= poisoned_[slot_of(s, j) * model_.kv_heads + head];
      }
    Query at{0, h, head, static_cast<uint64_t>(position_of(row)), 0, s.length};
    for (uint64_t j = 0; j < s.length && masks_new_tokens(); j++)
      at.places.push_back(place_of(s, j));
    for (uint64_t j = 0; j < s.length && masking_ == Masking::numbers; j++)
      at.bias.push_back(added(row, h, j));
    const ReferenceRow reference(queries.row(row_of(query), h), at, k, v, attention);
    wanted.out = reference.out;
    for (uint32_t d = 0; d < model_.value_dim; d++)
      wanted.tolerance.push_back(reference.tolerance(d, out_dtype_) + rotation_tolerance());
    wanted.lse = reference.lse;
    wanted.lse_tolerance = reference.lse_tolerance + rotation_tolerance();
    const uint32_t counted = params_.block_outputs.mass_queries;
    if (!wants_mass_ || (counted != 0 && query.index + counted < s.queries)) return;
    Mass* const mass =
        &mass_[(query.sequence * model_.query_heads + h) * params_.block_outputs.mass_blocks];
    for (size_t n = 0; n < reference.positions().size(); n++) {
      Mass& block = mass[reference.positions()[n] / block_size()];
      block.sum += reference.weights()[n];
      block.tolerance += reference.weight_tolerance(reference.weights()[n]) + rotation_tolerance();
      block.poisoned |= wanted.poisoned;
    }
  }

  pkv_kv_sequences sequences() {
    query_lengths_ = query_lengths();
    kv_lengths_.clear(), first_rows_.clear();
    for (const Sequence& one : sequences_) {
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

  // Scores are of rotated queries and keys, and the reference is not.
  double rotation_tolerance() const { return rotated() ? 1e-2 : 0; }

  // ---- ways to make the call

  void attend_over_memory(pkv_isa isa) {
    const pkv_kv_sequences given = sequences();
    compare(make_call(params_, [&](const auto& params, const auto& q, const auto& out) {
      return pkv_kv_attend(compute_of(isa), &view_, &given, &params, &q, &out, &params.outputs);
    }));
  }

  void attend_in_cache(pkv_isa isa) {
    ModelConfig config = config_of(model_, view_.blocks + 2 * sequences_.size());
    config.layout = view_.layout;
    config.block_size = block_size();
    config.threads = threads_;
    config.isa = isa;
    if (in_file_) config.memory_directory = ".";
    const Cache cache = create(config);
    const std::vector<Session> sessions = write_past(cache);
    Batch batch = begin(cache, {sessions.begin(), sessions.end()}, query_lengths());
    write_step(batch);
    for (size_t s = 0; s < sessions.size(); s++) compare_stored(sessions[s], s);
    const auto attend = [&](const auto& params, const auto& q, const auto& out) {
      return pkv_batch_attend(batch, 0, &params, &q, &out, &params.outputs);
    };
    if (top_ != 0) choose(attend);
    const Result result = make_call(params_of_layer(), attend);
    compare(result);
    AttentionParams silent = params_of_layer();
    silent.outputs = made<pkv_attention_outputs>();
    Result again{Rows(tensor_rows_, model_.query_heads, model_.value_dim, out_dtype_), {}, {}};
    call_with(attend, silent, again.out);
    EXPECT_TRUE(result.out == again.out) << "without lse and mass";
    if (!drops_) expect_same_over(cache, sessions, isa, result);
    commit(batch);
    CHECK(pkv_cache_validate(cache));
  }

  // Sessions grow in pieces, or are forks of the one before them, trimmed to what they share.
  std::vector<Session> write_past(pkv_cache cache) {
    Random random(seed_);
    std::vector<Session> sessions;
    for (const Sequence& one : sequences_) {
      sessions.push_back(one.shared == 0 ? open(cache) : fork(sessions.back()));
      if (one.shared != 0) CHECK(pkv_session_trim(sessions.back(), one.shared));
      for (uint64_t at = one.shared, more; at < one.start(); at += more) {
        more = random.between(1, one.start() - at);
        KeysValues rows = rows_at(one, at, at + more, given_);
        Batch batch = begin(cache, {sessions.back()}, {static_cast<uint32_t>(more)});
        write(batch, 0, model_, rows);
        commit(batch);
      }
    }
    for (size_t s = 0; s < sessions.size(); s++) {
      std::vector<uint32_t> blocks;
      for (uint32_t b = 0; b < sequences_[s].dropped.size(); b++)
        if (sequences_[s].dropped[b]) blocks.push_back(b);
      if (!blocks.empty())
        CHECK(pkv_session_drop_blocks(sessions[s], 0, blocks.size(), blocks.data()));
    }
    return sessions;
  }

  void write_step(pkv_batch batch) {
    KeysValues rows{
        Rows(tensor_rows_, model_.kv_heads, model_.key_dim, given_.k.dtype(), out_placement_),
        Rows(tensor_rows_, model_.kv_heads, model_.value_dim, given_.v.dtype(), out_placement_)};
    for (const QueryOf& query : queries_) {
      const Sequence& one = sequences_[query.sequence];
      rows.k.copy(row_of(query), given_.k, slot_of(one, one.start() + query.index), 1);
      rows.v.copy(row_of(query), given_.v, slot_of(one, one.start() + query.index), 1);
    }
    pkv_tensor k = rows.k.tensor(), v = rows.v.tensor();
    k.batch_stride = batch_rows() * k.row_stride;
    v.batch_stride = batch_rows() * v.row_stride;
    first_rows_.clear();
    for (const Sequence& one : sequences_) first_rows_.push_back(one.first_row);
    if (padding_ != Padding::none)
      CHECK(pkv_batch_set_first_rows(batch, first_rows_.size(), first_rows_.data()));
    CHECK(pkv_batch_write(batch, 0, &k, model_.latent() ? nullptr : &v));
  }

  // Checks that a session holds what was given, except for what it dropped or left behind.
  void compare_stored(pkv_session session, size_t s) const {
    const Sequence& one = sequences_[s];
    for (uint64_t j = 0; j < one.length && !rotated(); j++) {
      KeysValues found = rows_of(model_, 1);
      const pkv_tensor k = found.k.tensor(), v = found.v.tensor();
      const pkv_status status = pkv_session_read(session, 0, j, 1, &k, &v);
      const bool left = model_.window != 0 && j + model_.window <= one.start() && j >= model_.sinks;
      if (status == PKV_OUT_OF_RANGE && (left || one.dropped[j / block_size()])) continue;
      CHECK(status);
      const auto expect = [&](const Rows& wanted, const Rows& got) {
        got.each([&](size_t, uint32_t head, uint32_t d) {
          ASSERT_TRUE(poisoned_[slot_of(one, j) * model_.kv_heads + head] ||
                      wanted.get(j, head, d) == got.get(0, head, d))
              << "position " << j;
        });
      };
      expect(contents_[s].k, found.k);
      expect(contents_[s].v, found.v);
    }
  }

  // Returns the parameters with zeros for what is the layer's.
  AttentionParams params_of_layer() {
    AttentionParams params = params_;
    if (model_.window == 0) return params;
    if (params.window == model_.window) params.window = 0;
    params.sink_tokens = params.sink_tokens == model_.sinks ? 0
                         : params.sink_tokens == 0          ? PKV_NO_SINK_TOKENS
                                                            : params.sink_tokens;
    given_sinks_ = sinks_;
    std::replace(given_sinks_.begin(), given_sinks_.end(), 0u, PKV_NO_SINK_TOKENS);
    if (!sinks_.empty()) params.kv_head_sink_tokens = given_sinks_.data();
    return params;
  }

  // Lets the library choose blocks, and gives the same blocks as lists from then on.
  template <class Call>
  void choose(const Call& call) {
    lists_.assign(size_t{choices_} * model_.kv_heads * top_ + 1, 7);
    list_size_ = top_;
    AttentionParams params = params_of_layer();
    params.own_blocks.lists = nullptr;
    params.own_blocks.list_blocks = 0;
    params.own_blocks.top_blocks = top_;
    params.block_outputs.chosen = lists_.data();
    const Result result = make_call(params, call);
    params_.own_blocks.lists = lists_.data();
    params_.own_blocks.list_blocks = list_size_;
    for (uint32_t row = 0; row < total_queries(); row++)
      for (uint32_t head = 0; head < model_.kv_heads; head++) check_choice(row, head);
    expect();
    compare(result);
  }

  // The nearest bf16 that is not below x, or with -1 not above.
  static double outward(double x, int sign) {
    const float y = static_cast<float>(x) * static_cast<float>(sign);
    const uint32_t cut = std::bit_cast<uint32_t>(y) & 0xFFFF0000u;
    const uint32_t next = std::bit_cast<float>(cut) < y ? cut + 0x10000u : cut;
    return static_cast<double>(std::bit_cast<float>(next)) * sign;
  }

  // Computes the bounds of the blocks of a sequence, [blocks][KV heads][dims].
  std::vector<std::pair<double, double>> bounds_of(size_t s) const {
    std::vector<std::pair<double, double>> bounds;
    for (uint64_t block = 0; block < blocks_of(sequences_[s]); block++)
      for (uint32_t head = 0; head < model_.kv_heads; head++)
        for (uint32_t d = 0; d < model_.key_dim; d++) {
          double smallest = HUGE_VAL, largest = -HUGE_VAL;
          const uint64_t end = std::min((block + 1) * block_size(), sequences_[s].length);
          for (uint64_t j = block * block_size(); j < end; j++) {
            const double key = double{contents_[s].k.get(j, head, d)};
            smallest = std::min(smallest, key);
            largest = std::max(largest, key);
          }
          bounds.emplace_back(outward(smallest, -1), outward(largest, 1));
        }
    return bounds;
  }

  // The score of a block for a query: a sum over its heads of what is halfway between the score of
  // the middle of its keys and what they may give at most.
  double score_of(uint32_t row, uint32_t head, uint32_t block) const {
    const auto* const bounds =
        &bounds_[queries_[row].sequence][(size_t{block} * model_.kv_heads + head) * model_.key_dim];
    double sum = 0;
    for (uint32_t h = head * group(); h < (head + 1) * group(); h++)
      for (uint32_t d = 0; d < model_.key_dim; d++) {
        const double x = double{q_.get(row_of(queries_[row]), h, d)} * (params_.scale < 0 ? -1 : 1);
        const double one = x * bounds[d].first, other = x * bounds[d].second;
        sum += ((one + other) / 2 + std::max(one, other)) / 2;
      }
    return sum;
  }

  // What is chosen has the highest scores among the blocks of which something is seen. (A rotation
  // spreads the keys, whose bounds are then not computed here.)
  void check_choice(uint32_t row, uint32_t head) const {
    const QueryOf& query = queries_[row];
    const Sequence& s = sequences_[query.sequence];
    const auto list =
        lists_.begin() +
        static_cast<std::ptrdiff_t>((size_t{choice_of(row)} * model_.kv_heads + head) * top_);
    const auto end = std::find(list, list + top_, PKV_NO_BLOCK_ID);
    const auto [first, last] = queries_of_choice(row);
    if (row != first) return;
    double worst_chosen = HUGE_VAL, best_left = -HUGE_VAL;
    uint32_t candidates = 0;
    for (uint32_t block = 0; block < blocks_of(s); block++) {
      if (!choosable(row, block)) continue;
      const bool chosen = std::find(list, end, block) != end;
      bool candidate = false;
      double score = 0;
      for (uint32_t i = first; i < last; i++) {
        const uint64_t begin = uint64_t{block} * block_size();
        for (uint64_t j = begin; j < std::min(begin + block_size(), s.length) && !candidate; j++)
          candidate = shown(i, head, j);
        score += rotated() ? 0 : score_of(i, head, block);
      }
      EXPECT_TRUE(candidate || !chosen) << "block " << block << ", of which nothing is seen";
      candidates += candidate;
      if (chosen)
        worst_chosen = std::min(worst_chosen, score);
      else if (candidate)
        best_left = std::max(best_left, score);
    }
    ASSERT_EQ(std::min(top_, candidates), end - list);
    EXPECT_TRUE(std::is_sorted(list, end));
    EXPECT_GE(worst_chosen, best_left - 1e-4 * (1 + std::abs(best_left)));
  }

  // The stateless call over the memory of the cache gives the same bits.
  void expect_same_over(pkv_cache cache, const std::vector<Session>& sessions, pkv_isa isa,
                        const Result& result) {
    const pkv_kv_view view = kv_view_of(cache, 0);
    pkv_kv_sequences given = sequences();
    std::vector<uint32_t> tables;
    for (const Session& session : sessions) {
      std::vector<uint32_t> table = block_table(session);
      table.resize(stride_, PKV_NO_BLOCK_ID);
      tables.insert(tables.end(), table.begin(), table.end());
    }
    tables.push_back(0);
    given.block_tables = tables.data();
    const Result again =
        make_call(params_, [&](const auto& params, const auto& q, const auto& out) {
          return pkv_kv_attend(compute_of(isa), &view, &given, &params, &q, &out, &params.outputs);
        });
    EXPECT_TRUE(result.out == again.out) << "over the memory of the cache";
  }

  uint32_t batch_rows() const { return padding_ == Padding::batch ? batch_rows_ : 0; }

  std::vector<uint32_t> query_lengths() const {
    std::vector<uint32_t> lengths;
    for (const Sequence& one : sequences_) lengths.push_back(one.queries);
    return lengths;
  }

  template <class Call>
  void call_with(const Call& call, const AttentionParams& params, Rows& out) {
    pkv_tensor q = q_.tensor(), to = out.tensor();
    q.batch_stride = batch_rows() * q.row_stride;
    to.batch_stride = batch_rows() * to.row_stride;
    CHECK(call(params, q, to));
  }

  // Returns whether the call gives the same bits if its results go anywhere over its queries.
  template <class Call>
  bool same_over_queries(const Call& call, const AttentionParams& params, Result& wanted) {
    Random random(seed_);
    const std::vector<float> mass = wanted.mass;
    pkv_tensor q = q_.tensor(), out = wanted.out.tensor();
    const bool in_place =
        model_.key_dim == model_.value_dim && q.dtype == out.dtype && random.chance(80);
    if (in_place) out.row_stride = q.row_stride, out.head_stride = q.head_stride;
    const auto bytes = [&](const pkv_tensor& tensor) {
      return (tensor_rows_ * static_cast<size_t>(tensor.row_stride) + 1) * bytes_of(tensor.dtype);
    };
    const size_t at = in_place ? bytes(out) : random.below(2 * bytes(out));
    std::vector<unsigned char> memory(2 * bytes(out) + std::max(bytes(q), bytes(out)));
    std::memcpy(&memory[bytes(out)], q.data,
                tensor_rows_ * static_cast<size_t>(q.row_stride) * bytes_of(q.dtype));
    const auto* const from = static_cast<const unsigned char*>(out.data);
    q.data = &memory[bytes(out)];
    q.batch_stride = batch_rows() * q.row_stride;
    const pkv_tensor separate = wanted.out.tensor();
    out.data = &memory[at];
    out.batch_stride = batch_rows() * out.row_stride;
    q.bytes = memory.size() - bytes(out), out.bytes = memory.size() - at;
    CHECK(call(params, q, out));
    for (const QueryOf& query : queries_)
      for (uint32_t h = 0; h < model_.query_heads; h++) {
        const auto place = [&](const pkv_tensor& tensor) {
          return (row_of(query) * static_cast<size_t>(tensor.row_stride) +
                  h * static_cast<size_t>(tensor.head_stride)) *
                 bytes_of(out.dtype);
        };
        if (std::memcmp(&memory[at + place(out)], from + place(separate),
                        model_.value_dim * bytes_of(out.dtype)) != 0)
          return false;
      }
    return std::memcmp(mass.data(), wanted.mass.data(), mass.size() * sizeof(float)) == 0;
  }

  template <class Call>
  Result make_call(AttentionParams params, const Call& call) {
    Result result{
        Rows(tensor_rows_, model_.query_heads, model_.value_dim, out_dtype_, out_placement_),
        std::vector<float>(size_t{total_queries()} * model_.query_heads + 1, 7.0f),
        std::vector<float>(mass_size() + 1, 7.0f)};
    if (wants_lse_) params.outputs.lse = result.lse.data();
    if (wants_mass_) params.block_outputs.masses = result.mass.data();
    call_with(call, params, result.out);
    EXPECT_TRUE(result.out.gaps_untouched());
    EXPECT_TRUE(seed_ % 4 != 0 || same_over_queries(call, params, result)) << "over queries";
    return result;
  }

  void compare(const Result& result) {
    for (uint32_t row = 0; row < total_queries(); row++)
      for (uint32_t h = 0; h < model_.query_heads; h++) compare_row(row, h, result.out, result.lse);
    EXPECT_EQ(7, result.lse.back());
    if (wants_mass_) compare_mass(result.mass);
  }

  void compare_row(uint32_t row, uint32_t h, const Rows& out, const std::vector<float>& lse) {
    const size_t index = size_t{row} * model_.query_heads + h;
    const Expected& wanted = expected_[index];
    if (wanted.poisoned) return compare_finite(row, h, out);
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

  // Outputs of numbers that are not finite are finite in the same dims in each way to compute them.
  // The integers of int4 have one unit for all runs of 32 dims, so there one run may spoil the row.
  void compare_finite(uint32_t row, uint32_t h, const Rows& out) {
    if (model_.values_dtype() == PKV_INT4) return;
    std::vector<bool> finite;
    for (uint32_t d = 0; d < model_.value_dim; d++)
      finite.push_back(std::isfinite(out.get(row_of(queries_[row]), h, d)));
    const auto first = finite_.emplace(std::pair(row, h), finite).first;
    ASSERT_EQ(first->second, finite) << "query " << row << ", head " << h;
  }

  // Entries that belong to no block stay as they were.
  void compare_mass(const std::vector<float>& mass) const {
    for (size_t i = 0; i < mass_.size(); i++) {
      const size_t size = params_.block_outputs.mass_blocks, s = i / size / model_.query_heads;
      const bool written = sequences_[s].queries > 0 && i % size < blocks_of(sequences_[s]);
      if (mass_[i].poisoned) continue;
      ASSERT_NEAR(written ? mass_[i].sum : 7, double{mass[i]}, mass_[i].tolerance)
          << "mass of sequence " << s << ", head " << i / size % model_.query_heads << ", block "
          << i % size;
    }
    EXPECT_EQ(7, mass.back());
  }

  std::vector<unsigned char> k_bytes_, v_bytes_;
  std::vector<bool> poisoned_;        // [slots][KV heads]
  KeysValues given_, stored_;         // by slot, before and after they are stored
  std::vector<KeysValues> contents_;  // of each sequence, as they are stored
  std::vector<std::vector<std::pair<double, double>>> bounds_;  // of each sequence
  Rows q_;
  pkv_dtype out_dtype_ = PKV_F32;
  Placement out_placement_;
  std::vector<uint32_t> tables_, query_lengths_, first_rows_, given_sinks_;
  std::vector<uint64_t> kv_lengths_;
  uint64_t stride_ = 0;
  std::vector<Expected> expected_;                                     // [queries][query heads]
  std::map<std::pair<uint32_t, uint32_t>, std::vector<bool>> finite_;  // of queries and heads
  std::vector<Mass> mass_;  // [sequences][query heads][mass_blocks]
};

}  // namespace cache_test
