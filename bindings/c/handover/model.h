/* The model and the cache of each process, and one forward pass. */
#ifndef PKV_HANDOVER_MODEL_H
#define PKV_HANDOVER_MODEL_H

#include "../common/pkv_dl.h"
#include "../demo/llama2.h"
#include "../demo/tokenizer.h"
#include "stream.h"

enum { CHUNK = 64, MOST_TEXTS = 64 }; /* tokens of a prompt that one step takes; texts at once */

typedef struct machine {
  pkv_dl lib;
  llama2 model;
  tokenizer words;
  pkv_cache cache;
  llama2_run* run;
  stream_shape shape;
  pkv_batch batch; /* of the pass under way */
  /* Where the rows of a pass go besides the cache, layer by layer. If `to` is NULL: nowhere. */
  stream* to;
  uint32_t request, group;
  uint64_t position;
  size_t rows;
  const void** parts; /* of layers that wait for the rest of their frame */
  size_t* sizes;
  size_t pending;
  bool lost; /* the other end is gone */
} machine;

/* group: how many layers go into one frame; 0: all of them. */
void machine_open(machine* m, const char* library, const char* model, uint32_t group);
void machine_close(machine* m);

/* Ends the program with the library's error sentence unless the call succeeded. */
void check(const machine* m, pkv_status status, const char* what);

/* The best token after each part. Positions are those that the sessions have. */
typedef struct part {
  pkv_session session;
  const int32_t* tokens;
  size_t count, position;
  int32_t best; /* out */
} part;
void forward(machine* m, size_t count, part* parts);

/* Queues m->rows rows of a layer for m->to; `forward` does this for each layer that it computes. */
void send_layer(machine* m, size_t layer, const float* k, const float* v);

/* Opens a session with what is cached of a text, which is never all of it. */
pkv_session open_session(const machine* m, size_t count, const int32_t* tokens, uint64_t* matched);

#endif
