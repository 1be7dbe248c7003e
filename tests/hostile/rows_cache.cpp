// The rows of common.h, version.h, pool.h and cache.h.
#include <algorithm>
#include <array>
#include <cmath>

#include "matrix.h"

namespace hostile {

namespace {

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

Arg list() {
  return pointer([](World& world) { return bits(world.keep_list(world.blocks)); });
}

// Replaces entry `at` of the list by `by`.
Change entry(size_t at, uint64_t by) {
  return [=](World&, Values& values) { reinterpret_cast<pkv_block_ref*>(values[2])[at] = by; };
}

Change count(uint64_t n) {
  return [=](World&, Values& values) { values[1] = n; };
}

std::vector<Case> list_cases(pkv_status gone) {
  return {{"n 0", count(0), fine},
          {"n 0, NULL", set(1, 0, 2, 0), fine},
          {"n SIZE_MAX", count(SIZE_MAX), overflow},
          {"n 2^61", count(size_t{1} << 61), overflow},
          {"last entry beyond", entry(99, 128), range},
          {"last entry free", entry(99, 120), {gone}},
          {"last entry of another life", entry(99, (uint64_t{5} << 32) + 99), {gone}},
          {"first entry PKV_NO_BLOCK_ID", entry(0, PKV_NO_BLOCK_ID), range}};
}

const pkv_allocator no_functions{};
const pkv_allocator no_free{[](void*, size_t, size_t) -> void* { return nullptr; }, nullptr,
                            nullptr};

pkv_pool_config pool_config(World& world) {
  return made<pkv_pool_config>({.blocks = 8, .allocator = world.hooks.allocator()});
}

pkv_cache_config cache_config(World& world) {
  const ModelConfig config = world.make_config(8);
  const uint32_t count = std::max(config.group_count, 1u);
  pkv_cache_config kept = config;
  kept.groups = world.keep_list(std::vector(config.groups, config.groups + count));
  return kept;
}

// The name and the change of a case: code that changes `c`, the config, or `g`, its group.
#define CONFIG(...) \
  #__VA_ARGS__, [=]([[maybe_unused]] auto& c, [[maybe_unused]] auto& g) { __VA_ARGS__; }

// Changes the config and its group.
using ChangeModel = std::function<void(pkv_cache_config&, pkv_layer_group&)>;
Case model_case(const std::string& name, ChangeModel change, Wanted wanted) {
  return in_struct<pkv_cache_config>(0)(
      name,
      [change = std::move(change)](World&, auto& config) {
        change(config, const_cast<pkv_layer_group&>(*config.groups));
      },
      std::move(wanted));
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
          static pkv_rotation_matrices matrices;
          matrices = made<pkv_rotation_matrices>({.key = matrix.data()});
          g.rotation_matrices = &matrices;
        },
        std::move(wanted));
  };
  of_k("rotation: a matrix of K", unit_matrix(), fine);
  of_k("rotation: a matrix of zeros", zeros, invalid);
  of_k("rotation: a matrix with an infinity", infinite, invalid);
  of_k("rotation: a matrix with a NaN", unknown, invalid);
  of_k("rotation: rows of length 2", double_length, invalid);
  of_k("rotation: a row of length 1.01", too_long, invalid);
  of_k("rotation: a row twice", skewed, invalid);
  static const float* const unit = unit_matrix().data();
  static const auto both = made<pkv_rotation_matrices>({.key = unit, .value = unit}),
                    neither = made<pkv_rotation_matrices>({}),
                    of_v = made<pkv_rotation_matrices>({.value = unit});
  static pkv_rotation_matrices smaller = both, larger = both;
  smaller.struct_size--;
  larger.struct_size++;
  add(CONFIG(g.rotation_matrices = &both), fine);
  add(CONFIG(g.rotation_matrices = &of_v), fine);
  add(CONFIG(g.rotation_matrices = &neither), invalid);
  add(CONFIG(g.rotation_matrices = &smaller), invalid);
  add(CONFIG(g.rotation_matrices = &larger), invalid);
  add(CONFIG(g.rotation = PKV_ROTATION_HADAMARD; g.rotation_matrices = &both), invalid);
  add(CONFIG(g.rotation_matrices = &both; c.storage = PKV_STORAGE_EXTERNAL), unsupported);
  add(CONFIG(g.rotation = PKV_ROTATION_HADAMARD; c.storage = PKV_STORAGE_EXTERNAL), unsupported);
  // A run of keys of 64 dims is 64 dims, so latent values of 48 do not end with one.
  add(CONFIG(g.rotation = PKV_ROTATION_HADAMARD;
             g.kind = PKV_LAYERS_LATENT, g.key_dim = 64, g.value_dim = 48),
      invalid);
  add(CONFIG(g.rotation_matrices = &both; g.kind = PKV_LAYERS_LATENT), invalid);
  return cases;
}

// Makes the cases of groups that share one memory.
std::vector<Case> shared_cases() {
  std::vector<Case> cases;
  const auto add = [&](const char* name, ChangeModel change, Wanted wanted) {
    const auto shared = [change = std::move(change)](auto& c, auto& g) {
      c.groups_share_memory = 1, g.blocks = 0, c.memory_bytes = 1 << 20;
      change(c, g);
    };
    cases.push_back(model_case(name, shared, std::move(wanted)));
  };
  add("one memory", [](auto&, auto&) {}, fine);
  add(CONFIG(c.memory_bytes = 0), invalid);
  add(CONFIG(c.memory_bytes = 100), too_large);
  add(CONFIG(c.memory_bytes = UINT64_MAX), too_large);
  add(CONFIG(c.watermark_blocks = 1 << 20), invalid);
  add(CONFIG(c.layout = PKV_LAYOUT_PLAIN), unsupported);
  return cases;
}

// Makes the cases that both compute_sizes and create refuse.
std::vector<Case> config_cases() {
  std::vector<Case> cases;
  const Wanted big{PKV_OVERFLOW, PKV_TOO_LARGE};
  const auto add = [&](const std::string& name, ChangeModel change, Wanted wanted) {
    cases.push_back(model_case(name, std::move(change), std::move(wanted)));
  };
  add(CONFIG(c.layout = PKV_LAYOUT_PLAIN, c.storage = PKV_STORAGE_EXTERNAL), unsupported);
  add(CONFIG(g.rotation = PKV_ROTATION_HADAMARD), fine);
  add(CONFIG(c.memory_directory = ""), invalid);
  add(CONFIG(c.groups_share_memory = 2), invalid);
  add(CONFIG(c.groups_share_memory = 1), invalid);
  add(CONFIG(c.block_size = 0), fine);
  add(CONFIG(c.block_size = 8), invalid);
  add(CONFIG(c.block_size = 17), invalid);
  add(CONFIG(c.block_size = 272), invalid);
  add(CONFIG(c.block_size = UINT32_MAX), invalid);
  add(CONFIG(g.layers = 0), invalid);
  add(CONFIG(g.layers = UINT32_MAX), {PKV_INVALID_ARGUMENT, PKV_OVERFLOW, PKV_TOO_LARGE});
  add(CONFIG(g.query_heads = 0), invalid);
  add(CONFIG(g.query_heads = 3), invalid);
  add(CONFIG(g.query_heads = UINT32_MAX), invalid);
  add(CONFIG(g.kv_heads = 0), invalid);
  add(CONFIG(g.kv_heads = UINT32_MAX), invalid);
  add(CONFIG(g.key_dim = 0), invalid);
  add(CONFIG(g.key_dim = 20), invalid);
  add(CONFIG(g.key_dim = UINT32_MAX), invalid);
  add(CONFIG(g.key_dim = UINT32_MAX - 15), invalid);
  add(CONFIG(g.value_dim = 8), invalid);
  add(CONFIG(g.value_dim = UINT32_MAX), invalid);
  add(CONFIG(g.blocks = 0), invalid);
  add(CONFIG(g.blocks = UINT32_MAX), {PKV_TOO_LARGE, PKV_OVERFLOW});
  add(CONFIG(g.blocks = UINT64_MAX), big);
  add(CONFIG(c.memory_bytes = 1 << 20), invalid);  // The number of blocks is given, too.
  add(CONFIG(c.threads = UINT32_MAX), invalid);
  add(CONFIG(c.prefault = 2), invalid);
  add(CONFIG(c.prefault = 1, c.storage = PKV_STORAGE_EXTERNAL), unsupported);
  add(CONFIG(c.group_count = 1), fine);
  add(CONFIG(c.group_count = UINT32_MAX), invalid);
  add(CONFIG(c.groups = nullptr), invalid);
  add(CONFIG(g.struct_size = 0), invalid);
  add(CONFIG(g.struct_size = 8), invalid);
  add(CONFIG(g.struct_size = sizeof g - 8), invalid);
  add(CONFIG(g.struct_size = sizeof g + 8), invalid);
  add(CONFIG(g.struct_size = UINT32_MAX), invalid);
  add(CONFIG(c.watermark_blocks = UINT32_MAX), invalid);
  add(CONFIG(c.watermark_blocks = 8), invalid);
  add(CONFIG(c.watermark_blocks = 7), fine);
  add(CONFIG(g.sink_tokens = 4), invalid);  // There is no window.
  add(CONFIG(g.kind = PKV_LAYERS_LATENT), fine);
  add(CONFIG(g.blocks = 0, c.memory_bytes = UINT64_MAX), big);
  add(CONFIG(g.blocks = 0, c.memory_bytes = 1), too_large);
  add(CONFIG(c.groups = nullptr, c.group_count = UINT32_MAX), invalid);
  add(CONFIG(g.layers = g.query_heads = g.kv_heads = 65536; g.key_dim = g.value_dim = 576;
             c.block_size = 256; g.blocks = INT32_MAX),
      big);
  add(CONFIG(g.kind = PKV_LAYERS_LATENT, g.value_dim = 32), invalid);
  add(CONFIG(g.kind = PKV_LAYERS_LATENT, g.value_dtype = PKV_F16), invalid);
  add(CONFIG(g.window = 16, g.sink_tokens = 4), fine);
  add(CONFIG(g.dtype = PKV_INT4, g.value_dtype = PKV_FP8_E5M2), fine);
  add(CONFIG(g.dtype = PKV_Q8_0), unsupported);
  add(CONFIG(g.value_dtype = PKV_Q4_0), unsupported);
  static const auto known = made<pkv_prefix_config>();
  static pkv_prefix_config many_events = known, at_once = known, never = known, few_pins = known,
                           small_quota = known;
  many_events.max_events = UINT32_MAX;
  at_once.active_parameters = 1;
  never.active_parameters = UINT64_MAX;
  few_pins.max_pinned_tokens = small_quota.max_tokens_per_salt = 15;
  add(CONFIG(c.prefix = &many_events), invalid);
  add(CONFIG(c.prefix = &few_pins), invalid);
  add(CONFIG(c.prefix = &small_quota), invalid);
  add(CONFIG(c.prefix = &at_once), fine);
  add(CONFIG(c.prefix = &never), fine);
  add(CONFIG(c.prefix = &known), fine);
  add(CONFIG(c.prefix = &known, c.storage = PKV_STORAGE_EXTERNAL), fine);
  static std::array<pkv_prefix_config, 6> sizes;
  sizes.fill(known);
  const uint32_t wrong[sizes.size()] = {0, 8, 24, 32, 48, 4096};
  for (size_t i = 0; i < sizes.size(); i++) {
    sizes[i].struct_size = wrong[i];
    add(
        format("prefix: struct_size %u", wrong[i]), [i](auto& c, auto&) { c.prefix = &sizes[i]; },
        invalid);
  }
  static const pkv_logger no_function{};
  add(CONFIG(c.allocator = &no_functions), invalid);
  add(CONFIG(c.allocator = &no_free), invalid);
  add(CONFIG(c.huge_pages = PKV_HUGE_PAGES_REQUIRE), unsupported);  // There is an allocator.
  add(CONFIG(c.logger = &no_function), invalid);
  static const pkv_clock no_time{};
  add(CONFIG(c.clock = &no_time), invalid);
  return cases;
}

// Makes the cases of a store, its config, and the index that it needs.
std::vector<Case> store_cases() {
  std::vector<Case> cases;
  using Change = std::function<void(pkv_cache_config&, pkv_store_config&, pkv_store&)>;
  const auto add = [&](const std::string& name, Change change, Wanted wanted) {
    const auto complete = [change = std::move(change)](World& world, pkv_cache_config& config) {
      auto& store = *world.keep(made<pkv_store>({
          .put = [](void*, size_t, pkv_store_item*) { return int64_t{0}; },
          .get = [](void*, size_t, pkv_store_item*) { return int64_t{0}; },
          .touch = [](void*, size_t, pkv_store_item*) { return int64_t{0}; },
          .remove = [](void*, size_t, const pkv_store_item*) { return int64_t{0}; },
          .close = [](void*) {},
      }));
      auto& behind = *world.keep(made<pkv_store_config>({.store = &store}));
      config.prefix = world.keep(made<pkv_prefix_config>());
      config.store = &behind;
      change(config, behind, store);
    };
    cases.push_back(in_struct<pkv_cache_config>(0)(name, complete, std::move(wanted)));
  };
#define STORE(...)                                                                          \
  "store: " #__VA_ARGS__, [=]([[maybe_unused]] auto& config, [[maybe_unused]] auto& behind, \
                              [[maybe_unused]] auto& store) { __VA_ARGS__; }
  add(STORE(config.prefix = nullptr), unsupported);
  add(STORE(config.storage = PKV_STORAGE_EXTERNAL), unsupported);
  add(STORE(behind.store = nullptr), invalid);
  add(STORE(store.put = nullptr), invalid);
  add(STORE(store.get = nullptr), invalid);
  add(STORE(store.touch = nullptr), invalid);
  add(STORE(store.remove = nullptr), invalid);
  add(STORE(store.close = nullptr), invalid);
  add(STORE(behind.fingerprint_size = 1), invalid);
  add(STORE(behind.fingerprint = "", behind.fingerprint_size = 65), invalid);
  add(STORE(behind.secret_key = "short", behind.secret_key_size = 5), invalid);
  add(STORE(behind.buffer_bytes = UINT64_MAX), invalid);
  add(STORE(behind.max_queued_tokens = 15), invalid);
  add(STORE(behind.max_queued_tokens = UINT64_MAX), fine);
  for (const uint32_t size : {0, 8, 48, 60, 64, 4096}) {
    if (size != sizeof(pkv_store)) add(STORE(store.struct_size = size), invalid);
    if (size != sizeof(pkv_store_config)) add(STORE(behind.struct_size = size), invalid);
  }
#undef STORE
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
  add("runner", {run_in_turn, nullptr, 1, 0}, 0, fine);
  add("runner without run", {nullptr, nullptr, 1, 0}, 0, invalid);
  add("runner, no threads", {run_in_turn, nullptr, 0, 0}, 0, invalid);
  add("runner, UINT32_MAX threads", {run_in_turn, nullptr, UINT32_MAX, 0}, 0, invalid);
  add("runner and threads", {run_in_turn, nullptr, 1, 0}, 1, invalid);
  return cases;
}

// Makes the cases of a group that keeps states.
std::vector<Case> state_cases() {
  std::vector<Case> cases;
  const auto add = [&](const char* name, ChangeModel change, Wanted wanted) {
    cases.push_back(model_case(name, std::move(change), std::move(wanted)));
  };
  const auto of_states = [](pkv_layer_group& g, uint64_t bytes) {
    g = made<pkv_layer_group>(
        {.layers = g.layers, .kind = PKV_LAYERS_STATES, .layer_bytes = bytes, .blocks = g.blocks});
  };
  add(CONFIG(of_states(g, 8)), fine);
  add(CONFIG(of_states(g, 0)), invalid);
  add(CONFIG(g.layer_bytes = 8), invalid);
  add(CONFIG(g.kind = PKV_LAYERS_STATES, g.layer_bytes = 8), invalid);
  add(CONFIG(of_states(g, 8), g.dtype = PKV_F16), invalid);
  add(CONFIG(of_states(g, 8), g.window = 1), invalid);
  add(CONFIG(of_states(g, 8), g.kind = PKV_LAYERS_LATENT), invalid);
  add(CONFIG(of_states(g, UINT64_MAX)), overflow);
  add(CONFIG(of_states(g, uint64_t{1} << 60)), overflow);
  add(CONFIG(of_states(g, 8), g.checkpoint_interval = 24), invalid);
  add(CONFIG(of_states(g, 8), g.max_verify_tokens = UINT32_MAX), invalid);
  add(CONFIG(g.checkpoint_interval = 16), invalid);
  add(CONFIG(g.max_verify_tokens = 4), invalid);
  return cases;
}

// Makes the cases of a group whose blocks only the engine can read.
std::vector<Case> opaque_cases() {
  std::vector<Case> cases;
  const auto add = [&](const char* name, ChangeModel change, Wanted wanted) {
    cases.push_back(model_case(name, std::move(change), std::move(wanted)));
  };
  const auto move = [](pkv_cache_config& c, pkv_layer_group& g, uint64_t bytes) {
    g = made<pkv_layer_group>({.layers = g.layers,
                               .kind = PKV_LAYERS_OPAQUE_KV,
                               .layer_bytes = bytes,
                               .blocks = g.blocks});
    c.block_io = &forgetful_device;
  };
  static const pkv_block_io empty = made<pkv_block_io>(), no_size{};
  add(CONFIG(move(c, g, 100)), fine);
  add(CONFIG(move(c, g, 100), c.storage = PKV_STORAGE_EXTERNAL), fine);
  add(CONFIG(move(c, g, UINT64_MAX)), invalid);
  add(CONFIG(move(c, g, uint64_t{1} << 60)), invalid);
  add(CONFIG(move(c, g, 0)), invalid);
  add(CONFIG(move(c, g, (uint64_t{1} << 39) + 1)), invalid);
  add(CONFIG(move(c, g, 100), c.block_io = nullptr), invalid);
  add(CONFIG(move(c, g, 100), c.block_io = &empty), invalid);
  add(CONFIG(move(c, g, 100), c.block_io = &no_size), invalid);
  add(CONFIG(c.block_io = &forgetful_device), invalid);
  add(CONFIG(g.kind = PKV_LAYERS_OPAQUE_KV, g.layer_bytes = 100, c.block_io = &forgetful_device),
      invalid);
  add(CONFIG(move(c, g, 100), g.sink_tokens = 1), invalid);
  add(CONFIG(move(c, g, 100), g.window = 16), fine);
  add(CONFIG(move(c, g, 100), g.dtype = PKV_F16), invalid);
  add(CONFIG(move(c, g, 100), g.key_dim = 7), fine);  // only for active_parameters
  add(CONFIG(move(c, g, 100), g.kind = PKV_LAYERS_OPAQUE_STATES), fine);
  add(CONFIG(move(c, g, 100), g.kind = PKV_LAYERS_OPAQUE_STATES, g.key_dim = 7), invalid);
  add(CONFIG(move(c, g, 100), g.kind = PKV_LAYERS_OPAQUE_STATES, g.window = 16), invalid);
  add(CONFIG(move(c, g, 100), g.kind = PKV_LAYERS_OPAQUE_STATES, g.checkpoint_interval = 24),
      invalid);
  add(CONFIG(move(c, g, 100), g.max_verify_tokens = 1), invalid);
  return cases;
}

}  // namespace

std::vector<Function> plain_rows() {
  return {
      quiet("pkv_version", caller(silent<pkv_version>), {}),
      quiet("pkv_last_error", caller(silent<pkv_last_error>), {}),
      quiet("pkv_last_error_details", caller(silent<pkv_last_error_details>), {}),
      quiet("pkv_status_name", caller(silent<pkv_status_name, pkv_status>), {number(0)}),
      quiet("pkv_isa_name", caller(silent<pkv_isa_name, pkv_isa>), {number(0)}),
  };
}

std::vector<Function> pool_rows() {
  const Arg pool = handle(Handle::pool);
  const uint32_t pool_stats = sizeof(pkv_pool_stats);
  const auto in = in_struct<pkv_pool_config>(0);
  std::vector<Function> rows = {
      {ROW(pkv_pool_create),
       {config_in<pkv_pool_config>(pool_config), out<pkv_pool>()},
       {in(WITH(it.blocks = 0), invalid), in(WITH(it.blocks = 0x80000000), too_large),
        in(WITH(it.blocks = UINT32_MAX), too_large),
        in(WITH(it.allocator = &no_functions), invalid)},
       [](World&, const Values& values) {
         OK(pkv_pool_destroy(*reinterpret_cast<pkv_pool*>(values[1])));
       }},
      {ROW(pkv_pool_destroy), {handle(Handle::pool, true)}},
      {ROW(pkv_pool_alloc),
       {pool, number(3), out<pkv_block_ref>(100)},
       {{"n 0", count(0), fine},
        {"n 0, NULL", set(1, 0, 2, 0), fine},
        {"more than are free", count(29), {PKV_OUT_OF_BLOCKS}},
        {"more than there are", count(129), too_large},
        {"n SIZE_MAX", count(SIZE_MAX), {PKV_OVERFLOW, PKV_TOO_LARGE}}}},
      {ROW(pkv_pool_retain), {pool, number(100), list()}, list_cases(PKV_NOT_HELD)},
      {ROW(pkv_pool_release), {pool, number(100), list()}, list_cases(PKV_NOT_HELD)},
      {ROW(pkv_pool_get_stats), {pool, struct_out(pool_stats)}},
      {ROW(pkv_pool_validate), {pool}},
  };
  rows[1].closes = true;
  auto twice = [](World& world, Values& values) {
    reinterpret_cast<pkv_block_ref*>(values[2])[50] = world.blocks[3];
  };
  rows[4].add("twice in the list", twice, {PKV_NOT_HELD});
  rows[4].add("twice in a short list",
              [twice](World& world, Values& values) {
                twice(world, values);
                values[1] = 60;
              },
              {PKV_NOT_HELD});
  return rows;
}

std::vector<Function> cache_rows() {
  const Arg cache = handle(Handle::cache);
  Function plan{ROW(pkv_cache_compute_sizes),
                {config_in<pkv_cache_config>(cache_config), number(PKV_ALL_GROUPS),
                 struct_out(sizeof(pkv_cache_sizes))},
                config_cases()};
  plan.cases.push_back(model_case(CONFIG(c.huge_pages = PKV_HUGE_PAGES_REQUIRE;
                                         c.allocator = nullptr; c.memory_directory = nullptr),
                                  fine));
  plan.add("group 1", set(1, 1), range);
  plan.add("group 0xFFFFFFFE", set(1, 0xFFFFFFFE), range);
  Function create{ROW(pkv_cache_create),
                  {config_in<pkv_cache_config>(cache_config), out<pkv_cache>()},
                  config_cases(),
                  [](World&, const Values& values) {
                    OK(pkv_cache_destroy(*reinterpret_cast<pkv_cache*>(values[1])));
                  }};
  for (const char* directory : {"/nowhere/at/all", "/proc/self/exe", "/proc/self"})
    create.add(format("memory_directory %s", directory),
               [directory](World&, Values& values) {
                 reinterpret_cast<pkv_cache_config*>(values[0])->memory_directory = directory;
               },
               {PKV_IO});
  for (Function* row : {&plan, &create})
    for (const auto& more : {runner_cases(), store_cases(), rotation_cases(), shared_cases(),
                             state_cases(), opaque_cases()})
      row->cases.insert(row->cases.end(), more.begin(), more.end());
  Function destroy{ROW(pkv_cache_destroy), {handle(Handle::cache, true)}};
  destroy.closes = true;
  std::vector<Function> rows = {
      {ROW(pkv_cache_get_info), {cache, struct_out(sizeof(pkv_cache_info))}},
      {ROW(pkv_cache_get_stats), {cache, struct_out(sizeof(pkv_cache_stats))}},
      {ROW(pkv_cache_get_pool_stats),
       {cache, number(PKV_ALL_GROUPS), struct_out(sizeof(pkv_pool_stats))},
       {{"group 0", set(1, 0), fine},
        {"group 1", set(1, 1), range},
        {"group 0xFFFFFFFE", set(1, 0xFFFFFFFE), range}}},
      {ROW(pkv_cache_format_metrics),
       {cache, number(16384), out<char>(16384), out<size_t>()},
       {{"capacity SIZE_MAX", set(1, SIZE_MAX), overflow}}},
      {ROW(pkv_cache_validate), {cache}},
      {ROW(pkv_cache_get_kv_view), {cache, index(1, layers), struct_out(sizeof(pkv_kv_view))}},
  };
  rows.insert(rows.begin(), {plan, create, destroy});
  return rows;
}

}  // namespace hostile
