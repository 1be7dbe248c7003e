/* The same texts without a cache: K and V of each session are in plain arrays, as long as the
 * longest text can get, and attention is computed over these. It shows what paging gains. */
#ifndef PKV_GENERATE_ARRAYS_H
#define PKV_GENERATE_ARRAYS_H

#include "report.h"

/* All sessions run from the beginning; each computes all of its prompt. */
run_result arrays_run(const options* o, const pkv_dl* lib, const llama2* model, const prompts* p,
                      size_t context);

#endif
