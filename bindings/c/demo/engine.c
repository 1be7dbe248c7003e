#include "engine.h"

#include <stdlib.h>
#include <string.h>

#include "store.h"

void engine_check(const engine* e, pkv_status status, const char* what) {
  if (status != PKV_OK)
    die(EXIT_BAD_INPUT, "%s: %s (%s)", what, e->lib->last_error(), e->lib->status_name(status));
}

pkv_isa engine_isa(const pkv_dl* lib, const char* name) {
  if (name == NULL) return PKV_ISA_AUTO;
  for (pkv_isa isa = PKV_ISA_AUTO; strcmp(lib->isa_name(isa), "unknown") != 0; isa++)
    if (strcmp(lib->isa_name(isa), name) == 0) return isa;
  die(EXIT_BAD_OPTION, "--isa: the library knows no instruction set '%s'", name);
}

/* A saved file's name for its model: FNV-1a over the whole checkpoint. */
static uint64_t fingerprint(const llama2* model) {
  uint64_t hash = 0xCBF29CE484222325u;
  for (size_t i = 0; i < model->file.size; i++)
    hash = (hash ^ model->file.data[i]) * 0x100000001B3u;
  return hash;
}

/* The store of this model only, with its fingerprint in *model. */
static pkv_store_config open_store(const engine* e, const options* o, pkv_store* store,
                                   uint64_t* model) {
  store_open(e->lib, o->store, store);
  *model = fingerprint(e->model);
  return (pkv_store_config){
      .struct_size = sizeof(pkv_store_config),
      .wait_ms = 10000, /* a program that has nothing else to do waits */
      .store = store,
      .fingerprint = model,
      .fingerprint_size = sizeof *model,
      /* Queue all blocks; if blocks are short, those that wait to be written give way. */
      .max_queued_tokens = UINT64_MAX,
  };
}

static void create_cache(engine* e, const options* o, size_t blocks, size_t watermark) {
  const pkv_layer_group model = {.struct_size = sizeof model,
                                 .layers = (uint32_t)e->model->layers,
                                 .query_heads = (uint32_t)e->model->query_heads,
                                 .kv_heads = (uint32_t)e->model->kv_heads,
                                 .key_dim = (uint32_t)e->model->head_dim,
                                 .dtype = o->dtype,
                                 .blocks = blocks};
  pkv_cache_config config = {.struct_size = sizeof config,
                             .groups = &model,
                             .block_size = (uint32_t)o->block_size,
                             .watermark_blocks = (uint32_t)watermark,
                             .threads = (uint32_t)o->threads,
                             .isa = engine_isa(e->lib, o->isa)};
  const pkv_prefix_config prefix = {.struct_size = sizeof prefix};
  e->prefixes = !o->no_prefix;
  if (e->prefixes) config.prefix = &prefix;
  pkv_store store = {.struct_size = sizeof store};
  pkv_store_config store_config;
  uint64_t name;
  if (o->store != NULL) {
    store_config = open_store(e, o, &store, &name);
    config.store = &store_config;
  }

  e->plan.struct_size = sizeof e->plan;
  engine_check(e, e->lib->cache_compute_sizes(&config, PKV_ALL_GROUPS, &e->plan), "the cache");
  engine_check(e, e->lib->cache_create(&config, &e->cache), "the cache");
  e->info.struct_size = sizeof e->info;
  engine_check(e, e->lib->cache_get_info(e->cache, &e->info), "the cache");
}

void engine_open(engine* e, const pkv_dl* lib, const llama2* model, const options* o, size_t blocks,
                 size_t watermark, size_t max_steps, size_t max_rows) {
  memset(e, 0, sizeof *e);
  e->lib = lib;
  e->model = model;
  create_cache(e, o, blocks, watermark);
  e->run = llama2_run_new(model, max_rows);
  e->max_steps = max_steps;
  e->max_rows = max_rows;
  e->sessions = new_array(max_steps, sizeof *e->sessions);
  e->new_tokens = new_array(max_steps, sizeof *e->new_tokens);
  e->logit_rows = new_array(max_steps, sizeof *e->logit_rows);
  e->tokens = new_array(max_rows, sizeof *e->tokens);
  e->positions = new_array(max_rows, sizeof *e->positions);
}

void engine_close(engine* e) {
  engine_check(e, e->lib->cache_destroy(e->cache), "closing the cache");
  llama2_run_free(e->run);
  free(e->sessions);
  free(e->new_tokens);
  free(e->logit_rows);
  free(e->tokens);
  free(e->positions);
}

static pkv_stream file_at(const char* path) {
  return (pkv_stream){.struct_size = sizeof(pkv_stream), .kind = PKV_STREAM_PATH, .path = path};
}

/* *model is the fingerprint, which must live as long as the config. */
static pkv_file_config file_config(const engine* e, uint64_t* model) {
  *model = fingerprint(e->model);
  return (pkv_file_config){.struct_size = sizeof(pkv_file_config),
                           .prefix_index = 1,
                           .fingerprint = model,
                           .fingerprint_size = sizeof *model};
}

void engine_save(const engine* e, const char* path, pkv_session session) {
  uint64_t model;
  const pkv_file_config config = file_config(e, &model);
  const pkv_stream to = file_at(path);
  const pkv_file_item item = {session, NULL, 0};
  engine_check(e, e->lib->file_save(e->cache, session != NULL, &item, &config, &to, NULL),
               "--save");
}

pkv_session engine_load(const engine* e, const char* path) {
  uint64_t model;
  const pkv_file_config config = file_config(e, &model);
  const pkv_stream from = file_at(path);
  pkv_session session = NULL;
  size_t count;
  engine_check(e, e->lib->file_load(e->cache, &config, &from, 1, &session, NULL, &count), "--load");
  return session;
}

/* The model's llama2_attend: the rows of this layer go into the cache and are attended over there.
 */
static void attend(void* user, size_t layer, float* q, float* k, float* v, float* out) {
  engine* e = user;
  const double start = seconds();
  const pkv_tensor queries = {.data = q, .dtype = PKV_F32}, keys = {.data = k, .dtype = PKV_F32};
  const pkv_tensor values = {.data = v, .dtype = PKV_F32},
                   outputs = {.data = out, .dtype = PKV_F32};
  engine_check(e, e->lib->batch_write(e->batch, (uint32_t)layer, &keys, &values), "write");
  engine_check(e, e->lib->batch_attend(e->batch, (uint32_t)layer, NULL, &queries, &outputs, NULL),
               "attend");
  e->library_seconds += seconds() - start;
}

/* [positions] */
static size_t stack_rows(engine* e, size_t count, const step* steps) {
  size_t rows = 0;
  for (size_t i = 0; i < count; i++) {
    e->sessions[i] = steps[i].session;
    e->new_tokens[i] = (uint32_t)steps[i].count;
    for (size_t j = 0; j < steps[i].count; j++, rows++) {
      e->tokens[rows] = steps[i].tokens[j];
      e->positions[rows] = steps[i].position + j;
    }
  }
  return rows;
}
/* [positions end] */

static void hand_out_logits(engine* e, size_t count, step* steps) {
  size_t rows = 0, wanted = 0;
  for (size_t i = 0; i < count; i++) {
    rows += steps[i].count;
    if (steps[i].wants_logits) e->logit_rows[wanted++] = rows - 1;
  }
  const float* logits = llama2_logits(e->run, wanted, e->logit_rows);
  for (size_t i = 0; i < count; i++) {
    steps[i].logits = steps[i].wants_logits ? logits : NULL;
    if (steps[i].wants_logits) logits += e->model->vocabulary;
  }
}

bool engine_forward(engine* e, size_t count, step* steps) {
  const size_t rows = stack_rows(e, count, steps);
  double start = seconds();
  const pkv_status status =
      e->lib->batch_begin(e->cache, count, e->sessions, e->new_tokens, &e->batch);
  e->library_seconds += seconds() - start;
  if (status == PKV_OUT_OF_BLOCKS || status == PKV_TOO_LARGE || status == PKV_BATCH_TOO_LARGE)
    return false;
  engine_check(e, status, "begin");

  llama2_forward(e->run, rows, e->tokens, e->positions, attend, e);

  start = seconds();
  engine_check(e, e->lib->batch_commit(e->batch, rows, e->tokens), "commit");
  e->library_seconds += seconds() - start;
  e->rows_forwarded += rows;
  hand_out_logits(e, count, steps);
  return true;
}
