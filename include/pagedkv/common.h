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

/* Every enum has int behind it, so that C++ may hold a value that its header does not know yet. */
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
 * Every function that can fail returns a pkv_status. Results come through pointers, which are
 * untouched unless the function returns PKV_OK. A call that fails changes nothing.
 *
 * The hundreds digit of a status is its family: 1 misuse (correct the call), 2 exhaustion (free
 * something, then try again; the two TOO_LARGE say that this cannot help), 3 corruption (the data
 * is bad), 4 system (the sentence has the errno), 5 a bug in the library. Values are pinned: none
 * changes, and none is used again for something else.
 */

/** How a call ended: PKV_OK, or why it failed. */
typedef enum pkv_status PKV_ENUM {
  PKV_OK = 0, /**< The call has done what it was asked for. */

  PKV_INVALID_ARGUMENT = 100, /**< NULL, an unknown enum or flag, a bad struct_size, a zero size. */
  PKV_OUT_OF_RANGE = 101,     /**< An index, layer, token position or block id beyond the end. */
  PKV_OVERFLOW = 102,         /**< Sizes whose product or sum no process could hold: 2^56 bytes. */
  PKV_BUFFER_TOO_SMALL = 103, /**< The count that is needed is in the count pointer. */
  PKV_STALE_HANDLE = 104,     /**< The handle or block was closed, released or never given out. */
  PKV_DOUBLE_FREE = 105,      /**< A block was released more often than it was held. */
  PKV_WRONG_CACHE = 106,      /**< A session, batch or snapshot of another cache. */
  PKV_BUSY = 107,             /**< Another call or an open batch uses the object. */
  PKV_REENTRANT = 108,        /**< A call from inside one of the caller's own hooks. */
  PKV_FORKED = 109,           /**< A handle inherited by fork(): the child may only close it. */
  PKV_BLOCK_SEALED = 110,     /**< A write to a block that is sealed. */
  PKV_UNSUPPORTED = 111,      /**< Not available for this storage kind, layout or processor. */
  PKV_INCOMPLETE = 112,       /**< A layer was not written yet in this step. */
  PKV_SUSPENDED = 113,        /**< The session is suspended: resume it first. */

  PKV_OUT_OF_BLOCKS = 200, /**< Not enough free blocks; the sentence says how many are short. */
  PKV_TOO_LARGE = 201,     /**< More than the whole cache could ever hold: refuse the request. */
  PKV_NO_MEMORY = 202,     /**< The allocator refused. */
  PKV_REF_LIMIT = 203,     /**< The reference count of a block is at its limit. */
  PKV_BLOCK_FULL = 204,    /**< Every slot of the block is taken. */
  /** Each session fits, but never all of the batch at once: begin fewer of them at a time. */
  PKV_BATCH_TOO_LARGE = 205,

  PKV_CORRUPT = 300,  /**< Bytes are damaged, cut short, or authenticated with another key. */
  PKV_VERSION = 301,  /**< A file has a format that this library does not know. */
  PKV_MISMATCH = 302, /**< A file has shapes, dtypes or a fingerprint other than the cache's. */

  PKV_IO = 400, /**< The operating system or a server refused; the sentence has its reason. */

  PKV_INTERNAL = 500 /**< An invariant of the library does not hold: please report it. */
} pkv_status;

/**
 * Gives the name of a status, "PKV_OUT_OF_BLOCKS". Any thread.
 *
 * @param status  The status; for an unknown value the name is "PKV_UNKNOWN_STATUS".
 *
 * Static storage. Since 0.1.
 */
PKV_API const char* pkv_status_string(pkv_status status);

/**
 * Tells in one sentence, with its numbers, why the last failed call on this thread failed: "begin
 * needs 12 blocks in group 0, 3 are free (9 short)".
 *
 * Never NULL; "" when nothing failed yet. Calls that succeed leave the sentence alone. The text
 * belongs to the library and stays valid until the next failing call on the same thread. Since 0.1.
 */
PKV_API const char* pkv_last_error(void);

/* ---- Element types and tensors --------------------------------------------------------------*/

/**
 * Element types, in native byte order.
 *
 * F32, F16 and BF16 are the types of the rows that a caller passes and of stored keys and values;
 * the others are only stored. Conversions round to nearest even.
 *
 * INT8 and INT4 get their scale when a row is stored, from that row alone: what was stored before
 * never changes. With m the largest magnitude of a row (INT8) or of 32 dims (INT4), elements are
 * off by at most m / 254 (INT8) or m / 13.8 (INT4). A NaN or an infinity among them makes all of
 * them NaN. Where m is below 1e-30 they are stored as 0.
 */
typedef enum pkv_dtype PKV_ENUM {
  PKV_F32 = 1,  /**< IEEE binary32. */
  PKV_F16 = 2,  /**< IEEE binary16. */
  PKV_BF16 = 3, /**< The upper half of binary32. */
  /**
   * scale * n: a byte n (two's complement) per element, an fp32 scale per row (token and KV head).
   */
  PKV_INT8 = 4,
  /** scale * n: a nibble n (two's complement) per element, a bf16 scale per 32 dims. */
  PKV_INT4 = 5,
  /** OCP E4M3 without a scale, up to 448; larger numbers become 448, infinities NaN. */
  PKV_FP8_E4M3 = 6,
  /** OCP E5M2 without a scale, up to 57344; larger finite numbers become that, infinities stay. */
  PKV_FP8_E5M2 = 7
} pkv_dtype;

/**
 * Rows in the caller's memory: element (row, head, dim) is at data[row * row_stride + head *
 * head_stride + dim].
 *
 * Strides count elements; 0 means dense, [rows][heads][dim]. Any alignment works. This struct is
 * pinned: it will not grow.
 *
 * Functions that take rows of several sequences take padded batches as well (in others batch_rows
 * is 0). batch_rows is then the stride from the first row of a sequence to that of the next,
 * counted in rows: row i of sequence s is row s * batch_rows + i of the tensor.
 *
 *   [batch][n][heads][dim]   batch_rows n, the other strides dense;
 *   [batch][heads][n][dim]   batch_rows heads * n, row_stride dim, head_stride n * dim.
 */
typedef struct pkv_tensor {
  void* data;          /**< The caller's memory; only read where the parameter is [in]. */
  pkv_dtype dtype;     /**< F32, F16 or BF16. */
  uint32_t batch_rows; /**< Rows per sequence of a padded batch; 0: they follow each other. */
  int64_t row_stride;  /**< Elements from row to row; 0, or at least what one row holds. */
  int64_t head_stride; /**< Elements from head to head; 0, or at least dim. */
} pkv_tensor;

/* ---- Hooks ----------------------------------------------------------------------------------
 *
 * A hook is a function of the caller that the library calls. It must not call the library back
 * (PKV_REENTRANT) and must not throw or longjmp. Hooks are called by these threads:
 *
 *   allocator  the thread that calls the library. A cache with a store has two threads of its own
 *              (store.h), which allocate and free as well: its allocator must work on any thread,
 *              and for several at once.
 *   store      those two threads; close: the thread in pkv_cache_destroy.
 *   logger     the thread in pkv_cache_create, those that take blocks or suspend a session, and
 *              the two threads of a store: it must work on any thread, and for several at once.
 *   runner     run: the thread that calls the library. Its tasks call no hook.
 *   stream     read and write: the thread that saves or loads.
 *
 * Two threads that use one cache at once also call its allocator and its runner at once.
 */

/**
 * Memory supplied by the caller.
 *
 * Memory that is not aligned as asked goes back to free at once, and the call returns
 * PKV_NO_MEMORY.
 */
typedef struct pkv_allocator {
  /** Returns size bytes at a multiple of alignment (a power of two), or NULL: PKV_NO_MEMORY. */
  void* (*alloc)(void* user, size_t size, size_t alignment);
  /** Takes memory back; size and alignment are those of its alloc. */
  void (*free)(void* user, void* memory, size_t size, size_t alignment);
  void* user; /**< Passed to both functions. */
} pkv_allocator;

/** How serious a line of the log is. */
typedef enum pkv_log_level PKV_ENUM {
  PKV_LOG_WARNING = 1, /**< Something is wrong, or slower than it could be. */
  PKV_LOG_INFO = 2     /**< Something normal: evictions begin, a store is back. */
} pkv_log_level;

/** Receives what the library has to say. The library itself never prints. */
typedef struct pkv_logger {
  /** Takes one line without a newline; the message is valid during the call. */
  void (*log)(void* user, pkv_log_level level, const char* message);
  void* user; /**< Passed to log. */
} pkv_logger;

/**
 * Threads supplied by the caller, in the place of the library's own. Results do not depend on how
 * tasks are spread over them.
 *
 * A runner that leaves a task out, asks for one twice (it runs once) or for one that does not exist
 * makes the call that used it return PKV_INVALID_ARGUMENT. What the call was to write is undefined
 * then, and a step in flight is as far as it was before.
 */
typedef struct pkv_runner {
  /**
   * Calls task(context, i, worker) once for every i in [0, n), on any threads and in any order, and
   * returns when all of them have returned. worker is below threads, and no two calls at once have
   * the same worker. task does not throw.
   */
  void (*run)(void* user, size_t n, void (*task)(void* context, size_t i, uint32_t worker),
              void* context);
  void* user;        /**< Passed to run. */
  uint32_t threads;  /**< How many workers there are; 1 or more. */
  uint32_t reserved; /**< 0. */
} pkv_runner;

/* ---- Structs that may grow --------------------------------------------------------------------
 *
 * A config, stats or view struct begins with struct_size, which the caller sets to the sizeof of
 * the struct, whether the library reads the struct or fills it. Every other field may be 0, which
 * stands for its default:
 *
 *   pkv_cache_config config = {.struct_size = sizeof config};
 *
 * Any other size is PKV_INVALID_ARGUMENT, and nothing is read or written. From version 1.0 on,
 * fields are only added at the end: a library takes the sizes of all headers since 1.0 up to its
 * own, and the fields that older headers lack have their defaults. A larger size is that of newer
 * headers or a mistake, and is refused, since fields that the caller has set would be ignored. So
 * run a program with the library of its headers, or a newer one.
 */

#ifdef __cplusplus
}
#endif
#endif
