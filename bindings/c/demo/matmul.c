#include "matmul.h"

/* Sixteen running sums per product are plain loops, which a compiler turns into vectors of any
 * width although it may not reorder additions. Four rows at a time use each loaded weight four
 * times. */
enum { LANES = 16, TILE_ROWS = 4 };

/* One copy per vector width, chosen when the program is loaded. That is before ThreadSanitizer
 * starts, which would crash it. */
#if defined(__SANITIZE_THREAD__)
#define WITH_THREAD_SANITIZER 1
#elif defined(__has_feature)
#define WITH_THREAD_SANITIZER __has_feature(thread_sanitizer)
#else
#define WITH_THREAD_SANITIZER 0
#endif
#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GNUC__) && !WITH_THREAD_SANITIZER
#define FOR_EACH_VECTOR_WIDTH __attribute__((target_clones("default", "avx2", "avx512f")))
#else
#define FOR_EACH_VECTOR_WIDTH
#endif

static inline float sum_lanes(const float* lane) {
  float pair[LANES / 2];
  for (size_t i = 0; i < LANES / 2; i++) pair[i] = lane[i] + lane[i + LANES / 2];
  for (size_t width = LANES / 4; width > 0; width /= 2)
    for (size_t i = 0; i < width; i++) pair[i] += pair[i + width];
  return pair[0];
}

/* `rows` is a constant wherever this is inlined. */
static inline __attribute__((always_inline)) void tile(float* y, const float* x, const float* w,
                                                       size_t rows, size_t inputs, size_t outputs) {
  const size_t whole = inputs - inputs % LANES;
  for (size_t o = 0; o < outputs; o++, w += inputs) {
    float sums[TILE_ROWS][LANES] = {{0}};
    for (size_t i = 0; i < whole; i += LANES)
      for (size_t row = 0; row < rows; row++)
        for (size_t lane = 0; lane < LANES; lane++)
          sums[row][lane] += x[row * inputs + i + lane] * w[i + lane];
    for (size_t row = 0; row < rows; row++) {
      float sum = sum_lanes(sums[row]);
      for (size_t i = whole; i < inputs; i++) sum += x[row * inputs + i] * w[i];
      y[row * outputs + o] = sum;
    }
  }
}

FOR_EACH_VECTOR_WIDTH
void matmul(float* y, const float* x, const float* w, size_t rows, size_t inputs, size_t outputs) {
  size_t row = 0;
  for (; row + TILE_ROWS <= rows; row += TILE_ROWS)
    tile(y + row * outputs, x + row * inputs, w, TILE_ROWS, inputs, outputs);
  for (; row < rows; row++) tile(y + row * outputs, x + row * inputs, w, 1, inputs, outputs);
}
