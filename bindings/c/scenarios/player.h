/* One scenario being played: its cache, and its sessions and snapshots by name. */
#ifndef PKV_SCENARIO_PLAYER_H
#define PKV_SCENARIO_PLAYER_H

#include <stdbool.h>

#include "../common/pkv_dl.h"
#include "../common/util.h"
#include "device.h"
#include "fields.h"

enum { MAX_GROUPS = DEVICE_GROUPS, MAX_LAYERS = 8 };

typedef struct layer_shape {
  size_t query_heads, kv_heads, key_dim, value_dim;
} layer_shape;

typedef struct scenario_config {
  pkv_cache_config cache;
  pkv_layer_group groups[MAX_GROUPS];
  uint32_t layer_indices[MAX_GROUPS][MAX_LAYERS];
  pkv_prefix_config prefix;
  pkv_store store;
  pkv_store_config store_config;
  pkv_block_io block_io;
  pkv_clock clock;
  layer_shape shapes[MAX_LAYERS];
  uint32_t layers;
} scenario_config;

enum { MAX_NAMES = 16, MAX_TOKENS = 256, MAX_SESSIONS = 4 };

typedef struct player {
  const pkv_dl* lib;
  scenario_config config;
  device device;
  uint64_t now_ms; /* of the cache's clock, which other threads read */
  pkv_cache cache;
  double tolerance;
  struct {
    const char* name;
    pkv_session session;
    pkv_snapshot snapshot;
  } names[MAX_NAMES];
  pkv_session session; /* of the step; NULL where it names none */
  bool differs;
  char difference[512];
} player;

/* `folder`: where a store's directory may be made. */
player* player_new(const pkv_dl* lib, const cJSON* scenario, const char* folder);
void player_free(player* p);

/* Notes the first difference of a step; later ones change nothing. */
void player_differ(player* p, const char* format, ...) __attribute__((PRINTF_FORMAT(2, 3)));
void player_expect(player* p, const char* what, long long got, long long expected);
void player_expect_near(player* p, const char* what, double got, double expected);

/* The sentence of that difference. */
const char* player_difference(const player* p);

/* The index of a name in `names`, which is added if it is new. Ends the program if there is no
 * room. */
size_t player_slot(player* p, const char* name);

/* The session under a name; NULL if there is none yet. */
pkv_session player_session(const player* p, const char* name);

/* Writes the tokens of spans and returns their number. Ends the program if there are more than
 * MAX_TOKENS. */
size_t player_tokens(const cJSON* spans, int32_t* tokens);

/* Plays a step. False if something is not as expected; player_difference then says what. */
bool player_step(player* p, const cJSON* step);

/* The step "step": a forward pass over sessions whose rows depend on their texts. */
pkv_status player_forward(player* p, const cJSON* step);

/* ---- Tokens and rows, as bindings/scenarios/README.md defines them ---- */

enum row_kind { ROW_K = 0, ROW_V = 1, ROW_Q = 2 };

/* The id of a span's i-th token. */
int32_t scenario_token(uint64_t seed, uint64_t i);

/* h(p) of a text's tokens, given h(p - 1); 0 before the first. */
uint64_t scenario_history(uint64_t before, int32_t token);

/* One row, [heads][dim], of the position with this history. */
void scenario_row(float* row, uint64_t history, enum row_kind kind, uint32_t layer, size_t heads,
                  size_t dim);

#endif
