/* pagedkv: prefix reuse. What sessions computed stays cached when they end, block by block under its tokens, until its memory is needed; a new
 * session whose text begins alike takes it over instead of computing it.
 *
 * A match compares tokens, never hashes alone. Full blocks are shared; of a block that matches in part the session gets a copy of
 * those rows (not with storage NONE). With several layer groups a match is as long as every group has what it needs: a window group
 * its last window. Cached blocks nobody uses count as available: begin, reserve and resume evict as many as they need.
 *
 * A salt (any bytes) separates tenants: sessions with different salts share nothing, and none sees through hits, counts or time
 * what another has cached. Without a salt a session shares with all others without one.
 *
 * What stays when memory is short: what is pinned or in use always; then by the retention of the sessions that used it; then by
 * the policy of the cache's config. A quota bounds what one salt may keep cached, whatever it does.
 *
 * Threads: every function may be called from any thread. Matching, publishing and evicting take a lock of the index; a decode step takes it only
 * when a block gets full, and does not wait for it.
 */
#ifndef PAGEDKV_PREFIX_H
#define PAGEDKV_PREFIX_H

#include <pagedkv/session.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Fills *config with defaults. Statuses: INVALID_ARGUMENT. Since 0.1. */
PKV_API pkv_status pkv_prefix_config_init(pkv_prefix_config* config, size_t struct_size);

/**
 * Gives an empty session (or one that was suspended, before it is stepped) the longest cached beginning of a text: tokens [0, *matched) have their
 * K and V then, and the session's length is *matched. n tokens are asked for; leave the last one out where its output is
 * needed. Nothing found: *matched is 0. A cache without an index, or a session that does not use it: 0, too.
 * Statuses: INVALID_ARGUMENT (the session holds tokens or reserved blocks, also where there is no index; or PKV_NO_TOKEN), SUSPENDED, BUSY. Since 0.1.
 */
PKV_API pkv_status pkv_session_match_prefix(pkv_session session, size_t n, const int32_t* tokens, uint64_t* matched);

/** Figures of one salt's share of the index, or of all of it. */
typedef struct pkv_prefix_stats {
  uint32_t struct_size;
  uint32_t reserved;
  uint64_t matches;          /**< Calls of pkv_session_match_prefix, and resumes. */
  uint64_t asked_tokens;     /**< Tokens asked for. */
  uint64_t matched_tokens;   /**< Tokens found. */
  uint64_t matched_blocks;   /**< Whole blocks found, positions counted once over all groups. */
  uint64_t published_blocks; /**< Block positions stored. */
  uint64_t evicted_blocks;   /**< Block positions removed for want of memory. */
  uint64_t cached_blocks;    /**< Block positions stored now. */
  uint64_t evictable_blocks; /**< Of those, used by nobody and not pinned. */
  uint64_t expelled_blocks;  /**< Block positions removed so far because their salt's quota was full. */
  uint64_t cleared_blocks;   /**< Block positions removed so far by pkv_prefix_clear. */
  uint64_t pinned_blocks;    /**< Block positions pinned now. */
} pkv_prefix_stats;

/** salt_size of pkv_prefix_get_stats and pkv_prefix_clear: every salt. Others take it for the size that it is: INVALID_ARGUMENT (salt NULL) or TOO_LARGE. */
#define PKV_ALL_SALTS ((size_t)-1)

/** Tells the figures of one salt. NULL with size 0: of sessions without one; PKV_ALL_SALTS: of the whole index. Statuses: UNSUPPORTED (no index), TOO_LARGE (salt). Since 0.1. */
PKV_API pkv_status pkv_prefix_get_stats(pkv_cache cache, const void* salt, size_t salt_size, pkv_prefix_stats* out);

/** Drops every cached block that nobody uses and that is not pinned, of one salt or (PKV_ALL_SALTS) of all. Statuses: as above. Since 0.1. */
PKV_API pkv_status pkv_prefix_clear(pkv_cache cache, const void* salt, size_t salt_size);

/**
 * Pins what is cached of a text: its whole blocks stay cached, though nobody uses them, until they are unpinned as often. *pinned says how many tokens that
 * is, 0 where nothing is cached. Compute a system prompt once, close its session, pin it. The config's pinned_blocks bounds
 * what is pinned in all. Statuses: UNSUPPORTED (no index), TOO_LARGE (salt), OUT_OF_BLOCKS (beyond pinned_blocks: nothing is pinned), REF_LIMIT. Since 0.1.
 */
PKV_API pkv_status pkv_prefix_pin(pkv_cache cache, const void* salt, size_t salt_size, size_t n, const int32_t* tokens, uint64_t* pinned);

/** Takes back the longest pin of a beginning of the text; *unpinned says how many tokens it had. Statuses: as above; DOUBLE_FREE (nothing of it is pinned). Since 0.1. */
PKV_API pkv_status pkv_prefix_unpin(pkv_cache cache, const void* salt, size_t salt_size, size_t n, const int32_t* tokens, uint64_t* unpinned);

/** blocks of pkv_prefix_set_quota: what the config says. */
#define PKV_DEFAULT_QUOTA UINT64_MAX

/**
 * At most so many block positions are cached of one salt from now on; 0: no limit; PKV_DEFAULT_QUOTA: that of the config again. Where a salt is full, its own
 * blocks that nobody uses make room, those used longest ago first; where all are in use, what its sessions compute is not cached.
 * What is over the quota already goes at once if nobody uses it. Statuses: UNSUPPORTED, TOO_LARGE (salt), NO_MEMORY. Since 0.1.
 */
PKV_API pkv_status pkv_prefix_set_quota(pkv_cache cache, const void* salt, size_t salt_size, uint64_t blocks);

/* ---- Events, for those who route requests to the cache that has most of them -------------------*/

/** What happened to a block position. */
typedef enum pkv_prefix_event_kind PKV_ENUM {
  PKV_PREFIX_STORED = 1,   /**< A block is cached now. */
  PKV_PREFIX_EVICTED = 2,  /**< It went because memory was needed. */
  PKV_PREFIX_EXPELLED = 3, /**< It went because its salt's quota was full. */
  PKV_PREFIX_CLEARED = 4   /**< It went by pkv_prefix_clear. */
} pkv_prefix_event_kind;

/** One block position, of all layer groups. A block is stored after and goes before the one that precedes it. This struct is pinned: it will not grow. */
typedef struct pkv_prefix_event {
  uint64_t number;   /**< Counts from 0. */
  uint64_t hash;     /**< Of the block and all before it: see pkv_prefix_hash_blocks. */
  uint64_t parent;   /**< Hash of the block before it; of the first block, of the salt. */
  uint64_t position; /**< Of its first token. */
  pkv_prefix_event_kind kind;
  uint32_t reserved;
} pkv_prefix_event;

/**
 * Copies events in their order. *next: the number of the first one wanted, 0 at first; afterwards that of the next one. *n: room in `events`;
 * afterwards how many were written. *lost (may be NULL): how many of those wanted had been overwritten, since the cache keeps only the
 * last ones; then ask again for all there is by another way. Several readers may each keep a number of their own.
 * Whoever reads events sees those of all salts. Statuses: UNSUPPORTED (no index, or its config keeps no events). Since 0.1.
 */
PKV_API pkv_status pkv_prefix_read_events(pkv_cache cache, uint64_t* next, size_t* n, pkv_prefix_event* events, uint64_t* lost);

/**
 * The hashes that events have for the whole blocks of a text: n / block_size of them are written. That of a block is XXH3 (64 bits) of its token
 * ids (int32, native byte order) with the hash of the block before as seed; before the first stands XXH3 of the salt's bytes without a seed.
 * They say where a text is likely cached, never what is the same. block_size: 16 to 256, a multiple of 16. Statuses: TOO_LARGE (salt). Since 0.1.
 */
PKV_API pkv_status pkv_prefix_hash_blocks(const void* salt, size_t salt_size, uint32_t block_size, size_t n, const int32_t* tokens, uint64_t* hashes);

#ifdef __cplusplus
}
#endif
#endif
