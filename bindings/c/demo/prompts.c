#include "prompts.h"

#include <stdlib.h>
#include <string.h>

/* All scenes share a prefix, like requests to one assistant with its instructions. With the tiny
 * model, the two best tokens are at least 0.004 apart at each of a scene's first 160 tokens, so no
 * rounding of fp32 changes the greedy choice. */
#define OPENING                                       \
  "First Citizen:\n"                                  \
  "Before we proceed any further, hear me speak.\n\n" \
  "All:\nSpeak, speak.\n\n"                           \
  "First Citizen:\n"                                  \
  "You are all resolved rather to die than to famish?\n\n"

static const char* const scenes[] = {
    OPENING "ROMEO:\nBut soft, what light",   OPENING "JULIET:\nMy only love",
    OPENING "CORIOLANUS:\nMy wars",           OPENING "KING RICHARD III:\nA horse, a horse",
    OPENING "CAPULET:\nWelcome, gentlemen",   OPENING "VOLUMNIA:\nI pray you, daughter",
    OPENING "MERCUTIO:\nO, then, I see",      OPENING "LEONTES:\nIs whispering nothing",
    OPENING "WARWICK:\nWhat counsel",         OPENING "HERMIONE:\nSir, spare your threats",
    OPENING "MENENIUS:\nThere was a time",    OPENING "PETRUCHIO:\nGood morrow, Kate",
    OPENING "PROSPERO:\nMy brave spirit",     OPENING "FRIAR LAURENCE:\nThe grey-eyed morn",
    OPENING "GLOUCESTER:\nNow is the winter", OPENING "DUKE VINCENTIO:\nBe absolute for death",
};

static size_t common_length(const prompts* p) {
  size_t common = p->count > 1 ? p->lengths[0] : 0;
  for (size_t i = 0; i < p->count && common > 0; i++) {
    if (common >= p->lengths[i])
      common = p->lengths[i] - 1; /* a session brings at least one token of its own */
    size_t same = 0;
    while (same < common && p->tokens[i][same] == p->tokens[0][same]) same++;
    common = same;
  }
  return common;
}

prompts prompts_new(const options* o, const tokenizer* t) {
  prompts p = {.count = o->sessions};
  p.tokens = new_array(p.count, sizeof *p.tokens);
  p.lengths = new_array(p.count, sizeof *p.lengths);
  const char* const* texts = o->prompt_count > 0 ? o->prompts : scenes;
  const size_t text_count = o->prompt_count > 0 ? o->prompt_count : sizeof scenes / sizeof *scenes;
  for (size_t i = 0; i < p.count; i++) {
    const char* text = texts[i % text_count];
    const size_t bytes = strlen(text);
    p.tokens[i] = new_array(tokenizer_bound(bytes), sizeof *p.tokens[i]);
    p.lengths[i] = tokenizer_encode(t, text, bytes, true, p.tokens[i]);
  }
  p.common = common_length(&p);
  return p;
}

void prompts_free(prompts* p) {
  for (size_t i = 0; i < p->count; i++) free(p->tokens[i]);
  free(p->tokens);
  free(p->lengths);
}
