// Hostile bytes as arguments that depend on each other: structs, tensors, views and lists. Each
// status is a documented one, a refused call writes nothing that it must not write, a cache that
// was created works, and nothing leaks. (Numbers, sizes and handles by themselves are those of
// tests/hostile.)
#include <numeric>
#include <vector>

#include "fixture.h"
#include "spoil.h"
#include "target.h"

namespace {

// One step of a cache with any config. Its rows must fit into a buffer.
void use(pkv_cache cache, uint32_t layers, uint64_t row_floats) {
  Fixture& f = fixture();
  pkv_session session = nullptr;
  pkv_batch batch = nullptr;
  documented(pkv_session_open(cache, nullptr, &session), {PKV_OUT_OF_MEMORY});
  const uint32_t two = 2;
  if (session == nullptr) return;
  const pkv_status begun = pkv_batch_begin(cache, 1, &session, &two, &batch);
  documented(begun, {PKV_OUT_OF_MEMORY, PKV_OUT_OF_BLOCKS, PKV_TOO_LARGE});
  if (begun == PKV_OK && row_floats * 2 * 4 <= f.out.size()) {
    const pkv_tensor rows = f.dense(), out{f.out.data(), PKV_F32, 0, 0, 0, 0, 0};
    for (uint32_t layer = 0; layer < std::min(layers, 4u); layer++) {
      if (pkv_batch_write(batch, layer, &rows, &rows) != PKV_OK)
        documented(pkv_batch_write(batch, layer, &rows, nullptr), {PKV_UNSUPPORTED});
      documented(pkv_batch_attend(batch, layer, nullptr, &rows, &out, nullptr),
                 {PKV_UNSUPPORTED, PKV_OUT_OF_MEMORY, PKV_INCOMPLETE});
    }
    const pkv_status committed = pkv_batch_commit(batch, 0, nullptr);
    documented(committed, {PKV_INCOMPLETE, PKV_OUT_OF_MEMORY});
    if (committed == PKV_OK) batch = nullptr;
    f.out.clear();
  }
  EXPECT_EQ(PKV_OK, pkv_cache_validate(cache)) << pkv_last_error();
  EXPECT_EQ(PKV_OK, pkv_batch_abort(batch));
}

void run_alone(void*, size_t n, void (*task)(void*, size_t, uint32_t), void* context) {
  for (size_t i = 0; i < n; i++) task(context, i, 0);
}

// NULL, zeros, or the unit matrix of a dim.
const float* draw_matrix(Source& draw, uint32_t matrix_dim) {
  static std::vector<float> matrix(576 * 576), zeros(576 * 576);
  if (draw.chance(20)) return nullptr;
  if (matrix_dim > 576 || draw.chance(5)) return zeros.data();
  std::fill(matrix.begin(), matrix.end(), 0.0f);
  for (size_t i = 0; i < matrix_dim; i++) matrix[i * (matrix_dim + 1)] = 1;
  return matrix.data();
}

// Sets the matrices of a rotation after the struct was spoilt; keys and values share one.
template <class Struct>
void draw_matrices(Struct& of, Source& draw) {
  static pkv_rotation_matrices matrices;
  of.rotation_matrices = nullptr;
  if (of.rotation != PKV_ROTATION_NONE && draw.chance(97)) return;
  if (draw.chance(70)) return;
  matrices = made<pkv_rotation_matrices>();
  if (draw.chance(10)) spoil(matrices, draw);
  matrices.key = draw_matrix(draw, of.key_dim);
  const bool same_dim = of.value_dim == 0 || of.value_dim == of.key_dim;
  matrices.value = same_dim ? matrices.key : nullptr;
  of.rotation_matrices = &matrices;
}

pkv_hint draw_hint(Source& draw) {
  auto hint = made<pkv_hint>({.action = static_cast<pkv_hint_action>(draw.between(1, 8)),
                              .first = draw.below(64),
                              .end = draw.chance(40) ? PKV_TO_END : draw.below(3) * 32,
                              .duration_ms = draw.below(100)});
  spoil(hint, draw);
  if (draw.chance(90)) hint.struct_size = sizeof hint;
  return hint;
}

pkv_layer_group draw_group(Source& draw, const std::vector<uint32_t>& indices) {
  auto group = made<pkv_layer_group>({.layers = 1, .blocks = draw.between(1, 20)});
  group.query_heads = group.kv_heads = static_cast<uint32_t>(draw.between(1, 4));
  group.key_dim = static_cast<uint32_t>(16 * draw.between(1, 4));
  group.rotation = static_cast<pkv_rotation>(draw.below(2));
  spoil(group, draw);
  draw_matrices(group, draw);
  if (draw.chance(90)) group.struct_size = sizeof group;
  group.layer_indices =
      draw.chance(20) && group.layers <= indices.size() ? indices.data() : nullptr;
  return group;
}

// Takes the heads and dims of some groups away, because only an engine can read their blocks.
void draw_opaque(Source& draw, std::vector<pkv_layer_group>& groups) {
  for (pkv_layer_group& group : groups) {
    if (draw.chance(30)) continue;
    group = made<pkv_layer_group>(
        {.layers = group.layers,
         .layer_indices = group.layer_indices,
         .kind = draw.chance(70) ? PKV_LAYERS_OPAQUE_KV : PKV_LAYERS_OPAQUE_STATES,
         .window = group.window,
         .sink_tokens = group.sink_tokens,
         .layer_bytes = draw.chance(70) ? 200 : number(draw),
         .checkpoint_interval = group.checkpoint_interval,
         .max_verify_tokens = group.max_verify_tokens,
         .blocks = group.blocks});
  }
}

// Hooks that copy nothing; some are missing.
pkv_block_io draw_block_io(Source& draw) {
  auto io = made<pkv_block_io>();
  spoil(io, draw);
  if (draw.chance(90)) io.struct_size = sizeof io;
  const auto some = [&](auto hook) { return draw.chance(95) ? hook : nullptr; };
  io.read =
      some(+[](void*, uint32_t, size_t, const uint32_t*, const uint32_t*, void*) { return 0; });
  io.write = some(+[](void*, uint32_t, size_t, const uint32_t*, const void*) { return 0; });
  return io;
}

void cache_config(Source& draw) {
  Fixture& f = fixture();
  std::vector<pkv_layer_group> groups(draw.between(1, 3));
  std::vector<uint32_t> indices(64);
  for (uint32_t& index : indices)
    index = draw.chance(95) ? static_cast<uint32_t>(&index - indices.data())
                            : static_cast<uint32_t>(number(draw));
  for (pkv_layer_group& group : groups) group = draw_group(draw, indices);
  auto config =
      made<pkv_cache_config>({.group_count = static_cast<uint32_t>(groups.size()), .threads = 1});
  spoil(config, draw);
  config.groups = config.group_count <= groups.size() && draw.chance(97) ? groups.data() : nullptr;
  pkv_allocator allocator = *f.hooks.allocator();
  pkv_logger logger{[](void*, pkv_log_level, const char*) {}, nullptr};
  pkv_runner runner{run_alone, nullptr, 1, 0};
  if (draw.chance(5)) allocator.alloc = nullptr;
  if (draw.chance(5)) logger.log = nullptr;
  spoil(runner, draw);
  runner.run = draw.chance(95) ? run_alone : nullptr;
  config.allocator = &allocator;
  config.logger = draw.chance(50) ? &logger : nullptr;
  config.runner = draw.chance(20) ? &runner : nullptr;
  auto prefix = made<pkv_prefix_config>();
  spoil(prefix, draw);
  config.prefix = draw.chance(30) ? &prefix : nullptr;
  config.store = nullptr;
  if (config.runner != nullptr && draw.chance(80)) config.threads = 0;
  config.memory_directory =
      draw.chance(5) ? "/proc/self" : nullptr;  // no file can be created there
  const bool opaque = !draw.chance(80);         // not at the end of an input
  const pkv_block_io io = draw_block_io(draw);
  config.block_io = opaque && draw.chance(95) ? &io : nullptr;
  if (opaque) draw_opaque(draw, groups);
  if (opaque && draw.chance(60)) config.storage = PKV_STORAGE_EXTERNAL;
  const pkv_clock no_time{};
  config.clock = draw.chance(5) ? &no_time : draw.chance(50) ? f.clock.hook() : nullptr;

  auto plan = made<pkv_cache_sizes>();
  const pkv_status planned = pkv_cache_compute_sizes(&config, PKV_ALL_GROUPS, &plan);
  documented(planned, {PKV_TOO_LARGE, PKV_UNSUPPORTED});
  pkv_cache cache = nullptr;
  const pkv_status status = pkv_cache_create(&config, &cache);
  EXPECT_EQ(status == PKV_OK, cache != nullptr);
  EXPECT_TRUE(status == planned ||
              (planned == PKV_OK && (status == PKV_OUT_OF_MEMORY || status == PKV_IO)))
      << pkv_status_name(status) << ": " << pkv_last_error();
  if (status != PKV_OK) return;
  EXPECT_TRUE(config.storage != PKV_STORAGE_INTERNAL || opaque || plan.memory_bytes <= budget);
  uint64_t floats = 0;
  for (const pkv_layer_group& group : groups)
    floats =
        std::max(floats, uint64_t{group.query_heads} * std::max(group.key_dim, group.value_dim));
  auto info = made<pkv_cache_info>();
  EXPECT_EQ(PKV_OK, pkv_cache_get_info(cache, &info));
  use(cache, info.layers, floats);
  EXPECT_EQ(PKV_OK, pkv_cache_destroy(cache));
}

void session_config(Source& draw) {
  static const unsigned char salt[4096] = {};
  auto config = made<pkv_session_config>();
  spoil(config, draw);
  config.salt = config.salt_size <= sizeof salt && draw.chance(80) ? salt : nullptr;
  pkv_session session = nullptr;
  const pkv_status status =
      pkv_session_open(draw.chance(50) ? fixture().cache : fixture().prefixed, &config, &session);
  documented(status, {PKV_OUT_OF_BLOCKS, PKV_TOO_LARGE, PKV_OUT_OF_MEMORY});
  EXPECT_EQ(status == PKV_OK, session != nullptr);
  EXPECT_EQ(PKV_OK, pkv_session_close(session));
}

// Returns the memory that a mask describes, or NULL if it describes too much.
const void* memory_of(const pkv_mask& mask, Source& draw, const SequenceRows& sequences) {
  static const std::vector<uint64_t> words(1 << 13, 0x5555555555555555u);
  // Bytes, and numbers: small ones, -infinity and NaN.
  static const std::vector<uint8_t> bytes = [] {
    std::vector<uint8_t> list(1 << 16);
    for (size_t i = 0; i < list.size(); i++) list[i] = i % 5 != 0;
    return list;
  }();
  static const std::vector<uint32_t> floats = [] {
    std::vector<uint32_t> list(1 << 16);
    for (size_t i = 0; i < list.size(); i++)
      list[i] = i % 997 == 7 ? 0x7FC00000 : i % 3 == 0 ? 0xFF800000 : i % 7 == 0 ? 0xBF000000 : 0;
    return list;
  }();
  static int32_t parents[64];
  const auto real = [](auto n) { return static_cast<double>(n); };
  uint64_t rows = 0, reach = 0;
  for (size_t s = 0; s < sequences.lengths.size(); s++) {
    const uint64_t first = sequences.first_rows != nullptr ? sequences.first_rows[s] : 0;
    rows += sequences.lengths[s];
    if (sequences.lengths[s] > 0) reach = std::max(reach, first + sequences.lengths[s]);
  }
  const bool refused = mask.row_stride < 0 || mask.batch_stride < 0;
  switch (mask.kind) {
    case PKV_MASK_TREE_BITS:
      return refused || real(rows) * real(mask.row_stride) <= real(words.size()) ? words.data()
                                                                                 : nullptr;
    case PKV_MASK_TREE_PARENTS:
      if (rows > std::size(parents)) return nullptr;
      for (uint64_t i = 0; i < rows; i++)
        parents[i] = draw.chance(80) ? -1 : static_cast<int32_t>(draw.below(3));
      return parents;
    case PKV_MASK_BYTES:
    case PKV_MASK_F16:
    case PKV_MASK_F32: {
      const void* const data =
          mask.kind == PKV_MASK_BYTES ? static_cast<const void*>(bytes.data()) : floats.data();
      return refused || real(sequences.lengths.size()) * real(mask.batch_stride) +
                                real(reach) * real(mask.row_stride) + real(mask.columns) <=
                            real(bytes.size())
                 ? data
                 : nullptr;
    }
  }
  return bytes.data();
}

bool has_columns(const pkv_mask& mask) {
  return mask.kind == PKV_MASK_BYTES || mask.kind == PKV_MASK_F16 || mask.kind == PKV_MASK_F32;
}

// `factors` has a number for each head, or is NULL.
void draw_mask(Source& draw, AttentionParams& params, const SequenceRows& sequences,
               const float* factors) {
  static int64_t first_positions[4], positions[64];
  if (draw.chance(50)) return;
  pkv_mask& mask = params.own_mask;
  params.mask = &mask;
  mask.kind = static_cast<pkv_mask_kind>(draw.between(1, 5));
  if (mask.kind == PKV_MASK_TREE_BITS) mask.row_stride = draw.chance(90) ? 1 : 2;
  if (has_columns(mask)) {
    mask.columns = 48;
    mask.row_stride = static_cast<int64_t>(48 * draw.below(2));
    mask.batch_stride = static_cast<int64_t>(300 * draw.below(2));
  }
  if (draw.chance(30)) spoil(mask, draw);
  mask.data = draw.chance(97) ? memory_of(mask, draw, sequences) : nullptr;
  mask.head_factors = draw.chance(mask.kind >= PKV_MASK_F16 ? 50 : 3) ? factors : nullptr;
  const bool placed = draw.chance(has_columns(mask) ? 50 : 3) &&
                      sequences.lengths.size() <= std::size(first_positions);
  for (int64_t& first : first_positions)
    if (placed) first = static_cast<int64_t>(draw.chance(80) ? draw.below(8) : number(draw));
  mask.first_positions = placed ? first_positions : nullptr;
  const uint64_t rows =
      std::accumulate(sequences.lengths.begin(), sequences.lengths.end(), uint64_t{0});
  const bool deep =
      rows <= std::size(positions) && draw.chance(mask.kind == PKV_MASK_TREE_BITS ? 60 : 3);
  for (uint64_t i = 0; deep && i < rows; i++)
    positions[i] = static_cast<int64_t>(draw.chance(95) ? draw.between(64, 90) : number(draw));
  mask.positions = deep ? positions : nullptr;
}

// Draws lists of blocks for the rows and KV heads of the call, or how many blocks to choose.
void draw_blocks(Source& draw, AttentionParams& params, uint64_t rows, uint64_t heads) {
  static uint32_t lists[256], chosen[256];
  if (draw.chance(75)) return;
  const auto fit = [&](uint64_t size) {
    return rows <= 64 && heads <= 64 && size <= 64 && rows * heads * size <= std::size(lists);
  };
  const bool listed = draw.chance(50);
  pkv_chosen_blocks& blocks = listed ? params.choose(lists, static_cast<uint32_t>(draw.below(3)))
                                     : params.choose(static_cast<uint32_t>(draw.between(1, 2)));
  if (draw.chance(30))
    blocks.tokens_per_choice = draw.chance(50) ? UINT32_MAX : static_cast<uint32_t>(draw.below(5));
  if (draw.chance(30)) spoil(blocks, draw);
  const bool fits = fit(blocks.list_blocks);
  for (uint64_t i = 0; listed && fits && i < rows * heads * blocks.list_blocks; i++)
    lists[i] = draw.chance(50) ? static_cast<uint32_t>(draw.below(3)) : PKV_NO_BLOCK_ID;
  blocks.lists = fits && draw.chance(listed ? 97 : 3) ? lists : nullptr;
  params.block_outputs.chosen =
      fit(blocks.top_blocks) && draw.chance(listed ? 3 : 50) ? chosen : nullptr;
}

// Draws windows and sinks for the KV heads of the call.
void draw_windows(Source& draw, AttentionParams& params, uint64_t heads) {
  static uint32_t windows[64];
  params.kv_head_windows = draw.chance(15) && heads <= std::size(windows) ? windows : nullptr;
  params.kv_head_sink_tokens = draw.chance(15) && heads <= std::size(windows) ? windows : nullptr;
  if (params.kv_head_windows == nullptr && params.kv_head_sink_tokens == nullptr) return;
  for (uint64_t i = 0; i < heads; i++) windows[i] = static_cast<uint32_t>(number(draw));
}

void draw_mass(Source& draw, AttentionParams& params, uint64_t sequences, uint64_t heads) {
  static float masses[1024];
  if (draw.chance(85)) return;
  params.weigh(masses, draw.below(5));
  if (draw.chance(30)) spoil(params.block_outputs, draw);
  const bool fits = heads <= 64 && params.block_outputs.mass_blocks <= 4 && sequences <= 4;
  params.block_outputs.masses = fits && draw.chance(97) ? masses : nullptr;
}

// Parameters with lists for the heads and rows of the call.
AttentionParams draw_params(Source& draw, const SequenceRows& sequences, uint64_t heads,
                            uint64_t heads_of_kv) {
  uint64_t rows = 0;
  for (const uint64_t length : sequences.lengths) rows += length;
  Fixture& f = fixture();
  AttentionParams params;
  spoil(static_cast<pkv_attention_params&>(params), draw);
  static const std::vector<float> per_head(4096, 0.5f);
  params.alibi_slopes = draw.chance(20) && heads <= per_head.size() ? per_head.data() : nullptr;
  params.sink_logits = draw.chance(20) && heads <= per_head.size() ? per_head.data() : nullptr;
  const bool has_lse = draw.chance(30) && rows * heads * sizeof(float) <= f.lse.size();
  params.mask = nullptr;
  params.chosen_blocks = nullptr;
  draw_mask(draw, params, sequences, heads <= per_head.size() ? per_head.data() : nullptr);
  draw_blocks(draw, params, rows, heads_of_kv);
  draw_windows(draw, params, heads_of_kv);
  uint32_t* const chosen = params.block_outputs.chosen;
  draw_mass(draw, params, sequences.lengths.size(), heads);
  params.block_outputs.chosen = chosen;
  if (draw.chance(10)) spoil(params.outputs, draw);
  params.outputs.block_outputs = draw.chance(90) ? &params.block_outputs : nullptr;
  params.outputs.lse = has_lse ? f.lse.as<float>() : nullptr;
  return params;
}

void attend(Source& draw) {
  Fixture& f = fixture();
  const AttentionParams params = draw_params(draw, SequenceRows{{fresh}}, query_heads, 1);
  const pkv_tensor q = draw_tensor(draw, f.rows, fresh, query_heads, dim),
                   out = draw_tensor(draw, f.out, fresh, query_heads, dim);
  const pkv_status status =
      pkv_batch_attend(f.batch, draw.chance(95) ? 0 : static_cast<uint32_t>(number(draw)), &params,
                       &q, &out, &params.outputs);
  documented(status, {PKV_OUT_OF_MEMORY, PKV_UNSUPPORTED});
  check_written(f.out, out, fresh, query_heads, dim, status);
  EXPECT_TRUE(f.lse.untouched_from(
      status == PKV_OK && params.outputs.lse != nullptr ? fresh * query_heads * sizeof(float) : 0));
  f.lse.clear();
}

void write(Source& draw) {
  Fixture& f = fixture();
  const pkv_tensor k = draw_tensor(draw, f.rows, fresh, 1, dim),
                   v = draw_tensor(draw, f.rows, fresh, 1, dim);
  documented(pkv_batch_write(f.batch, static_cast<uint32_t>(draw.chance(95) ? 0 : number(draw)), &k,
                             draw.chance(95) ? &v : nullptr));
}

// Steps a fork, which is then cut and dropped from.
void step_fork(Source& draw) {
  Fixture& f = fixture();
  const uint64_t n = number(draw);
  const pkv_tensor k = draw_tensor(draw, f.rows, n, 1, dim),
                   v = draw_tensor(draw, f.rows, n, 1, dim);
  pkv_session session = nullptr;
  if (pkv_session_fork(f.session, &session) != PKV_OK) return;
  const uint32_t layer = static_cast<uint32_t>(draw.below(20) / 19),
                 count = static_cast<uint32_t>(std::min<uint64_t>(n, UINT32_MAX));
  pkv_batch batch = nullptr;
  pkv_status status = pkv_batch_begin(f.cache, 1, &session, &count, &batch);
  documented(status, {PKV_OUT_OF_BLOCKS, PKV_TOO_LARGE, PKV_OUT_OF_MEMORY});
  if (status == PKV_OK) {
    status = pkv_batch_write(batch, layer, &k, &v);
    documented(status);
    EXPECT_EQ(PKV_OK,
              status == PKV_OK ? pkv_batch_commit(batch, 0, nullptr) : pkv_batch_abort(batch));
  }
  uint64_t length = 0;
  EXPECT_EQ(PKV_OK, pkv_session_get_length(session, &length));
  EXPECT_EQ(status == PKV_OK ? tokens + n : tokens, length);
  const uint32_t blocks[] = {static_cast<uint32_t>(draw.below(3)), PKV_NO_BLOCK_ID};
  documented(pkv_session_drop_blocks(session, static_cast<uint32_t>(draw.below(20) / 19),
                                     draw.below(3), blocks));
  const pkv_hint hint = draw_hint(draw);
  documented(pkv_hint_session(session, &hint, nullptr), {PKV_UNSUPPORTED});
  documented(pkv_session_trim(session, number(draw)));
  documented(pkv_session_reserve(session, number(draw)),
             {PKV_OUT_OF_BLOCKS, PKV_TOO_LARGE, PKV_OUT_OF_MEMORY});
  EXPECT_EQ(PKV_OK, pkv_session_close(session));
}

void read_rows(Source& draw) {
  Fixture& f = fixture();
  const uint64_t first = number(draw), n = number(draw);
  const pkv_tensor k = draw_tensor(draw, f.out, n, 1, dim);
  const pkv_status status = pkv_session_read(f.session, 0, first, n, &k, nullptr);
  documented(status);
  check_written(f.out, k, n, 1, dim, status);
}

// Writes rows to the caller's memory that a view describes, and reads them back.
void write_own(Source& draw, pkv_kv_view& view, const pkv_kv_sequences& sequences,
               const SequenceRows& rows) {
  Fixture& f = fixture();
  static Guarded memory(1 << 15);
  for (void** side : {&view.k, &view.v})
    if (*side != nullptr) *side = memory.data();
  const pkv_tensor k = draw_tensor(draw, f.rows, rows, view.kv_heads, view.key_dim),
                   v = draw_tensor(draw, f.rows, rows, view.kv_heads, view.value_dim);
  documented(pkv_kv_write(nullptr, &view, &sequences, &k,
                          view.v == nullptr && draw.chance(90) ? nullptr : &v),
             {PKV_OUT_OF_MEMORY, PKV_UNSUPPORTED});
  const pkv_tensor positions = draw_tensor(draw, f.out, rows, view.kv_heads, view.key_dim);
  const pkv_status read = pkv_kv_read(nullptr, &view, &sequences, &positions, nullptr);
  documented(read, {PKV_OUT_OF_MEMORY, PKV_UNSUPPORTED});
  check_written(f.out, positions, rows, view.kv_heads, view.key_dim, read);
  int64_t slots[8];
  for (int64_t& slot : slots)
    slot = draw.chance(97) ? static_cast<int64_t>(draw.below(17)) - 1
                           : static_cast<int64_t>(number(draw));
  const uint64_t n = draw.chance(90) ? draw.below(9) : number(draw);
  const pkv_tensor one_k = draw_tensor(draw, f.rows, n, view.kv_heads, view.key_dim),
                   one_v = draw_tensor(draw, f.rows, n, view.kv_heads, view.value_dim),
                   to = draw_tensor(draw, f.out, n, view.kv_heads, view.key_dim);
  const int64_t* const list = n <= std::size(slots) || n > SIZE_MAX / 4 ? slots : nullptr;
  documented(
      pkv_kv_write_slots(nullptr, &view, n, list, &one_k, view.v == nullptr ? nullptr : &one_v),
      {PKV_OUT_OF_MEMORY, PKV_UNSUPPORTED});
  const pkv_status status = pkv_kv_read_slots(nullptr, &view, n, list, &to, nullptr);
  documented(status, {PKV_OUT_OF_MEMORY, PKV_UNSUPPORTED});
  check_written(f.out, to, n, view.kv_heads, view.key_dim, status);
  EXPECT_TRUE(memory.untouched_from(memory.size()));
  uint64_t bytes = 0;
  view.k = nullptr;
  view.latent = draw.chance(80) ? 0 : static_cast<uint32_t>(number(draw));
  documented(pkv_kv_view_init(&view, &bytes), {PKV_UNSUPPORTED});
}

void stateless(Source& draw) {
  Fixture& f = fixture();
  auto view = made<pkv_kv_view>();
  view.dtype = static_cast<pkv_dtype>(draw.between(1, 9));
  view.layout = draw.chance(50) ? PKV_LAYOUT_PLAIN : PKV_LAYOUT_PACKED;
  view.block_size = 16;
  view.kv_heads = static_cast<uint32_t>(draw.between(1, 2));
  view.key_dim = view.value_dim = view.dtype > PKV_FP8_E5M2 ? 32 : dim;
  view.blocks = draw.between(1, 4);
  view.k_block_stride = view.v_block_stride = 2048;
  view.k_row_stride = view.v_row_stride = 64;
  view.k_head_stride = view.v_head_stride = 1024;
  view.rotation = static_cast<pkv_rotation>(draw.below(2));
  spoil(view, draw);
  draw_matrices(view, draw);
  view.k = f.rows.data();
  view.v = draw.chance(90) ? f.rows.data() : nullptr;
  view.k_bytes = view.v_bytes = f.rows.size();  // a view that would reach further is refused
  if (draw.chance(97)) view.latent = view.v == nullptr ? 1 : 0;
  uint32_t lengths[4], table[64];
  uint64_t kv_lengths[4], rows = 0;
  for (size_t i = 0; i < 4; i++) {
    lengths[i] = static_cast<uint32_t>(draw.chance(95) ? draw.below(6) : number(draw));
    kv_lengths[i] = draw.chance(95) ? lengths[i] + draw.below(40) : number(draw);
  }
  for (uint32_t& id : table)
    id = static_cast<uint32_t>(draw.chance(98) ? draw.below(2) : number(draw));
  auto sequences = made<pkv_kv_sequences>(
      {.query_heads = view.kv_heads * 2, .count = draw.below(5), .block_table_stride = 16});
  spoil(sequences, draw);
  const bool lists = sequences.count <= 4 && sequences.block_table_stride <= 16;
  sequences.query_lengths = lists ? lengths : nullptr;
  sequences.kv_lengths = lists && draw.chance(98) ? kv_lengths : nullptr;
  sequences.block_tables = lists ? table : nullptr;
  SequenceRows all;
  for (uint64_t i = 0; lists && i < sequences.count; i++) {
    all.lengths.push_back(lengths[i]);
    rows += lengths[i];
  }
  static int64_t positions[4096];
  uint32_t first_rows[4];
  for (uint32_t& first : first_rows) first = static_cast<uint32_t>(draw.below(4));
  sequences.first_rows = lists && draw.chance(20) ? first_rows : nullptr;
  all.first_rows = sequences.first_rows;
  const bool positioned = draw.chance(20) && rows <= std::size(positions);
  for (uint64_t i = 0; positioned && i < rows; i++)
    positions[i] = static_cast<int64_t>(draw.chance(98) ? draw.below(50) : number(draw));
  sequences.query_positions = positioned ? positions : nullptr;
  const AttentionParams params = draw_params(draw, all, sequences.query_heads, view.kv_heads);
  const pkv_tensor q = draw_tensor(draw, f.rows, all, sequences.query_heads, view.key_dim);
  const pkv_tensor out = draw_tensor(draw, f.out, all, sequences.query_heads, view.value_dim);
  const pkv_status status =
      pkv_kv_attend(nullptr, &view, &sequences, &params, &q, &out, &params.outputs);
  documented(status, {PKV_OUT_OF_MEMORY, PKV_UNSUPPORTED});
  check_written(f.out, out, all, sequences.query_heads, view.value_dim, status);
  EXPECT_TRUE(f.lse.untouched_from(status == PKV_OK && params.outputs.lse != nullptr
                                       ? rows * sequences.query_heads * sizeof(float)
                                       : 0));
  f.lse.clear();
  write_own(draw, view, sequences, all);
}

void merge(Source& draw) {
  Fixture& f = fixture();
  const uint64_t rows = draw.chance(80) ? draw.below(4) : number(draw);
  const uint32_t heads = static_cast<uint32_t>(draw.chance(80) ? draw.between(1, 4) : number(draw));
  const uint32_t wide = static_cast<uint32_t>(draw.chance(80) ? 16 : number(draw));
  const pkv_tensor outs[2] = {draw_tensor(draw, f.rows, rows, heads, wide),
                              draw_tensor(draw, f.rows, rows, heads, wide)};
  const bool fits = rows <= 64 && heads <= 64;
  const float* const lse[2] = {fits ? f.rows.as<float>() : nullptr,
                               fits && draw.chance(98) ? f.rows.as<float>() : nullptr};
  const pkv_tensor merged = draw_tensor(draw, f.out, rows, heads, wide);
  const size_t count = draw.chance(95) ? draw.below(3) : 0;
  const pkv_status status =
      pkv_attention_merge(nullptr, count, outs, lse, rows, heads, wide, &merged, nullptr);
  documented(status, {PKV_OUT_OF_MEMORY});
  check_written(f.out, merged, rows, heads, wide, status);
}

// A text of few tokens, under any salt, in the cache with an index.
void prefix(Source& draw) {
  Fixture& f = fixture();
  const unsigned char salts[256] = {};
  const int32_t text[64] = {};
  const size_t salt_size = static_cast<size_t>(draw.chance(80) ? draw.below(3) : number(draw)),
               n = static_cast<size_t>(draw.chance(80) ? draw.below(65) : number(draw));
  const void* const salt = draw.chance(95) ? salts : nullptr;
  const int32_t* const tokens = n <= std::size(text) || n > SIZE_MAX / 4 ? text : nullptr;
  const pkv_prompt given{sizeof given, 0, salt, salt_size, tokens, n};
  uint64_t amount = 0;
  switch (draw.below(6)) {
    case 0: {
      const pkv_hint hint = draw_hint(draw);
      auto result = made<pkv_hint_result>();
      documented(pkv_hint_prompt(f.prefixed, &given, &hint, &result));
      break;
    }
    case 1:
      f.clock.set(number(draw));
      break;
    case 2:
      documented(pkv_prefix_set_quota(f.prefixed, salt, salt_size, number(draw)), {});
      documented(pkv_prefix_set_quota(f.prefixed, salt, salt_size, 0), {});
      break;
    case 3: {
      uint64_t next = number(draw);
      const size_t room = static_cast<size_t>(number(draw));
      size_t count = 0;
      auto* const events = room <= f.out.size() / sizeof(pkv_prefix_event)
                               ? reinterpret_cast<pkv_prefix_event*>(f.out.data())
                               : nullptr;
      const pkv_status status = pkv_prefix_read_events(f.prefixed, &next, room, events, &count,
                                                       draw.chance(50) ? &amount : nullptr);
      documented(status);
      EXPECT_TRUE(f.out.untouched_from(status == PKV_OK ? count * sizeof(pkv_prefix_event) : 0));
      f.out.clear();
      break;
    }
    case 4: {
      const uint32_t size =
          static_cast<uint32_t>(draw.chance(70) ? 16 * draw.between(1, 16) : number(draw));
      const pkv_status status =
          pkv_prefix_hash_blocks(&given, size, reinterpret_cast<uint64_t*>(f.out.data()));
      documented(status, {PKV_TOO_LARGE});
      EXPECT_TRUE(f.out.untouched_from(status == PKV_OK ? n / size * sizeof(uint64_t) : 0));
      f.out.clear();
      break;
    }
    default:
      auto stats = made<pkv_prefix_stats>();
      documented(pkv_prefix_get_stats(f.prefixed, salt, salt_size, &stats), {});
      documented(pkv_session_admit(f.session, n, tokens, 0, &amount));
      documented(pkv_session_admit(f.session, n, tokens, number(draw), &amount));
  }
  EXPECT_EQ(PKV_OK, pkv_cache_validate(f.prefixed)) << pkv_last_error();
}

constexpr void (*kinds[])(Source&) = {cache_config, session_config, attend, write, step_fork,
                                      read_rows,    stateless,      merge,  prefix};

}  // namespace

FUZZ_TARGET(const uint8_t* data, size_t size) {
  Fixture& f = fixture();
  const int64_t live = f.hooks.live();
  Source source(data, size);
  for (int i = 0; i < 4 && !source.spent(); i++) kinds[source.below(std::size(kinds))](source);
  EXPECT_TRUE(f.out.untouched_from());
  EXPECT_EQ(PKV_OK, pkv_cache_validate(f.cache)) << pkv_last_error();
  uint64_t length = 0;
  EXPECT_EQ(PKV_OK, pkv_session_get_length(f.session, &length));
  EXPECT_EQ(tokens, length);
  EXPECT_EQ(live, f.hooks.live());
  EXPECT_TRUE(f.hooks.sound());
  EXPECT_TRUE(f.index_hooks.sound());
}
