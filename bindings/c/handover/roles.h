/* The roles of the two processes. */
#ifndef PKV_HANDOVER_ROLES_H
#define PKV_HANDOVER_ROLES_H

#include "model.h"

/* Computes the prompts that `connections` connections ask for (0: forever), one connection after
 * the other: the next one is served when this one ends, or has asked for nothing for patience_ms.
 * */
void serve_prompts(machine* m, const char* address, size_t connections, int patience_ms);

typedef struct text {
  int32_t* tokens; /* [prompt + most] */
  size_t prompt, length, held;
  pkv_session session;
  double asked, first, longest; /* seconds: when, first token, longest wait for a later one */
  double last;
  bool running;
} text;

/* Decodes all texts at once. Their prompts are computed by the process at `address`; if that dies,
 * or if `address` is NULL, they are computed here between the steps. */
void decode_texts(machine* m, const char* address, size_t count, text* texts, size_t most,
                  int patience_ms);

#endif
