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
  uint64_t evictable_blocks; /**< Of those, used by nobody. */
} pkv_prefix_stats;

/** salt NULL with size 0: sessions without a salt; PKV_ALL_SALTS: the whole index. Statuses: UNSUPPORTED (no index), TOO_LARGE (salt). Since 0.1. */
#define PKV_ALL_SALTS ((size_t)-1)
PKV_API pkv_status pkv_prefix_get_stats(pkv_cache cache, const void* salt, size_t salt_size, pkv_prefix_stats* out);

/** Drops every cached block that nobody uses, of one salt or (PKV_ALL_SALTS) of all. Statuses: as above. Since 0.1. */
PKV_API pkv_status pkv_prefix_clear(pkv_cache cache, const void* salt, size_t salt_size);

#ifdef __cplusplus
}
#endif
#endif
