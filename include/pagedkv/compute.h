/* pagedkv: pkv_compute, the threads, kernels and working memory of calls that work on the caller's
 * own memory (pkv_kv_write, pkv_kv_attend and others). Working memory is kept from call to call. A
 * cache has its own.
 *
 * Where a function takes a pkv_compute, NULL means the default of the process: all CPUs, the best
 * instruction set, and working memory from the system that is kept until the process ends.
 *
 * Threads: every function may be called from any thread, and any number of threads may use a
 * pkv_compute at once. pkv_compute_destroy returns PKV_BUSY while another thread is inside a call
 * that uses it.
 */
#ifndef PAGEDKV_COMPUTE_H
#define PAGEDKV_COMPUTE_H

#include <pagedkv/cache.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Threads and kernels, without a cache. */
typedef struct pkv_compute_t* pkv_compute;

/** Options for pkv_compute_create. Hooks must outlive the pkv_compute. */
typedef struct pkv_compute_config {
  uint32_t struct_size; /**< Must be sizeof(pkv_compute_config). */
  /** As threads of pkv_cache_config. */
  uint32_t threads;
  /** AUTO (default): the fastest that this CPU has. Any other: that one, or UNSUPPORTED. */
  pkv_isa isa;
  uint32_t reserved;              /**< Must be 0. */
  const pkv_allocator* allocator; /**< For working memory. NULL (default): the system's. */
  /** The caller's threads; then threads must be 0. NULL (default): the library's. */
  const pkv_runner* runner;
} pkv_compute_config;

/**
 * Creates a pkv_compute.
 *
 * @param[in]  config  The config. NULL: defaults.
 * @param[out] out     The pkv_compute. Destroy it with pkv_compute_destroy.
 *
 * Statuses: INVALID_ARGUMENT, UNSUPPORTED (isa), OUT_OF_MEMORY. Since 1.0.
 */
PKV_API pkv_status pkv_compute_create(const pkv_compute_config* config, pkv_compute* out);

/**
 * Ends the threads of a pkv_compute and frees its working memory.
 *
 * @param compute  The pkv_compute. NULL is OK.
 *
 * Statuses: STALE_HANDLE, BUSY. Since 1.0.
 */
PKV_API pkv_status pkv_compute_destroy(pkv_compute compute);

/** The threads and instruction set of a pkv_compute. */
typedef struct pkv_compute_info {
  uint32_t struct_size; /**< Must be sizeof(pkv_compute_info). */
  uint32_t threads;     /**< Threads, including the caller's. */
  pkv_isa isa;          /**< The instruction set of its kernels. */
  uint32_t reserved;    /**< 0. */
} pkv_compute_info;

/**
 * Returns the threads and instruction set of a pkv_compute.
 *
 * @param      compute  The pkv_compute. NULL: the default of the process.
 * @param[out] out      The result.
 *
 * Statuses: none of its own. Since 1.0.
 */
PKV_API pkv_status pkv_compute_get_info(pkv_compute compute, pkv_compute_info* out);

/**
 * Returns a runner over the OpenMP threads of the process, for example those on which PyTorch
 * multiplies matrices. Use it in the config of a pkv_compute or a cache, which then starts no
 * threads of its own.
 *
 * It finds libgomp, libomp or libiomp5 if its symbols are visible to the whole process: linked into
 * the program, preloaded, or loaded with RTLD_GLOBAL. If a process forks after it has used the
 * runner, the calling thread runs all tasks in the child.
 *
 * @param[out] out  The runner, with as many threads as omp_get_max_threads() returns now.
 *
 * Statuses: UNSUPPORTED (no OpenMP library is visible to the whole process). Since 1.0.
 */
PKV_API pkv_status pkv_openmp_runner(pkv_runner* out);

#ifdef __cplusplus
}
#endif
#endif
