/* pagedkv: stores, the tier behind a cache's memory. What sessions leave in the prefix index when
 * they end or are suspended is written to a store, and comes back when a later text begins alike:
 * after its memory was needed for others, after a restart, on another machine. A directory of files
 * is one store, Redis another (pagedkv/redis.h), and any table of functions can be one.
 *
 * Blocks are stored one by one under content keys: BLAKE2b of the model's shape, dtypes and
 * fingerprint, the salt, and all tokens up to the end of the block. So caches that differ in any of
 * these share nothing, and those that agree share everything, whoever computed it. With a key,
 * items are encrypted and authenticated by AES-256-GCM; a store then sees names that tell nothing,
 * sizes, and which items are used when. What comes back is checked (name, tokens, checksum or tag).
 * What is not as it was written is a miss, and counted.
 *
 * Threads: every function may be called from any thread. A cache with a store has two threads of
 * its own that call the store, one that writes and one that reads, each from its first use on. The
 * one that writes has a low priority, and works a tenth of the time while steps end and nobody
 * waits for pkv_store_flush. No decode step waits for them or for the store: a store that is slow,
 * full or gone costs hits, never an error.
 */
#ifndef PAGEDKV_STORE_H
#define PAGEDKV_STORE_H

#include <pagedkv/session.h>

#ifdef __cplusplus
extern "C" {
#endif

/** One block of one layer group, as a store keeps it. This struct is pinned: it will not grow. */
typedef struct pkv_store_item {
  unsigned char key[32]; /**< Its name. */
  /** put: size bytes to store, only read. get: room for size bytes. probe and drop: NULL. */
  void* data;
  /**
   * get and probe set it to the bytes under the key, 0 for none; get copies as many as have room.
   */
  uint64_t size;
} pkv_store_item;

/**
 * A store: functions that a cache calls, one call at a time from each of its two threads (put from
 * one, the others from both). They are hooks: see common.h.
 *
 * put, get, probe and drop return how many of the n items they stored, found or dropped, or a
 * negative errno where the store cannot be reached; then the cache leaves it alone for a while.
 */
typedef struct pkv_store {
  uint32_t struct_size; /**< sizeof(pkv_store): the caller sets it. */
  uint32_t reserved;    /**< 0. */
  void* user;           /**< Passed to all functions. */
  /**
   * Stores items; one that is there already may be left as it is. Items may be lost at any time.
   */
  int64_t (*put)(void* user, size_t n, const pkv_store_item* items);
  /** Reads items. */
  int64_t (*get)(void* user, size_t n, pkv_store_item* items);
  /** Sets the sizes of items as get does, without their bytes. */
  int64_t (*probe)(void* user, size_t n, pkv_store_item* items);
  /** Forgets items: what they held was not what had been put. */
  int64_t (*drop)(void* user, size_t n, const pkv_store_item* items);
  /** Closes the store; no call follows. */
  void (*close)(void* user);
} pkv_store;

/**
 * The tier of a cache: give it to pkv_cache_config.store. Only storage PAGED with a prefix index
 * has one.
 */
typedef struct pkv_store_config {
  uint32_t struct_size; /**< sizeof(pkv_store_config): the caller sets it. */
  /**
   * How long pkv_session_match_prefix and pkv_session_resume wait for what the store has of their
   * text. Default 0: they take what is in memory.
   */
  uint32_t wait_ms;
  /** Copied. pkv_cache_destroy closes it; if pkv_cache_create fails, it is still the caller's. */
  const pkv_store* store;
  const void* fingerprint;   /**< Names the model (a hash of its weights, say). NULL: none. */
  uint64_t fingerprint_size; /**< Its bytes, up to 64. */
  /** Secret bytes that encrypt and authenticate what is stored. NULL: checksums only. */
  const void* key;
  uint64_t key_size; /**< Its bytes, 16 to 64. */
  /**
   * Memory of each of the two threads for bytes on their way; 0 (default): 4 MiB. At least one
   * block, at most as many as the cache has.
   */
  uint64_t buffer_bytes;
  /**
   * The most block positions that wait to be written; what ends while so many wait is not written.
   * 0 (default): a quarter of the blocks.
   */
  uint64_t queue_blocks;
} pkv_store_config;

/**
 * Begins to read what the store has of a text into the prefix index, beyond what is in memory, and
 * returns. Call it when a request begins to wait for its turn; a later pkv_session_match_prefix
 * finds what has come.
 *
 * Only blocks that are free or evictable are taken. At most 64 texts wait; then the oldest is given
 * up.
 *
 * @param     cache      The cache.
 * @param[in] salt       The salt. NULL with size 0: none.
 * @param     salt_size  Bytes of the salt.
 * @param     n          How many tokens the text has.
 * @param[in] tokens     [n]: the ids of the text.
 *
 * Statuses: UNSUPPORTED (the cache has no store), TOO_LARGE (salt). Since 0.1.
 */
PKV_API pkv_status pkv_store_prefetch(pkv_cache cache, const void* salt, size_t salt_size, size_t n,
                                      const int32_t* tokens);

/**
 * Waits for the prefetches of a text, and of texts that agree with it as far as both go, until all
 * are done or given up.
 *
 * @param      cache       The cache.
 * @param[in]  salt        The salt. NULL with size 0: none.
 * @param      salt_size   Bytes of the salt.
 * @param      n           How many tokens the text has.
 * @param[in]  tokens      [n]: the ids of the text.
 * @param      timeout_ms  How long to wait at most.
 * @param[out] cached      How many tokens of the text are in memory now, in whole blocks.
 * @param[out] pending     How many of these prefetches are not done: 0, unless the time was over
 *                         first. May be NULL.
 *
 * Statuses: UNSUPPORTED (the cache has no store), TOO_LARGE (salt). Since 0.1.
 */
PKV_API pkv_status pkv_store_wait(pkv_cache cache, const void* salt, size_t salt_size, size_t n,
                                  const int32_t* tokens, uint32_t timeout_ms, uint64_t* cached,
                                  uint64_t* pending);

/**
 * Gives up the prefetches that pkv_store_wait would wait for. If the store is just being read for
 * one, what this read brings may still be added to the cache after this call, and no pkv_store_wait
 * waits for that.
 *
 * @param     cache      The cache.
 * @param[in] salt       The salt. NULL with size 0: none.
 * @param     salt_size  Bytes of the salt.
 * @param     n          How many tokens the text has.
 * @param[in] tokens     [n]: the ids of the text.
 *
 * Statuses: UNSUPPORTED (the cache has no store), TOO_LARGE (salt). Since 0.1.
 */
PKV_API pkv_status pkv_store_cancel(pkv_cache cache, const void* salt, size_t salt_size, size_t n,
                                    const int32_t* tokens);

/**
 * Waits until what ended before is written. pkv_cache_destroy does the same without a limit, for as
 * long as the store takes what it is given.
 *
 * @param      cache       The cache.
 * @param      timeout_ms  How long to wait at most.
 * @param[out] queued      How many block positions still wait to be written.
 *
 * Statuses: UNSUPPORTED (the cache has no store). Since 0.1.
 */
PKV_API pkv_status pkv_store_flush(pkv_cache cache, uint32_t timeout_ms, uint64_t* queued);

/** What a tier has done so far. An item is a block of one layer group. */
typedef struct pkv_store_stats {
  uint32_t struct_size;   /**< sizeof(pkv_store_stats): the caller sets it. */
  uint32_t down;          /**< 1: the store failed lately and is left alone for a while. */
  uint64_t queued_blocks; /**< Block positions that wait to be written. */
  /** Block positions not written: the queue was full, memory was needed, or the store failed. */
  uint64_t dropped_blocks;
  uint64_t written_items; /**< Items that the store took. */
  uint64_t written_bytes; /**< Bytes of these items. */
  uint64_t known_items;   /**< Items not written because the store had them already. */
  uint64_t asked_items;   /**< Items that were looked for in the store. */
  uint64_t read_items;    /**< Items that the store gave back. */
  uint64_t read_bytes;    /**< Bytes of these items. */
  uint64_t corrupt_items; /**< Items that were not as they had been put: misses. */
  uint64_t failures;      /**< Calls that the store failed. */
} pkv_store_stats;

/**
 * Tells what the tier of a cache has done so far.
 *
 * @param      cache  The cache.
 * @param[out] out    The figures.
 *
 * Statuses: UNSUPPORTED (the cache has no store). Since 0.1.
 */
PKV_API pkv_status pkv_store_get_stats(pkv_cache cache, pkv_store_stats* out);

/**
 * A directory of files, one for each item. It survives restarts, and several processes of one user
 * may use it at once. The files belong to that user, and nobody else may read them (mode 0600).
 *
 * The directory must belong to the effective user, and no other user may write to it, not even
 * where it is sticky; the same holds for the 256 folders that the store makes in it. A symbolic
 * link is not followed, neither to the directory nor inside it.
 *
 * Only what the store itself makes is read, counted and deleted: in folders named 00 to ff, regular
 * files of that user that are named by 62 hexadecimal digits and ".kv", and temporary files (see
 * file.h). Whatever else is there is left alone; where it takes the place of a folder or a file of
 * the store, what belongs there cannot be stored.
 */
typedef struct pkv_directory_config {
  uint32_t struct_size; /**< sizeof(pkv_directory_config): the caller sets it. */
  /**
   * 1: put returns when its files are on disk. Default 0: after a power cut some are missing or
   * empty, which are misses.
   */
  uint32_t durable;
  /**
   * Made if it is not there, with mode 0700; the directory above it must be there. In a directory
   * of another user, name a new one.
   */
  const char* path;
  /**
   * Bytes of all files; beyond that, those that were not used for longest are deleted. 0 (default):
   * no limit. Temporary files that are being written count; those that killed processes left go
   * first.
   */
  uint64_t capacity_bytes;
} pkv_directory_config;

/**
 * Opens a directory as a store. Deletes what killed processes left unfinished in it.
 *
 * @param[in]  config  The config.
 * @param[out] out     The store. Close it with out->close(out->user), unless a cache does.
 *
 * Statuses: IO (the errno in the sentence is EPERM where the directory is another user's or other
 * users may write to it, ELOOP for a symbolic link). Since 0.1.
 */
PKV_API pkv_status pkv_store_open_directory(const pkv_directory_config* config, pkv_store* out);

#ifdef __cplusplus
}
#endif
#endif
