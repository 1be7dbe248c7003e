/* The results of a run: its texts, its figures, and how two runs compare. */
#ifndef PKV_GENERATE_REPORT_H
#define PKV_GENERATE_REPORT_H

#include <stdio.h>

#include "scheduler.h"

typedef struct run_result {
  const char* memory; /* "paged" or "arrays" */
  pkv_dtype dtype;
  const char* isa;
  size_t sessions, prompt_tokens, generated;
  uint64_t blocks, block_size;
  double first_mean, first_median, first_max; /* seconds to a session's first token */
  double library_seconds;
  run_totals totals;
  sequence* sequences; /* [sessions], owned */
} run_result;

/* Takes over the sequences of a run. The caller sets what else it knows. */
run_result report_new(sequence* sequences, size_t count, const run_totals* totals);
void report_free(run_result* r);

/* The texts, without the `common` first tokens of all texts, which are printed once. */
void report_texts(const run_result* r, const tokenizer* t, size_t common);
/* One column per run. */
void report_summary(const run_result* runs, size_t count);

/* Files are opened before the work begins, so that a bad path does not waste a run. NULL for a NULL
 * path; writing closes the file. */
FILE* report_open(const char* path);
void report_tokens(const run_result* r, FILE* file, const char* path);
void report_json(const run_result* runs, size_t count, FILE* file, const char* path);

/* The first session (from 1) whose tokens differ, or 0. */
size_t report_difference(const run_result* a, const run_result* b);

#endif
