/* One scenario being played: its cache, and its sessions and snapshots by name. */
#ifndef PKV_SCENARIO_PLAYER_H
#define PKV_SCENARIO_PLAYER_H

#include <stdbool.h>

#include "../common/pkv_dl.h"
#include "config.h"

enum { MAX_NAMES = 16, MAX_TOKENS = 256, MAX_SESSIONS = 4 };

typedef struct player {
  const pkv_dl* lib;
  scenario_config config;
  pkv_cache cache;
  double tolerance;
  struct {
    const char* name;
    pkv_session session;
    pkv_snapshot snapshot;
  } names[MAX_NAMES];
  uint64_t blocks_short;
  bool differs;
  char difference[512];
} player;

player* player_new(const pkv_dl* lib, const cJSON* scenario);
void player_free(player* p);

/* Notes the first difference of a step; later ones change nothing. */
void player_differ(player* p, const char* format, ...) __attribute__((format(printf, 2, 3)));
void player_expect(player* p, const char* what, long long got, long long expected);
void player_expect_near(player* p, const char* what, double got, double expected);

/* The sentence of that difference. */
const char* player_difference(const player* p);

/* The index in `names` of a name, which is added where it is new. Ends the program where there is
 * no room. */
size_t player_slot(player* p, const char* name);

/* The session under a name, NULL where there is none yet. */
pkv_session player_session(const player* p, const char* name);

/* Writes the tokens of spans and returns how many. Ends the program where they are more than
 * MAX_TOKENS. */
size_t player_tokens(const cJSON* spans, int32_t* tokens);

#endif
