#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../common/util.h"
#include "player.h"

enum { MAX_READ = 96 * 8 * 64, LONG_MS = 60000 };

/* Does a step. Returns the status of its first call that fails, and compares the results. */
typedef pkv_status action(player* p, const cJSON* step);

/* Compares fields of a struct that the library has filled. */
static pkv_status compare(player* p, pkv_status status, const cJSON* step, const void* found,
                          const char* type) {
  const cJSON* item;
  if (status != PKV_OK) return status;
  cJSON_ArrayForEach(item, item_of(step, "fields")) {
    const uint64_t value = field_value(found, type, item->string);
    player_expect(p, item->string, (long long)value, (long long)value_of(item));
  }
  return PKV_OK;
}

static pkv_status plan(player* p, const cJSON* step) {
  pkv_cache_sizes s = {.struct_size = sizeof s};
  const uint32_t group =
      item_of(step, "group") != NULL ? (uint32_t)number_of(step, "group") : PKV_ALL_GROUPS;
  const pkv_status status = p->lib->cache_compute_sizes(&p->config.cache, group, &s);
  return compare(p, status, step, &s, "pkv_cache_sizes");
}

static pkv_status stats(player* p, const cJSON* step) {
  pkv_cache_stats s = {.struct_size = sizeof s};
  const pkv_status status = p->lib->cache_get_stats(p->cache, &s);
  return compare(p, status, step, &s, "pkv_cache_stats");
}

static pkv_status pool_stats(player* p, const cJSON* step) {
  pkv_pool_stats s = {.struct_size = sizeof s};
  const pkv_status status = p->lib->cache_get_pool_stats(p->cache, PKV_ALL_GROUPS, &s);
  return compare(p, status, step, &s, "pkv_pool_stats");
}

static pkv_status info(player* p, const cJSON* step) {
  pkv_session_info s = {.struct_size = sizeof s};
  const pkv_status status = p->lib->session_get_info(p->session, &s);
  return compare(p, status, step, &s, "pkv_session_info");
}

static size_t salt_size(const cJSON* step) {
  if (item_of(step, "all") != NULL) return PKV_ALL_SALTS;
  return text_of(step, "salt") != NULL ? strlen(text_of(step, "salt")) : 0;
}

static pkv_status prefix_stats(player* p, const cJSON* step) {
  pkv_prefix_stats s = {.struct_size = sizeof s};
  const pkv_status status =
      p->lib->prefix_get_stats(p->cache, text_of(step, "salt"), salt_size(step), &s);
  return compare(p, status, step, &s, "pkv_prefix_stats");
}

static pkv_status prefix_clear(player* p, const cJSON* step) {
  return p->lib->prefix_clear(p->cache, text_of(step, "salt"), salt_size(step));
}

static pkv_status open_session(player* p, const cJSON* step) {
  pkv_session_config config = {.struct_size = sizeof config};
  const cJSON *priority = item_of(step, "priority"), *use = item_of(step, "prefix_use");
  if (priority != NULL) set_field(&config, "pkv_session_config", priority);
  if (use != NULL) set_field(&config, "pkv_session_config", use);
  config.salt = text_of(step, "salt");
  config.salt_size = salt_size(step);
  return p->lib->session_open(p->cache, &config,
                              &p->names[player_slot(p, text_of(step, "session"))].session);
}

static pkv_status length(player* p, const cJSON* step) {
  uint64_t found;
  const pkv_status status = p->lib->session_get_length(p->session, &found);
  if (status == PKV_OK)
    player_expect(p, "length", (long long)found, (long long)number_of(step, "length"));
  return status;
}

static pkv_status tokens(player* p, const cJSON* step) {
  int32_t expected[MAX_TOKENS], found[MAX_TOKENS];
  const size_t n = player_tokens(item_of(step, "tokens"), expected);
  const pkv_status status =
      p->lib->session_get_tokens(p->session, number_of(step, "first"), n, found);
  for (size_t i = 0; status == PKV_OK && i < n; i++)
    player_expect(p, "token", found[i], expected[i]);
  return status;
}

static pkv_status table(player* p, const cJSON* step) {
  uint32_t ids[MAX_TOKENS], others[MAX_TOKENS];
  const uint32_t group = (uint32_t)number_of(step, "group");
  size_t count, other_count, gone = 0, same = 0;
  pkv_status status = p->lib->session_get_block_table(p->session, group, MAX_TOKENS, ids, &count);
  if (status != PKV_OK) return status;
  for (size_t i = 0; i < count; i++) gone += ids[i] == PKV_NO_BLOCK_ID;
  player_expect(p, "entries", (long long)count, (long long)number_of(step, "count"));
  player_expect(p, "entries that left the window", (long long)gone,
                (long long)number_of(step, "gone"));
  const cJSON* shares = item_of(step, "shares");
  if (shares == NULL) return PKV_OK;
  const pkv_session other = player_session(p, cJSON_GetArrayItem(shares, 0)->valuestring);
  status = p->lib->session_get_block_table(other, group, MAX_TOKENS, others, &other_count);
  if (status != PKV_OK) return status;
  for (size_t i = 0; i < count && i < other_count; i++)
    same += ids[i] == others[i] && ids[i] != PKV_NO_BLOCK_ID;
  player_expect(p, "shared blocks", (long long)same, (long long)element_of(shares, 1));
  return PKV_OK;
}

/* Compares elements of the rows k and v of a layer of this shape, whose first position is `first`.
 */
static void compare_values(player* p, const cJSON* expected, layer_shape s, uint64_t first,
                           const float* k, const float* v) {
  const cJSON* item;
  char what[96];
  cJSON_ArrayForEach(item, expected) {
    const bool key = strcmp(cJSON_GetArrayItem(item, 0)->valuestring, "k") == 0;
    size_t at[3];
    for (int i = 0; i < 3; i++) at[i] = (size_t)element_of(item, i + 1);
    const size_t row = at[0] - first, dim = key ? s.key_dim : s.value_dim;
    snprintf(what, sizeof what, "%c of position %zu, head %zu, dim %zu", key ? 'k' : 'v', at[0],
             at[1], at[2]);
    player_expect_near(p, what, (double)(key ? k : v)[(row * s.kv_heads + at[1]) * dim + at[2]],
                       element_of(item, 4));
  }
}

static pkv_status read_rows(player* p, const cJSON* step) {
  const uint32_t layer = (uint32_t)number_of(step, "layer");
  const layer_shape s = p->config.shapes[layer < p->config.layers ? layer : 0];
  const uint64_t first = number_of(step, "first"), n = number_of(step, "count");
  if (n * s.kv_heads * s.key_dim > MAX_READ)
    die(EXIT_BAD_INPUT, "there is room for %d numbers", MAX_READ);
  float *k = new_array(MAX_READ, sizeof *k), *v = new_array(MAX_READ, sizeof *v);
  const pkv_tensor keys = {.data = k, .dtype = PKV_F32}, values = {.data = v, .dtype = PKV_F32};
  const pkv_status status = p->lib->session_read(p->session, layer, first, n, &keys, &values);
  if (status == PKV_OK) compare_values(p, item_of(step, "values"), s, first, k, v);
  free(k);
  free(v);
  return status;
}

static pkv_status admit(player* p, const cJSON* step) {
  int32_t asked[MAX_TOKENS];
  uint64_t matched;
  const pkv_status status = p->lib->session_admit(
      p->session, player_tokens(item_of(step, "tokens"), asked), asked, 0, &matched);
  if (status == PKV_OK)
    player_expect(p, "matched", (long long)matched, (long long)number_of(step, "matched"));
  return status;
}

static pkv_status reserve(player* p, const cJSON* step) {
  return p->lib->session_reserve(p->session, number_of(step, "tokens"));
}

static pkv_status trim(player* p, const cJSON* step) {
  return p->lib->session_trim(p->session, number_of(step, "length"));
}

static pkv_status fork_session(player* p, const cJSON* step) {
  return p->lib->session_fork(p->session, &p->names[player_slot(p, text_of(step, "into"))].session);
}

static pkv_status suspend(player* p, const cJSON* step) {
  (void)step;
  return p->lib->session_suspend(p->session);
}

static pkv_status resume(player* p, const cJSON* step) {
  uint64_t from, total;
  const pkv_status status = p->lib->session_resume(p->session, &from, &total);
  if (status != PKV_OK) return status;
  player_expect(p, "length", (long long)from, (long long)number_of(step, "length"));
  player_expect(p, "total", (long long)total, (long long)number_of(step, "total"));
  return PKV_OK;
}

static pkv_status victims(player* p, const cJSON* step) {
  pkv_session sessions[MAX_SESSIONS], chosen[MAX_NAMES];
  uint32_t new_tokens[MAX_SESSIONS];
  size_t n = 0, count;
  const cJSON *item, *expected = item_of(step, "victims");
  cJSON_ArrayForEach(item, item_of(step, "sessions")) {
    if (n == MAX_SESSIONS) die(EXIT_BAD_INPUT, "a step has room for %d sessions", MAX_SESSIONS);
    sessions[n] = player_session(p, cJSON_GetArrayItem(item, 0)->valuestring);
    new_tokens[n++] = (uint32_t)element_of(item, 1);
  }
  const pkv_status status =
      p->lib->batch_choose_victims(p->cache, n, sessions, new_tokens, MAX_NAMES, chosen, &count);
  if (status != PKV_OK) return status;
  player_expect(p, "victims", (long long)count, cJSON_GetArraySize(expected));
  for (size_t i = 0; i < count && !p->differs; i++)
    if (chosen[i] != player_session(p, cJSON_GetArrayItem(expected, (int)i)->valuestring))
      player_differ(p, "victim %zu is another", i);
  return PKV_OK;
}

static pkv_status hint(player* p, const cJSON* step) {
  pkv_hint h = {.struct_size = sizeof h};
  pkv_hint_result result = {.struct_size = sizeof result};
  int32_t text[MAX_TOKENS];
  const cJSON* spans = item_of(step, "tokens");
  set_fields(&h, "pkv_hint", item_of(step, "hint"));
  if (h.end == 0 && h.action != PKV_HINT_EXPECT_RETURN) h.end = PKV_TO_END;
  const pkv_status status =
      spans == NULL ? p->lib->hint_session(p->session, &h, &result)
                    : p->lib->hint_prompt(p->cache,
                                          &(pkv_prompt){.struct_size = sizeof(pkv_prompt),
                                                        .salt = text_of(step, "salt"),
                                                        .salt_size = salt_size(step),
                                                        .tokens = text,
                                                        .n = player_tokens(spans, text)},
                                          &h, &result);
  return compare(p, status, step, &result, "pkv_hint_result");
}

static pkv_status clock_is(player* p, const cJSON* step) {
  __atomic_store_n(&p->now_ms, number_of(step, "now_ms"), __ATOMIC_RELAXED);
  return PKV_OK;
}

static pkv_status flush(player* p, const cJSON* step) {
  uint64_t queued;
  (void)step;
  const pkv_status status = p->lib->cache_flush_store(p->cache, LONG_MS, &queued);
  if (status == PKV_OK) player_expect(p, "queued", (long long)queued, 0);
  return status;
}

static pkv_status wait_for_prefetch(player* p, const cJSON* step) {
  int32_t text[MAX_TOKENS];
  uint64_t cached, pending;
  const size_t n = player_tokens(item_of(step, "tokens"), text);
  const pkv_prompt prompt = {.struct_size = sizeof prompt, .tokens = text, .n = n};
  const pkv_status status = p->lib->prefetch_wait(p->cache, &prompt, LONG_MS, &cached, &pending);
  if (status != PKV_OK) return status;
  player_expect(p, "pending", (long long)pending, 0);
  player_expect(p, "cached", (long long)cached, (long long)number_of(step, "cached"));
  return PKV_OK;
}

static pkv_snapshot snapshot_of(player* p, const cJSON* step) {
  return p->names[player_slot(p, text_of(step, "snapshot"))].snapshot;
}

static pkv_status snapshot(player* p, const cJSON* step) {
  return p->lib->snapshot_take(p->session,
                               &p->names[player_slot(p, text_of(step, "into"))].snapshot);
}

static pkv_status fork_snapshot(player* p, const cJSON* step) {
  return p->lib->snapshot_fork(snapshot_of(p, step),
                               &p->names[player_slot(p, text_of(step, "into"))].session);
}

static pkv_status close_snapshot(player* p, const cJSON* step) {
  return p->lib->snapshot_close(snapshot_of(p, step));
}

static pkv_status close_session(player* p, const cJSON* step) {
  (void)step;
  return p->lib->session_close(p->session);
}

static pkv_status validate(player* p, const cJSON* step) {
  (void)step;
  return p->lib->cache_validate(p->cache);
}

static action* action_of(const char* name) {
  static const struct {
    const char* name;
    action* act;
  } actions[] = {{"plan", plan},
                 {"open", open_session},
                 {"step", player_forward},
                 {"length", length},
                 {"tokens", tokens},
                 {"table", table},
                 {"read", read_rows},
                 {"info", info},
                 {"stats", stats},
                 {"pool_stats", pool_stats},
                 {"prefix_stats", prefix_stats},
                 {"prefix_clear", prefix_clear},
                 {"admit", admit},
                 {"reserve", reserve},
                 {"trim", trim},
                 {"fork", fork_session},
                 {"suspend", suspend},
                 {"resume", resume},
                 {"victims", victims},
                 {"hint", hint},
                 {"clock", clock_is},
                 {"flush", flush},
                 {"wait", wait_for_prefetch},
                 {"snapshot", snapshot},
                 {"fork_snapshot", fork_snapshot},
                 {"close_snapshot", close_snapshot},
                 {"close", close_session},
                 {"validate", validate}};
  for (size_t i = 0; i < sizeof actions / sizeof *actions; i++)
    if (strcmp(actions[i].name, name) == 0) return actions[i].act;
  die(EXIT_BAD_INPUT, "no step is called %s here", name);
}

bool player_step(player* p, const cJSON* step) {
  const char* expected = text_of(step, "status");
  if (expected == NULL) expected = "PKV_OK";
  p->differs = false;
  p->session = player_session(p, text_of(step, "session"));
  const pkv_status status = action_of(text_of(step, "do"))(p, step);
  const char* got = p->lib->status_name(status);
  if (strcmp(got, expected) != 0) {
    p->differs = false; /* report a wrong status first */
    player_differ(p, "status: expected %s, got %s%s%s", expected, got, status == PKV_OK ? "" : ": ",
                  status == PKV_OK ? "" : p->lib->last_error());
  }
  if (status != PKV_OK && strchr(p->lib->last_error(), ' ') == NULL)
    player_differ(p, "no sentence: '%s'", p->lib->last_error());
  if (item_of(step, "blocks_short") != NULL)
    player_expect(p, "blocks_short", (long long)p->lib->last_error_details()->blocks_short,
                  (long long)number_of(step, "blocks_short"));
  return !p->differs;
}
