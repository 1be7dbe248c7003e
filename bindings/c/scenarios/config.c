#include "config.h"

#include <stdbool.h>
#include <string.h>

#include "../common/util.h"
#include "json.h"

static uint32_t value_of(const cJSON* item) {
  return cJSON_IsString(item) ? (uint32_t)enum_of(item->valuestring) : (uint32_t)item->valuedouble;
}

static bool read_field(pkv_layer_group* group, const cJSON* item) {
  const uint32_t value = value_of(item);
#define READ(field, type)                  \
  if (strcmp(item->string, #field) == 0) { \
    group->field = (type)value;            \
    return true;                           \
  }
  READ(layers, uint32_t);
  READ(query_heads, uint32_t);
  READ(kv_heads, uint32_t);
  READ(key_dim, uint32_t);
  READ(value_dim, uint32_t);
  READ(window, uint32_t);
  READ(sinks, uint32_t);
  READ(latent, uint32_t);
  READ(blocks, uint64_t);
  READ(dtype, pkv_dtype);
  READ(value_dtype, pkv_dtype);
#undef READ
  return false;
}

static void set_shape(scenario_config* config, uint32_t layer, const pkv_layer_group* group) {
  if (layer >= MAX_LAYERS) die(EXIT_BAD_INPUT, "layer %u: there is room for %d", layer, MAX_LAYERS);
  const layer_shape shape = {group->query_heads, group->kv_heads, group->key_dim,
                             group->value_dim != 0 ? group->value_dim : group->key_dim};
  config->shapes[layer] = shape;
  config->layers++;
}

static void read_group(scenario_config* config, uint32_t g, const cJSON* json) {
  pkv_layer_group* group = &config->groups[g];
  const cJSON *item, *index;
  group->struct_size = sizeof *group;
  cJSON_ArrayForEach(item, json) {
    if (strcmp(item->string, "layer_indices") == 0) {
      uint32_t n = 0;
      cJSON_ArrayForEach(index, item) {
        if (n < MAX_LAYERS) config->layer_indices[g][n++] = (uint32_t)index->valuedouble;
      }
      group->layer_indices = config->layer_indices[g];
    } else if (!read_field(group, item)) {
      die(EXIT_BAD_INPUT, "no field of a group is called %s here", item->string);
    }
  }
  for (uint32_t i = 0; i < group->layers && i < MAX_LAYERS; i++)
    set_shape(config, group->layer_indices != NULL ? group->layer_indices[i] : config->layers,
              group);
}

static void read_groups(scenario_config* config, const cJSON* json) {
  const cJSON* item;
  cJSON_ArrayForEach(item, json) {
    if (config->cache.group_count == MAX_GROUPS)
      die(EXIT_BAD_INPUT, "there is room for %d groups", MAX_GROUPS);
    read_group(config, config->cache.group_count++, item);
  }
}

void scenario_config_read(scenario_config* config, const cJSON* json) {
  pkv_cache_config* c = &config->cache;
  const cJSON* item;
  memset(config, 0, sizeof *config);
  c->struct_size = sizeof *c;
  c->groups = config->groups;
  cJSON_ArrayForEach(item, json) {
    if (strcmp(item->string, "groups") == 0) {
      read_groups(config, item);
    } else if (strcmp(item->string, "prefix") == 0) {
      const cJSON* eviction = cJSON_GetObjectItemCaseSensitive(item, "eviction");
      config->prefix.struct_size = sizeof config->prefix;
      if (eviction != NULL) config->prefix.eviction = (pkv_eviction)enum_of(eviction->valuestring);
      c->prefix = &config->prefix;
    } else if (strcmp(item->string, "storage") == 0) {
      c->storage = (pkv_storage)value_of(item);
    } else if (strcmp(item->string, "layout") == 0) {
      c->layout = (pkv_layout)value_of(item);
    } else if (strcmp(item->string, "block_size") == 0) {
      c->block_size = value_of(item);
    } else if (strcmp(item->string, "blocks") == 0) {
      c->blocks = value_of(item);
    } else {
      die(EXIT_BAD_INPUT, "no field of a config is called %s here", item->string);
    }
  }
}
