/* A scenario's cache, read from JSON: configs and shapes of layers. */
#ifndef PKV_SCENARIO_CONFIG_H
#define PKV_SCENARIO_CONFIG_H

#include <cjson/cJSON.h>
#include <pagedkv/pagedkv.h>

enum { MAX_GROUPS = 4, MAX_LAYERS = 8 };

typedef struct layer_shape {
  size_t query_heads, kv_heads, key_dim, value_dim;
} layer_shape;

typedef struct scenario_config {
  pkv_cache_config cache;
  pkv_layer_group groups[MAX_GROUPS];
  uint32_t layer_indices[MAX_GROUPS][MAX_LAYERS];
  pkv_prefix_config prefix;
  layer_shape shapes[MAX_LAYERS];
  uint32_t layers;
} scenario_config;

/* Reads the object "config" of a scenario. Ends the program at an unknown field: one that is passed
 * over would test nothing. */
void scenario_config_read(scenario_config* config, const cJSON* json);

#endif
