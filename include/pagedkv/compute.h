/* pagedkv: pkv_compute, what calls over the caller's own memory run on: threads, kernels, and
 * working memory that is kept from call to call. A cache has all of this itself.
 *
 * Functions that take a pkv_compute take NULL as well: they run on all processors then, with the
 * best instruction set, and working memory comes from the system and is kept for the process.
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

/** What pkv_compute_create makes. Hooks must outlive the pkv_compute. */
typedef struct pkv_compute_config {
  uint32_t struct_size; /**< sizeof(pkv_compute_config): the caller sets it. */
  /** How many, the caller's included, at most one per processor; 0 (default): that many. */
  uint32_t threads;
  /** AUTO (default): the best this processor has. Another: that one or UNSUPPORTED. */
  pkv_isa isa;
  uint32_t reserved;              /**< 0. */
  const pkv_allocator* allocator; /**< Working memory of calls; NULL (default): the system's. */
  /**
   * The caller's threads, with the priority and the processors that the caller gave them; threads
   * must be 0 then. NULL (default): oneTBB's.
   */
  const pkv_runner* runner;
} pkv_compute_config;

/**
 * Makes a pkv_compute.
 *
 * @param[in]  config  The config. NULL: defaults.
 * @param[out] out     The pkv_compute, to be destroyed by pkv_compute_destroy.
 *
 * Statuses: INVALID_ARGUMENT, UNSUPPORTED (isa), NO_MEMORY. Since 0.1.
 */
PKV_API pkv_status pkv_compute_create(const pkv_compute_config* config, pkv_compute* out);

/**
 * Ends the threads of a pkv_compute and gives back its working memory.
 *
 * @param compute  The pkv_compute. NULL is OK.
 *
 * Statuses: STALE_HANDLE, BUSY. Since 0.1.
 */
PKV_API pkv_status pkv_compute_destroy(pkv_compute compute);

/** What a pkv_compute runs on. */
typedef struct pkv_compute_info {
  uint32_t struct_size; /**< sizeof(pkv_compute_info): the caller sets it. */
  uint32_t threads;     /**< The caller's included. */
  pkv_isa isa;          /**< The one whose kernels run. */
  uint32_t reserved;    /**< 0. */
} pkv_compute_info;

/**
 * Tells what a pkv_compute runs on.
 *
 * @param      compute  The pkv_compute. NULL: the process's default.
 * @param[out] out      The answer.
 *
 * Statuses: none of its own. Since 0.1.
 */
PKV_API pkv_status pkv_compute_get_info(pkv_compute compute, pkv_compute_info* out);

/**
 * Gives the OpenMP threads of the process as a runner: those that a host's own matrix products run
 * on, such as PyTorch's. A call then wakes no threads beside them, and has their number and the
 * processors that they are bound to. For the config of a pkv_compute or a cache.
 *
 * libgomp, libomp and libiomp5 will do. The library is looked up among the symbols that all of the
 * process sees: where it was loaded with another one, before it or by RTLD_GLOBAL. A forked child
 * whose parent computed on them has no such threads: there the calling thread does all tasks.
 *
 * @param[out] out  The runner. Its threads are as many as omp_get_max_threads() tells now.
 *
 * Statuses: UNSUPPORTED (the process has loaded no OpenMP library). Since 0.1.
 */
PKV_API pkv_status pkv_openmp_runner(pkv_runner* out);

#ifdef __cplusplus
}
#endif
#endif
