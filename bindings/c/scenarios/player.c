#include "player.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../common/util.h"
#include "json.h"
#include "rows.h"

player* player_new(const pkv_dl* lib, const cJSON* scenario) {
  player* p = new_array(1, sizeof *p);
  p->lib = lib;
  p->tolerance = real_of(scenario, "tolerance");
  scenario_config_read(&p->config, item_of(scenario, "config"));
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
    const uint64_t seed = (uint64_t)cJSON_GetArrayItem(span, 0)->valuedouble,
                   first = (uint64_t)cJSON_GetArrayItem(span, 1)->valuedouble;
    const uint64_t count = (uint64_t)cJSON_GetArrayItem(span, 2)->valuedouble;
    if (count > MAX_TOKENS - n) die(EXIT_BAD_INPUT, "a list has room for %d tokens", MAX_TOKENS);
    for (uint64_t i = 0; i < count; i++) tokens[n++] = scenario_token(seed, first + i);
  }
  return n;
}
