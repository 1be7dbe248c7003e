// Which fields of a layer group each kind of layers uses: the others must be 0.
#include <cstring>
#include <set>

#include "engine_memory.h"

namespace cache_test::layer_kinds_test {
namespace {

// A field, and a value that the kinds that use it accept.
struct Field {
  const char* name;
  uint64_t value;
  void (*set)(pkv_layer_group&);
};

const Field fields[] = {
    {"query_heads", 4, [](pkv_layer_group& g) { g.query_heads = 4; }},
    {"kv_heads", 2, [](pkv_layer_group& g) { g.kv_heads = 2; }},
    {"key_dim", 48, [](pkv_layer_group& g) { g.key_dim = 48; }},
    {"value_dim", 16, [](pkv_layer_group& g) { g.value_dim = 16; }},
    {"dtype", PKV_BF16, [](pkv_layer_group& g) { g.dtype = PKV_BF16; }},
    {"value_dtype", PKV_F32, [](pkv_layer_group& g) { g.value_dtype = PKV_F32; }},
    {"window", 20, [](pkv_layer_group& g) { g.window = 20; }},
    {"sink_tokens", 3, [](pkv_layer_group& g) { g.sink_tokens = 3; }},
    {"rotation", PKV_ROTATION_HADAMARD,
     [](pkv_layer_group& g) { g.rotation = PKV_ROTATION_HADAMARD; }},
    {"layer_bytes", 70, [](pkv_layer_group& g) { g.layer_bytes = 70; }},
    {"checkpoint_interval", 32, [](pkv_layer_group& g) { g.checkpoint_interval = 32; }},
    {"max_verify_tokens", 5, [](pkv_layer_group& g) { g.max_verify_tokens = 5; }},
};

struct Kind {
  pkv_layer_kind kind;
  const char* name;
  std::set<std::string> used;
};

const std::set<std::string> of_rows = {"query_heads", "kv_heads",    "key_dim",
                                       "value_dim",   "dtype",       "value_dtype",
                                       "window",      "sink_tokens", "rotation"};
const std::set<std::string> of_states = {"layer_bytes", "checkpoint_interval", "max_verify_tokens"};
const Kind kinds[] = {
    {PKV_LAYERS_KV, "KV", of_rows},
    {PKV_LAYERS_LATENT, "LATENT", of_rows},
    {PKV_LAYERS_STATES, "STATES", of_states},
    {PKV_LAYERS_OPAQUE_KV,
     "OPAQUE_KV",
     {"query_heads", "key_dim", "value_dim", "window", "sink_tokens", "layer_bytes"}},
    {PKV_LAYERS_OPAQUE_STATES, "OPAQUE_STATES", of_states},
};

// The least that a group of this kind needs.
pkv_layer_group least(pkv_layer_kind kind) {
  auto group = made<pkv_layer_group>({.layers = 2, .kind = kind, .blocks = 4});
  if (kind == PKV_LAYERS_KV || kind == PKV_LAYERS_LATENT) {
    group.query_heads = group.kv_heads = 1;
    group.key_dim = 32;
  } else {
    group.layer_bytes = 100;
  }
  return group;
}

pkv_status plan(const pkv_layer_group& group) {
  EngineMemory engine(1, 1);
  auto config = made<pkv_cache_config>({.groups = &group});
  if (group.kind == PKV_LAYERS_OPAQUE_KV || group.kind == PKV_LAYERS_OPAQUE_STATES)
    config.block_io = engine.hooks();
  auto out = made<pkv_cache_sizes>();
  return pkv_cache_compute_sizes(&config, PKV_ALL_GROUPS, &out);
}

TEST(LayerKinds, FieldsOfOtherKindsMustBe0) {
  for (const Kind& kind : kinds) {
    SCOPED_TRACE(kind.name);
    CHECK(plan(least(kind.kind)));
    for (const Field& field : fields) {
      SCOPED_TRACE(field.name);
      pkv_layer_group group = least(kind.kind);
      if (kind.used.contains("kv_heads")) group.query_heads = 4;
      if (std::strcmp(field.name, "sink_tokens") == 0 && kind.used.contains("sink_tokens"))
        group.window = 20;
      field.set(group);
      if (kind.used.contains(field.name)) {
        EXPECT_EQ(PKV_OK, plan(group)) << pkv_last_error();
        continue;
      }
      REFUSED(PKV_INVALID_ARGUMENT, plan(group));
      EXPECT_EQ("group 0: " + std::string(field.name) + " is " + std::to_string(field.value) +
                    "; it must be 0 with kind " + kind.name,
                pkv_last_error());
    }
  }
}

TEST(LayerKinds, MatricesAreOnlyForRows) {
  static const auto matrices = made<pkv_rotation_matrices>({});
  for (const pkv_layer_kind kind :
       {PKV_LAYERS_STATES, PKV_LAYERS_OPAQUE_KV, PKV_LAYERS_OPAQUE_STATES}) {
    pkv_layer_group group = least(kind);
    group.rotation_matrices = &matrices;
    REFUSED(PKV_INVALID_ARGUMENT, plan(group));
    EXPECT_NE(nullptr, std::strstr(pkv_last_error(), "rotation_matrices must be NULL with kind"));
  }
}

TEST(LayerKinds, AnUnknownKindIsNamed) {
  pkv_layer_group group = least(PKV_LAYERS_KV);
  const int unknown = 5;
  std::memcpy(&group.kind, &unknown, sizeof unknown);
  REFUSED(PKV_INVALID_ARGUMENT, plan(group));
  EXPECT_STREQ("group 0: kind 5 is none of KV, LATENT, STATES, OPAQUE_KV, OPAQUE_STATES",
               pkv_last_error());
}

TEST(LayerKinds, SizesFollowFromTheBytesOfALayer) {
  for (const Kind& kind : kinds) {
    if (!kind.used.contains("layer_bytes")) continue;
    SCOPED_TRACE(kind.name);
    const pkv_layer_group group = least(kind.kind);
    EngineMemory engine(1, 1);
    const bool states = kind.kind == PKV_LAYERS_STATES;
    auto config = made<pkv_cache_config>({.groups = &group});
    if (!states) config.block_io = engine.hooks();
    // States of the library begin at a cache line.
    EXPECT_EQ(2u * (states ? 128 : 100), sizes_of(config).bytes_per_block);
    EXPECT_EQ(kind.kind == PKV_LAYERS_OPAQUE_KV ? 13u : 0u, sizes_of(config).bytes_per_token);
  }
}

}  // namespace
}  // namespace cache_test::layer_kinds_test
