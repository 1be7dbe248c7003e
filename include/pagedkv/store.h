/* pagedkv: a store keeps cached blocks outside the cache's memory, as a second level behind the
 * prefix index. When a session ends or is suspended, its blocks in the prefix index are written to
 * the store. They can be read back for a later prompt with the same prefix, after they were
 * evicted, after a restart, or on another machine: with wait_ms by pkv_session_admit and
 * pkv_session_resume, or by a hint PREFETCH. A store is a directory of files, Redis
 * (pagedkv/redis.h), or any table of functions.
 *
 * An item of a store is one block of one layer group. Its name is a hash (BLAKE2b) of the model's
 * shape, layer indices, dtypes, rotation and fingerprint, the block size, the secret key, the salt,
 * and all tokens up to the end of the block. So caches share blocks if and only if all of these are
 * the same. With a secret key in the config, items are encrypted and authenticated by AES-256-GCM;
 * the store then sees only meaningless names, sizes, and which items are used when. Items are
 * checked when they come back (name, tokens, checksum or tag). A changed item is a miss, and is
 * counted.
 *
 * A store that is full should delete what was not used for longest: put, get and touch are uses.
 * The store does not see hits in memory, so it would delete items that are in use. When a session
 * ends, the cache therefore touches its items (about every two minutes, more often if much is put),
 * and puts what is missing again. The items of a text come from its end to its beginning, so ends
 * are deleted before the beginnings that they need.
 *
 * Threads: every function may be called from any thread. A cache with a store starts two threads
 * when they are first needed: one writes to the store, one reads. The writer has a low priority,
 * and while steps run it mostly sleeps, unless a thread waits in pkv_cache_flush_store. Steps never
 * wait for a call of the store or of block_io, so a store that is slow, full or unreachable only
 * costs hits. But a begin that lacks blocks waits for those that these threads or other calls are
 * moving: see pkv_batch_begin.
 *
 * For opaque groups, each of the two threads copies a small part of the blocks at a time by
 * block_io. A block that is being copied is in use (block_io_blocks of pkv_cache_stats), so
 * pkv_batch_begin may return OUT_OF_BLOCKS: retry if nothing is left to suspend. A copy that fails
 * costs hits, and is counted and logged.
 */
#ifndef PAGEDKV_STORE_H
#define PAGEDKV_STORE_H

#include <pagedkv/prefix.h>

#ifdef __cplusplus
extern "C" {
#endif

/** One block of one layer group, as a store keeps it. This struct will never grow. */
typedef struct pkv_store_item {
  unsigned char name[32]; /**< A hash of what the item holds: see above. */
  /** put: the bytes to store. get: a buffer. touch, remove: NULL. */
  void* data;
  /**
   * put: bytes of data, never 0. get: bytes that data has room for; get copies as many as fit. get
   * and touch set it to the size of the stored item, or to 0 if there is none.
   */
  uint64_t size;
} pkv_store_item;

/**
 * A store: functions that a cache calls from its threads. They are hooks: see common.h. Any of them
 * except close may run at the same time as any other or itself.
 *
 * put, get, touch and remove return how many of the n items they stored, found or removed, or a
 * negative errno if the store cannot be reached or refuses all of them. After such an error, or a
 * put that stored nothing, the cache pauses calls of that kind. There are three kinds: put; remove;
 * get and touch.
 */
typedef struct pkv_store {
  uint32_t struct_size; /**< Must be sizeof(pkv_store). */
  uint32_t reserved;    /**< Must be 0. */
  void* user;           /**< Passed to all functions. */
  /**
   * Stores items, and sets the size of each that it did not store to 0. If more items keep a size
   * than it counts, none counts as stored. It may leave those that exist as they are, but counts
   * them as stored. A store may lose items at any time.
   */
  int64_t (*put)(void* user, size_t n, pkv_store_item* items);
  /** Reads items. */
  int64_t (*get)(void* user, size_t n, pkv_store_item* items);
  /**
   * Sets the sizes of items, as get does, but copies no bytes, and counts as a use of each. If a
   * use cannot be recorded, set the item's size but leave it out of the result; the cache then logs
   * a failure.
   */
  int64_t (*touch)(void* user, size_t n, pkv_store_item* items);
  /** Deletes items whose bytes turned out to be wrong. */
  int64_t (*remove)(void* user, size_t n, const pkv_store_item* items);
  /** Closes the store: the last call. See pkv_store_close. */
  void (*close)(void* user);
  /**
   * Returns a sentence for the log about the last call on this thread that failed or counted too
   * few items, such as the server and its reason; it is valid until the next call on this thread.
   * May return NULL, and may be NULL: then only the errno is logged.
   */
  const char* (*last_error)(void* user);
} pkv_store;

/**
 * How a cache uses a store: see pkv_cache_config.store. Needs a prefix index, storage INTERNAL or
 * opaque groups, and a build with libsodium (else pkv_cache_create returns UNSUPPORTED).
 */
typedef struct pkv_store_config {
  uint32_t struct_size; /**< Must be sizeof(pkv_store_config). */
  /**
   * How long pkv_session_admit and pkv_session_resume wait for blocks from the store, in
   * milliseconds. Default 0: they take only what is in memory.
   */
  uint32_t wait_ms;
  /**
   * For one cache: pkv_cache_create takes it and sets all of the caller's struct but struct_size to
   * zeros, and pkv_cache_destroy closes it. If pkv_cache_create fails, the caller still has it. A
   * copy of the struct is the same store: do not use it after that.
   */
  pkv_store* store;
  /**
   * Identifies what K and V depend on besides the config and the tokens: the weights, RoPE
   * settings, the rank with tensor or pipeline parallelism, and for opaque groups the order of the
   * engine's bytes; for example a hash of these. NULL: none.
   */
  const void* fingerprint;
  uint64_t fingerprint_size; /**< Its bytes, up to 64. */
  /**
   * Secret bytes that encrypt and authenticate items: random ones, not a password. The cache wipes
   * its copy when it is destroyed. NULL: only checksums.
   */
  const void* secret_key;
  uint64_t secret_key_size; /**< Its bytes, 16 to 64. */
  /**
   * Bytes of the buffer of each of the two threads, up to 2^36; 0 (default): 4 MiB. The buffer has
   * room for at least one block of each group, and for at most all blocks of the cache. During a
   * call of block_io, a thread needs the same amount once more.
   */
  uint64_t buffer_bytes;
  /**
   * Once this many tokens wait to be written, the blocks of further sessions that end are not
   * written. block_size or more, rounded down to whole blocks; 0 (default): as many as fit into a
   * quarter of the blocks of the largest group.
   */
  uint64_t max_queued_tokens;
} pkv_store_config;

/**
 * Waits until the prefetches of a prompt (hint.h) are done or cancelled. Prefetches of its
 * prefixes, and of longer prompts that begin with it, count as well.
 *
 * @param      cache       The cache.
 * @param[in]  prompt      The prompt.
 * @param      timeout_ms  The longest time to wait, in milliseconds.
 * @param[out] cached      The number of tokens of the prompt in memory now, in full blocks.
 * @param[out] pending     How many of these prefetches are not done; 0 unless the time ran out. May
 *                         be NULL.
 *
 * Statuses: UNSUPPORTED (the cache has no store). Since 1.0.
 */
PKV_API pkv_status pkv_prefetch_wait(pkv_cache cache, const pkv_prompt* prompt, uint32_t timeout_ms,
                                     uint64_t* cached, uint64_t* pending);

/**
 * Cancels the prefetches that pkv_prefetch_wait would wait for. A read that is already in progress
 * may still add blocks to the cache after this call.
 *
 * @param     cache   The cache.
 * @param[in] prompt  The prompt.
 *
 * Statuses: UNSUPPORTED (the cache has no store). Since 1.0.
 */
PKV_API pkv_status pkv_prefetch_cancel(pkv_cache cache, const pkv_prompt* prompt);

/**
 * Waits until no blocks are queued to be written, including those that are queued meanwhile. Each
 * was then written or dropped: compare lost_tokens of pkv_store_stats. If the time runs out,
 * the call returns OK, and *queued is not 0. pkv_cache_destroy waits in the same way, without a
 * time limit, as long as the store accepts items.
 *
 * @param      cache       The cache.
 * @param      timeout_ms  The longest time to wait, in milliseconds.
 * @param[out] queued      The number of tokens that still wait to be written.
 *
 * Statuses: UNSUPPORTED (the cache has no store). Since 1.0.
 */
PKV_API pkv_status pkv_cache_flush_store(pkv_cache cache, uint32_t timeout_ms, uint64_t* queued);

/** Statistics of a cache's store. An item is one block of one layer group. */
typedef struct pkv_store_stats {
  uint32_t struct_size;   /**< Must be sizeof(pkv_store_stats). */
  uint32_t down;          /**< 1: the store failed recently; reads or writes pause for a while. */
  uint64_t queued_tokens; /**< Tokens that wait to be written, in full blocks. */
  /** Tokens not written, because the queue was full, memory was needed, or the store failed. */
  uint64_t lost_tokens;
  uint64_t written_items; /**< Items that the store accepted. */
  uint64_t written_bytes; /**< Bytes of these items. */
  uint64_t known_items;   /**< Items not written because the store had them. */
  uint64_t asked_items;   /**< Items looked for in the store. */
  uint64_t read_items;    /**< Items that the store returned. */
  uint64_t read_bytes;    /**< Bytes of these items. */
  uint64_t corrupt_items; /**< Items with wrong bytes; they count as misses. */
  uint64_t failures;      /**< Calls that failed, or did not store or use all items. */
} pkv_store_stats;

/**
 * Returns statistics of a cache's store.
 *
 * @param      cache  The cache.
 * @param[out] out    The statistics.
 *
 * Statuses: UNSUPPORTED (the cache has no store). Since 1.0.
 */
PKV_API pkv_status pkv_cache_get_store_stats(pkv_cache cache, pkv_store_stats* out);

/**
 * Options for pkv_store_open_directory: a directory with one file per item. It survives restarts,
 * and several processes of one user may use it at once.
 *
 * The directory must belong to the effective user, and no other user may be able to write to it,
 * even if it is sticky. The same holds for the 256 folders that the store creates in it. Files have
 * mode 0600. Symbolic links are not followed, neither to the directory nor inside it.
 *
 * The store reads, counts and deletes only its own files: in folders named 00 to ff, regular files
 * of that user whose names are 62 hexadecimal digits and ".kv", and temporary files (see file.h).
 * It leaves other files alone. Where another file has the name of an item or folder, the item
 * cannot be stored.
 */
typedef struct pkv_directory_config {
  uint32_t struct_size; /**< Must be sizeof(pkv_directory_config). */
  /**
   * Whether put returns only when its files are on disk. Default OFF: after a power failure, some
   * may be missing or empty, which are misses.
   */
  pkv_durability durability;
  /**
   * Created with mode 0700 if it does not exist; its parent must exist. In another user's
   * directory, such as /tmp, name a new one.
   */
  const char* path;
  /**
   * The most bytes of all files, temporary ones included; beyond that, or earlier if the disk or a
   * quota is full, the least recently used files are deleted. Several processes may exceed it by a
   * tenth or two for a while. 0 (default): no limit.
   */
  uint64_t max_bytes;
} pkv_directory_config;

/**
 * Opens a directory as a store. Deletes temporary files that killed processes left in it.
 *
 * @param[in]  config  The config.
 * @param[out] out     The store. Close it with pkv_store_close, which does nothing if a cache has
 *                     taken it.
 *
 * Statuses: IO (system_error of pkv_last_error_details is EPERM if the directory belongs to another
 * user or other users may write to it, ELOOP for a symbolic link). Since 1.0.
 */
PKV_API pkv_status pkv_store_open_directory(const pkv_directory_config* config, pkv_store* out);

/**
 * Closes a store, and sets all of the struct but struct_size to zeros. Not for a store that a cache
 * has taken: the cache closes that.
 *
 * It only calls store->close(store->user). A program that uses libpagedkv-redis without libpagedkv
 * can call that itself.
 *
 * @param[in,out] store  The store. NULL is OK, and so is a struct without `close`: it was never
 *                       opened, it was closed, or a cache has taken it.
 *
 * Statuses: none of its own. Since 1.0.
 */
PKV_API pkv_status pkv_store_close(pkv_store* store);

#ifdef __cplusplus
}
#endif
#endif
