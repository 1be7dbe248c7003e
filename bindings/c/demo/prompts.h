/* The prompts of the sessions, as tokens. */
#ifndef PKV_GENERATE_PROMPTS_H
#define PKV_GENERATE_PROMPTS_H

#include "options.h"
#include "tokenizer.h"

typedef struct prompts {
  size_t count; /* one per session */
  int32_t** tokens;
  size_t* lengths;
  size_t
      common; /* tokens that all begin with, when there is more than one; less than the shortest */
} prompts;

/* The prompts from the options, or built-in scenes, in turn until each session has one. */
prompts prompts_new(const options* o, const tokenizer* t);
void prompts_free(prompts* p);

#endif
