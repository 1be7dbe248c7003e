/* pagedkv: pkv_compute, the threads, kernels and working memory of calls over the caller's own
 * memory. Working memory is kept from call to call. A cache has its own threads and memory.
 *
 * Where a function takes a pkv_compute, NULL means all CPUs and the best instruction set. Working
 * memory then comes from the system and is kept for the life of the process.
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
  uint32_t struct_size; /**< sizeof(pkv_compute_config): the caller sets it. */
  /** Threads, including the caller's: at most one per CPU. 0 (default): one per CPU. */
  uint32_t threads;
  /** AUTO (default): the best of this CPU. Another: UNSUPPORTED if this CPU lacks it. */
  pkv_isa isa;
  uint32_t reserved;              /**< 0. */
  const pkv_allocator* allocator; /**< For working memory. NULL (default): the system's. */
  /**
   * Runs calls on the caller's threads, with the priority and CPUs that the caller gave them;
   * threads must then be 0. NULL (default): threads of oneTBB.
   */
  const pkv_runner* runner;
} pkv_compute_config;

/**
 * Creates a pkv_compute.
 *
 * @param[in]  config  The config. NULL: defaults.
 * @param[out] out     The pkv_compute. Destroy it with pkv_compute_destroy.
 *
 * Statuses: INVALID_ARGUMENT, UNSUPPORTED (isa), NO_MEMORY. Since 0.1.
 */
PKV_API pkv_status pkv_compute_create(const pkv_compute_config* config, pkv_compute* out);

/**
 * Ends the threads of a pkv_compute and frees its working memory.
 *
 * @param compute  The pkv_compute. NULL is OK.
 *
 * Statuses: STALE_HANDLE, BUSY. Since 0.1.
 */
PKV_API pkv_status pkv_compute_destroy(pkv_compute compute);

/** The threads and instruction set of a pkv_compute. */
typedef struct pkv_compute_info {
  uint32_t struct_size; /**< sizeof(pkv_compute_info): the caller sets it. */
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
 * Statuses: none of its own. Since 0.1.
 */
PKV_API pkv_status pkv_compute_get_info(pkv_compute compute, pkv_compute_info* out);

/**
 * Returns a runner over the OpenMP threads of the process, for example those on which PyTorch
 * multiplies matrices. Calls then start no threads of their own and keep to the CPUs to which these
 * are bound. Use it in the config of a pkv_compute or a cache.
 *
 * It finds libgomp, libomp or libiomp5 if its symbols are visible to the whole process: linked into
 * the program, preloaded, or loaded with RTLD_GLOBAL. In a forked child whose parent computed on
 * these threads they do not exist: there the calling thread runs all tasks.
 *
 * @param[out] out  The runner, with as many threads as omp_get_max_threads() returns now.
 *
 * Statuses: UNSUPPORTED (the process has loaded no OpenMP library). Since 0.1.
 */
PKV_API pkv_status pkv_openmp_runner(pkv_runner* out);

#ifdef __cplusplus
}
#endif
#endif
