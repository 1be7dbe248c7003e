#include "player.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../common/util.h"

/* ---- Configs ---- */

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
    } else {
      set_field(group, "pkv_layer_group", item);
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

/* A store in a new directory, which is named after the scenario. */
static void open_store(const pkv_dl* lib, scenario_config* config, const char* folder,
                       const char* name) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  const pkv_directory_config directory = {.struct_size = sizeof directory, .path = path};
  config->store.struct_size = sizeof config->store;
  if (lib->store_open_directory(&directory, &config->store) != PKV_OK)
    die(EXIT_BAD_INPUT, "the store: %s", lib->last_error());
  config->store_config.struct_size = sizeof config->store_config;
  config->store_config.store = &config->store;
  config->cache.store = &config->store_config;
}

static void read_config(scenario_config* config, const cJSON* json) {
  const cJSON* item;
  config->cache.struct_size = sizeof config->cache;
  config->cache.groups = config->groups;
  cJSON_ArrayForEach(item, json) {
    if (strcmp(item->string, "groups") == 0) {
      read_groups(config, item);
    } else if (strcmp(item->string, "prefix") == 0) {
      config->prefix.struct_size = sizeof config->prefix;
      set_fields(&config->prefix, "pkv_prefix_config", item);
      config->cache.prefix = &config->prefix;
    } else if (strcmp(item->string, "store") != 0) {
      set_field(&config->cache, "pkv_cache_config", item);
    }
  }
}

/* ---- The player ---- */

static uint64_t now_ms(void* user) {
  return __atomic_load_n(&((const player*)user)->now_ms, __ATOMIC_RELAXED);
}

player* player_new(const pkv_dl* lib, const cJSON* scenario, const char* folder) {
  player* p = new_array(1, sizeof *p);
  p->lib = lib;
  p->tolerance = real_of(scenario, "tolerance");
  read_config(&p->config, item_of(scenario, "config"));
  if (item_of(item_of(scenario, "config"), "store") != NULL)
    open_store(lib, &p->config, folder, text_of(scenario, "name"));
  if (p->config.groups[0].kind == PKV_LAYERS_OPAQUE_KV) {
    p->config.block_io = device_block_io(&p->device);
    p->config.cache.block_io = &p->config.block_io;
  }
  p->config.clock = (pkv_clock){now_ms, p};
  p->config.cache.clock = &p->config.clock;
  if (lib->cache_create(&p->config.cache, &p->cache) != PKV_OK)
    die(EXIT_BAD_INPUT, "the cache: %s", lib->last_error());
  return p;
}

void player_free(player* p) {
  if (p->lib->cache_destroy(p->cache) != PKV_OK)
    die(EXIT_BAD_INPUT, "closing the cache: %s", p->lib->last_error());
  free(p);
}

void player_differ(player* p, const char* format, ...) {
  va_list arguments;
  if (p->differs) return;
  p->differs = true;
  va_start(arguments, format);
  vsnprintf(p->difference, sizeof p->difference, format, arguments);
  va_end(arguments);
}

void player_expect(player* p, const char* what, long long got, long long expected) {
  if (got != expected) player_differ(p, "%s: expected %lld, got %lld", what, expected, got);
}

void player_expect_near(player* p, const char* what, double got, double expected) {
  const double off = fabs(got - expected);
  if (!(off <= p->tolerance))
    player_differ(p, "%s: expected %.7f, got %.7f, which is %.2g off where %.2g are allowed", what,
                  expected, got, off, p->tolerance);
}

const char* player_difference(const player* p) { return p->difference; }

size_t player_slot(player* p, const char* name) {
  for (size_t i = 0; i < MAX_NAMES; i++) {
    if (p->names[i].name == NULL) p->names[i].name = name;
    if (strcmp(p->names[i].name, name) == 0) return i;
  }
  die(EXIT_BAD_INPUT, "a scenario has room for %d names", MAX_NAMES);
}

pkv_session player_session(const player* p, const char* name) {
  for (size_t i = 0; name != NULL && i < MAX_NAMES && p->names[i].name != NULL; i++)
    if (strcmp(p->names[i].name, name) == 0) return p->names[i].session;
  return NULL;
}

size_t player_tokens(const cJSON* spans, int32_t* tokens) {
  const cJSON* span;
  size_t n = 0;
  cJSON_ArrayForEach(span, spans) {
    const uint64_t seed = (uint64_t)element_of(span, 0), first = (uint64_t)element_of(span, 1);
    const uint64_t count = (uint64_t)element_of(span, 2);
    if (count > MAX_TOKENS - n) die(EXIT_BAD_INPUT, "a list has room for %d tokens", MAX_TOKENS);
    for (uint64_t i = 0; i < count; i++) tokens[n++] = scenario_token(seed, first + i);
  }
  return n;
}

/* ---- Rows ---- */

#define GOLDEN 0x9E3779B97F4A7C15u

/* The finaliser of SplitMix64 (Steele, Lea and Flood 2014). */
static uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

int32_t scenario_token(uint64_t seed, uint64_t i) {
  return (int32_t)(mix((seed << 32) + i) & 0xFFFFF);
}

uint64_t scenario_history(uint64_t before, int32_t token) {
  return mix(before + GOLDEN * ((uint64_t)token + 1));
}

void scenario_row(float* row, uint64_t history, enum row_kind kind, uint32_t layer, size_t heads,
                  size_t dim) {
  for (size_t head = 0; head < heads; head++)
    for (size_t d = 0; d < dim; d++) {
      const uint64_t index = (((uint64_t)layer * 4 + kind) * 64 + head) * 1024 + d;
      const uint64_t bits = mix(history + GOLDEN * (1 + index)) >> 40;
      *row++ = ((float)bits / 8388608.0f - 1.0f) * (kind == ROW_Q ? 4.0f : 1.0f);
    }
}
