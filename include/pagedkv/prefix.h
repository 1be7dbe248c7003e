/* pagedkv: prefix reuse. K and V of ended sessions stay cached, block by block under their tokens,
 * until their memory is needed. A new session takes the longest cached prefix of its prompt instead
 * of computing it.
 *
 * A match compares tokens, never only hashes. Full blocks are shared; if only part of a block
 * matches, the session gets a copy of those rows (not with storage NONE). With several layer
 * groups, a match ends where every group has what it needs: a group with a window needs the last
 * window before that point, which may be in the middle of a cached sequence, and its sinks.
 *
 * Unused cached blocks count as available: begin, reserve and resume evict as many as they need. In
 * a group with a window, blocks that left the windows of sessions stay cached, too. They are
 * evicted one by one, those that only a match in the middle of a sequence would need first.
 *
 * A salt (any bytes) separates tenants: sessions with different salts share nothing, and hits,
 * counts and times do not show what another salt has cached. Sessions without a salt share with
 * each other.
 *
 * Blocks that are pinned or in use are never evicted. For the others, the retention of the sessions
 * that used them decides first, then the policy in the cache's config. A quota limits what one salt
 * may keep cached.
 *
 * Counts are in block positions: a position is one block in each layer group, for the same tokens.
 *
 * Threads: every function may be called from any thread. Matching, publishing and evicting lock the
 * index. A decode step takes this lock only when a block gets full, and does not wait for it.
 */
#ifndef PAGEDKV_PREFIX_H
#define PAGEDKV_PREFIX_H

#include <pagedkv/session.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Finds the longest cached prefix of a prompt and gives it to an empty session, which then has K
 * and V of tokens [0, *matched) and the length *matched. A suspended session needs no match: a
 * resume takes what is cached of its own tokens.
 *
 * @param      session  The session.
 * @param      n        The number of tokens to look for. Leave out the last one of a prompt if its
 *                      output is needed.
 * @param[in]  tokens   [n]: the token ids of the prompt.
 * @param[out] matched  The number of tokens found; 0 if none, if the cache has no index, or if the
 *                      session does not use it.
 *
 * Statuses: INVALID_ARGUMENT (the session has or remembers tokens or has reserved blocks, even if
 * there is no index; or an id is PKV_NO_TOKEN), SUSPENDED, BUSY. Since 0.1.
 */
PKV_API pkv_status pkv_session_match_prefix(pkv_session session, size_t n, const int32_t* tokens,
                                            uint64_t* matched);

/** Statistics of the index, for one salt or all. */
typedef struct pkv_prefix_stats {
  uint32_t struct_size;      /**< sizeof(pkv_prefix_stats): the caller sets it. */
  uint32_t reserved;         /**< 0. */
  uint64_t matches;          /**< Calls of pkv_session_match_prefix, and resumes. */
  uint64_t asked_tokens;     /**< Tokens looked for. */
  uint64_t matched_tokens;   /**< Tokens found. */
  uint64_t matched_blocks;   /**< Whole block positions found. */
  uint64_t published_blocks; /**< Block positions cached so far. */
  uint64_t evicted_blocks;   /**< Block positions removed so far because memory was needed. */
  /** Block positions removed so far because their salt's quota was full. */
  uint64_t expelled_blocks;
  uint64_t cleared_blocks;   /**< Block positions removed so far by pkv_prefix_clear. */
  uint64_t cached_blocks;    /**< Block positions cached now. */
  uint64_t evictable_blocks; /**< Of these, unused and not pinned. */
  uint64_t pinned_blocks;    /**< Of these, pinned. */
} pkv_prefix_stats;

/**
 * The salt_size for all salts, in pkv_prefix_get_stats and pkv_prefix_clear. Other functions return
 * INVALID_ARGUMENT (salt NULL) or TOO_LARGE for it.
 */
#define PKV_ALL_SALTS ((size_t)-1)

/**
 * Returns statistics of the index, for one salt or all.
 *
 * @param      cache      The cache.
 * @param[in]  salt       The salt. NULL with size 0: sessions without one.
 * @param      salt_size  Bytes of the salt, or PKV_ALL_SALTS.
 * @param[out] out        The statistics.
 *
 * Statuses: UNSUPPORTED (no index), TOO_LARGE (salt). Since 0.1.
 */
PKV_API pkv_status pkv_prefix_get_stats(pkv_cache cache, const void* salt, size_t salt_size,
                                        pkv_prefix_stats* out);

/**
 * Removes every cached block that is unused and not pinned, of one salt or of all.
 *
 * @param     cache      The cache.
 * @param[in] salt       The salt. NULL with size 0: sessions without one.
 * @param     salt_size  Bytes of the salt, or PKV_ALL_SALTS.
 *
 * Statuses: UNSUPPORTED (no index), TOO_LARGE (salt). Since 0.1.
 */
PKV_API pkv_status pkv_prefix_clear(pkv_cache cache, const void* salt, size_t salt_size);

/**
 * Returns how much of a prompt is cached in memory. Needs no session, changes no statistics, holds
 * no blocks, and does not change which blocks are evicted next.
 *
 * @param      cache      The cache.
 * @param[in]  salt       The salt. NULL with size 0: none.
 * @param      salt_size  Bytes of the salt.
 * @param      n          The number of tokens in the prompt.
 * @param[in]  tokens     [n]: the token ids of the prompt.
 * @param[out] cached     The number of tokens that a match would find now, in whole blocks. It may
 *                        also find a part of the next block, and blocks that only a store has.
 *
 * Statuses: UNSUPPORTED (no index), TOO_LARGE (salt). Since 0.1.
 */
PKV_API pkv_status pkv_prefix_probe(pkv_cache cache, const void* salt, size_t salt_size, size_t n,
                                    const int32_t* tokens, uint64_t* cached);

/**
 * Pins the whole cached blocks of a prompt: they stay cached, even if unused, until they are
 * unpinned as often as pinned. Compute a system prompt once, close its session, then pin it.
 *
 * @param      cache      The cache; pinned_blocks of its prefix config limits all pins together.
 * @param[in]  salt       The salt. NULL with size 0: none.
 * @param      salt_size  Bytes of the salt.
 * @param      n          The number of tokens in the prompt.
 * @param[in]  tokens     [n]: the token ids of the prompt.
 * @param[out] pinned     The number of tokens pinned, in whole blocks; 0 if nothing is cached.
 *
 * Statuses: UNSUPPORTED (no index), TOO_LARGE (salt), OUT_OF_BLOCKS (more than pinned_blocks:
 * nothing is pinned), REF_LIMIT. Since 0.1.
 */
PKV_API pkv_status pkv_prefix_pin(pkv_cache cache, const void* salt, size_t salt_size, size_t n,
                                  const int32_t* tokens, uint64_t* pinned);

/**
 * Removes one pin: the longest one on a prefix of a prompt.
 *
 * @param      cache      The cache.
 * @param[in]  salt       The salt. NULL with size 0: none.
 * @param      salt_size  Bytes of the salt.
 * @param      n          The number of tokens in the prompt.
 * @param[in]  tokens     [n]: the token ids of the prompt.
 * @param[out] unpinned   The number of tokens of that pin.
 *
 * Statuses: UNSUPPORTED (no index), TOO_LARGE (salt), DOUBLE_FREE (no prefix of the prompt is
 * pinned). Since 0.1.
 */
PKV_API pkv_status pkv_prefix_unpin(pkv_cache cache, const void* salt, size_t salt_size, size_t n,
                                    const int32_t* tokens, uint64_t* unpinned);

/** The blocks of pkv_prefix_set_quota for the limit in the config. */
#define PKV_DEFAULT_QUOTA UINT64_MAX

/**
 * Limits what one salt may have cached from now on.
 *
 * When the quota is full, the salt's own unused blocks are removed, least recently used first; if
 * all are in use, new blocks of its sessions are not cached. Unused blocks that are already over
 * the quota are removed at once.
 *
 * @param     cache      The cache.
 * @param[in] salt       The salt. NULL with size 0: sessions without one.
 * @param     salt_size  Bytes of the salt.
 * @param     blocks     The most block positions. 0: no limit; PKV_DEFAULT_QUOTA: the limit in
 *                       the config.
 *
 * Statuses: UNSUPPORTED (no index), TOO_LARGE (salt), NO_MEMORY. Since 0.1.
 */
PKV_API pkv_status pkv_prefix_set_quota(pkv_cache cache, const void* salt, size_t salt_size,
                                        uint64_t blocks);

/* ---- Events, for routers that send a request to the cache that has most of it -----------------*/

/** What happened to a block position. */
typedef enum pkv_prefix_event_kind PKV_ENUM {
  PKV_PREFIX_STORED = 1,   /**< A match can now end after it. */
  PKV_PREFIX_EVICTED = 2,  /**< It, or a block that such a match needs, was evicted. */
  PKV_PREFIX_EXPELLED = 3, /**< It was removed because its salt's quota was full. */
  PKV_PREFIX_CLEARED = 4   /**< It was removed by pkv_prefix_clear. */
} pkv_prefix_event_kind;

/**
 * A change of one block position. A match of a prompt ends after the last of its positions that
 * were stored and not removed since. Without windows, a position is stored after the one before it
 * and removed before it; if a group has a window, positions before it may be missing. This struct
 * is pinned: it will not grow.
 */
typedef struct pkv_prefix_event {
  uint64_t number;   /**< Counts from 0. */
  uint64_t hash;     /**< Hash of the block and all before it: see pkv_prefix_hash_blocks. */
  uint64_t parent;   /**< Hash of the block before it; for the first block, of the salt. */
  uint64_t position; /**< Position of its first token. */
  pkv_prefix_event_kind kind; /**< What happened. */
  uint32_t reserved;          /**< 0. */
} pkv_prefix_event;

/**
 * Copies the events of all salts, in order. Several readers may each keep their own number.
 *
 * @param         cache   The cache.
 * @param[in,out] next    In: the number of the first event to read, 0 at first. Out: the number of
 *                        the next one.
 * @param[in,out] n       In: the entries that fit into events. Out: the number written.
 * @param[out]    events  [*n], as passed in: the events.
 * @param[out]    lost    The number of events from *next on that were overwritten, since the cache
 *                        keeps only recent ones. If it is not 0, find out in another way what is
 *                        cached. May be NULL.
 *
 * Statuses: UNSUPPORTED (no index, or events is 0 in its config). Since 0.1.
 */
PKV_API pkv_status pkv_prefix_read_events(pkv_cache cache, uint64_t* next, size_t* n,
                                          pkv_prefix_event* events, uint64_t* lost);

/**
 * Computes the hashes that events have for the whole blocks of a prompt. Equal hashes are a hint
 * that a prompt is cached, no proof.
 *
 * The hash of a block is XXH3 (64 bits) of its token ids (int32, native byte order), with the hash
 * of the block before it as seed. The seed of the first block is XXH3 of the salt's bytes, without
 * a seed.
 *
 * @param[in]  salt        The salt. NULL with size 0: none.
 * @param      salt_size   Bytes of the salt.
 * @param      block_size  Tokens per block: a multiple of 16, 16 to 256.
 * @param      n           The number of tokens in the prompt.
 * @param[in]  tokens      [n]: the token ids of the prompt.
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
