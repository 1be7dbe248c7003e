/* Rows times a weight matrix, the only arithmetic of the model that takes time. */
#ifndef PKV_GENERATE_MATMUL_H
#define PKV_GENERATE_MATMUL_H

#include <stddef.h>

/* y[row][o] = sum over i of x[row][i] * w[o][i], for o < outputs and i < inputs. A row's result
 * does not depend on the other rows: a session's text is the same alone and in any batch. */
void matmul(float* y, const float* x, const float* w, size_t rows, size_t inputs, size_t outputs);

#endif
