/* The command line. */
#ifndef PKV_GENERATE_OPTIONS_H
#define PKV_GENERATE_OPTIONS_H

#include <pagedkv/pagedkv.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct options {
  const char *model, *tokenizer, *library, *isa;       /* tokenizer, library and isa may be NULL */
  const char *tokens_out, *json, *save, *load, *store; /* may be NULL */
  const char** prompts; /* prompt_count of them; none: the built-in ones */
  size_t prompt_count;
  pkv_dtype dtype;
  size_t sessions, running, max_tokens, chunk; /* running 0: all sessions */
  size_t context, blocks, block_size, threads; /* 0, but for block_size: chosen by the program */
  double temperature, top_p;
  uint64_t seed;
  bool chat, compare, quiet, no_prefix;
} options;

/* --help ends the program; so does a wrong option, with one sentence and EXIT_BAD_OPTION. */
options options_parse(int argc, char** argv);
void options_free(options* o);

const char* dtype_name(pkv_dtype dtype);

#endif
