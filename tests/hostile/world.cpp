#include "world.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "../support/files.h"
#include "../support/portable.h"

namespace hostile {

namespace {

template <class Struct>
void add_bytes(std::string& state, const Struct& value) {
  state.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void add_cache(std::string& state, pkv_cache cache) {
  auto stats = made<pkv_cache_stats>();
  add_bytes(state, pkv_cache_get_stats(cache, &stats));
  add_bytes(state, stats);
  auto pool = made<pkv_pool_stats>();
  add_bytes(state, pkv_cache_get_pool_stats(cache, PKV_ALL_GROUPS, &pool));
  pool.held_blocks_peak = 0;  // a refused call may have held blocks for a moment
  add_bytes(state, pool);
}

void add_session(std::string& state, pkv_session session) {
  uint64_t length = 0;
  add_bytes(state, pkv_session_get_length(session, &length));
  add_bytes(state, length);
  uint32_t ids[64] = {};
  size_t count = 0;
  add_bytes(state, pkv_session_get_block_table(session, 0, 64, ids, &count));
  add_bytes(state, count);
  add_bytes(state, ids);
  int32_t tokens[64] = {};
  add_bytes(state, pkv_session_get_tokens(session, 0, std::min<uint64_t>(length, 64), tokens));
  add_bytes(state, tokens);
  const auto add_rows = [&](uint32_t layer, uint64_t first, size_t n) {
    std::vector<float> k(64 * kv_floats), v(64 * kv_floats);
    const pkv_tensor kt = tensor(k.data()), vt = tensor(v.data());
    add_bytes(state, pkv_session_read(session, layer, first, n, &kt, &vt));
    state.append(reinterpret_cast<const char*>(k.data()), k.size() * sizeof(float));
    state.append(reinterpret_cast<const char*>(v.data()), v.size() * sizeof(float));
  };
  add_rows(1, 0, std::min<uint64_t>(length, 64));
  // The rows of the step in flight are there in the layers that it has written.
  for (uint32_t layer = 0; layer < layers; layer++) add_rows(layer, length, 3);
}

// Makes a store that has no items and accepts all.
pkv_store null_store() {
  pkv_store store = made<pkv_store>();
  store.put = [](void*, size_t n, pkv_store_item*) { return static_cast<int64_t>(n); };
  store.get = store.touch = [](void*, size_t n, pkv_store_item* items) {
    for (size_t i = 0; i < n; i++) items[i].size = 0;
    return int64_t{0};
  };
  store.remove = [](void*, size_t, const pkv_store_item*) { return int64_t{0}; };
  store.close = [](void*) {};
  return store;
}

}  // namespace

std::string name_of(const Place& place) {
  return "storage " + std::to_string(place.storage) + (place.directory ? " in a file" : "") +
         (place.elsewhere ? " of opaque groups" : "");
}

const pkv_block_io forgetful_device = made<pkv_block_io>(
    {.read = [](void*, uint32_t, size_t, const uint32_t*, const uint32_t*, void*) { return 0; },
     .write = [](void*, uint32_t, size_t, const uint32_t*, const void*) { return 0; }});

// The store's own memory is never refused, because it belongs to the caller.
pkv_store World::keeping_store() {
  static constexpr auto of = [](void* user) { return static_cast<World*>(user)->items.table(); };
  pkv_store store = made<pkv_store>();
  store.user = this;
  store.put = [](void* user, size_t n, pkv_store_item* list) {
    const memory::Exempt exempt;
    return of(user).put(of(user).user, n, list);
  };
  store.get = [](void* user, size_t n, pkv_store_item* list) {
    const memory::Exempt exempt;
    return of(user).get(of(user).user, n, list);
  };
  store.touch = [](void* user, size_t n, pkv_store_item* list) {
    const memory::Exempt exempt;
    return of(user).touch(of(user).user, n, list);
  };
  store.remove = [](void* user, size_t n, const pkv_store_item* list) {
    const memory::Exempt exempt;
    return of(user).remove(of(user).user, n, list);
  };
  store.close = [](void*) {};
  return store;
}

// Stores texts that only the store has, under the salts of the matrix: 40 tokens, all of them 1.
void World::store_some() {
  const std::vector<int32_t> tokens(40, 1);
  for (const char* const salt : {"", "a", "p"}) {
    auto config = made<pkv_session_config>({.salt = salt, .salt_size = std::strlen(salt)});
    pkv_session ended = nullptr;
    OK(pkv_session_open(cache, &config, &ended));
    fill(ended, tokens.size(), 6);
    OK(pkv_session_set_tokens(ended, 0, tokens.size(), tokens.data()));
    OK(pkv_session_close(ended));
  }
  rest();
  OK(pkv_prefix_clear(cache, nullptr, PKV_ALL_SALTS));
}

void World::rest() {
  if (!place.has_store()) return;
  uint64_t number = 0;
  OK(pkv_cache_flush_store(cache, 60000, &number));
  const std::vector<int32_t> tokens(1, 1);
  for (const char* const salt : {"", "a", "p"})
    OK(pkv_prefetch_wait(cache, TextArg(tokens, salt), 60000, &number, nullptr));
}

std::string name_of(Layers kind) {
  return std::vector<std::string>{
      "Plain", "Window", "Sinks", "States", "Mixed", "GroupMemory"}[static_cast<size_t>(kind)];
}

namespace {

bool keeps_state(uint32_t layer) {
  return World::layers_keep == Layers::states ||
         (World::layers_keep == Layers::mixed && layer == 1);
}

pkv_layer_group states_of_one_layer(uint64_t blocks) {
  return made<pkv_layer_group>({.layers = 1,
                                .kind = PKV_LAYERS_STATES,
                                .layer_bytes = state_bytes,
                                .max_verify_tokens = 3,
                                .blocks = blocks});
}

// Describes each layer as a group of its own.
void use_groups(ModelConfig& config) {
  static pkv_layer_group groups[layers];
  config.model.layers = 1;
  for (uint32_t layer = 0; layer < layers; layer++) {
    groups[layer] = keeps_state(layer) ? states_of_one_layer(config.model.blocks) : config.model;
    if (keeps_state(layer)) groups[layer].checkpoint_interval = block_size;
  }
  config.groups = groups;
  config.group_count = layers;
}

// Leaves to the engine all that a block has.
void move_elsewhere(pkv_cache_config& config) {
  static pkv_layer_group groups[layers];
  config.group_count = std::max(config.group_count, 1u);
  std::copy_n(config.groups, config.group_count, groups);
  config.groups = groups;
  for (pkv_layer_group& group : groups)
    group = made<pkv_layer_group>(
        {.layers = group.layers,
         .kind = group.kind == PKV_LAYERS_STATES ? PKV_LAYERS_OPAQUE_STATES : PKV_LAYERS_OPAQUE_KV,
         .window = group.window,
         .sink_tokens = group.sink_tokens,
         .layer_bytes = 50,
         .checkpoint_interval = group.checkpoint_interval,
         .max_verify_tokens = group.max_verify_tokens,
         .blocks = group.blocks});
  config.block_io = &forgetful_device;
  config.storage = PKV_STORAGE_EXTERNAL;
}

void share_memory(ModelConfig& config) {
  auto plan = made<pkv_cache_sizes>();
  OK(pkv_cache_compute_sizes(&config, PKV_ALL_GROUPS, &plan));
  config.memory_bytes = plan.memory_bytes;
  auto* const groups = const_cast<pkv_layer_group*>(config.groups);  // they are variables
  for (uint32_t g = 0; g < std::max(config.group_count, 1u); g++) groups[g].blocks = 0;
  config.groups_share_memory = 1;
}

}  // namespace

ModelConfig World::make_config(uint64_t capacity) const {
  ModelConfig config = small_model(capacity, &hooks);
  config.memory_directory = place.directory;
  if (layers_keep == Layers::window || layers_keep == Layers::sinks || layers_keep == Layers::mixed)
    config.model.window = 24;
  if (layers_keep == Layers::sinks) config.model.sink_tokens = 4;
  if (keeps_state(1)) use_groups(config);
  if (place.elsewhere) move_elsewhere(config);
  if (layers_keep == Layers::group_memory) share_memory(config);
  return config;
}

World::World(const Place& kept_in, uint32_t threads, bool stored)
    : place(kept_in), descriptors_(portable::count_descriptors()) {
  const pkv_storage kind = place.storage;
  ModelConfig config = make_config(64);
  config.storage = kind;
  config.threads = threads;
  auto prefix = made<pkv_prefix_config>({.max_events = 4});
  config.prefix = &prefix;
  pkv_store table = stored ? keeping_store() : null_store();
  auto store = made<pkv_store_config>({.store = &table});
  if (stored) store.wait_ms = 60000;
  if (place.has_store()) config.store = &store;
  config.clock = clock.hook();
  OK(pkv_cache_create(&config, &cache));
  config.clock = nullptr;
  config.store = nullptr;
  OK(pkv_cache_create(&config, &other));
  OK(pkv_session_open(cache, nullptr, &session));
  OK(pkv_session_open(cache, nullptr, &stepping));
  OK(pkv_session_open(other, nullptr, &foreign));
  fill(session, 20, 1);
  fill(stepping, 5, 2);
  fill(foreign, 3, 3);
  if (stored) store_some();
  pin_some();
  OK(pkv_snapshot_take(session, &snapshot));
  OK(pkv_snapshot_take(foreign, &foreign_snapshot));

  auto pool_config = made<pkv_pool_config>({.blocks = 128, .allocator = hooks.allocator()});
  OK(pkv_pool_create(&pool_config, &pool));
  blocks.resize(100);
  OK(pkv_pool_alloc(pool, blocks.size(), blocks.data()));
  OK(pkv_pool_retain(pool, 1, &blocks.back()));
  auto compute_config =
      made<pkv_compute_config>({.threads = threads, .allocator = hooks.allocator()});
  OK(pkv_compute_create(&compute_config, &compute));
  close_some();
  make_hybrid();

  const uint32_t three = 3;
  OK(pkv_batch_begin(cache, 1, &stepping, &three, &batch));
  if (kind != PKV_STORAGE_EXTERNAL) write_layers(batch, three, 4);
}

void World::write_layers(pkv_batch step, size_t tokens, uint64_t seed) {
  const std::vector<float> data = numbers(tokens * kv_floats, seed);
  const pkv_tensor row = tensor(data.data());
  for (uint32_t layer = 0; layer < layers; layer++) {
    if (!keeps_state(layer)) {
      OK(pkv_batch_write(step, layer, &row, &row));
      continue;
    }
    const void* before = nullptr;
    void* after[8] = {};
    size_t states = 0;
    OK(pkv_batch_get_states(step, layer, &before, std::size(after), after, &states));
    for (size_t i = 0; i < states; i++) std::memset(after[i], static_cast<int>(seed), state_bytes);
  }
}

void World::make_hybrid() {
  ModelConfig config = small_model(16, &hooks);
  config.memory_directory = place.directory;
  config.model.layers = 1;
  const pkv_layer_group groups[2] = {config.model, states_of_one_layer(config.model.blocks)};
  config.groups = groups;
  config.group_count = 2;
  OK(pkv_cache_create(&config, &hybrid));
  OK(pkv_session_open(hybrid, nullptr, &recurrent));
  const std::vector<float> data = numbers(20 * kv_floats, 7);
  const pkv_tensor row = tensor(data.data());
  for (const uint32_t count : {20u, 3u}) {
    OK(pkv_batch_begin(hybrid, 1, &recurrent, &count, &recurring));
    OK(pkv_batch_write(recurring, 0, &row, &row));
    const void* before = nullptr;
    void* after[3] = {};
    size_t states = 0;
    OK(pkv_batch_get_states(recurring, 1, &before, 3, after, &states));
    for (size_t i = 0; i < states; i++) std::memset(after[i], static_cast<int>(count), state_bytes);
    if (count == 20) OK(pkv_batch_commit(recurring, 0, nullptr));
  }
}

// Opens one object of each kind and closes it again.
void World::close_some() {
  const ModelConfig config = make_config(4);
  OK(pkv_cache_create(&config, &closed_cache));
  OK(pkv_session_open(closed_cache, nullptr, &closed_session));
  OK(pkv_snapshot_take(closed_session, &closed_snapshot));
  const uint32_t none = 0;
  OK(pkv_batch_begin(closed_cache, 1, &closed_session, &none, &closed_batch));
  OK(pkv_batch_abort(closed_batch));
  OK(pkv_snapshot_close(closed_snapshot));
  OK(pkv_session_close(closed_session));
  OK(pkv_cache_destroy(closed_cache));
  auto pool_config = made<pkv_pool_config>({.blocks = 4});
  OK(pkv_pool_create(&pool_config, &closed_pool));
  OK(pkv_pool_destroy(closed_pool));
  OK(pkv_compute_create(nullptr, &closed_compute));
  OK(pkv_compute_destroy(closed_compute));
}

// Pins a text of 20 tokens, all of them 1, under the salt "p".
void World::pin_some() {
  auto config = made<pkv_session_config>({.salt = "p", .salt_size = 1});
  pkv_session ended = nullptr;
  OK(pkv_session_open(cache, &config, &ended));
  fill(ended, 20, 5);
  const std::vector<int32_t> tokens(20, 1);
  OK(pkv_session_set_tokens(ended, 0, tokens.size(), tokens.data()));
  OK(pkv_session_close(ended));
  const auto pin = made<pkv_hint>({.action = PKV_HINT_PIN, .end = PKV_TO_END});
  OK(pkv_hint_prompt(cache, TextArg(tokens, "p"), &pin, nullptr));
  uint64_t queued = 0;
  if (place.has_store()) OK(pkv_cache_flush_store(cache, 60000, &queued));
}

void World::fill(pkv_session target, size_t tokens, uint64_t seed) {
  const uint32_t count = static_cast<uint32_t>(tokens);
  pkv_batch step = nullptr;
  OK(pkv_batch_begin(target == foreign ? other : cache, 1, &target, &count, &step));
  if (place.storage != PKV_STORAGE_EXTERNAL) write_layers(step, tokens, seed);
  OK(pkv_batch_commit(step, 0, nullptr));
}

namespace {

// Maps pages for `size` bytes, followed by an inaccessible page.
std::shared_ptr<unsigned char> map_room(size_t size, bool vast) {
  constexpr size_t page = 4096;
  const size_t whole = vast ? size_t{1} << 36 : (size + page - 1) / page * page;
  void* const pages = portable::map_guarded(whole);
  HOSTILE_CHECK(pages != nullptr, "no room of %zu bytes", whole);
  return {static_cast<unsigned char*>(pages) + (vast ? 0 : whole - size),
          [=](unsigned char*) { portable::unmap_guarded(pages, whole); }};
}

}  // namespace

unsigned char* World::room(size_t size, unsigned char fill) {
  if (rooms_lie == Rooms::anywhere)
    regions_.push_back(
        {{new unsigned char[size], std::default_delete<unsigned char[]>()}, size, {}});
  else
    regions_.push_back({map_room(size, rooms_lie == Rooms::vast), size, {}});
  unsigned char* const at = regions_.back().memory.get();
  std::fill_n(at, size, fill);
  return at;
}

std::string World::state() {
  std::string state;
  for (const pkv_cache each : {cache, other}) add_cache(state, each);
  for (const pkv_session each : {session, stepping, foreign}) add_session(state, each);
  add_cache(state, hybrid);
  add_session(state, recurrent);
  unsigned char bytes[state_bytes] = {};
  add_bytes(state, pkv_session_get_state(recurrent, 1, 20, sizeof bytes, bytes));
  add_bytes(state, bytes);
  int64_t slots[8] = {};
  size_t rows = 0;
  add_bytes(state, pkv_batch_get_slot_mapping(batch, 0, std::size(slots), slots, &rows));
  add_bytes(state, rows);
  add_bytes(state, slots);
  auto stats = made<pkv_pool_stats>();
  add_bytes(state, pkv_pool_get_stats(pool, &stats));
  add_bytes(state, stats);
  return state;
}

void World::remember() {
  for (Region& region : regions_)
    region.before.assign(region.memory.get(), region.memory.get() + region.size);
  state_ = state();
}

void World::check_memory() const {
  for (size_t i = 0; i < regions_.size(); i++)
    HOSTILE_CHECK(
        std::equal(regions_[i].before.begin(), regions_[i].before.end(), regions_[i].memory.get()),
        "the memory of argument %zu was changed by a call that failed", i);
}

void World::check_state() {
  HOSTILE_CHECK(state() == state_, "a call that failed changed what the objects hold");
}

void World::validate() {
  for (const pkv_cache each : {cache, other, hybrid})
    if (const pkv_status status = pkv_cache_validate(each); status != PKV_STALE_HANDLE)
      expect(PKV_OK, status, "pkv_cache_validate");
  if (const pkv_status status = pkv_pool_validate(pool); status != PKV_STALE_HANDLE)
    expect(PKV_OK, status, "pkv_pool_validate");
}

void World::close_inherited() {
  // Objects that a cell has closed are stale.
  const auto closed = [](pkv_status status, const char* what) {
    if (status != PKV_STALE_HANDLE) expect(PKV_OK, status, what);
  };
  for (const pkv_batch each : more_batches) closed(pkv_batch_abort(each), "pkv_batch_abort");
  for (const pkv_batch each : {batch, recurring}) closed(pkv_batch_abort(each), "pkv_batch_abort");
  for (const pkv_session each : {session, stepping, foreign, recurrent})
    closed(pkv_session_close(each), "pkv_session_close");
  for (const pkv_snapshot each : {snapshot, foreign_snapshot})
    closed(pkv_snapshot_close(each), "pkv_snapshot_close");
  for (const pkv_cache each : {cache, other, hybrid})
    closed(pkv_cache_destroy(each), "pkv_cache_destroy");
  for (const pkv_cache each : more_caches) closed(pkv_cache_destroy(each), "pkv_cache_destroy");
  closed(pkv_pool_destroy(pool), "pkv_pool_destroy");
  closed(pkv_compute_destroy(compute), "pkv_compute_destroy");
}

void World::close() {
  close_inherited();
  HOSTILE_CHECK(hooks.live() == 0, "%lld blocks of the caller's allocator leaked",
                static_cast<long long>(hooks.live()));
  const size_t open = portable::count_descriptors();
  HOSTILE_CHECK(open == descriptors_, "%zu descriptors are open, and %zu were before", open,
                descriptors_);
  HOSTILE_CHECK(hooks.sound(),
                "a block was freed with another size or alignment than it was allocated with");
}

bool refuse(World& world, bool hooks, uint64_t k, const std::function<void()>& call) {
  if (!hooks) {
    const FailingNew failing(k);
    call();
    return failing.struck();
  }
  world.hooks.struck = false;
  world.hooks.fail_at = k;
  call();
  world.hooks.fail_at = 0;
  return world.hooks.struck;
}

void warm_up() {
  static int warm = 0;
  if (std::exchange(warm, portable::process_id()) == portable::process_id()) return;
  const Layers later = std::exchange(World::layers_keep, Layers::plain);
  World once;
  {
    World more;  // What lists all objects grows with them.
    more.close();
  }
  auto view = made<pkv_kv_view>();
  OK(pkv_cache_get_kv_view(once.cache, 0, &view));
  // These are two tasks, so the threads begin.
  const std::vector<uint32_t> queries{1, 1}, tables{0, 0};
  const std::vector<uint64_t> lengths{1, 1};
  const pkv_kv_sequences sequences = sequences_of(query_heads, queries, lengths, tables);
  std::vector<float> q(2 * q_floats), out(2 * q_floats);
  const pkv_tensor q_rows = tensor(q.data()), out_rows = tensor(out.data());
  OK(pkv_kv_attend(nullptr, &view, &sequences, nullptr, &q_rows, &out_rows, nullptr));
  once.close();
  World::layers_keep = later;
}

}  // namespace hostile
