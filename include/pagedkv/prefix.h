/* pagedkv: prefix reuse. When a block is full and committed with token ids, the session publishes
 * it: the prefix index finds it by its tokens and all tokens before it, and keeps it after the
 * session has ended, until its memory is needed. A new session takes the longest cached prefix of
 * its prompt instead of computing it.
 *
 * A match compares tokens, never only hashes. The session shares the blocks; one that matches only
 * in part is copied by the session's first step, as after a fork (pkv_batch_get_block_copies). With
 * several layer groups, a match ends at a point for which every group has what it needs. A plain
 * group needs all blocks before it, a group with a window those of the window and the sinks, and a
 * group with states the state at that point, which must be the end of a block.
 *
 * A cached block is in use if something besides the index holds it, such as a session. It is
 * evictable if only the index holds it and no pin keeps it. Evictable blocks count as available:
 * begin, reserve, resume and admit evict as many as they need. Blocks in use are never evicted, but
 * a store drops blocks that only wait to be written. Pins end only if begin, reserve or resume
 * would otherwise fail; pkv_session_admit normally returns OUT_OF_BLOCKS instead (see there). Hints
 * pin blocks and set their retention (hint.h). A quota limits what one salt may keep cached.
 *
 * Blocks of lower retention are evicted before others, and among equals the policy in the cache's
 * config decides. Blocks that left a window, and states, stay cached and can also be evicted one by
 * one, whatever their retention: first, before all other blocks, those that only a match in the
 * middle of a sequence needs; last, after all other blocks, those of sequences that a session still
 * uses.
 *
 * A salt (any bytes) separates tenants: sessions with different salts share nothing. Nothing that a
 * salt can observe - matches, its own statistics, the time of a lookup - shows what another salt
 * has cached. All salts share the memory, so one can evict what another has cached: set quotas.
 * Sessions without a salt share with each other.
 *
 * Counts are in tokens of full blocks, except for lookup_tokens and matched_tokens. A token counts
 * once, however many layer groups have a block for it.
 *
 * Threads: every function may be called from any thread. Matching, publishing, evicting and
 * statistics lock the index. A commit that fills a block only tries to lock it: if another thread
 * has the lock, a later step or the end of the session publishes the block. A begin that has to
 * evict waits for it, and so does the first commit after a match that ended inside a block.
 */
#ifndef PAGEDKV_PREFIX_H
#define PAGEDKV_PREFIX_H

#include <pagedkv/session.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Admits a request: gives its empty session the longest cached prefix of its prompt, and reserves
 * blocks for total_tokens as pkv_session_reserve does. The session's length is then *matched.
 *
 * The call does both or neither. So a request that has to wait holds no blocks, and its failed
 * attempts count neither as lookups in the statistics nor as uses for the eviction policy. The
 * blocks that it needs besides the cached ones must be available without those of watermark_blocks.
 * It ends pins only for a request that would not fit beside the pinned blocks even if all others
 * were free. If any other request lacks blocks, the call returns OUT_OF_BLOCKS: try again later.
 *
 * With total_tokens 0 it only matches: it reserves nothing, and needs no free block.
 *
 * It also works without a prefix index. For a suspended session, call pkv_session_resume instead:
 * it takes what is cached of its own tokens.
 *
 * @param      session       The session.
 * @param      n             The number of tokens to look for. Leave out the last token of a prompt
 *                           if you need its output.
 * @param[in]  tokens        [n]: their ids.
 * @param      total_tokens  The length to reserve: that of the prompt or, if the request must never
 *                           run out of blocks, with its longest output. 0: none.
 * @param[out] matched       The number of tokens found; 0 also if the cache has no index or the
 *                           session does not use it.
 *
 * Statuses: OUT_OF_BLOCKS (try again in a later step), TOO_LARGE (refuse the request: it can never
 * have its blocks), INVALID_ARGUMENT (the session has tokens, remembered ids or reserved blocks; an
 * id is PKV_UNKNOWN_TOKEN), OUT_OF_MEMORY, LIMIT_REACHED, SUSPENDED, BUSY. Since 1.0.
 */
PKV_API pkv_status pkv_session_admit(pkv_session session, size_t n, const int32_t* tokens,
                                     uint64_t total_tokens, uint64_t* matched);

/** A prompt, or any text: its token ids, and the salt of its sessions. */
typedef struct pkv_prompt {
  uint32_t struct_size;  /**< Must be sizeof(pkv_prompt). */
  uint32_t reserved;     /**< Must be 0. */
  const void* salt;      /**< salt_size bytes. NULL with size 0: none. */
  uint64_t salt_size;    /**< Up to 256. */
  const int32_t* tokens; /**< [n]: the ids. */
  uint64_t n;            /**< The number of tokens. */
} pkv_prompt;

/** Statistics of the index, for one salt or all. */
typedef struct pkv_prefix_stats {
  uint32_t struct_size;      /**< Must be sizeof(pkv_prefix_stats). */
  uint32_t reserved;         /**< 0. */
  uint64_t lookups;          /**< Admitted and resumed sessions, even if nothing was found. */
  uint64_t lookup_tokens;    /**< Tokens looked for. */
  uint64_t matched_tokens;   /**< Tokens found, including those in part of a block. */
  uint64_t published_tokens; /**< Tokens cached so far. */
  uint64_t evicted_tokens;   /**< Tokens removed so far because memory was needed. */
  uint64_t expelled_tokens;  /**< Tokens removed so far because a salt's quota was full. */
  /** Tokens removed so far by pkv_prefix_clear, DROP and pkv_session_drop_blocks. */
  uint64_t cleared_tokens;
  uint64_t cached_tokens;    /**< Tokens cached now. */
  uint64_t evictable_tokens; /**< Cached ones that are evictable. */
  uint64_t pinned_tokens;    /**< Cached ones that are pinned. */
  uint64_t yielded_pins;     /**< Pins that ended so far because a call needed their blocks. */
} pkv_prefix_stats;

/**
 * Pass it as salt_size to pkv_prefix_get_stats or pkv_prefix_clear to mean all salts. Other
 * functions refuse it.
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
 * Statuses: UNSUPPORTED (no index). Since 1.0.
 */
PKV_API pkv_status pkv_prefix_get_stats(pkv_cache cache, const void* salt, size_t salt_size,
                                        pkv_prefix_stats* out);

/**
 * Removes the evictable blocks of one salt or of all. In groups with a window or states, those of
 * sequences that are in use stay. Blocks in use or pinned stay, and so do items in a store: later
 * sessions can match them. After new weights are loaded, create a new cache, with another
 * fingerprint if it has a store.
 *
 * @param     cache      The cache.
 * @param[in] salt       The salt. NULL with size 0: sessions without one.
 * @param     salt_size  Bytes of the salt, or PKV_ALL_SALTS.
 *
 * Statuses: UNSUPPORTED (no index). Since 1.0.
 */
PKV_API pkv_status pkv_prefix_clear(pkv_cache cache, const void* salt, size_t salt_size);

/**
 * Returns how much of a prompt is cached in memory. Needs no session, holds no blocks, and changes
 * neither statistics nor which blocks are evicted next.
 *
 * @param      cache   The cache.
 * @param[in]  prompt  The prompt.
 * @param[out] cached  The number of tokens that a match would find now, in full blocks. (A match
 *                     may also find a part of the next block, and blocks that only a store has.)
 *
 * Statuses: UNSUPPORTED (no index). Since 1.0.
 */
PKV_API pkv_status pkv_prefix_probe(pkv_cache cache, const pkv_prompt* prompt, uint64_t* cached);

/** Pass it as `tokens` to pkv_prefix_set_quota to mean no limit. */
#define PKV_NO_QUOTA UINT64_MAX

/**
 * Limits what one salt may have cached from now on.
 *
 * When the quota is full, the salt's own evictable blocks are removed: those of lower retention
 * first, and among equals the least recently used. If it has none, new blocks of its sessions are
 * not cached. Evictable blocks that are already over the quota are removed at once.
 *
 * @param     cache      The cache.
 * @param[in] salt       The salt. NULL with size 0: sessions without one.
 * @param     salt_size  Bytes of the salt.
 * @param     tokens     The most tokens, block_size or more, rounded down to whole blocks. 0
 *                       (default): max_tokens_per_salt of the config; PKV_NO_QUOTA: no limit.
 *
 * Statuses: UNSUPPORTED (no index), INVALID_ARGUMENT (less than one block), OUT_OF_MEMORY.
 * Since 1.0.
 */
PKV_API pkv_status pkv_prefix_set_quota(pkv_cache cache, const void* salt, size_t salt_size,
                                        uint64_t tokens);

/* ---- Events, for routers that send a request to the cache that has most of it -----------------*/

/** What happened to a cached block of tokens. */
typedef enum pkv_prefix_event_kind PKV_ENUM {
  PKV_PREFIX_EVENT_PUBLISHED = 1, /**< A match can now end right after it. */
  /** A match can no longer end there: a block that it needs was evicted. */
  PKV_PREFIX_EVENT_EVICTED = 2,
  PKV_PREFIX_EVENT_EXPELLED = 3, /**< It was removed because its salt's quota was full. */
  /** It was removed by pkv_prefix_clear, DROP or pkv_session_drop_blocks. */
  PKV_PREFIX_EVENT_CLEARED = 4
} pkv_prefix_event_kind;

/**
 * A change of one full block of tokens, in all layer groups. Treat an unknown kind below 100 as a
 * removal; ignore unknown kinds of 100 or more. To predict a match, find the last block of the
 * prompt with an event PUBLISHED and no later removal: the match ends after it. Without windows and
 * states, all blocks before it are cached as well; with them, some may be missing. This struct will
 * never grow.
 */
typedef struct pkv_prefix_event {
  uint64_t number;   /**< One more than that of the event before it; the first one is random. */
  uint64_t hash;     /**< Hash of the block and all blocks before it: see pkv_prefix_hash_blocks. */
  uint64_t parent;   /**< Hash of the previous block; for the first block, of the salt. */
  uint64_t position; /**< Position of its first token in the sequence. */
  pkv_prefix_event_kind kind; /**< What happened. */
  uint32_t reserved;          /**< 0. */
} pkv_prefix_event;

/**
 * Copies the events of all salts, in order. Any number of readers may each keep a `next` of their
 * own.
 *
 * @param         cache   The cache.
 * @param[in,out] next    In: the number of the first event to read; 0: the first of all. Out: the
 *                        number of the next one.
 * @param         n       How many events to read at most.
 * @param[out]    events  [n]: the events.
 * @param[out]    count   How many were read.
 * @param[out]    lost    The number of events from *next on that were overwritten before this call,
 *                        since the cache keeps only recent ones. If it is not 0, ask
 *                        pkv_prefix_probe about the prompts that you know. May be NULL.
 *
 * Statuses: UNSUPPORTED (no index, or max_events is 0 in its config), OUT_OF_RANGE (*next is of
 * another cache: forget what that one had, and begin at 0). Since 1.0.
 */
PKV_API pkv_status pkv_prefix_read_events(pkv_cache cache, uint64_t* next, size_t n,
                                          pkv_prefix_event* events, size_t* count, uint64_t* lost);

/**
 * Computes the hashes that events have for the full blocks of a prompt. Equal hashes are a hint
 * that a prompt is cached, not proof.
 *
 * The hash of a block is XXH3 (64 bits) of its token ids (int32, native byte order), with the hash
 * of the block before it as seed. The seed of the first block is XXH3 of the salt's bytes, without
 * a seed. Anyone who knows a prompt and its salt can compute its hashes: they are no secret.
 *
 * @param[in]  prompt      The prompt.
 * @param      block_size  Tokens per block: a multiple of 16, 16 to 256.
 * @param[out] hashes      [prompt->n / block_size]: the hashes.
 *
 * Statuses: INVALID_ARGUMENT. Since 1.0.
 */
PKV_API pkv_status pkv_prefix_hash_blocks(const pkv_prompt* prompt, uint32_t block_size,
                                          uint64_t* hashes);

#ifdef __cplusplus
}
#endif
#endif
