/* pagedkv: stores, the tier behind a cache's memory. What sessions leave in the prefix index when they end or are suspended is written to a store, and comes
 * back when a later text begins alike: after its memory was needed for others, after a restart, on another machine. A directory of files is
 * one store, Redis another (pagedkv/redis.h), and any table of functions can be one.
 *
 * Blocks are stored one by one under content keys: BLAKE2b of the model's shape, dtypes and fingerprint, the salt, and all tokens up to the end of
 * the block. So caches that differ in any of these share nothing, and those that agree share everything, whoever computed it.
 * With a key, items are encrypted and authenticated by AES-256-GCM; a store then sees names that
 * tell nothing, sizes, and which items are used when. What comes back is checked (name, tokens,
 * checksum or tag); what is not as it was written is a miss, and counted.
 *
 * Threads: a cache with a store has two threads of its own that call it, one that writes and one that reads, each from its first use on. The one that writes has a low priority, and works a tenth of the time
 * while steps end and nobody waits for pkv_store_flush. No decode step waits for them or for
 * the store: a store that is slow, full or gone costs hits, never an error. Every function may be called from any thread.
 */
#ifndef PAGEDKV_STORE_H
#define PAGEDKV_STORE_H

#include <pagedkv/session.h>

#ifdef __cplusplus
extern "C" {
#endif

/** One block of one layer group. This struct is pinned: it will not grow. */
typedef struct pkv_store_item {
  unsigned char key[32];
  void* data;    /**< put: `size` bytes to store, which are only read. get: room for them. probe and drop: NULL. */
  uint64_t size; /**< get and probe set it: bytes there are under the key; 0 where there is nothing. get copies as many as there is room for. */
} pkv_store_item;

/**
 * A store: functions that a cache calls, one call at a time from each of its two threads (put from one, the others from both). They return how many of the n items they stored, found
 * or dropped, or a negative errno where the store cannot be reached; then the cache leaves it alone for a while. They are hooks: see common.h.
 */
typedef struct pkv_store {
  uint32_t struct_size;
  uint32_t reserved;  /**< 0. */
  void* user;
  /** Stores items; one that is there already may be left as it is. What is stored may be lost at any time. */
  int64_t (*put)(void* user, size_t n, const pkv_store_item* items);
  int64_t (*get)(void* user, size_t n, pkv_store_item* items);
  /** As get, without the bytes. */
  int64_t (*probe)(void* user, size_t n, pkv_store_item* items);
  /** Forgets items: what they held was not what had been put. */
  int64_t (*drop)(void* user, size_t n, const pkv_store_item* items);
  /** The last call. */
  void (*close)(void* user);
} pkv_store;

/** The tier of a cache: give it to pkv_cache_config.store. Storage PAGED with a prefix index has one; others are refused. */
typedef struct pkv_store_config {
  uint32_t struct_size;
  uint32_t wait_ms;         /**< How long pkv_session_match_prefix and pkv_session_resume wait for what the store has of their text. Default 0: they take what is in memory. */
  const pkv_store* store;   /**< Copied. The cache closes it in pkv_cache_destroy; if pkv_cache_create fails it is the caller's still. */
  const void* fingerprint;  /**< Names the model (a hash of its weights, say): up to 64 bytes. */
  uint64_t fingerprint_size;
  const void* key;          /**< 16 to 64 secret bytes: what the store has is encrypted and
                                 authenticated with them. NULL: checksums. */
  uint64_t key_size;        /**< Its bytes. */
  uint64_t buffer_bytes;    /**< Memory of each of the two threads for bytes on their way; 0: 4 MiB. At least one block, at most as many as the cache has. */
  uint64_t queue_blocks;    /**< What ends while so many block positions wait to be written is not written. 0: a quarter of the blocks. */
} pkv_store_config;

/** Fills *config with defaults. Statuses: INVALID_ARGUMENT. Since 0.1. */
PKV_API pkv_status pkv_store_config_init(pkv_store_config* config, size_t struct_size);

/**
 * Begins to read what the store has of a text into the prefix index, beyond what is in memory, and returns: for a request that waits for its turn. A later
 * pkv_session_match_prefix finds it. Only blocks that are free or evictable are taken. 64 texts wait at most; then the oldest
 * is given up. Statuses: UNSUPPORTED (the cache has no store), TOO_LARGE (salt). Since 0.1.
 */
PKV_API pkv_status pkv_store_prefetch(pkv_cache cache, const void* salt, size_t salt_size, size_t n, const int32_t* tokens);

/** The same for what a suspended session is going to compute again. One that is not suspended has nothing to be read. Statuses: as above, BUSY. Since 0.1. */
PKV_API pkv_status pkv_store_prefetch_session(pkv_session session);

/**
 * Waits until no prefetch of the text, or of one with which it agrees as far as both go, is under
 * way that was not given up, at most timeout_ms. *cached: its tokens that are in memory now, in
 * whole blocks. Statuses: UNSUPPORTED, TOO_LARGE (salt). Since 0.1.
 */
PKV_API pkv_status pkv_store_wait(pkv_cache cache, const void* salt, size_t salt_size, size_t n, const int32_t* tokens, uint32_t timeout_ms,
                                  uint64_t* cached);

/** Gives up the prefetches that pkv_store_wait would wait for. Statuses: as above. Since 0.1. */
PKV_API pkv_status pkv_store_cancel(pkv_cache cache, const void* salt, size_t salt_size, size_t n, const int32_t* tokens);

/**
 * Waits until what ended before is written, at most timeout_ms; *queued: block positions that still wait. pkv_cache_destroy does the same without a
 * limit, for as long as the store takes what it is given. Statuses: UNSUPPORTED. Since 0.1.
 */
PKV_API pkv_status pkv_store_flush(pkv_cache cache, uint32_t timeout_ms, uint64_t* queued);

/** Items are blocks of one layer group. */
typedef struct pkv_store_stats {
  uint32_t struct_size;
  uint32_t down;            /**< 1: the store failed lately and is left alone for a while. */
  uint64_t queued_blocks;   /**< Block positions that wait to be written. */
  uint64_t dropped_blocks;  /**< Block positions not written: the queue was full, their memory was needed, or the store failed. */
  uint64_t written_items;
  uint64_t written_bytes;
  uint64_t known_items;     /**< That the store had already. */
  uint64_t asked_items;     /**< Looked for in the store. */
  uint64_t read_items;
  uint64_t read_bytes;
  uint64_t corrupt_items;   /**< That were not as they had been put: misses. */
  uint64_t failures;        /**< Calls that the store failed. */
} pkv_store_stats;

/** What the tier has done so far. Statuses: UNSUPPORTED. Since 0.1. */
PKV_API pkv_status pkv_store_get_stats(pkv_cache cache, pkv_store_stats* out);

/**
 * A directory of files, one for each item: survives restarts, and several processes of one user may
 * use it at once. The files belong to that user, and nobody else may read them (mode 0600).
 *
 * The directory must belong to the effective user, and neither its group nor others may write to
 * it, sticky or not; the same holds for the 256 folders that the store makes in it. A symbolic link
 * is not followed, neither to the directory nor inside it. Only what the store itself makes is
 * read, counted and deleted: in folders named 00 to ff, regular files of that user that are named
 * by 62 hexadecimal digits and ".kv", and temporary files (see file.h). Whatever else is there is
 * left alone; where it takes the place of a folder or a file of the store, what belongs there
 * cannot be stored.
 */
typedef struct pkv_directory_config {
  uint32_t struct_size;
  uint32_t durable;        /**< 1: put returns when its files are on disk. Default 0: after a power cut some are missing or empty, which are misses. */
  /** Made if it is not there, with mode 0700. In a directory of somebody else's, name a new one. */
  const char* path;
  /** Where the files are larger in all, those not used for longest are deleted; 0: no limit.
      Temporary files that are being written count; those that killed processes left go first. */
  uint64_t capacity_bytes;
} pkv_directory_config;

/** Fills *config with defaults. Statuses: INVALID_ARGUMENT. Since 0.1. */
PKV_API pkv_status pkv_directory_config_init(pkv_directory_config* config, size_t struct_size);

/**
 * Opens a directory as a store; out->close closes it. Deletes what killed processes left unfinished
 * in it. Statuses: IO (the errno in its sentence is EPERM where the directory is somebody else's or
 * others may write to it, ELOOP for a symbolic link). Since 0.1.
 */
PKV_API pkv_status pkv_store_open_directory(const pkv_directory_config* config, pkv_store* out);

#ifdef __cplusplus
}
#endif
#endif
