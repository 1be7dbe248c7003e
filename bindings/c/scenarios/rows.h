/* Tokens and rows of the shared scenarios, as bindings/scenarios/README.md defines them. */
#ifndef PKV_SCENARIO_ROWS_H
#define PKV_SCENARIO_ROWS_H

#include <stddef.h>
#include <stdint.h>

enum row_kind { ROW_K = 0, ROW_V = 1, ROW_Q = 2 };

/* The id of a span's i-th token. */
int32_t scenario_token(uint64_t seed, uint64_t i);

/* h(p) of a text's tokens, given h(p - 1); 0 before the first. */
uint64_t scenario_history(uint64_t before, int32_t token);

/* One row, [heads][dim], of the position with this history. */
void scenario_row(float* row, uint64_t history, enum row_kind kind, uint32_t layer, size_t heads,
                  size_t dim);

#endif
