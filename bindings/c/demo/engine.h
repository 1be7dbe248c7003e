/* A model and a cache: one forward pass over many sessions, all K, V and attention through
 * libpagedkv. */
#ifndef PKV_GENERATE_ENGINE_H
#define PKV_GENERATE_ENGINE_H

#include <stdbool.h>

#include "../common/pkv_dl.h"
#include "llama2.h"
#include "options.h"

typedef struct engine {
  const pkv_dl* lib;
  const llama2* model;
  pkv_cache cache;
  pkv_cache_info info;
  pkv_cache_sizes plan;
  bool prefixes;          /* the cache has a prefix index */
  double library_seconds; /* spent in begin, write, attend and commit so far */
  size_t rows_forwarded;

  /* The pass in progress. */
  pkv_batch batch;
  llama2_run* run;
  size_t max_steps, max_rows;
  pkv_session* sessions; /* [max_steps] */
  uint32_t* new_tokens;  /* [max_steps] */
  int32_t* tokens;       /* [max_rows] */
  size_t* positions;     /* [max_rows] */
  size_t* logit_rows;    /* [max_steps] */
} engine;

/* One session's part in a pass: its next tokens, at least one. */
typedef struct step {
  pkv_session session;
  const int32_t* tokens;
  size_t count;
  size_t position; /* of the first: how many tokens the session holds */
  bool wants_logits;
  const float* logits; /* out: scores of the token after the last, until the next pass */
} step;

/* A cache of `blocks` blocks, of which `watermark` are only for running sessions, for passes of up
 * to max_steps sessions and max_rows tokens. Ends the program if the library refuses. */
void engine_open(engine* e, const pkv_dl* lib, const llama2* model, const options* o, size_t blocks,
                 size_t watermark, size_t max_steps, size_t max_rows);
void engine_close(engine* e);

/* Runs one pass. False: the cache has too few free blocks, and nothing has changed. */
bool engine_forward(engine* e, size_t count, step* steps);

/* Write a session (or NULL) and the prefix index to a file, and load such a file: returns the
 * session, or NULL if it has none. The files belong to the model. They end the program on failure.
 * */
void engine_save(const engine* e, const char* path, pkv_session session);
pkv_session engine_load(const engine* e, const char* path);

/* The instruction set of --isa. */
pkv_isa engine_isa(const pkv_dl* lib, const char* name);

/* Ends the program with the library's error sentence unless the call succeeded. */
void engine_check(const engine* e, pkv_status status, const char* what);

#endif
