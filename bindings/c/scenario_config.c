#include "scenario_config.h"

#include <stdbool.h>
#include <string.h>

#include "util.h"

typedef struct named_value {
  const char* name;
  int value;
} named_value;

int scenario_enum(const char* name) {
#define NAMED(x) {#x, x}
  static const named_value values[] = {NAMED(PKV_F32),
                                       NAMED(PKV_F16),
                                       NAMED(PKV_BF16),
                                       NAMED(PKV_INT8),
                                       NAMED(PKV_INT4),
                                       NAMED(PKV_FP8_E4M3),
                                       NAMED(PKV_FP8_E5M2),
                                       NAMED(PKV_STORAGE_PAGED),
                                       NAMED(PKV_STORAGE_CONTIGUOUS),
                                       NAMED(PKV_STORAGE_NONE),
                                       NAMED(PKV_LAYOUT_PACKED),
                                       NAMED(PKV_LAYOUT_PLAIN),
                                       NAMED(PKV_EVICTION_DEFAULT),
                                       NAMED(PKV_EVICTION_LRU),
                                       NAMED(PKV_EVICTION_LFU),
                                       NAMED(PKV_PREFIX_SHARE),
                                       NAMED(PKV_PREFIX_MATCH),
                                       NAMED(PKV_PREFIX_OFF)};
#undef NAMED
  for (size_t i = 0; i < sizeof values / sizeof *values; i++)
    if (strcmp(values[i].name, name) == 0) return values[i].value;
  die(EXIT_BAD_INPUT, "no enum is called %s", name);
}

double scenario_number(const cJSON* object, const char* name) {
  const cJSON* item = cJSON_GetObjectItemCaseSensitive(object, name);
  if (!cJSON_IsNumber(item)) die(EXIT_BAD_INPUT, "there is no number '%s'", name);
  return item->valuedouble;
}

static uint32_t value_of(const cJSON* item) {
  return cJSON_IsString(item) ? (uint32_t)scenario_enum(item->valuestring)
                              : (uint32_t)item->valuedouble;
}

/* Fields that a config and a group have in common; false for another. */
static bool read_shape(pkv_layer_group* group, const cJSON* item) {
  const uint32_t value = value_of(item);
#define FIELD(field) \
  if (strcmp(item->string, #field) == 0) return group->field = value, true;
#define DTYPE(field) \
  if (strcmp(item->string, #field) == 0) return group->field = (pkv_dtype)value, true;
  FIELD(layers)
  FIELD(query_heads)
  FIELD(kv_heads) FIELD(key_dim) FIELD(value_dim) FIELD(window) FIELD(sinks) FIELD(latent)
      FIELD(blocks) DTYPE(dtype) DTYPE(value_dtype)
#undef FIELD
#undef DTYPE
          return false;
}

static void set_shape(scenario_config* config, uint32_t layer, const pkv_layer_group* group) {
  if (layer >= MAX_LAYERS) die(EXIT_BAD_INPUT, "layer %u: there is room for %d", layer, MAX_LAYERS);
  const layer_shape shape = {group->query_heads, group->kv_heads, group->key_dim,
                             group->value_dim != 0 ? group->value_dim : group->key_dim};
  config->shapes[layer] = shape;
  config->layers++;
}

static void read_group(scenario_config* config, const pkv_dl* lib, uint32_t g, const cJSON* json) {
  pkv_layer_group* group = &config->groups[g];
  const cJSON *item, *index;
  lib->layer_group_init(group, sizeof *group);
  cJSON_ArrayForEach(item, json) {
    if (strcmp(item->string, "layer_indices") == 0) {
      uint32_t n = 0;
      cJSON_ArrayForEach(index, item) if (n < MAX_LAYERS) config->layer_indices[g][n++] =
          (uint32_t)index->valuedouble;
      group->layer_indices = config->layer_indices[g];
    } else if (!read_shape(group, item)) {
      die(EXIT_BAD_INPUT, "no field of a group is called %s here", item->string);
    }
  }
  for (uint32_t i = 0; i < group->layers && i < MAX_LAYERS; i++)
    set_shape(config, group->layer_indices != NULL ? group->layer_indices[i] : config->layers,
              group);
}

static void read_groups(scenario_config* config, const pkv_dl* lib, const cJSON* json) {
  const cJSON* item;
  cJSON_ArrayForEach(item, json) {
    if (config->cache.group_count == MAX_GROUPS)
      die(EXIT_BAD_INPUT, "there is room for %d groups", MAX_GROUPS);
    read_group(config, lib, config->cache.group_count++, item);
  }
  config->cache.groups = config->groups;
}

void scenario_config_read(scenario_config* config, const pkv_dl* lib, const cJSON* json) {
  pkv_layer_group model;
  const cJSON* item;
  memset(config, 0, sizeof *config);
  lib->cache_config_init(&config->cache, sizeof config->cache);
  lib->layer_group_init(&model, sizeof model);
  cJSON_ArrayForEach(item, json) {
    pkv_cache_config* c = &config->cache;
    if (strcmp(item->string, "groups") == 0) {
      read_groups(config, lib, item);
    } else if (strcmp(item->string, "prefix") == 0) {
      const cJSON* eviction = cJSON_GetObjectItemCaseSensitive(item, "eviction");
      lib->prefix_config_init(&config->prefix, sizeof config->prefix);
      if (eviction != NULL)
        config->prefix.eviction = (pkv_eviction)scenario_enum(eviction->valuestring);
      c->prefix = &config->prefix;
    } else if (strcmp(item->string, "storage") == 0) {
      c->storage = (pkv_storage)value_of(item);
    } else if (strcmp(item->string, "layout") == 0) {
      c->layout = (pkv_layout)value_of(item);
    } else if (strcmp(item->string, "block_size") == 0) {
      c->block_size = value_of(item);
    } else if (!read_shape(&model, item)) {
      die(EXIT_BAD_INPUT, "no field of a config is called %s here", item->string);
    }
  }
  pkv_cache_config* c = &config->cache;
  c->blocks = model.blocks;
  if (c->group_count != 0) return;
  c->layers = model.layers;
  c->query_heads = model.query_heads;
  c->kv_heads = model.kv_heads;
  c->key_dim = model.key_dim;
  c->value_dim = model.value_dim;
  c->dtype = model.dtype;
  c->value_dtype = model.value_dtype;
  c->window = model.window;
  c->sinks = model.sinks;
  c->latent = model.latent;
  for (uint32_t layer = 0; layer < model.layers; layer++) set_shape(config, layer, &model);
}
