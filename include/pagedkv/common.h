/* pagedkv: what every other header uses: statuses, element types, tensors, hooks. */
#ifndef PAGEDKV_COMMON_H
#define PAGEDKV_COMMON_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define PKV_API __attribute__((visibility("default")))
#else
#define PKV_API
#endif

/* The type behind every enum is int, so that C++ may hold a value that its header does not know yet. */
#if defined(__cplusplus)
#define PKV_ENUM : int
#else
#define PKV_ENUM
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Statuses -------------------------------------------------------------------------------
 *
 * Every function that can fail returns a pkv_status and hands results out through pointers, which
 * are untouched unless it returns PKV_OK. A call that fails changes nothing.
 * The hundreds digit is the family: 1 misuse (mend the call), 2 exhaustion (free something, then
 * try again), 3 corruption (the data is bad), 4 system (see the errno in the sentence), 5 a bug in
 * the library. Values are pinned: they never change and are never used again for something else.
 */
typedef enum pkv_status PKV_ENUM {
  PKV_OK = 0, /**< It is done. */

  PKV_INVALID_ARGUMENT = 100, /**< NULL, an unknown enum or flag, a bad struct_size, a zero dimension. */
  PKV_OUT_OF_RANGE = 101,     /**< An index, a layer, a token position or a block id beyond the end. */
  PKV_OVERFLOW = 102,         /**< Sizes whose product or sum no process could hold: 2^56 bytes. */
  PKV_BUFFER_TOO_SMALL = 103, /**< The count needed is written to the count pointer. */
  PKV_STALE_HANDLE = 104,     /**< A handle or block that was closed, released or never given out. */
  PKV_DOUBLE_FREE = 105,      /**< A block released more often than it was held. */
  PKV_WRONG_CACHE = 106,      /**< A session, batch or snapshot of another cache. */
  PKV_BUSY = 107,             /**< Another call or an open batch holds the object. */
  PKV_REENTRANT = 108,        /**< A call from inside one of the caller's own hooks. */
  PKV_FORKED = 109,           /**< A handle inherited through fork(): the child may only close it. */
  PKV_BLOCK_SEALED = 110,     /**< A write to a block that is sealed. */
  PKV_UNSUPPORTED = 111,      /**< Not available for this storage kind, layout or processor. */
  PKV_INCOMPLETE = 112,       /**< A layer that was not written yet in this step. */
  PKV_SUSPENDED = 113,        /**< The session is suspended: resume it first. */

  PKV_OUT_OF_BLOCKS = 200, /**< Not enough free blocks; the sentence says how many are short. */
  PKV_TOO_LARGE = 201,     /**< More than the whole cache could ever hold. */
  PKV_NO_MEMORY = 202,     /**< The allocator said no. */
  PKV_REF_LIMIT = 203,     /**< A block's reference count is at its limit. */
  PKV_BLOCK_FULL = 204,    /**< Every slot of the block is taken. */

  PKV_CORRUPT = 300,  /**< Bytes that are not those that were saved: damaged, cut short, or tagged with another key. */
  PKV_VERSION = 301,  /**< A file of a format that this library does not know. */
  PKV_MISMATCH = 302, /**< A file of another model: shapes, dtypes or fingerprint are not the cache's. */

  PKV_IO = 400, /**< The operating system or a server said no; the sentence has its reason. */

  PKV_INTERNAL = 500 /**< An invariant of the library does not hold: please report it. */
} pkv_status;

/** The name of a status, "PKV_OUT_OF_BLOCKS"; for an unknown value "PKV_UNKNOWN_STATUS". Static storage. Any thread.
 * Since 0.1. */
PKV_API const char* pkv_status_string(pkv_status status);

/**
 * One sentence about the last call on this thread that did not return PKV_OK, with its numbers:
 * "begin needs 12 blocks in group 0, 3 are free (9 short)". Never NULL; "" when nothing failed yet.
 * Successful calls leave it alone. The text belongs to the library and stays valid until the next
 * failing call on the same thread. Since 0.1.
 */
PKV_API const char* pkv_last_error(void);

/* ---- Element types and tensors --------------------------------------------------------------*/

/**
 * Element types. The first three are those of the rows a caller passes and of stored keys and values; the others are only stored.
 * Native byte order. Conversions round to nearest even. Quantised types get their scale when a row is stored, from that row
 * alone: what was stored before never changes. With m the largest magnitude of a row (INT8) or of 32 dims (INT4), elements are off by at
 * most m / 254 and m / 13.8; a NaN or an infinity among them makes all of them NaN, and below 1e-30 they are stored as 0.
 */
typedef enum pkv_dtype PKV_ENUM {
  PKV_F32 = 1,      /**< IEEE binary32. */
  PKV_F16 = 2,      /**< IEEE binary16. */
  PKV_BF16 = 3,     /**< The upper half of binary32. */
  PKV_INT8 = 4,     /**< A byte n (two's complement) per element and an fp32 scale per row (token and KV head): scale * n. */
  PKV_INT4 = 5,     /**< A nibble n (two's complement) per element and a bf16 scale per 32 dims: scale * n. */
  PKV_FP8_E4M3 = 6, /**< OCP E4M3, without a scale: up to 448, and beyond stored as 448; infinities become NaN. */
  PKV_FP8_E5M2 = 7  /**< OCP E5M2, without a scale: up to 57344, and finite numbers beyond stored as that; keeps infinities. */
} pkv_dtype;

/**
 * Rows in the caller's memory: element (row, head, dim) is at data[row * row_stride + head * head_stride + dim].
 * Strides count elements; 0 means dense, [rows][heads][dim]. Any alignment works. This struct is
 * pinned: it will not grow.
 */
typedef struct pkv_tensor {
  void* data; /**< The caller's; only read where the function says "in". */
  pkv_dtype dtype;     /**< F32, F16 or BF16. */
  uint32_t reserved;   /**< 0. */
  int64_t row_stride;  /**< 0, or at least the extent of what a row holds. */
  int64_t head_stride; /**< 0, or at least dim. */
} pkv_tensor;

/* ---- Hooks ----------------------------------------------------------------------------------
 *
 * A hook must not call the library back (PKV_REENTRANT) and must not throw or longjmp. They are
 * called by:
 *
 *   allocator  the thread that calls the library. A cache with a store has two threads of its own
 *              (store.h), which allocate and free as well: its allocator must work on any thread,
 *              and for several at once.
 *   store      those two threads; close: the thread in pkv_cache_destroy.
 *   logger     the thread in pkv_cache_create.
 *   runner     run: the thread that calls the library. Its tasks call no hook.
 *   stream     read and write: the thread that saves or loads.
 *
 * Two threads that use one cache at once call its allocator and its runner at once, too.
 */

/**
 * Memory supplied by the caller. alignment is a power of two. alloc returns NULL to refuse:
 * PKV_NO_MEMORY. Memory that is not aligned as asked goes back to free at once, and is
 * PKV_NO_MEMORY as well.
 */
typedef struct pkv_allocator {
  void* (*alloc)(void* user, size_t size, size_t alignment);
  void (*free)(void* user, void* memory, size_t size, size_t alignment);
  void* user;
} pkv_allocator;

/** What a line is about. */
typedef enum pkv_log_level PKV_ENUM { PKV_LOG_WARNING = 1, PKV_LOG_INFO = 2 } pkv_log_level;

/** Receives one line without a newline. The library itself never prints. */
typedef struct pkv_logger {
  void (*log)(void* user, pkv_log_level level, const char* message);
  void* user;
} pkv_logger;

/**
 * Threads supplied by the caller, in the place of the library's own. run calls task(context, i, worker) once for every i in [0, n), on any
 * threads and in any order, and returns when all of them have returned. worker is below threads; no two calls at
 * once have the same worker. task does not throw. Results do not depend on how the calls are spread.
 * A runner that leaves a task out, asks for one twice (it runs once) or for one that there is not
 * makes its call PKV_INVALID_ARGUMENT: what the call was to write is undefined then, and a step in
 * flight is as far as it was before.
 */
typedef struct pkv_runner {
  void (*run)(void* user, size_t n, void (*task)(void* context, size_t i, uint32_t worker), void* context);
  void* user;
  uint32_t threads;  /**< 1 or more. */
  uint32_t reserved; /**< 0. */
} pkv_runner;

/* ---- Structs that may grow --------------------------------------------------------------------
 *
 * A config, stats or view struct begins with struct_size. Its _init function takes sizeof(the struct)
 * as the caller compiled it, writes no more than that, and sets struct_size and the defaults. The
 * library takes a smaller struct of an older header (what is missing has its default) and a larger
 * one of a newer header if the part it does not know is zero; anything else is PKV_INVALID_ARGUMENT.
 * For structs the library fills, set struct_size (or call _init): no more than that is written.
 */

#ifdef __cplusplus
}
#endif
#endif
