// Checks configs field by field, in the order that decides which error a caller sees first, and
// computes sizes.
#include "engine/cache/config.h"

#include <algorithm>

#include "base/checked.h"
#include "base/enums.h"
#include "base/hooks.h"
#include "base/status.h"
#include "base/structs.h"
#include "engine/cache/identity.h"
#include "engine/memory/pool.h"
#include "kernels/kernels.h"

namespace pkv {

namespace {

// The largest values that a config may have.
constexpr uint32_t max_blocks = 0x7FFFFFFF;
constexpr uint32_t max_layers = 65536;
constexpr uint32_t most_events = 1 << 24;
constexpr uint32_t most_verify_tokens = 256;
constexpr uint64_t max_buffer_bytes = uint64_t{1} << 36;

void check_dim(uint32_t dim, const char* name, unsigned group) {
  if (dim < 16 || dim > kernels::max_dim || dim % 16 != 0)
    fail(PKV_INVALID_ARGUMENT, "group %u: %s is %u; it must be a multiple of 16, 16 to %u", group,
         name, dim, kernels::max_dim);
}

std::string name_of(unsigned group) { return "group " + std::to_string(group); }

// Checks that the fields that a kind of layers does not use are 0.
void check_unused(const pkv_layer_group& group, const memory::Shape& shape, unsigned index) {
  const bool states = shape.has_states(), rows = !states && !shape.opaque();
  const struct {
    const char* name;
    uint64_t value;
    bool used;
  } fields[] = {
      {"query_heads", group.query_heads, !states},
      {"kv_heads", group.kv_heads, rows},
      {"key_dim", group.key_dim, !states},
      {"value_dim", group.value_dim, !states},
      {"dtype", static_cast<uint32_t>(group.dtype), rows},
      {"value_dtype", static_cast<uint32_t>(group.value_dtype), rows},
      {"window", group.window, !states},
      {"sink_tokens", group.sink_tokens, !states},
      {"rotation", static_cast<uint32_t>(group.rotation), rows},
      {"layer_bytes", group.layer_bytes, !rows},
      {"checkpoint_interval", group.checkpoint_interval, states},
      {"max_verify_tokens", group.max_verify_tokens, states},
  };
  for (const auto& field : fields)
    if (!field.used && field.value != 0)
      fail(PKV_INVALID_ARGUMENT, "group %u: %s is %llu; it must be 0 with kind %s", index,
           field.name, llu(field.value), enum_name(group.kind));
  if (!rows && group.rotation_matrices != nullptr)
    fail(PKV_INVALID_ARGUMENT, "group %u: rotation_matrices must be NULL with kind %s", index,
         enum_name(group.kind));
}

void check_states(const pkv_layer_group& group, unsigned index, uint32_t block_size) {
  if (group.checkpoint_interval % block_size != 0)
    fail(PKV_INVALID_ARGUMENT,
         "group %u: checkpoint_interval is %u, not a multiple of block_size %u", index,
         group.checkpoint_interval, block_size);
  if (group.max_verify_tokens > most_verify_tokens)
    fail(PKV_INVALID_ARGUMENT, "group %u: max_verify_tokens is %u; it must be at most %u", index,
         group.max_verify_tokens, most_verify_tokens);
}

void check_layer_bytes(const memory::Shape& shape, unsigned index) {
  if (shape.layer_bytes == 0)
    fail(PKV_INVALID_ARGUMENT, "group %u: layer_bytes is 0; it must be 1 or more with kind %s",
         index, enum_name(shape.kind));
  if (shape.opaque() && shape.layer_bytes > memory::max_opaque_block_bytes / shape.layers)
    fail(PKV_INVALID_ARGUMENT,
         "group %u: a block of %u layers with %llu bytes each is larger than 2^40", index,
         shape.layers, llu(shape.layer_bytes));
}

memory::Rotations read_rotation(const pkv_layer_group& group, const memory::Shape& shape,
                                unsigned index) {
  const std::string name = name_of(index);
  const memory::GivenRotation given =
      memory::read_rotation(group.rotation, group.rotation_matrices, shape.key_dim, shape.value_dim,
                            shape.latent(), name.c_str());
  return memory::copy_rotation(given, shape.key_dim, shape.value_dim, name.c_str());
}

// Checks heads, dims and dtypes of a group whose keys and values the library knows, and fills in
// defaults.
void set_rows(memory::Shape& shape, const pkv_layer_group& group, unsigned index) {
  shape.query_heads = group.query_heads;
  shape.kv_heads = group.kv_heads;
  shape.key_dim = group.key_dim;
  shape.value_dim = group.value_dim == 0 ? group.key_dim : group.value_dim;
  shape.dtype = group.dtype == 0 ? PKV_F32 : group.dtype;
  shape.value_dtype = group.value_dtype == 0 ? shape.dtype : group.value_dtype;
  if (shape.kv_heads == 0 || shape.query_heads == 0 || shape.query_heads > memory::max_heads)
    fail(PKV_INVALID_ARGUMENT, "group %u: %u query heads and %u KV heads; there must be 1 to %u",
         index, shape.query_heads, shape.kv_heads, memory::max_heads);
  if (shape.query_heads % shape.kv_heads != 0)
    fail(PKV_INVALID_ARGUMENT, "group %u: %u query heads are not a multiple of %u KV heads", index,
         shape.query_heads, shape.kv_heads);
  check_dim(shape.key_dim, "key_dim", index);
  check_dim(shape.value_dim, "value_dim", index);
  check_enum(shape.dtype, "dtype", name_of(index).c_str());
  check_enum(shape.value_dtype, "value_dtype", name_of(index).c_str());
  for (const pkv_dtype dtype : {shape.dtype, shape.value_dtype})
    if (!kernels::dtype_stored(dtype))
      fail(PKV_UNSUPPORTED, "group %u: a cache cannot store %s; only a pkv_kv_view can have it",
           index, enum_name(dtype));
  if (shape.latent() && (shape.value_dim > shape.key_dim || shape.value_dtype != shape.dtype))
    fail(PKV_INVALID_ARGUMENT,
         "group %u: latent: V is the first value_dim of the %u dims of K, and has its dtype, %s; "
         "value_dim is %u, value_dtype %s",
         index, shape.key_dim, enum_name(shape.dtype), shape.value_dim,
         enum_name(shape.value_dtype));
  shape.rotations = read_rotation(group, shape, index);
}

// Checks one group. `index` is for the sentences.
memory::Shape check_shape(const pkv_layer_group& group, unsigned index, uint32_t block_size) {
  check_enum(group.kind, "kind", name_of(index).c_str());
  memory::Shape shape{};
  shape.kind = group.kind;
  check_unused(group, shape, index);
  shape.layers = group.layers;
  shape.window = group.window;
  shape.sinks = group.sink_tokens;
  shape.layer_bytes = group.layer_bytes;
  shape.checkpoint_interval = group.checkpoint_interval;
  shape.max_verify_tokens = group.max_verify_tokens;
  if (shape.has_states() || shape.opaque())
    check_layer_bytes(shape, index);
  else
    set_rows(shape, group, index);
  check_states(group, index, block_size);
  if (shape.sinks != 0 && shape.window == 0)
    fail(PKV_INVALID_ARGUMENT,
         "group %u: sink_tokens is %u without a window; without one every token stays visible",
         index, shape.sinks);
  return shape;
}

std::vector<pkv_layer_group> list_groups(const pkv_cache_config& config) {
  if (config.groups == nullptr)
    fail(PKV_INVALID_ARGUMENT, "groups is NULL: the model has no layers");
  if (config.group_count > max_layers)
    fail(PKV_INVALID_ARGUMENT, "group_count is %u; it must be at most %u", config.group_count,
         max_layers);
  std::vector<pkv_layer_group> groups;
  for (uint32_t i = 0; i < std::max(config.group_count, 1u); i++)
    groups.push_back(read_struct(config.groups + i, "pkv_layer_group"));
  return groups;
}

// Checks that every layer of the model is in exactly one group.
void check_layers(const std::vector<GroupConfig>& groups, uint32_t layers) {
  std::vector<bool> seen(layers);
  for (size_t g = 0; g < groups.size(); g++) {
    for (const uint32_t layer : groups[g].layer_indices) {
      if (layer >= layers)
        fail(PKV_OUT_OF_RANGE, "group %zu names layer %u; the groups have %u layers in all", g,
             layer, layers);
      if (seen[layer])
        fail(PKV_INVALID_ARGUMENT, "layer %u is in two groups, or twice in group %zu", layer, g);
      seen[layer] = true;
    }
  }
}

void check_hooks(const pkv_cache_config& config) {
  check_allocator(config.allocator);
  if (config.logger != nullptr && config.logger->log == nullptr)
    fail(PKV_INVALID_ARGUMENT, "the logger lacks its log function");
  if (config.clock != nullptr && config.clock->now_ms == nullptr)
    fail(PKV_INVALID_ARGUMENT, "the clock lacks its now_ms function");
  check_runner(config.runner, config.threads);
}

// Returns the hooks of opaque groups; none if there is no such group.
std::optional<pkv_block_io> read_block_io(const pkv_cache_config& config,
                                          const std::vector<GroupConfig>& groups) {
  const auto opaque = [](const GroupConfig& group) { return group.shape.opaque(); };
  const auto first = std::find_if(groups.begin(), groups.end(), opaque);
  if (first == groups.end() && config.block_io == nullptr) return std::nullopt;
  if (first == groups.end())
    fail(PKV_INVALID_ARGUMENT, "block_io is given, but no group is opaque");
  if (config.block_io == nullptr)
    fail(PKV_INVALID_ARGUMENT,
         "block_io is NULL, but group %zu has kind %s: nothing could copy its blocks",
         static_cast<size_t>(first - groups.begin()), enum_name(first->shape.kind));
  const pkv_block_io io = read_struct(config.block_io, "block_io");
  if (io.reserved != 0) fail(PKV_INVALID_ARGUMENT, "block_io: reserved is %u, not 0", io.reserved);
  if (io.read == nullptr || io.write == nullptr)
    fail(PKV_INVALID_ARGUMENT, "block_io lacks its %s function",
         io.read == nullptr ? "read" : "write");
  const auto other = std::find_if_not(groups.begin(), groups.end(), opaque);
  if (config.storage == PKV_STORAGE_EXTERNAL && other != groups.end())
    fail(PKV_UNSUPPORTED,
         "storage EXTERNAL: group %zu has kind %s and group %zu kind %s; all groups must be "
         "opaque, or "
         "none",
         static_cast<size_t>(first - groups.begin()), enum_name(first->shape.kind),
         static_cast<size_t>(other - groups.begin()), enum_name(other->shape.kind));
  return io;
}

void check_store(const pkv_store_config& config) {
  if (config.store == nullptr) fail(PKV_INVALID_ARGUMENT, "the store of its config is NULL");
  const pkv_store& store = *config.store;
  check_struct_size<pkv_store>(store.struct_size, "store");
  if (store.reserved != 0)
    fail(PKV_INVALID_ARGUMENT, "store: reserved is %u, not 0", store.reserved);
  if (store.put == nullptr || store.get == nullptr || store.touch == nullptr ||
      store.remove == nullptr || store.close == nullptr)
    fail(PKV_INVALID_ARGUMENT, "store: one of its functions is NULL");
  check_fingerprint(config.fingerprint, config.fingerprint_size);
  check_key(config.secret_key, config.secret_key_size);
  if (config.buffer_bytes > max_buffer_bytes)
    fail(PKV_INVALID_ARGUMENT, "buffer_bytes is %llu; it must be at most 2^36",
         llu(config.buffer_bytes));
}

void check_prefix(const pkv_prefix_config& prefix) {
  check_enum(prefix.eviction, "eviction");
  if (prefix.reserved != 0)
    fail(PKV_INVALID_ARGUMENT, "prefix: reserved is %u, not 0", prefix.reserved);
  if (prefix.max_events > most_events)
    fail(PKV_INVALID_ARGUMENT, "max_events is %u; it must be at most %u", prefix.max_events,
         most_events);
}

}  // namespace

void check_block_size(uint32_t block_size) {
  if (block_size < 16 || block_size > memory::max_block_size || block_size % 16 != 0)
    fail(PKV_INVALID_ARGUMENT, "block_size is %u; it must be a multiple of 16, 16 to %u",
         block_size, memory::max_block_size);
}

uint64_t limit_in_blocks(uint64_t tokens, uint32_t block_size, const char* name) {
  if (tokens != 0 && tokens < block_size)
    fail(PKV_INVALID_ARGUMENT, "%s is %llu; it must be 0, or at least one block of %u tokens", name,
         llu(tokens), block_size);
  return tokens / block_size;
}

namespace {

void check_enums(const pkv_cache_config& config) {
  check_enum(config.storage, "storage");
  check_enum(config.layout, "layout");
  if (config.layout != PKV_LAYOUT_PACKED && config.storage != PKV_STORAGE_INTERNAL)
    fail(PKV_UNSUPPORTED, "layout PLAIN needs storage INTERNAL; storage is %s",
         enum_name(config.storage));
  check_enum(config.isa, "isa");
  check_enum(config.huge_pages, "huge_pages");
}

// Returns how much longer a token takes to compute than the one before it, relative to the first
// one of a text, as pkv_prefix_config.active_parameters says.
double weight_per_token(const pkv_prefix_config& prefix,
                        const std::vector<pkv_layer_group>& groups) {
  if (prefix.active_parameters == 0) return 0;
  auto first = static_cast<double>(prefix.active_parameters);
  double growth = 0;
  for (const pkv_layer_group& group : groups) {
    const double layers = group.layers, heads = group.query_heads, key_dim = group.key_dim,
                 value_dim = group.value_dim != 0 ? group.value_dim : group.key_dim,
                 window = group.window, sinks = group.sink_tokens;
    const double per_position = layers * heads * (key_dim + value_dim);
    if (window != 0)
      first += per_position * (window + sinks);
    else
      growth += per_position;
  }
  return growth / first;
}

std::optional<prefix::IndexOptions> read_prefix(const pkv_cache_config& config,
                                                const std::vector<pkv_layer_group>& groups) {
  if (config.prefix == nullptr) return std::nullopt;
  const pkv_prefix_config prefix = read_struct(config.prefix, "prefix");
  check_prefix(prefix);
  prefix::IndexOptions options{};
  options.eviction = prefix.eviction;
  options.max_pinned =
      limit_in_blocks(prefix.max_pinned_tokens, config.block_size, "max_pinned_tokens");
  options.quota =
      limit_in_blocks(prefix.max_tokens_per_salt, config.block_size, "max_tokens_per_salt");
  options.max_events = prefix.max_events;
  options.block_size = config.block_size;
  options.weight_per_token = weight_per_token(prefix, groups);
  if (config.clock != nullptr) options.clock = *config.clock;
  return options;
}

std::optional<pkv_store_config> read_store(const pkv_cache_config& config) {
  if (config.store == nullptr) return std::nullopt;
  const pkv_store_config store = read_struct(config.store, "store");
  check_store(store);
  return store;
}

void check_options(const pkv_cache_config& config) {
  if (config.reserved != 0) fail(PKV_INVALID_ARGUMENT, "reserved is %u, not 0", config.reserved);
  check_block_size(config.block_size);
  check_flag(config.groups_share_memory, "groups_share_memory");
  check_flag(config.prefault, "prefault");
  if (config.memory_directory != nullptr) {
    if (config.memory_directory[0] == '\0')
      fail(PKV_INVALID_ARGUMENT, "memory_directory is an empty string: a path of 0 bytes");
    if (config.huge_pages == PKV_HUGE_PAGES_REQUIRE)
      fail(PKV_UNSUPPORTED, "memory_directory: a file has no huge pages; huge_pages is %s",
           enum_name(config.huge_pages));
  }
  if (config.huge_pages == PKV_HUGE_PAGES_REQUIRE && config.allocator != nullptr)
    fail(PKV_UNSUPPORTED, "huge_pages is %s, but the allocator decides which pages its memory has",
         enum_name(config.huge_pages));
  check_threads(config.threads);
  if (!kernels::isa_supported(config.isa))
    fail(PKV_UNSUPPORTED, "isa %s is not in this build, or this CPU lacks it",
         enum_name(config.isa));
}

// Fills in the groups and their layers, but not their numbers of blocks.
void fill_groups(CacheConfig& result, const std::vector<pkv_layer_group>& given) {
  for (size_t g = 0; g < given.size(); g++) {
    const auto index = static_cast<unsigned>(g);
    if (given[g].layers == 0 || given[g].layers > max_layers)
      fail(PKV_INVALID_ARGUMENT, "group %u: %u layers; there must be 1 to %u", index,
           given[g].layers, max_layers);
    GroupConfig group{check_shape(given[g], index, result.block_size), 0, 0, {}};
    for (uint32_t i = 0; i < group.shape.layers; i++)
      group.layer_indices.push_back(given[g].layer_indices != nullptr ? given[g].layer_indices[i]
                                                                      : result.layers + i);
    if (group.shape.rotations.rotate() && result.storage == PKV_STORAGE_EXTERNAL)
      fail(PKV_UNSUPPORTED, "group %zu: storage EXTERNAL keeps no keys and values to rotate", g);
    if (group.shape.layers > max_layers - result.layers)
      fail(PKV_INVALID_ARGUMENT, "the groups have more than %u layers in all", max_layers);
    result.layers += group.shape.layers;
    result.groups.push_back(std::move(group));
  }
  check_layers(result.groups, result.layers);
}

// Returns the option that says how the library's memory is made, or NULL.
const char* option_of_memory(const pkv_cache_config& config) {
  if (config.memory_directory != nullptr) return "memory_directory";
  if (config.huge_pages == PKV_HUGE_PAGES_REQUIRE) return "huge_pages REQUIRE";
  return config.prefault != 0 ? "prefault" : nullptr;
}

// Checks that the library has, or can copy, the bytes that other options are about.
void check_bytes(const CacheConfig& result, const pkv_cache_config& config) {
  const auto opaque = [](const GroupConfig& group) { return group.shape.opaque(); };
  const bool all_opaque = std::all_of(result.groups.begin(), result.groups.end(), opaque);
  const char* const option = option_of_memory(config);
  if (option != nullptr && (config.storage != PKV_STORAGE_INTERNAL || all_opaque))
    fail(PKV_UNSUPPORTED,
         "%s: all blocks are in the engine's memory; storage is %s, and %s group is opaque", option,
         enum_name(config.storage), all_opaque ? "every" : "no");
  if (result.store && (config.prefix == nullptr || !result.has_bytes()))
    fail(PKV_UNSUPPORTED,
         "a store needs a prefix index, and storage INTERNAL or opaque groups; storage is %s, and "
         "there "
         "is %s index",
         enum_name(config.storage), config.prefix == nullptr ? "no" : "an");
}

void check_watermark(uint32_t watermark, uint64_t blocks, size_t group) {
  if (watermark >= blocks)
    fail(PKV_INVALID_ARGUMENT, "watermark_blocks is %u; group %zu has %llu in all", watermark,
         group, llu(blocks));
}

// Cuts the memory that the groups share into pages.
void fill_pages(CacheConfig& result, const pkv_cache_config& config) {
  if (result.layout != PKV_LAYOUT_PACKED)
    fail(PKV_UNSUPPORTED, "groups_share_memory needs layout PACKED; layout is %s",
         enum_name(result.layout));
  if (config.memory_bytes == 0)
    fail(PKV_INVALID_ARGUMENT, "memory_bytes is 0, but the groups share it");
  std::vector<uint64_t> block_bytes;
  for (size_t g = 0; g < result.groups.size(); g++) {
    const memory::Shape& shape = result.groups[g].shape;
    if (shape.opaque() && result.storage == PKV_STORAGE_INTERNAL)
      fail(PKV_UNSUPPORTED,
           "groups_share_memory: the blocks of group %zu, of kind %s, are not in the memory of "
           "storage INTERNAL; use storage EXTERNAL",
           g, enum_name(shape.kind));
    const memory::Layout layout(result.layout, shape, result.block_size, 1);
    block_bytes.push_back(layout.block_bytes());
  }
  result.pages = memory::cut_pages(config.memory_bytes, block_bytes);
  for (size_t g = 0; g < result.groups.size(); g++) {
    result.groups[g].blocks = result.pages->pages * result.pages->per_page[g];
    result.groups[g].block_stride = result.pages->stride(g);
    check_watermark(config.watermark_blocks, result.groups[g].blocks, g);
  }
}

// Returns how many blocks each group gets if memory_bytes is for all of them.
uint64_t common_blocks(const CacheConfig& config, uint64_t memory_bytes) {
  uint64_t bytes = 0;
  for (const GroupConfig& group : config.groups) {
    const memory::Layout layout(config.layout, group.shape, config.block_size, 1);
    bytes = checked_add(bytes, layout.block_bytes(), "bytes of a block of every group");
  }
  if (memory_bytes < bytes)
    fail(PKV_TOO_LARGE, "memory_bytes is %llu; the least that works is %llu", llu(memory_bytes),
         llu(bytes));
  return memory_bytes / bytes;
}

// Fills in the numbers of blocks: memory_bytes of the config or `blocks` of each group says them.
void fill_blocks(CacheConfig& result, const pkv_cache_config& config,
                 const std::vector<pkv_layer_group>& given) {
  for (size_t g = 0; g < given.size(); g++) {
    if (config.memory_bytes != 0 && given[g].blocks != 0)
      fail(PKV_INVALID_ARGUMENT,
           "memory_bytes is %llu, and blocks of group %zu is %llu; set memory_bytes, or blocks of "
           "all groups",
           llu(config.memory_bytes), g, llu(given[g].blocks));
  }
  if (config.groups_share_memory != 0) return fill_pages(result, config);
  const uint64_t common = config.memory_bytes != 0 ? common_blocks(result, config.memory_bytes) : 0;
  for (size_t g = 0; g < given.size(); g++) {
    const uint64_t blocks = common != 0 ? common : given[g].blocks;
    if (blocks == 0)
      fail(PKV_INVALID_ARGUMENT,
           "blocks of group %zu and memory_bytes are 0; set memory_bytes, or blocks of all groups",
           g);
    if (blocks > max_blocks)
      fail(PKV_TOO_LARGE, "%llu blocks in group %zu; there can be at most %u", llu(blocks), g,
           max_blocks);
    check_watermark(config.watermark_blocks, blocks, g);
    result.groups[g].blocks = static_cast<uint32_t>(blocks);
  }
}

}  // namespace

namespace {

// A group with a window or with states gives blocks back as its sequences grow.
bool is_sparse(const GroupConfig& group) {
  return group.shape.window != 0 || group.shape.has_states();
}

// Returns how many tokens fit into shared memory in all groups that keep all of them.
uint64_t tokens_in_pages(const CacheConfig& config) {
  const memory::PageCut& cut = *config.pages;
  const bool all_sparse = std::all_of(config.groups.begin(), config.groups.end(), is_sparse);
  uint64_t fitting = 0, too_many = uint64_t{1} << 32;  // in blocks of each of these groups
  while (fitting + 1 < too_many) {
    const uint64_t middle = (fitting + too_many) / 2;
    std::vector<uint64_t> blocks;
    for (const GroupConfig& group : config.groups)
      blocks.push_back(all_sparse || !is_sparse(group) ? middle : 0);
    (cut.pages_for(blocks) <= cut.pages ? fitting : too_many) = middle;
  }
  return fitting * config.block_size;
}

}  // namespace

CacheConfig check_config(pkv_cache_config config) {
  if (config.block_size == 0) config.block_size = 16;
  check_enums(config);
  check_hooks(config);
  CacheConfig result{};
  check_options(config);
  result.storage = config.storage;
  result.layout = config.layout;
  result.block_size = config.block_size;
  if (config.runner != nullptr) result.runner = *config.runner;
  result.threads = count_threads(config.runner, config.threads);
  result.isa = config.isa;
  result.huge_pages = config.huge_pages;
  if (config.memory_directory != nullptr) result.memory_directory = config.memory_directory;
  result.prefault = config.prefault != 0;
  result.watermark = config.watermark_blocks;

  const std::vector<pkv_layer_group> given = list_groups(config);
  fill_groups(result, given);
  result.prefix = read_prefix(config, given);
  result.store = read_store(config);
  if (result.store)
    result.max_queued_blocks =
        limit_in_blocks(result.store->max_queued_tokens, result.block_size, "max_queued_tokens");
  result.block_io = read_block_io(config, result.groups);
  check_bytes(result, config);
  fill_blocks(result, config, given);
  compute_sizes(result, PKV_ALL_GROUPS);  // throws if the sizes overflow
  return result;
}

pkv_cache_sizes compute_sizes(const CacheConfig& config, uint32_t group) {
  if (group != PKV_ALL_GROUPS && group >= config.groups.size())
    fail(PKV_OUT_OF_RANGE, "group %u; the cache has %zu", group, config.groups.size());
  pkv_cache_sizes plan{};
  plan.struct_size = sizeof plan;
  const bool all_sparse = std::all_of(config.groups.begin(), config.groups.end(), is_sparse);
  plan.tokens = UINT64_MAX;
  for (size_t g = 0; g < config.groups.size(); g++) {
    if (group != PKV_ALL_GROUPS && group != g) continue;
    const GroupConfig& one = config.groups[g];
    const memory::Layout layout(config.layout, one.shape, config.block_size, one.blocks,
                                one.block_stride);
    plan.group_count++;
    plan.bytes_per_token =
        checked_add(plan.bytes_per_token, layout.token_bytes(), "bytes of a token in all groups");
    plan.bytes_per_block =
        checked_add(plan.bytes_per_block, layout.block_bytes(), "bytes of a block in all groups");
    plan.blocks += one.blocks;
    plan.memory_bytes = checked_add(plan.memory_bytes, layout.total_bytes(), "bytes of all groups");
    plan.bookkeeping_bytes += memory::Pool::bookkeeping_bytes(one.blocks);
    // A sparse group does not limit the tokens of the whole cache unless every group is sparse.
    if (group != PKV_ALL_GROUPS || all_sparse || !is_sparse(one))
      plan.tokens = std::min(plan.tokens, uint64_t{one.blocks} * config.block_size);
  }
  if (config.pages && group == PKV_ALL_GROUPS) {
    plan.memory_bytes = config.pages->page_bytes * config.pages->pages;
    plan.tokens = tokens_in_pages(config);
  }
  return plan;
}

}  // namespace pkv
