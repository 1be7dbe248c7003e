/* pagedkv: statuses, element types, tensors and hooks, which every other header uses. */
#ifndef PAGEDKV_COMMON_H
#define PAGEDKV_COMMON_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__) && !defined(_WIN32)
#define PKV_API __attribute__((visibility("default")))
#else
#define PKV_API
#endif

/* In C++ enums are ints, so that they may hold enumerators of a newer library. */
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
 * Every function that can fail returns a pkv_status, and writes its results through pointers. A
 * call that fails changes nothing and writes nothing, unless its description says otherwise. (A
 * call that needs blocks evicts cached ones, ends pins and frees blocks that left a window only if
 * it can then have all it needs. If other threads take them first, it fails, and they stay gone.)
 *
 * The hundreds digit of a status is its family:
 *
 *   1  the call is wrong: correct it
 *   2  not now: something has run out, is in use or is suspended; change that, or try again later
 *   3  the data cannot be used
 *   4  the system refused
 *   5  a bug in the library
 *
 * Values never change and are never reused. Later versions may return new statuses, even from
 * existing functions: treat an unknown one as its family. Other enums that the library returns may
 * grow as well: ignore an unknown value unless its text says otherwise.
 */

/** The result of a call: PKV_OK, or why it failed. */
typedef enum pkv_status PKV_ENUM {
  PKV_OK = 0, /**< The call succeeded. */

  /**
   * NULL, an unknown enum or flag, a bad struct_size; or a call that the state of its
   * object does not allow, such as a second pkv_batch_accept for a session.
   */
  PKV_INVALID_ARGUMENT = 100,
  PKV_OUT_OF_RANGE = 101,     /**< An index, layer, position or block id out of its range. */
  PKV_OVERFLOW = 102,         /**< A size or an index does not fit into its type. */
  PKV_BUFFER_TOO_SMALL = 103, /**< An array is too short; its count output is the number needed. */
  PKV_STALE_HANDLE = 104,     /**< The handle was closed or never valid. */
  PKV_NOT_HELD = 105,         /**< A block without references, or twice in a list to release. */
  PKV_WRONG_CACHE = 106,      /**< A session, batch or snapshot of another cache. */
  PKV_REENTRANT = 107,        /**< A call from inside one of the caller's hooks. */
  PKV_WRONG_PROCESS = 108,    /**< A handle inherited by fork(): the child may only close it. */
  PKV_UNSUPPORTED = 109,      /**< Not in this build, on this CPU or in this combination. */
  PKV_INCOMPLETE = 110,       /**< A layer was not yet written in this step. */
  /** The request needs more than the cache or pool has, or than a limit allows: refuse it. */
  PKV_TOO_LARGE = 111,
  /** Each session fits, but the batch as a whole never does: begin with fewer sessions. */
  PKV_BATCH_TOO_LARGE = 112,

  PKV_OUT_OF_BLOCKS = 200, /**< Too few free blocks: pkv_last_error_details. */
  PKV_OUT_OF_MEMORY = 201, /**< The allocator returned no memory. */
  /** A count is at its limit: open objects or references to a block. */
  PKV_LIMIT_REACHED = 202,
  PKV_BUSY = 203,      /**< Another call or an open batch uses the object. */
  PKV_SUSPENDED = 204, /**< The session is suspended: resume it first. */

  PKV_CORRUPT = 300,       /**< Data is damaged or cut short. */
  PKV_WRONG_VERSION = 301, /**< A file has a format version that this library does not know. */
  PKV_MISMATCH = 302,      /**< Shapes, dtypes or the fingerprint of a file are not the cache's. */
  /** The key is not the file's: a different one, none, or one for a file without a key. */
  PKV_WRONG_KEY = 303,

  PKV_IO = 400, /**< The system or a server refused: see the error message. */

  PKV_INTERNAL = 500 /**< An invariant of the library is broken: please report it. */
} pkv_status;

/* Enums have the size of an int. In C, -fshort-enums would make them smaller. */
#if !defined(__cplusplus) && defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L
_Static_assert(sizeof(pkv_status) == sizeof(int), "the enums of pagedkv need -fno-short-enums");
#endif

/**
 * Returns the name of a status, such as "PKV_OUT_OF_BLOCKS". Any thread.
 *
 * @param status  The status; for an unknown value the name is "PKV_UNKNOWN_STATUS".
 *
 * Static storage. Since 1.0.
 */
PKV_API const char* pkv_status_name(pkv_status status);

/**
 * Returns the error message of the last failed call on this thread: one sentence, with the numbers,
 * such as "begin needs 5 blocks in group 0, 3 of 8 are free (2 short over all groups); ...".
 *
 * Never NULL; "" if no call failed yet. Calls that succeed do not change it. The text belongs to
 * the library and stays valid until the next failing call on the same thread, or the end of the
 * thread. Since 1.0.
 */
PKV_API const char* pkv_last_error(void);

/** The parts of an error that a program can act on. */
typedef struct pkv_error_details {
  pkv_status status; /**< The status that the call returned; PKV_OK if no call failed yet. */
  /** OUT_OF_BLOCKS: the first layer group that lacks blocks. UINT32_MAX: none, or not known. */
  uint32_t group;
  /**
   * The index of the list entry that the call refused: a session, block, item or token. UINT64_MAX:
   * none.
   */
  uint64_t index;
  /**
   * OUT_OF_BLOCKS: how many blocks are missing, summed over groups. Free blocks of one group do not
   * help another; with groups_share_memory, free pages are given to the groups in the order of the
   * config. 0: none, or not known. 1 can also mean that other threads are moving blocks that would
   * be enough: try again.
   */
  uint64_t blocks_short;
  int32_t system_error; /**< IO: the errno, if there is one. Otherwise 0. */
  uint32_t reserved;    /**< 0. */
} pkv_error_details;

/**
 * Returns the details of the last failed call on this thread.
 *
 * Never NULL. The struct belongs to the library, changes when the next call fails on the same
 * thread, and lives as long as the thread. Newer libraries may add fields at its end. Since 1.0.
 */
PKV_API const pkv_error_details* pkv_last_error_details(void);

/* ---- Element types and tensors --------------------------------------------------------------*/

/**
 * Element types, in native byte order.
 *
 * Rows that a caller passes are F32, F16 or BF16. Keys and values can be stored in any type up to
 * FP8_E5M2; the last two are only read, from a caller's memory (pkv_kv_view). Conversions round to
 * nearest even.
 *
 * INT8 has one scale per token and KV head. INT4 has one per 32 dims of each token and KV head (the
 * last one may have fewer dims). Scales are computed when a row is stored, from only that row, so
 * rows stored earlier never change. If m is the largest magnitude among the elements that share a
 * scale, the error of each is at most m / 254 (INT8) or m / 13.8 (INT4). If one of these elements
 * is NaN or infinite, all become NaN. If m is below 1e-30, all become 0.
 */
typedef enum pkv_dtype PKV_ENUM {
  PKV_F32 = 1,  /**< IEEE binary32. */
  PKV_F16 = 2,  /**< IEEE binary16. */
  PKV_BF16 = 3, /**< The upper half of binary32. */
  /** An element is scale * n, with n a signed byte and one fp32 scale per token and KV head. */
  PKV_INT8 = 4,
  /** An element is scale * n, with n a signed nibble and one bf16 scale per 32 dims. */
  PKV_INT4 = 5,
  /** OCP E4M3 without a scale, up to 448; larger numbers become 448, infinities NaN. */
  PKV_FP8_E4M3 = 6,
  /** OCP E5M2 without a scale, up to 57344; larger finite numbers become 57344, infinities stay. */
  PKV_FP8_E5M2 = 7,
  /**
   * ggml's block_q8_0, for 32 dims: an f16 scale and 32 signed bytes n; 34 bytes. An element is
   * scale * n.
   */
  PKV_Q8_0 = 8,
  /**
   * ggml's block_q4_0, for 32 dims: an f16 scale and 16 bytes; 18 bytes. The lower half of byte i
   * is n of dim i, the upper half that of dim i + 16. An element is scale * (n - 8).
   */
  PKV_Q4_0 = 9
} pkv_dtype;

/**
 * Rows in the caller's memory: element (row, head, dim) is at data[row * row_stride + head *
 * head_stride + dim].
 *
 * Strides are in elements. 0 means dense, as in [rows][heads][dim]. 0 is never a broadcast, unlike
 * in PyTorch and unlike in pkv_mask. Negative strides are refused. If head_stride is not dense,
 * row_stride must be set as well. The axes may be nested in any order, but elements must not
 * overlap: each stride must be at least the extent of the axes nested inside it. Any alignment
 * works. This struct will never grow.
 *
 * Functions that take rows of several sequences also take padded batches: row i of sequence s
 * begins at element s * batch_stride + i * row_stride. In other functions batch_stride must be 0.
 * Examples:
 *
 *   [batch][n][heads][dim]   batch_stride n * heads * dim, the other strides dense;
 *   [batch][heads][n][dim]   batch_stride heads * n * dim, row_stride dim, head_stride n * dim;
 *   [n][batch][heads][dim]   batch_stride heads * dim, row_stride batch * heads * dim.
 */
typedef struct pkv_tensor {
  void* data;           /**< The caller's memory; only read if the parameter is [in]. */
  pkv_dtype dtype;      /**< F32, F16 or BF16. */
  uint32_t reserved;    /**< Must be 0. */
  int64_t row_stride;   /**< Elements from row to row; 0: heads * dim. */
  int64_t head_stride;  /**< Elements from head to head; 0: dim. */
  int64_t batch_stride; /**< Elements from sequence to sequence; 0: each follows the previous. */
  /**
   * The bytes from data to the end of the memory. If it is set, rows that reach further are refused
   * (INVALID_ARGUMENT). 0: not known.
   */
  uint64_t bytes;
} pkv_tensor;

/* ---- Hooks ----------------------------------------------------------------------------------
 *
 * A hook is a function of the caller that the library calls. It must not throw or longjmp, nor wait
 * for another thread that calls the library. It must not call the library (PKV_REENTRANT), except
 * for functions that return no status, and pkv_store_close. A store may call the functions of
 * another pkv_store. A cache with a store has two threads of its own (store.h). Which threads call
 * which hook:
 *
 *   allocator  the thread that calls the library, and the two threads of a store
 *   logger     threads inside a call on the cache, and the two threads of a store
 *   clock      threads that call a cache with a prefix index, and the two threads of a store
 *   store      its two threads; close: the thread in pkv_cache_destroy or pkv_store_close
 *   runner     run: the thread that calls the library. Its tasks call no hook.
 *   stream     read and write: the thread that saves or loads
 *   block_io   read: the store's writing thread, and a thread that saves; write: the store's
 *              reading thread, and a thread that loads
 *
 * So hooks must be thread-safe. Hooks are called one at a time only if the cache has no store and
 * is used by one thread at a time.
 */

/**
 * Memory supplied by the caller.
 *
 * If alloc returns memory with the wrong alignment, the library frees it and returns
 * PKV_OUT_OF_MEMORY.
 */
typedef struct pkv_allocator {
  /** Returns size bytes at a multiple of alignment (a power of two), or NULL: PKV_OUT_OF_MEMORY. */
  void* (*alloc)(void* user, size_t size, size_t alignment);
  /** Frees memory; size and alignment are those passed to alloc. */
  void (*free)(void* user, void* memory, size_t size, size_t alignment);
  void* user; /**< Passed to both functions. */
} pkv_allocator;

/** The severity of a log message. */
typedef enum pkv_log_level PKV_ENUM {
  PKV_LOG_WARNING = 1, /**< Something is wrong, or slower than it could be. */
  PKV_LOG_INFO = 2     /**< Something normal: evictions begin, a store works again. */
} pkv_log_level;

/** Receives the library's log messages. The library itself never prints. */
typedef struct pkv_logger {
  /** Receives one line without a newline; message is valid only during the call. */
  void (*log)(void* user, pkv_log_level level, const char* message);
  void* user; /**< Passed to log. */
} pkv_logger;

/**
 * The clock by which durations of hints end (hint.h), for tests and simulations that decide what
 * time it is.
 */
typedef struct pkv_clock {
  /**
   * Returns the milliseconds since some moment. If it goes back, the latest time that it returned
   * counts. UINT64_MAX ends all pins, even those without a duration.
   */
  uint64_t (*now_ms)(void* user);
  void* user; /**< Passed to now_ms. */
} pkv_clock;

/**
 * Threads supplied by the caller, used instead of the library's own. Results do not depend on which
 * thread runs a task.
 *
 * If run skips a task, calls one twice (the second call does nothing), or passes an i or a worker
 * that is too large, the library call that used it returns PKV_INVALID_ARGUMENT. Its outputs are
 * then undefined. A batch stays open, but the layer of a failed write must be written again.
 */
typedef struct pkv_runner {
  /**
   * Calls task(context, i, worker) once for every i in [0, n), on any threads and in any order, and
   * returns when all calls have returned. worker must be below threads, and calls of the
   * same run that overlap must have different workers. task does not throw.
   */
  void (*run)(void* user, size_t n, void (*task)(void* context, size_t i, uint32_t worker),
              void* context);
  void* user;        /**< Passed to run. */
  uint32_t threads;  /**< The number of workers; 1 or more. */
  uint32_t reserved; /**< Must be 0. */
} pkv_runner;

/**
 * Functions that copy the bytes of blocks which only the engine can read, for example on a device:
 * those of opaque layer groups (cache.h). They are hooks. A call copies n different blocks of one
 * group, and returns when the copy is complete. The library holds no lock in it, and steps do not
 * wait for it, except as pkv_batch_begin says.
 *
 * The library does not synchronise these copies with a device: read must wait until the work of all
 * committed steps is complete, and write until kernels started earlier are. The simplest way is to
 * record an event in each step, and let both wait for the latest one.
 */
typedef struct pkv_block_io {
  uint32_t struct_size; /**< Must be sizeof(pkv_block_io). */
  uint32_t reserved;    /**< Must be 0. */
  void* user;           /**< Passed to both functions. */
  /**
   * Copies blocks to memory. Returns 0 or a negative errno. `to` is [n][layers][layer_bytes] bytes
   * of the cache's allocator, all 0; only its start is aligned (64 bytes). Copy only the first
   * tokens[i] tokens of block i, or its state: the rest may belong to other sequences, and all that
   * is copied is written to files and stores.
   */
  int32_t (*read)(void* user, uint32_t group, size_t n, const uint32_t* blocks,
                  const uint32_t* tokens, void* to);
  /** Copies n such blocks from memory into whole blocks. Returns 0 or a negative errno. */
  int32_t (*write)(void* user, uint32_t group, size_t n, const uint32_t* blocks, const void* from);
} pkv_block_io;

/* ---- Durability -----------------------------------------------------------------------------*/

/** Whether a call that writes files waits until they are on disk (fsync). */
typedef enum pkv_durability PKV_ENUM {
  PKV_DURABILITY_DEFAULT = 0, /**< ON for pkv_file_save, OFF for a directory as a store. */
  PKV_DURABILITY_ON = 1,      /**< It waits. */
  /**
   * It does not wait: a power failure may destroy the files that were written last, and those that
   * they replace. (A killed process destroys neither.)
   */
  PKV_DURABILITY_OFF = 2
} pkv_durability;

/* ---- Structs that may grow --------------------------------------------------------------------
 *
 * Structs of the caller that may grow begin with struct_size; other structs of the caller never
 * grow. (The library's own pkv_error_details may.) The caller sets it to the sizeof of the struct,
 * even when the library fills the struct. A field with a default may be 0, which means the default;
 * the other fields must be set. A field that says yes or no is a uint32_t, 1 or 0.
 *
 *   pkv_cache_config config = {.struct_size = sizeof config};
 *
 * With any other size a function returns PKV_INVALID_ARGUMENT, and reads and writes nothing. Since
 * version 1.0, fields are only added at the end, and a library accepts the struct sizes of all
 * headers from 1.0 to its own; fields that older headers lack have their defaults. It refuses the
 * larger structs of newer headers, as it would ignore their new fields. So run a program with the
 * library of its headers, or with a newer one.
 */

#ifdef __cplusplus
}
#endif
#endif
