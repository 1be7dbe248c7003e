// Measures how fast decode attention reads K and V, alone and with a prefix that sessions share.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>

#include "fixture.h"
#include "peaks.h"

namespace pkv::bench {

namespace {

// In turns with plain reads of as much memory, a few calls at a time if they are short. What a
// cache keeps of K and V from one call to the next, it also keeps of that memory.
void decode(benchmark::State& state, const Geometry& geometry) {
  Filled filled(geometry);
  Step step(geometry, filled, 1);
  const size_t bytes = geometry.kv_bytes(),
               calls = std::clamp<size_t>(largest_read / 8 / bytes, 1, 64);
  const size_t plain = std::min(bytes, largest_read);
  const auto attend = [&] {
    for (size_t i = 0; i < calls; i++) step.attend();
  };
  const auto [ours, reading] = in_turns(state, attend, [&] { return read_seconds(plain, calls); });
  // The seconds in which plain reads would have read as many bytes.
  const double limit = reading * static_cast<double>(bytes) / static_cast<double>(plain);
  report(state, "GB/s", "read_GB/s", static_cast<double>(bytes * calls) / 1e9, ours, limit);
  state.counters["tokens/s"] = static_cast<double>(geometry.sessions * calls) / ours;
}

// Tokens per second over bf16's, in turns.
void decode_quantised(benchmark::State& state, const Geometry& geometry) {
  Geometry unquantised = geometry;
  unquantised.dtype = PKV_BF16;
  Filled quantised(geometry), peer(unquantised);
  Step step(geometry, quantised, 1), peer_step(unquantised, peer, 1);
  const auto [ours, theirs] = in_turns(state, [&] { step.attend(); }, [&] { peer_step.attend(); });
  report(state, "tokens/s", "bf16_tokens/s", geometry.sessions, ours, theirs);
}

bool is_read_only(pkv_dtype dtype) { return dtype == PKV_Q8_0 || dtype == PKV_Q4_0; }

// Rows of an engine's own memory, in turns with packed tiles: those of int8 for q8_0, of int4 for
// q4_0. With scattered blocks, the table of each sequence is a random permutation.
class PlainMemory {
 public:
  PlainMemory(const Geometry& geometry, bool scattered)
      : q_(geometry.sessions, geometry.query_heads(), geometry.dim),
        out_(geometry.sessions, geometry.query_heads(), geometry.dim),
        lengths_(geometry.sessions, geometry.tokens),
        queries_(geometry.sessions, 1) {
    const uint32_t blocks = geometry.tokens / geometry.block_size;
    view_.layout = PKV_LAYOUT_PLAIN, view_.block_size = geometry.block_size;
    view_.kv_heads = geometry.kv_heads, view_.key_dim = view_.value_dim = geometry.dim;
    view_.dtype = geometry.dtype, view_.blocks = uint64_t{blocks} * geometry.sessions;
    uint64_t bytes = 0;
    check(pkv_kv_view_init(&view_, &bytes));
    memory_.reset(
        static_cast<unsigned char*>(std::aligned_alloc(1 << 21, ((bytes >> 21) + 1) << 21)));
    view_.k = memory_.get();
    check(pkv_kv_view_init(&view_, &bytes));
    tables_.resize(view_.blocks);
    std::iota(tables_.begin(), tables_.end(), 0u);
    if (scattered) std::shuffle(tables_.begin(), tables_.end(), std::mt19937(1));
    sequences_.query_heads = geometry.query_heads(), sequences_.count = geometry.sessions;
    sequences_.query_lengths = queries_.data(), sequences_.kv_lengths = lengths_.data();
    sequences_.block_tables = tables_.data(), sequences_.block_table_stride = blocks;
    fill(geometry);
  }
  void attend() {
    check(
        pkv_kv_attend(nullptr, &view_, &sequences_, nullptr, q_.tensor(), out_.tensor(), nullptr));
  }

 private:
  struct Free {
    void operator()(unsigned char* memory) const { std::free(memory); }
  };

  void fill(const Geometry& geometry) {
    if (is_read_only(geometry.dtype)) return fill_blocks();
    const Rows rows(geometry.tokens, geometry.kv_heads, geometry.dim);
    std::vector<int64_t> slots(geometry.tokens);
    for (uint64_t first = 0; first < view_.blocks * geometry.block_size; first += slots.size()) {
      std::iota(slots.begin(), slots.end(), static_cast<int64_t>(first));
      check(pkv_kv_write_slots(nullptr, &view_, slots.size(), slots.data(), rows.tensor(),
                               rows.tensor()));
    }
  }

  // Blocks of q8_0 or q4_0, which nothing writes: a scale of f16, then bytes.
  void fill_blocks() {
    const uint64_t block = view_.dtype == PKV_Q8_0 ? 34 : 18;
    const uint16_t scale = 0x2000;  // 1 / 128
    std::mt19937 random(1);
    for (void* const side : {view_.k, view_.v}) {
      auto* const rows = static_cast<unsigned char*>(side);
      const uint64_t bytes = side == view_.k ? view_.k_bytes : view_.v_bytes;
      for (uint64_t at = 0; at + block <= bytes; at += block) {
        std::memcpy(rows + at, &scale, sizeof scale);
        for (uint64_t i = 2; i < block; i++) rows[at + i] = static_cast<unsigned char>(random());
      }
    }
  }

  pkv_kv_view view_ = made<pkv_kv_view>();
  pkv_kv_sequences sequences_ = made<pkv_kv_sequences>();
  Rows q_, out_;
  std::vector<uint64_t> lengths_;
  std::vector<uint32_t> queries_, tables_;
  std::unique_ptr<unsigned char[], Free> memory_;
};

void decode_plain(benchmark::State& state, const Geometry& geometry, bool scattered) {
  Geometry packed = geometry;
  packed.block_size = 16;
  if (geometry.dtype == PKV_Q8_0) packed.dtype = PKV_INT8;
  if (geometry.dtype == PKV_Q4_0) packed.dtype = PKV_INT4;
  Filled filled(packed);
  Step step(packed, filled, 1);
  PlainMemory plain(geometry, scattered);
  const auto [ours, theirs] = in_turns(state, [&] { plain.attend(); }, [&] { step.attend(); });
  report(state, "tokens/s", "packed_tokens/s", geometry.sessions, ours, theirs);
}

// The sessions are forks of one prompt, in turns with sessions that have prompts of their own.
void shared_prefix(benchmark::State& state, const Geometry& geometry) {
  Filled apart(geometry);
  Geometry one = geometry;
  one.sessions = 1;
  one.extra = 16 * geometry.sessions;
  Filled shared(one);
  while (shared.sessions().size() < geometry.sessions) {
    pkv_session child;
    check(pkv_session_fork(shared.sessions()[0], &child));
    shared.sessions().push_back(child);
  }
  Step step(geometry, shared, 1), apart_step(geometry, apart, 1);
  const auto [together, separate] =
      in_turns(state, [&] { step.attend(); }, [&] { apart_step.attend(); });
  const double flops =
      4.0 * geometry.sessions * geometry.tokens * geometry.query_heads() * geometry.dim;
  state.counters["us"] = together * 1e6;
  state.counters["us_apart"] = separate * 1e6;
  state.counters["of_FMA_peak"] = flops / together / fma_rate();
  state.counters["ratio"] = separate / together;
}

}  // namespace

void register_decode() {
  constexpr uint64_t most_bytes = uint64_t{6} << 30;
  const Geometry usual;
  for (const pkv_dtype dtype : all_dtypes) {
    const bool quantised = dtype == PKV_INT8 || dtype == PKV_INT4;
    for (const uint32_t group : {1u, 4u, 8u})
      for (const uint32_t dim : {64u, 128u, 256u})
        for (const uint32_t sessions : {1u, 8u, 64u, 256u})
          for (const uint32_t tokens : {512u, 4096u, 32768u}) {
            // The short mode varies one number at a time.
            const int unusual = (group != usual.group) + (dim != usual.dim) +
                                (sessions != usual.sessions) + (tokens != usual.tokens);
            if (short_run() && (unusual > 1 || (unusual == 1 && dtype != PKV_BF16))) continue;
            if (sessions == 256 && (tokens != 512 || dim != usual.dim)) continue;
            const Geometry geometry{
                .dtype = dtype, .group = group, .dim = dim, .sessions = sessions, .tokens = tokens};
            if (geometry.kv_bytes() <= most_bytes)
              add("decode/" + geometry.name(), quantised ? decode_quantised : decode, geometry);
          }
  }
  for (const pkv_dtype dtype : {PKV_F32, PKV_F16, PKV_BF16, PKV_INT8, PKV_Q8_0, PKV_Q4_0})
    for (const uint32_t group : {1u, 4u, 8u})
      for (const uint32_t dim : {64u, 128u})
        for (const uint32_t block : {1u, 16u, 256u})
          for (const bool scattered : {false, true}) {
            const int unusual =
                (group != usual.group) + (dim != usual.dim) + (block != 1) + !scattered;
            if (short_run() && unusual > 1) continue;
            const Geometry geometry{
                .dtype = dtype, .group = group, .dim = dim, .block_size = block};
            add("decode_plain/" + geometry.name() + "/block" + std::to_string(block) +
                    (scattered ? "/scattered" : "/in_order"),
                decode_plain, geometry, scattered);
          }
  for (const uint32_t group : {1u, 4u}) {
    const Geometry geometry{.group = group, .sessions = 16};
    add("shared_prefix/" + geometry.name(), shared_prefix, geometry);
  }
}

}  // namespace pkv::bench
