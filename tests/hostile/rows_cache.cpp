// The rows of common.h, version.h, pool.h and cache.h.
#include <algorithm>
#include <array>
#include <cmath>

#include "matrix.h"

namespace hostile {

namespace {

using pkv::test::unknown_dtype;
using pkv::test::unknown_isa;

// Wraps a function that returns no status into one that does.
template <auto function, class... A>
pkv_status silent(A... arguments) {
  (void)function(arguments...);
  return PKV_OK;
}

Function quiet(std::string name, std::function<pkv_status(const Values&)> call,
               std::vector<Arg> args) {
  Function row{std::move(name), std::move(call), std::move(args)};
  row.tells_status = false;
  return row;
}

Arg any_of(std::vector<int64_t> values) {
  Arg arg = enumeration(0, std::move(values));
  for (Misuse& misuse : arg.misuses) misuse.wanted = {PKV_OK};
  return arg;
}

Arg block() {
  return {[](World& world) { return world.blocks[0]; },
          {{"id without block", [](World&, uint64_t& value) { value = 128; }, {PKV_OUT_OF_RANGE}},
           {"all ones", [](World&, uint64_t& value) { value = UINT64_MAX; }, {PKV_OUT_OF_RANGE}},
           {"next generation",
            [](World&, uint64_t& value) { value += uint64_t{1} << 32; },
            {PKV_STALE_HANDLE}},
           {"free block", [](World&, uint64_t& value) { value = 127; }, {PKV_STALE_HANDLE}}}};
}

Arg list() {
  return pointer([](World& world) { return bits(world.keep_list(world.blocks)); });
}

// Replaces entry `at` of the list by `by`.
std::function<void(World&, Values&)> entry(size_t at, uint64_t by) {
  return [=](World&, Values& values) { reinterpret_cast<pkv_block*>(values[2])[at] = by; };
}

std::function<void(World&, Values&)> count(uint64_t n) {
  return [=](World&, Values& values) { values[1] = n; };
}

std::vector<Case> list_cases(pkv_status stale) {
  return {{"n 0", count(0), {PKV_OK}},
          {"n 0, NULL", [](World&, Values& values) { values[1] = values[2] = 0; }, {PKV_OK}},
          {"n SIZE_MAX", count(SIZE_MAX), {PKV_OVERFLOW}},
          {"n 2^61", count(size_t{1} << 61), {PKV_OVERFLOW}},
          {"last entry beyond", entry(99, 128), {PKV_OUT_OF_RANGE}},
          {"last entry free", entry(99, 120), {stale}},
          {"last entry of another life", entry(99, (uint64_t{5} << 32) + 99), {stale}},
          {"first entry PKV_NO_BLOCK", entry(0, PKV_NO_BLOCK), {PKV_OUT_OF_RANGE}}};
}

// A store without one of its five functions.
struct LackingStore {
  explicit LackingStore(int without) {
    store.struct_size = sizeof store;
    if (without != 0) store.put = [](void*, size_t, const pkv_store_item*) { return int64_t{0}; };
    if (without != 1) store.get = [](void*, size_t, pkv_store_item*) { return int64_t{0}; };
    if (without != 2) store.probe = [](void*, size_t, pkv_store_item*) { return int64_t{0}; };
    if (without != 3) store.drop = [](void*, size_t, const pkv_store_item*) { return int64_t{0}; };
    if (without != 4) store.close = [](void*) {};
    config.store = &store;
  }
  pkv_store store{};
  pkv_store_config config = made<pkv_store_config>();
};

const pkv_allocator no_functions{};
const pkv_allocator no_free{[](void*, size_t, size_t) -> void* { return nullptr; }, nullptr,
                            nullptr};

pkv_pool_config pool_config(World& world) {
  auto config = made<pkv_pool_config>();
  config.blocks = 8;
  config.allocator = world.hooks.allocator();
  return config;
}

pkv_cache_config cache_config(World& world) {
  const ModelConfig config = world.make_config(8);
  const uint32_t count = std::max(config.group_count, 1u);
  pkv_cache_config kept = config;
  kept.groups = world.keep_list(std::vector(config.groups, config.groups + count));
  return kept;
}

// Changes the config and its group.
using ChangeModel = std::function<void(pkv_cache_config&, pkv_layer_group&)>;
Case model_case(const std::string& name, ChangeModel change, Wanted wanted) {
  return {name,
          within<pkv_cache_config>(0,
                                   [change = std::move(change)](pkv_cache_config& config) {
                                     change(config, const_cast<pkv_layer_group&>(*config.groups));
                                   }),
          std::move(wanted)};
}

// The matrix that changes nothing, for keys and values of 16 dims.
const std::array<float, 256>& unit_matrix() {
  static const auto matrix = [] {
    std::array<float, 256> result{};
    for (size_t i = 0; i < 16; i++) result[i * 17] = 1;
    return result;
  }();
  return matrix;
}

std::vector<Case> rotation_cases() {
  std::vector<Case> cases;
  const auto add = [&](const char* name, ChangeModel change, Wanted wanted) {
    cases.push_back(model_case(name, std::move(change), std::move(wanted)));
  };
  const Wanted invalid = {PKV_INVALID_ARGUMENT};
  static const std::array<float, 256> zeros{};
  static std::array<float, 256> infinite = unit_matrix(), unknown = unit_matrix(),
                                double_length = unit_matrix(), too_long = unit_matrix(),
                                skewed = unit_matrix();
  infinite[255] = HUGE_VALF;
  unknown[5] = NAN;
  for (float& x : double_length) x *= 2;
  too_long[0] += 0.01f;
  std::copy_n(skewed.begin(), 16, skewed.begin() + 16);
  const auto of_k = [&](const char* name, const std::array<float, 256>& matrix, Wanted wanted) {
    add(
        name,
        [&matrix](auto&, auto& g) {
          g.rotation = PKV_ROTATION_MATRIX;
          g.key_rotation = matrix.data();
        },
        std::move(wanted));
  };
  of_k("rotation: a matrix of K", unit_matrix(), {PKV_OK});
  of_k("rotation: a matrix of zeros", zeros, invalid);
  of_k("rotation: a matrix with an infinity", infinite, invalid);
  of_k("rotation: a matrix with a NaN", unknown, invalid);
  of_k("rotation: rows of length 2", double_length, invalid);
  of_k("rotation: a row of length 1.01", too_long, invalid);
  of_k("rotation: a row twice", skewed, invalid);
  add("rotation: matrices of K and V",
      [](auto&, auto& g) {
        g.rotation = PKV_ROTATION_MATRIX;
        g.key_rotation = g.value_rotation = unit_matrix().data();
      },
      {PKV_OK});
  add(
      "rotation MATRIX without matrices", [](auto&, auto& g) { g.rotation = PKV_ROTATION_MATRIX; },
      invalid);
  add(
      "a matrix without rotation MATRIX",
      [](auto&, auto& g) { g.key_rotation = unit_matrix().data(); }, invalid);
  add(
      "rotation HADAMARD and a matrix",
      [](auto&, auto& g) {
        g.rotation = PKV_ROTATION_HADAMARD;
        g.value_rotation = unit_matrix().data();
      },
      invalid);
  add("rotation HADAMARD, storage NONE",
      [](auto& c, auto& g) {
        g.rotation = PKV_ROTATION_HADAMARD;
        c.storage = PKV_STORAGE_NONE;
      },
      {PKV_UNSUPPORTED});
  // A run of keys of 64 dims is 64 dims, so latent values of 48 do not end with one.
  add(
      "rotation HADAMARD, latent values of 48 dims",
      [](auto&, auto& g) {
        g.rotation = PKV_ROTATION_HADAMARD;
        g.latent = 1, g.key_dim = 64, g.value_dim = 48;
      },
      invalid);
  add(
      "rotation MATRIX, latent",
      [](auto&, auto& g) {
        g.rotation = PKV_ROTATION_MATRIX;
        g.key_rotation = unit_matrix().data();
        g.latent = 1;
      },
      invalid);
  return cases;
}

// Makes the cases of groups that share one memory.
std::vector<Case> shared_cases() {
  std::vector<Case> cases;
  const auto add = [&](const char* name, std::function<void(pkv_cache_config&)> change,
                       Wanted wanted) {
    const auto shared = [change = std::move(change)](pkv_cache_config& c, auto&) {
      c.shared_memory = 1, c.blocks = 0, c.memory_bytes = 1 << 20;
      change(c);
    };
    cases.push_back(model_case(name, shared, std::move(wanted)));
  };
  add("shared memory", [](auto&) {}, {PKV_OK});
  add("shared memory of 0 bytes", [](auto& c) { c.memory_bytes = 0; }, {PKV_INVALID_ARGUMENT});
  add("shared memory of 100 bytes", [](auto& c) { c.memory_bytes = 100; }, {PKV_TOO_LARGE});
  add("shared memory of UINT64_MAX bytes", [](auto& c) { c.memory_bytes = UINT64_MAX; },
      {PKV_TOO_LARGE});
  add("shared memory, watermark 2^20", [](auto& c) { c.watermark = 1 << 20; },
      {PKV_INVALID_ARGUMENT});
  add("shared memory, layout PLAIN", [](auto& c) { c.layout = PKV_LAYOUT_PLAIN; },
      {PKV_UNSUPPORTED});
  add("shared memory, storage CONTIGUOUS", [](auto& c) { c.storage = PKV_STORAGE_CONTIGUOUS; },
      {PKV_UNSUPPORTED});
  return cases;
}

// Makes the cases that both compute_plan and create refuse.
std::vector<Case> config_cases() {
  const Wanted invalid = {PKV_INVALID_ARGUMENT}, big = {PKV_OVERFLOW, PKV_TOO_LARGE};
  std::vector<Case> cases;
  const auto add = [&](const std::string& name, std::function<void(pkv_cache_config&)> change,
                       Wanted wanted) {
    cases.push_back({name, within(0, std::move(change)), std::move(wanted)});
  };
  const auto add_model = [&](const std::string& name, ChangeModel change, Wanted wanted) {
    cases.push_back(model_case(name, std::move(change), std::move(wanted)));
  };
#define FIELD_IS(field, value, wanted) \
  add(#field " = " #value, [](pkv_cache_config& c) { c.field = value; }, wanted)
#define ENUM_IS(field, value) \
  add(#field " = " #value, [](pkv_cache_config& c) { set_enum(c.field, value); }, invalid)
#define GROUP_IS(field, value, wanted) \
  add_model("group: " #field " = " #value, [](auto&, auto& g) { g.field = value; }, wanted)
#define GROUP_ENUM_IS(field, value) \
  add_model(                        \
      "group: " #field " = " #value, [](auto&, auto& g) { set_enum(g.field, value); }, invalid)
  ENUM_IS(storage, 3);
  ENUM_IS(storage, -1);
  ENUM_IS(storage, INT32_MAX);
  ENUM_IS(layout, 2);
  ENUM_IS(layout, -1);
  GROUP_ENUM_IS(dtype, unknown_dtype);
  GROUP_ENUM_IS(dtype, INT32_MAX);
  GROUP_ENUM_IS(value_dtype, unknown_dtype);
  GROUP_ENUM_IS(value_dtype, -1);
  ENUM_IS(isa, unknown_isa);
  ENUM_IS(isa, INT32_MAX);
  ENUM_IS(huge_pages, 3);
  GROUP_ENUM_IS(rotation, 3);
  GROUP_ENUM_IS(rotation, -1);
  GROUP_IS(rotation, PKV_ROTATION_HADAMARD, (Wanted{PKV_OK}));
  FIELD_IS(memory_directory, "", invalid);
  FIELD_IS(shared_memory, 2, invalid);
  FIELD_IS(shared_memory, 1, invalid);
  FIELD_IS(reserved, 1, invalid);
  FIELD_IS(block_size, 0, (Wanted{PKV_OK}));
  FIELD_IS(block_size, 8, invalid);
  FIELD_IS(block_size, 17, invalid);
  FIELD_IS(block_size, 272, invalid);
  FIELD_IS(block_size, UINT32_MAX, invalid);
  GROUP_IS(layers, 0, invalid);
  GROUP_IS(layers, UINT32_MAX, (Wanted{PKV_INVALID_ARGUMENT, PKV_OVERFLOW, PKV_TOO_LARGE}));
  GROUP_IS(query_heads, 0, invalid);
  GROUP_IS(query_heads, 3, invalid);
  GROUP_IS(query_heads, UINT32_MAX, invalid);
  GROUP_IS(kv_heads, 0, invalid);
  GROUP_IS(kv_heads, UINT32_MAX, invalid);
  GROUP_IS(key_dim, 0, invalid);
  GROUP_IS(key_dim, 20, invalid);
  GROUP_IS(key_dim, UINT32_MAX, invalid);
  GROUP_IS(key_dim, UINT32_MAX - 15, invalid);
  GROUP_IS(value_dim, 8, invalid);
  GROUP_IS(value_dim, UINT32_MAX, invalid);
  FIELD_IS(blocks, 0, invalid);
  FIELD_IS(blocks, UINT32_MAX, (Wanted{PKV_TOO_LARGE, PKV_OVERFLOW}));
  FIELD_IS(blocks, UINT64_MAX, big);
  FIELD_IS(memory_bytes, 1 << 20, invalid);  // The number of blocks is given, too.
  FIELD_IS(threads, UINT32_MAX, invalid);
  FIELD_IS(prefault, 2, invalid);
  FIELD_IS(group_count, 1, (Wanted{PKV_OK}));
  FIELD_IS(group_count, UINT32_MAX, invalid);
  FIELD_IS(groups, nullptr, invalid);
  GROUP_IS(struct_size, 0, invalid);
  GROUP_IS(struct_size, 8, invalid);
  GROUP_IS(struct_size, sizeof g - 8, invalid);
  GROUP_IS(struct_size, sizeof g + 8, invalid);
  GROUP_IS(struct_size, UINT32_MAX, invalid);
  FIELD_IS(watermark, UINT32_MAX, invalid);
  FIELD_IS(watermark, 8, invalid);
  FIELD_IS(watermark, 7, (Wanted{PKV_OK}));
  GROUP_IS(sinks, 4, invalid);  // There is no window.
  GROUP_IS(latent, 2, invalid);
  GROUP_IS(latent, 1, (Wanted{PKV_OK}));
#undef FIELD_IS
#undef ENUM_IS
#undef GROUP_IS
#undef GROUP_ENUM_IS
  add(
      "memory_bytes UINT64_MAX",
      [](pkv_cache_config& c) { c.blocks = 0, c.memory_bytes = UINT64_MAX; }, big);
  add("memory_bytes 1", [](pkv_cache_config& c) { c.blocks = 0, c.memory_bytes = 1; },
      {PKV_TOO_LARGE});
  add(
      "group_count UINT32_MAX, groups NULL",
      [](pkv_cache_config& c) { c.groups = nullptr, c.group_count = UINT32_MAX; }, invalid);
  add_model(
      "everything at its largest",
      [](auto& c, auto& g) {
        g.layers = g.query_heads = g.kv_heads = 65536;
        g.key_dim = g.value_dim = 576;
        c.block_size = 256;
        c.blocks = INT32_MAX;
      },
      big);
  add_model(
      "latent, value_dim > key_dim", [](auto&, auto& g) { g.latent = 1, g.value_dim = 32; },
      invalid);
  add_model(
      "latent, another value_dtype", [](auto&, auto& g) { g.latent = 1, g.value_dtype = PKV_F16; },
      invalid);
  add_model("window and sinks", [](auto&, auto& g) { g.window = 16, g.sinks = 4; }, {PKV_OK});
  add_model("int4 keys, fp8 values",
            [](auto&, auto& g) { g.dtype = PKV_INT4, g.value_dtype = PKV_FP8_E5M2; }, {PKV_OK});
  static const auto known = made<pkv_prefix_config>();
  static const auto no_store = made<pkv_store_config>();
  add("store: no store", [](pkv_cache_config& c) { c.store = &no_store; }, invalid);
  static const std::array<LackingStore, 5> lacking{
      LackingStore(0), LackingStore(1), LackingStore(2), LackingStore(3), LackingStore(4)};
  for (const LackingStore& each : lacking)
    add("store: a function is NULL", [&](pkv_cache_config& c) { c.store = &each.config; }, invalid);
  static pkv_prefix_config unknown = known;
  set_enum(unknown.eviction, 4);
  static pkv_prefix_config many_events = known, at_once = known, never = known;
  many_events.events = UINT32_MAX;
  at_once.doubling_depth = 1;
  never.doubling_depth = UINT32_MAX;
  add("prefix: events UINT32_MAX", [](pkv_cache_config& c) { c.prefix = &many_events; }, invalid);
  add("prefix: doubling_depth 1", [](pkv_cache_config& c) { c.prefix = &at_once; }, {PKV_OK});
  add("prefix: doubling_depth UINT32_MAX", [](pkv_cache_config& c) { c.prefix = &never; },
      {PKV_OK});
  add("prefix", [](pkv_cache_config& c) { c.prefix = &known; }, {PKV_OK});
  add("prefix, storage NONE",
      [](pkv_cache_config& c) { c.prefix = &known, c.storage = PKV_STORAGE_NONE; }, {PKV_OK});
  add("prefix, storage CONTIGUOUS",
      [](pkv_cache_config& c) { c.prefix = &known, c.storage = PKV_STORAGE_CONTIGUOUS; },
      {PKV_UNSUPPORTED});
  add("prefix: unknown eviction", [](pkv_cache_config& c) { c.prefix = &unknown; }, invalid);
  static std::array<pkv_prefix_config, 6> sizes;
  sizes.fill(known);
  const uint32_t wrong[sizes.size()] = {0, 8, 24, 28, 40, 4096};
  for (size_t i = 0; i < sizes.size(); i++) {
    sizes[i].struct_size = wrong[i];
    add(
        format("prefix: struct_size %u", wrong[i]),
        [i](pkv_cache_config& c) { c.prefix = &sizes[i]; }, invalid);
  }
  static const pkv_logger no_function{};
  add(
      "allocator without functions", [](pkv_cache_config& c) { c.allocator = &no_functions; },
      invalid);
  add("allocator without free", [](pkv_cache_config& c) { c.allocator = &no_free; }, invalid);
  add("logger without function", [](pkv_cache_config& c) { c.logger = &no_function; }, invalid);
  return cases;
}

void run_in_turn(void*, size_t n, void (*task)(void*, size_t, uint32_t), void* context) {
  for (size_t i = 0; i < n; i++) task(context, i, 0);
}

// Makes the cases of the caller's threads.
std::vector<Case> runner_cases() {
  std::vector<Case> cases;
  const auto add = [&](const char* name, pkv_runner runner, uint32_t threads, Wanted wanted) {
    cases.push_back({name,
                     [=](World& world, Values& values) {
                       auto& config = *reinterpret_cast<pkv_cache_config*>(values[0]);
                       config.runner = world.keep(runner);
                       config.threads = threads;
                     },
                     std::move(wanted)});
  };
  add("runner", {run_in_turn, nullptr, 1, 0}, 0, {PKV_OK});
  add("runner without run", {nullptr, nullptr, 1, 0}, 0, {PKV_INVALID_ARGUMENT});
  add("runner, no threads", {run_in_turn, nullptr, 0, 0}, 0, {PKV_INVALID_ARGUMENT});
  add("runner, UINT32_MAX threads", {run_in_turn, nullptr, UINT32_MAX, 0}, 0,
      {PKV_INVALID_ARGUMENT});
  add("runner, reserved set", {run_in_turn, nullptr, 1, 1}, 0, {PKV_INVALID_ARGUMENT});
  add("runner and threads", {run_in_turn, nullptr, 1, 0}, 1, {PKV_INVALID_ARGUMENT});
  return cases;
}

// Makes the cases of a group that keeps states.
std::vector<Case> state_cases() {
  std::vector<Case> cases;
  const auto add = [&](const char* name, ChangeModel change, Wanted wanted) {
    cases.push_back(model_case(name, std::move(change), std::move(wanted)));
  };
  const Wanted invalid = {PKV_INVALID_ARGUMENT};
  const auto of_states = [](pkv_layer_group& g, uint64_t bytes) {
    const uint32_t layers = g.layers;
    g = made<pkv_layer_group>();
    g.layers = layers;
    g.state_bytes = bytes;
  };
  add("states", [=](auto&, auto& g) { of_states(g, 8); }, {PKV_OK});
  add("states and heads", [](auto&, auto& g) { g.state_bytes = 8; }, invalid);
  add("states and dtype", [=](auto&, auto& g) { of_states(g, 8), g.dtype = PKV_F16; }, invalid);
  add("states and window", [=](auto&, auto& g) { of_states(g, 8), g.window = 1; }, invalid);
  add("states of 2^64 - 1 bytes", [=](auto&, auto& g) { of_states(g, UINT64_MAX); },
      {PKV_OVERFLOW});
  add("states of 2^60 bytes", [=](auto&, auto& g) { of_states(g, uint64_t{1} << 60); },
      {PKV_OVERFLOW});
  add(
      "states, checkpoints inside of blocks",
      [=](auto&, auto& g) { of_states(g, 8), g.checkpoint_tokens = 24; }, invalid);
  add(
      "states, too many draft tokens",
      [=](auto&, auto& g) { of_states(g, 8), g.draft_tokens = UINT32_MAX; }, invalid);
  add("states in contiguous storage",
      [=](auto& c, auto& g) { of_states(g, 8), c.storage = PKV_STORAGE_CONTIGUOUS; },
      {PKV_UNSUPPORTED});
  add("checkpoints without states", [](auto&, auto& g) { g.checkpoint_tokens = 16; }, invalid);
  add("drafts without states", [](auto&, auto& g) { g.draft_tokens = 4; }, invalid);
  return cases;
}

}  // namespace

std::vector<Function> plain_rows() {
  return {
      quiet("pkv_version", caller(silent<pkv_version>), {}),
      quiet("pkv_version_string", caller(silent<pkv_version_string>), {}),
      quiet("pkv_last_error", caller(silent<pkv_last_error>), {}),
      quiet("pkv_status_string", caller(silent<pkv_status_string, pkv_status>),
            {any_of({-1, 99, 114, INT32_MAX})}),
      quiet("pkv_isa_name", caller(silent<pkv_isa_name, pkv_isa>),
            {any_of({-1, unknown_isa, INT32_MAX})}),
      {ROW(pkv_isa_supported),
       {enumeration(PKV_ISA_SCALAR, {-1, unknown_isa, INT32_MAX, INT32_MIN}), out<int32_t>()}},
  };
}

std::vector<Function> pool_rows() {
  const Arg pool = handle(Handle::pool);
  const uint32_t pool_stats = sizeof(pkv_pool_stats), block_state = sizeof(pkv_block_state);
  const auto field = [](std::function<void(pkv_pool_config&)> change) {
    return within(0, std::move(change));
  };
  std::vector<Function> rows = {
      {ROW(pkv_pool_create),
       {config_in<pkv_pool_config>(pool_config), out<pkv_pool>()},
       {{"no blocks", field([](auto& c) { c.blocks = 0; }), {PKV_INVALID_ARGUMENT}},
        {"2^31 blocks", field([](auto& c) { c.blocks = 0x80000000; }), {PKV_TOO_LARGE}},
        {"UINT32_MAX blocks", field([](auto& c) { c.blocks = UINT32_MAX; }), {PKV_TOO_LARGE}},
        {"block_size 0", field([](auto& c) { c.block_size = 0; }), {PKV_OK}},
        {"block_size 257", field([](auto& c) { c.block_size = 257; }), {PKV_INVALID_ARGUMENT}},
        {"allocator without functions",
         field([](auto& c) { c.allocator = &no_functions; }),
         {PKV_INVALID_ARGUMENT}},
        {"reserved set", field([](auto& c) { c.reserved = 1; }), {PKV_INVALID_ARGUMENT}}},
       [](World&, const Values& values) {
         OK(pkv_pool_destroy(*reinterpret_cast<pkv_pool*>(values[1])));
       }},
      {ROW(pkv_pool_destroy), {handle(Handle::pool, true)}},
      {ROW(pkv_pool_alloc),
       {pool, number(3), out<pkv_block>(100)},
       {{"n 0", count(0), {PKV_OK}},
        {"n 0, NULL", [](World&, Values& values) { values[1] = values[2] = 0; }, {PKV_OK}},
        {"more than are free", count(29), {PKV_OUT_OF_BLOCKS}},
        {"more than there are", count(129), {PKV_TOO_LARGE}},
        {"n SIZE_MAX", count(SIZE_MAX), {PKV_OVERFLOW, PKV_TOO_LARGE}}}},
      {ROW(pkv_pool_retain), {pool, number(100), list()}, list_cases(PKV_STALE_HANDLE)},
      {ROW(pkv_pool_release), {pool, number(100), list()}, list_cases(PKV_DOUBLE_FREE)},
      {ROW(pkv_pool_claim),
       {pool, block(), number(4), out<uint32_t>()},
       {{"n 0", [](World&, Values& values) { values[2] = 0; }, {PKV_OK}},
        {"more slots than there are",
         [](World&, Values& values) { values[2] = 17; },
         {PKV_BLOCK_FULL}},
        {"n UINT32_MAX", [](World&, Values& values) { values[2] = UINT32_MAX; }, {PKV_BLOCK_FULL}},
        {"shared",
         [](World& world, Values& values) { values[1] = world.blocks.back(); },
         {PKV_BUSY}},
        {"sealed",
         [](World& world, Values& values) { OK(pkv_pool_seal(world.pool, values[1])); },
         {PKV_BLOCK_SEALED}}}},
      {ROW(pkv_pool_seal), {pool, block()}},
      {ROW(pkv_pool_reset),
       {pool, block()},
       {{"shared",
         [](World& world, Values& values) { values[1] = world.blocks.back(); },
         {PKV_BUSY}}}},
      {ROW(pkv_pool_get_block_state), {pool, index(7, 128), struct_out(block_state)}},
      {ROW(pkv_pool_get_stats), {pool, struct_out(pool_stats)}},
      {ROW(pkv_pool_validate), {pool}},
  };
  rows[1].closes = true;
  auto twice = [](World& world, Values& values) {
    reinterpret_cast<pkv_block*>(values[2])[50] = world.blocks[3];
  };
  rows[4].cases.push_back({"twice in the list", twice, {PKV_DOUBLE_FREE}});
  rows[4].cases.push_back({"twice in a short list",
                           [twice](World& world, Values& values) {
                             twice(world, values);
                             values[1] = 60;
                           },
                           {PKV_DOUBLE_FREE}});
  return rows;
}

std::vector<Function> cache_rows() {
  const Arg cache = handle(Handle::cache);
  Function plan{ROW(pkv_cache_compute_plan),
                {config_in<pkv_cache_config>(cache_config), number(PKV_ALL_GROUPS),
                 struct_out(sizeof(pkv_cache_plan))},
                config_cases()};
  plan.cases.push_back(
      {"group 1", [](World&, Values& values) { values[1] = 1; }, {PKV_OUT_OF_RANGE}});
  plan.cases.push_back({"group 0xFFFFFFFE",
                        [](World&, Values& values) { values[1] = 0xFFFFFFFE; },
                        {PKV_OUT_OF_RANGE}});
  Function create{ROW(pkv_cache_create),
                  {config_in<pkv_cache_config>(cache_config), out<pkv_cache>()},
                  config_cases(),
                  [](World&, const Values& values) {
                    OK(pkv_cache_destroy(*reinterpret_cast<pkv_cache*>(values[1])));
                  }};
  for (const char* directory : {"/nowhere/at/all", "/proc/self/exe", "/proc/self"})
    create.cases.push_back({format("memory_directory %s", directory),
                            [directory](World&, Values& values) {
                              reinterpret_cast<pkv_cache_config*>(values[0])->memory_directory =
                                  directory;
                            },
                            {PKV_IO}});
  for (Function* row : {&plan, &create})
    for (const auto& more : {runner_cases(), rotation_cases(), shared_cases(), state_cases()})
      row->cases.insert(row->cases.end(), more.begin(), more.end());
  Function destroy{ROW(pkv_cache_destroy), {handle(Handle::cache, true)}};
  destroy.closes = true;
  std::vector<Function> rows = {
      {ROW(pkv_cache_get_info), {cache, struct_out(sizeof(pkv_cache_info))}},
      {ROW(pkv_cache_get_stats), {cache, struct_out(sizeof(pkv_cache_stats))}},
      {ROW(pkv_cache_get_pool_stats), {cache, index(0, 1), struct_out(sizeof(pkv_pool_stats))}},
      {ROW(pkv_cache_format_metrics),
       {cache, number(16384), out<char>(16384), out<size_t>()},
       {{"capacity SIZE_MAX",
         [](World&, Values& values) { values[1] = SIZE_MAX; },
         {PKV_OVERFLOW}}}},
      {ROW(pkv_cache_validate), {cache}},
      {ROW(pkv_cache_get_kv_view), {cache, index(1, layers), struct_out(sizeof(pkv_kv_view))}},
  };
  rows.insert(rows.begin(), {plan, create, destroy});
  return rows;
}

}  // namespace hostile
