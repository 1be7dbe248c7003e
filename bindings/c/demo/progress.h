/* Shows what the sessions do while they run: redrawn in place on a terminal, plain lines otherwise.
 * */
#ifndef PKV_GENERATE_PROGRESS_H
#define PKV_GENERATE_PROGRESS_H

#include "scheduler.h"

typedef struct progress {
  const scheduler* scheduler;
  const tokenizer* tokenizer;
  bool silent, terminal, colour;
  double last_update;
  size_t lines_drawn;
  bool* reported; /* sessions whose end was told in a plain line */
} progress;

void progress_open(progress* p, const scheduler* s, const tokenizer* t, bool silent);
void progress_update(progress* p);
/* Reports the last sessions that ended, and clears the drawing. */
void progress_close(progress* p);

#endif
