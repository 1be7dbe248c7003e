/* What each of the two processes does. */
#ifndef PKV_HANDOVER_ROLES_H
#define PKV_HANDOVER_ROLES_H

#include "model.h"

/* Computes the prompts that `connections` connections ask for (0: without end), one connection
 * after the other: the next one is served when this one ends, or has asked for nothing for
 * patience_ms. */
void serve_prompts(machine* m, const char* address, size_t connections, int patience_ms);

typedef struct text {
  int32_t* tokens; /* [prompt + most] */
  size_t prompt, length, held;
  pkv_session session;
  double asked, first, longest; /* seconds: when, first token, longest wait for a later one */
  double last;
  bool running;
} text;

/* Decodes texts at once. Where `address` is NULL their prompts are computed between the steps, else
 * there; if that process dies, the rest is computed here. */
void decode_texts(machine* m, const char* address, size_t count, text* texts, size_t most,
                  int patience_ms);

#endif
