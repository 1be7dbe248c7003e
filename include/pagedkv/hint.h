/* pagedkv: hints, by which an engine or an orchestrator says what it knows about the future of
 * cached tokens: a system prompt must stay, an agent waits for its tool, a thinking part is no
 * longer needed. guide/hints.md has examples, and the names that vLLM, TensorRT-LLM and SGLang use.
 *
 * A hint is an action for a target: a range [first, end) of a session or of a prompt (tokens with a
 * salt). Its result says what was done. A hint acts on whole blocks: those that lie fully inside
 * the range. A block is reachable only through the blocks before it, so PIN, UNPIN, PREFETCH and
 * STORE take all tokens before `end`. Fields that an action does not use must be 0.
 *
 * A hint never makes a step fail, except for a moment while block_io copies blocks to or from a
 * store (store.h). If begin, reserve or resume lack blocks because of pins, they end pins, those
 * that would end soonest first (yielded_pins in pkv_prefix_stats), but none if the call would fail
 * anyway. For a request that can wait, pkv_session_admit ends none. A hint does not touch what
 * other salts have cached; a quota (pkv_prefix_set_quota) limits what a salt can keep by hints.
 *
 * Durations are in milliseconds, by the `clock` of the cache's config. What SET_RETENTION and PIN
 * ask for ends by itself after its duration.
 *
 * Threads: every function may be called from any thread, even while the session is in a batch; but
 * while a call changes that batch (write and attend do), pkv_hint_session returns PKV_BUSY. A hint
 * locks the prefix index as a match does.
 */
#ifndef PAGEDKV_HINT_H
#define PAGEDKV_HINT_H

#include <pagedkv/prefix.h>
#include <pagedkv/session.h>

#ifdef __cplusplus
extern "C" {
#endif

/** What to do with the blocks of a range. */
typedef enum pkv_hint_action PKV_ENUM {
  /**
   * Evicts blocks later or earlier than others, as `retention` says.
   *
   * For a prompt, it applies to the blocks cached now. With a duration, it can only raise their
   * retention (LOW has no effect) until the duration has passed; if several such hints overlap, the
   * highest retention applies until the last of them ends.
   *
   * For a session, it applies to the blocks that the session leaves behind, and the duration starts
   * when the session ends. Where ranges overlap, the latest hint wins; a hint without a duration
   * that covers all tokens replaces all earlier ones. A shared block has the highest retention of
   * all its sessions.
   */
  PKV_HINT_SET_RETENTION = 1,
  /**
   * Says that a later session will probably begin with the tokens of this one, about duration_ms
   * after this one ends, for example when a tool returns. PKV_RETURN_NEVER: none will; 0: unknown.
   * Only for sessions. The policy LEARNED measures when sequences with similar hints really return,
   * so a wrong hint costs little. Similar are those below 200 ms, those of 200 to 400 ms, of 400 to
   * 800 ms and so on, doubling, and those of 3,276.8 s or more. Other policies ignore it. Forks and
   * snapshots inherit it.
   */
  PKV_HINT_EXPECT_RETURN = 2,
  /**
   * Keeps what is in memory before `end`, in use or not, until the duration has passed, UNPIN ends
   * it, or a call needs the blocks. What is cached later is not pinned: pin again after the prefill
   * or PREFETCH. Pins that end at the same cached block, even those of other prompts with the same
   * prefix, are one: it lasts as long as the longest, and one UNPIN ends it.
   */
  PKV_HINT_PIN = 3,
  /**
   * Ends one pin, even if another caller made it: the longest of a prefix of this text for which
   * PIN asked for `end` or more tokens, even if it was clipped. `tokens` of the result says how
   * many tokens were pinned.
   */
  PKV_HINT_UNPIN = 4,
  /**
   * Reads blocks that are in the store, but not in memory, into the prefix index, with the given
   * retention; a later match finds those that have arrived. Takes only free and evictable blocks,
   * and blocks that wait to be written.
   * Requests, and the reads that admit and resume wait for (wait_ms), are served round-robin by
   * salt. At most 64 are pending; one more cancels the newest request of the salt with the most. A
   * request whose turn comes after its duration is discarded then. See pkv_prefetch_wait.
   */
  PKV_HINT_PREFETCH = 5,
  /** Writes what is cached before `end` to the store now, instead of when its session ends. */
  PKV_HINT_STORE = 6,
  /**
   * As STORE; blocks of the range get the retention LOW if all of them are written. If the result
   * is DEFERRED, a session keeps it as SET_RETENTION with LOW, unless it has 64 ranges.
   */
  PKV_HINT_DEMOTE = 7,
  /**
   * Removes cached blocks from `end` back to `first`, stopping at the first block that is in
   * use or pinned, or that another text continues. Items in the store stay.
   *
   * For a session that is not suspended, `end` must be PKV_TO_END, and the drop happens at close:
   * everything from the lowest `first` of its DROP hints on is removed, and not written to the
   * store unless the session is suspended before. Trimming to that point or before it cancels the
   * drop. For a suspended session, the drop happens now; blocks that are being written to the store
   * stay.
   */
  PKV_HINT_DROP = 8
} pkv_hint_action;

/** Whether a hint was carried out. */
typedef enum pkv_hint_outcome PKV_ENUM {
  /** Done; SET_RETENTION and EXPECT_RETURN of a session: kept until it ends. */
  PKV_HINT_OUTCOME_DONE = 1,
  PKV_HINT_OUTCOME_CLIPPED = 2, /**< Done for fewer tokens than asked; the reason says why. */
  /** STORE, DEMOTE and PREFETCH: queued. DROP of an open session: happens when it is closed. */
  PKV_HINT_OUTCOME_DEFERRED = 3,
  PKV_HINT_OUTCOME_REJECTED = 4, /**< Not done; the reason says why. */
  /** Nothing of the range is cached, no full block lies in it, or there is no such pin. */
  PKV_HINT_OUTCOME_MISSING = 5
} pkv_hint_outcome;

/** Why a hint was not done, or not for all tokens. */
typedef enum pkv_hint_reason PKV_ENUM {
  PKV_HINT_REASON_NONE = 0,       /**< Nothing limits it. */
  PKV_HINT_REASON_NOT_CACHED = 1, /**< The rest is not cached. */
  /**
   * PIN: max_pinned_tokens. SET_RETENTION: 64 ranges of a session. PREFETCH: 64 are pending. STORE
   * and DEMOTE: half of max_queued_tokens wait to be written.
   */
  PKV_HINT_REASON_LIMIT = 2,
  PKV_HINT_REASON_QUOTA = 3,      /**< The quota of the salt; pins may take half of it. */
  PKV_HINT_REASON_IN_USE = 4,     /**< Sessions, pins, a store or longer texts need the rest. */
  PKV_HINT_REASON_NO_STORE = 5,   /**< The cache has no store. */
  PKV_HINT_REASON_STORE_DOWN = 6, /**< The store failed, and is not asked for a while. */
  /** The session does not use the prefix index (PKV_PREFIX_OFF). */
  PKV_HINT_REASON_NO_INDEX = 7
} pkv_hint_reason;

/** Pass it as duration_ms of EXPECT_RETURN to mean that the text will not continue. */
#define PKV_RETURN_NEVER UINT64_MAX

/** Pass it as `end` of a hint to mean the end of the text. */
#define PKV_TO_END UINT64_MAX

/** A hint. */
typedef struct pkv_hint {
  uint32_t struct_size;   /**< Must be sizeof(pkv_hint). */
  pkv_hint_action action; /**< What to do. */
  /** SET_RETENTION, DEMOTE and DROP: where the range begins, in tokens; at most `end`. */
  uint64_t first;
  /**
   * All but EXPECT_RETURN: where the range ends, 1 or more; for a prompt at most its length. (A
   * session may be shorter: tokens can follow.) PKV_TO_END: where the text ends; SET_RETENTION of a
   * session then includes later tokens.
   */
  uint64_t end;
  pkv_retention retention; /**< SET_RETENTION and PREFETCH. Default NORMAL. */
  uint32_t reserved;       /**< Must be 0. */
  /**
   * SET_RETENTION and PIN: for how long. PREFETCH: how long it may wait before it starts. 0: no
   * limit. EXPECT_RETURN: in how long.
   */
  uint64_t duration_ms;
} pkv_hint;

/** The result of a hint. */
typedef struct pkv_hint_result {
  uint32_t struct_size;     /**< Must be sizeof(pkv_hint_result). */
  pkv_hint_outcome outcome; /**< Whether it was done. */
  pkv_hint_reason reason;   /**< Why it was not done, or not for all tokens. */
  uint32_t reserved;        /**< 0. */
  /**
   * How many tokens the hint covers, in full blocks: of the range, or (PIN, UNPIN, PREFETCH, STORE,
   * DEMOTE) of everything before `end`. EXPECT_RETURN: all tokens of the session.
   */
  uint64_t tokens;
} pkv_hint_result;

/**
 * Gives a hint about a prompt, or any text.
 *
 * @param      cache   The cache.
 * @param[in]  prompt  The prompt.
 * @param[in]  hint    The hint.
 * @param[out] result  What was done. May be NULL.
 *
 * Statuses: UNSUPPORTED (no index), INVALID_ARGUMENT (an unknown action or retention;
 * EXPECT_RETURN; end is 0 or before first; a field that the action does not use), OUT_OF_RANGE
 * (first or end is after the prompt), LIMIT_REACHED. Since 1.0.
 */
PKV_API pkv_status pkv_hint_prompt(pkv_cache cache, const pkv_prompt* prompt, const pkv_hint* hint,
                                   pkv_hint_result* result);

/**
 * Gives a hint about a session. SET_RETENTION, EXPECT_RETURN, DEMOTE and DROP are kept until it is
 * closed, and inherited by forks and snapshots. PIN, UNPIN, PREFETCH, STORE and DEMOTE apply now,
 * to the session's token ids up to the first unknown one; a larger `end` is clipped to these. If
 * the session is suspended, SET_RETENTION also applies now, to the remembered ids, and DROP applies
 * only now.
 *
 * @param      session  The session.
 * @param[in]  hint     The hint.
 * @param[out] result   What was done. May be NULL.
 *
 * Statuses: UNSUPPORTED (no index), INVALID_ARGUMENT (an unknown action or retention; end is 0 or
 * before first; a field that the action does not use; DROP with an end, unless the session is
 * suspended), LIMIT_REACHED. Since 1.0.
 */
PKV_API pkv_status pkv_hint_session(pkv_session session, const pkv_hint* hint,
                                    pkv_hint_result* result);

#ifdef __cplusplus
}
#endif
#endif
