/* pagedkv: prefix reuse. What sessions computed stays cached when they end, block by block under
 * its tokens, until its memory is needed; a new session whose text begins alike takes it over
 * instead of computing it.
 *
 * A match compares tokens, never hashes alone. Full blocks are shared; of a block that matches in
 * part the session gets a copy of those rows (not with storage NONE). With several layer groups a
 * match is as long as every group has what it needs: a group with a window needs the last window
 * before the end of the match, wherever in a cached text that is, and its sinks. Cached blocks that
 * nobody uses count as available: begin, reserve and resume evict as many as they need. Of a group
 * with a window, that is also what left the windows of sessions; it is evicted block by block, and
 * blocks that only a match inside of a text would need go first.
 *
 * A salt (any bytes) separates tenants: sessions with different salts share nothing, and none sees
 * through hits, counts or time what another has cached. Without a salt a session shares with all
 * others without one.
 *
 * When memory is short, what is pinned or in use always stays. Of the rest, the retention of the
 * sessions that used it decides first, then the policy of the cache's config. A quota bounds what
 * one salt may keep cached, whatever it does.
 *
 * Counts are in block positions: one position is the blocks of all layer groups for the same
 * tokens.
 *
 * Threads: every function may be called from any thread. Matching, publishing and evicting take a
 * lock of the index; a decode step takes it only when a block gets full, and does not wait for it.
 */
#ifndef PAGEDKV_PREFIX_H
#define PAGEDKV_PREFIX_H

#include <pagedkv/session.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Gives an empty session the longest cached beginning of a text: it holds K and V of tokens
 * [0, *matched) then, and *matched is its length. A session that was suspended takes what is cached
 * of its own text when it is resumed.
 *
 * @param      session  The session.
 * @param      n        How many tokens are asked for; leave out the last one of a text if its
 *                      output is needed.
 * @param[in]  tokens   [n]: the ids of the text.
 * @param[out] matched  How many tokens were found; 0 if none, if the cache has no index, or if the
 *                      session does not use it.
 *
 * Statuses: INVALID_ARGUMENT (the session holds or remembers tokens, or has reserved blocks, also
 * where there is no index; or PKV_NO_TOKEN), SUSPENDED, BUSY. Since 0.1.
 */
PKV_API pkv_status pkv_session_match_prefix(pkv_session session, size_t n, const int32_t* tokens,
                                            uint64_t* matched);

/** Figures of one salt's share of the index, or of all of it. */
typedef struct pkv_prefix_stats {
  uint32_t struct_size;      /**< sizeof(pkv_prefix_stats): the caller sets it. */
  uint32_t reserved;         /**< 0. */
  uint64_t matches;          /**< Calls of pkv_session_match_prefix, and resumes. */
  uint64_t asked_tokens;     /**< Tokens asked for. */
  uint64_t matched_tokens;   /**< Tokens found. */
  uint64_t matched_blocks;   /**< Whole block positions found. */
  uint64_t published_blocks; /**< Block positions stored so far. */
  uint64_t evicted_blocks;   /**< Block positions removed so far because memory was needed. */
  /** Block positions removed so far because their salt's quota was full. */
  uint64_t expelled_blocks;
  uint64_t cleared_blocks;   /**< Block positions removed so far by pkv_prefix_clear. */
  uint64_t cached_blocks;    /**< Block positions stored now. */
  uint64_t evictable_blocks; /**< Of these, used by nobody and not pinned. */
  uint64_t pinned_blocks;    /**< Of these, pinned. */
} pkv_prefix_stats;

/**
 * salt_size of pkv_prefix_get_stats and pkv_prefix_clear: every salt. Other functions take it for
 * the size that it is: INVALID_ARGUMENT (salt NULL) or TOO_LARGE.
 */
#define PKV_ALL_SALTS ((size_t)-1)

/**
 * Tells the figures of one salt, or of the whole index.
 *
 * @param      cache      The cache.
 * @param[in]  salt       The salt. NULL with size 0: sessions without one.
 * @param      salt_size  Bytes of the salt, or PKV_ALL_SALTS.
 * @param[out] out        The figures.
 *
 * Statuses: UNSUPPORTED (no index), TOO_LARGE (salt). Since 0.1.
 */
PKV_API pkv_status pkv_prefix_get_stats(pkv_cache cache, const void* salt, size_t salt_size,
                                        pkv_prefix_stats* out);

/**
 * Drops every cached block that nobody uses and that is not pinned, of one salt or of all.
 *
 * @param     cache      The cache.
 * @param[in] salt       The salt. NULL with size 0: sessions without one.
 * @param     salt_size  Bytes of the salt, or PKV_ALL_SALTS.
 *
 * Statuses: UNSUPPORTED (no index), TOO_LARGE (salt). Since 0.1.
 */
PKV_API pkv_status pkv_prefix_clear(pkv_cache cache, const void* salt, size_t salt_size);

/**
 * Tells how much of a text is cached in memory, without a session: nothing is matched, counted or
 * held, and what is evicted next does not change.
 *
 * @param      cache      The cache.
 * @param[in]  salt       The salt. NULL with size 0: none.
 * @param      salt_size  Bytes of the salt.
 * @param      n          How many tokens the text has.
 * @param[in]  tokens     [n]: the ids of the text.
 * @param[out] cached     How many tokens a match would find now, in whole blocks; it may find some
 *                        more in the block after them, and blocks that only a store has.
 *
 * Statuses: UNSUPPORTED (no index), TOO_LARGE (salt). Since 0.1.
 */
PKV_API pkv_status pkv_prefix_probe(pkv_cache cache, const void* salt, size_t salt_size, size_t n,
                                    const int32_t* tokens, uint64_t* cached);

/**
 * Pins what is cached of a text: its whole blocks stay cached, though nobody uses them, until they
 * are unpinned as often. Compute a system prompt once, close its session, pin it.
 *
 * @param      cache      The cache; pinned_blocks of its prefix config bounds what is pinned in
 *                        all.
 * @param[in]  salt       The salt. NULL with size 0: none.
 * @param      salt_size  Bytes of the salt.
 * @param      n          How many tokens the text has.
 * @param[in]  tokens     [n]: the ids of the text.
 * @param[out] pinned     How many tokens are pinned, in whole blocks; 0 where nothing is cached.
 *
 * Statuses: UNSUPPORTED (no index), TOO_LARGE (salt), OUT_OF_BLOCKS (beyond pinned_blocks: nothing
 * is pinned), REF_LIMIT. Since 0.1.
 */
PKV_API pkv_status pkv_prefix_pin(pkv_cache cache, const void* salt, size_t salt_size, size_t n,
                                  const int32_t* tokens, uint64_t* pinned);

/**
 * Takes back the longest pin of a beginning of a text.
 *
 * @param      cache      The cache.
 * @param[in]  salt       The salt. NULL with size 0: none.
 * @param      salt_size  Bytes of the salt.
 * @param      n          How many tokens the text has.
 * @param[in]  tokens     [n]: the ids of the text.
 * @param[out] unpinned   How many tokens that pin had.
 *
 * Statuses: UNSUPPORTED (no index), TOO_LARGE (salt), DOUBLE_FREE (no beginning of the text is
 * pinned). Since 0.1.
 */
PKV_API pkv_status pkv_prefix_unpin(pkv_cache cache, const void* salt, size_t salt_size, size_t n,
                                    const int32_t* tokens, uint64_t* unpinned);

/** blocks of pkv_prefix_set_quota: what the config says. */
#define PKV_DEFAULT_QUOTA UINT64_MAX

/**
 * Bounds what is cached of one salt from now on.
 *
 * Where a salt is full, those of its own blocks that nobody uses make room, the ones that were not
 * used for longest first; where all are in use, what its sessions compute is not cached. What is
 * over the quota already goes at once if nobody uses it.
 *
 * @param     cache      The cache.
 * @param[in] salt       The salt. NULL with size 0: sessions without one.
 * @param     salt_size  Bytes of the salt.
 * @param     blocks     The most block positions; 0: no limit; PKV_DEFAULT_QUOTA: that of the
 *                       config again.
 *
 * Statuses: UNSUPPORTED (no index), TOO_LARGE (salt), NO_MEMORY. Since 0.1.
 */
PKV_API pkv_status pkv_prefix_set_quota(pkv_cache cache, const void* salt, size_t salt_size,
                                        uint64_t blocks);

/* ---- Events, for those who route requests to the cache that has most of them
 * -------------------
 */

/** What happened to a block position. */
typedef enum pkv_prefix_event_kind PKV_ENUM {
  PKV_PREFIX_STORED = 1,   /**< A match can end after it now. */
  PKV_PREFIX_EVICTED = 2,  /**< It, or what a match that ends after it needs, made room. */
  PKV_PREFIX_EXPELLED = 3, /**< It went because its salt's quota was full. */
  PKV_PREFIX_CLEARED = 4   /**< It went by pkv_prefix_clear. */
} pkv_prefix_event_kind;

/**
 * What happened to one block position. A match of a text ends after the last of its positions that
 * were stored and have not gone. Without windows a position is stored after the one that precedes
 * it, and goes before it; where a group has a window, positions before it may have gone. This
 * struct is pinned: it will not grow.
 */
typedef struct pkv_prefix_event {
  uint64_t number;   /**< Counts from 0. */
  uint64_t hash;     /**< Hash of the block and all before it: see pkv_prefix_hash_blocks. */
  uint64_t parent;   /**< Hash of the block before it; of the first block, hash of the salt. */
  uint64_t position; /**< Position of its first token. */
  pkv_prefix_event_kind kind; /**< What happened. */
  uint32_t reserved;          /**< 0. */
} pkv_prefix_event;

/**
 * Copies events in their order, those of all salts. Several readers may each keep a number of their
 * own.
 *
 * @param         cache   The cache.
 * @param[in,out] next    The number of the first event wanted, 0 at first; afterwards that of the
 *                        next one.
 * @param[in,out] n       Entries that events has room for; afterwards how many were written.
 * @param[out]    events  [*n] as given: the events.
 * @param[out]    lost    How many of those wanted were overwritten, since the cache keeps only the
 *                        last ones; if any were, learn by another way what is cached. May be NULL.
 *
 * Statuses: UNSUPPORTED (no index, or its config keeps no events). Since 0.1.
 */
PKV_API pkv_status pkv_prefix_read_events(pkv_cache cache, uint64_t* next, size_t* n,
                                          pkv_prefix_event* events, uint64_t* lost);

/**
 * Computes the hashes that events have for the whole blocks of a text. They say where a text is
 * likely cached, never what is the same.
 *
 * The hash of a block is XXH3 (64 bits) of its token ids (int32, native byte order) with the hash
 * of the block before it as seed; that of the first block has XXH3 of the salt's bytes (without a
 * seed) as seed.
 *
 * @param[in]  salt        The salt. NULL with size 0: none.
 * @param      salt_size   Bytes of the salt.
 * @param      block_size  Tokens per block: a multiple of 16, 16 to 256.
 * @param      n           How many tokens the text has.
 * @param[in]  tokens      [n]: the ids of the text.
 * @param[out] hashes      [n / block_size]: the hashes.
 *
 * Statuses: TOO_LARGE (salt). Since 0.1.
 */
PKV_API pkv_status pkv_prefix_hash_blocks(const void* salt, size_t salt_size, uint32_t block_size,
                                          size_t n, const int32_t* tokens, uint64_t* hashes);

#ifdef __cplusplus
}
#endif
#endif
