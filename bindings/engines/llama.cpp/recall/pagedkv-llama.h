/* pagedkv-llama: keeps the states of llama.cpp's sequences in a cache of libpagedkv, so that a text
 * that begins like an earlier one is restored instead of computed.
 *
 * It works with any program that holds a llama_context, and needs neither headers nor a special
 * build of llama.cpp: it finds llama.cpp's public functions in the process. The cache shares what
 * texts have in common, stays within max_bytes, evicts what is least likely to be used again, and
 * can continue in a store (pagedkv/store.h) that survives restarts. A salt separates tenants.
 *
 *   pkv_llama_config config = {.struct_size = sizeof config, .context = context};
 *   config.max_bytes = 1 << 30;
 *   pkv_llama llama;
 *   pkv_llama_open(&config, &llama);
 *   ...
 *   pkv_prompt prompt = {.struct_size = sizeof prompt, .tokens = tokens, .n = n - 1};
 *   pkv_llama_recall(llama, 0, &prompt, &length);     (sequence 0 is empty)
 *   ...                                               (decode tokens [length, n), generate)
 *   prompt.n = all;                                   (what sequence 0 now holds)
 *   pkv_llama_remember(llama, 0, &prompt);
 *
 * Blocks. Texts are kept in blocks of block_size tokens. Remember keeps full blocks only; recall
 * can end anywhere inside one, or if only a store has it, at its beginning.
 *
 * Ends. With sliding windows or recurrent layers, what a sequence has after a token cannot be made
 * from what it has after a later one. It is kept apart from blocks, as an end, in end_bytes bytes
 * (pkv_llama_stats). So a text is restored exactly up to a length at which remember was called,
 * which must be a multiple of block_size. Decode a prompt up to its last such multiple, remember,
 * then decode the rest; n / block_size * block_size tokens of a prompt of n + 1 are the most that
 * the next recall can need. Texts still share the blocks of their common beginning.
 *
 * Pieces. llama.cpp reads and writes the state of a sequence only as a whole. But with kv_unified
 * and without ends, remember and recall can work in pieces of up to 16 MiB, and remember reads only
 * what is new: they need a second sequence that is empty, use it, and leave it empty. So give
 * n_seq_max one more than you have conversations in the context.
 *
 * Errors. Functions return a pkv_status. pkv_llama_last_error says in one sentence what was wrong.
 * A call that fails changes neither what is cached nor the sequence.
 *
 * Contexts. Supported are models with attention in all layers, with sliding windows or chunks in
 * some, with recurrent layers, or hybrids of these. Not supported are M-RoPE, encoders, attention
 * caches with more than keys and values (sparse attention with an indexer), and models in which all
 * attention has windows. Types of keys and values, flash attention, kv_unified and swa_full may be
 * as you like. The states of llama.cpp 0.5 and 0.6 are known; open refuses others.
 *
 * Threads. pkv_llama_open, pkv_llama_remember and pkv_llama_recall use the context: call them where
 * you could call llama_decode. All other functions may be called from any thread, but
 * pkv_llama_close only when no other call runs.
 */
#ifndef PAGEDKV_LLAMA_H
#define PAGEDKV_LLAMA_H

#include <pagedkv/pagedkv.h>

#ifdef __cplusplus
extern "C" {
#endif

/** What a context remembers. */
typedef struct pkv_llama_t* pkv_llama;

/** Options for pkv_llama_open. */
typedef struct pkv_llama_config {
  uint32_t struct_size; /**< Must be sizeof(pkv_llama_config). */
  uint32_t block_size;  /**< Tokens per block: a multiple of 16, 16 to 256; 0 (default): 32. */
  void* context;        /**< The llama_context; it must outlive the pkv_llama. */
  /**
   * The handle that dlopen returned for llama.cpp. NULL (default): its functions are looked for
   * among those that all of the process can see.
   */
  void* library;
  /**
   * The most memory that is kept, in bytes: blocks, their tables, buffers of the store, and 1 MiB
   * that a cache without blocks takes. Besides, remember and recall have a copy of the state of one
   * sequence while they run, or of 16 MiB of it (see "Pieces" above).
   */
  uint64_t max_bytes;
  /**
   * A second level, such as a directory (pkv_store_open_directory) or Redis (pagedkv/redis.h).
   * pkv_llama_open takes it and sets all of the caller's struct but struct_size to zeros. If it
   * fails, the caller still has it. NULL (default): none.
   */
  pkv_store* store;
  /** Secret random bytes that encrypt what is in the store. NULL (default): only checksums. */
  const void* key;
  uint64_t key_size; /**< Its bytes, 16 to 64. */
  /**
   * Something that differs between models, such as a hash of the file. It is for models that differ
   * only in a few embeddings or experts; see pkv_llama_open. NULL (default): nothing.
   */
  const void* model_id;
  uint64_t model_id_size; /**< Its bytes. */
  /** How long recall waits for the store, in milliseconds; 0 (default): 5000. */
  uint32_t wait_ms;
  uint32_t reserved; /**< Must be 0. */
} pkv_llama_config;

/**
 * Opens the memory of a context.
 *
 * To learn what a state of this context looks like, it decodes up to eight tokens in an empty
 * sequence, and removes them. Their keys and values, the sizes and types of all tensors, and the
 * model's description and metadata make a fingerprint: contexts share items of a store only if all
 * of these are equal. So items are not found with other weights, adapters, types, RoPE settings,
 * or a processor that rounds differently. Apply adapters before, and open again if they change.
 *
 * @param[in]  config  The config. All that it points to, but the context, is copied.
 * @param[out] out     The memory, to be closed by pkv_llama_close.
 *
 * Statuses: INVALID_ARGUMENT, UNSUPPORTED (llama.cpp is not in the process; a kind of memory that
 * is not supported), MISMATCH (llama.cpp writes states that are not known), BUSY (no sequence is
 * empty), IO (llama.cpp could not decode), TOO_LARGE (max_bytes has no room for a block),
 * OUT_OF_MEMORY.
 */
PKV_API pkv_status pkv_llama_open(const pkv_llama_config* config, pkv_llama* out);

/**
 * Closes it and, with a store, waits until all is written. The context stays as it is.
 *
 * @param llama  The memory. NULL is OK.
 *
 * Statuses: BUSY (another thread is in a call on the cache of pkv_llama_get_cache).
 */
PKV_API pkv_status pkv_llama_close(pkv_llama llama);

/**
 * Keeps the state of a sequence: all full blocks of its tokens that are not cached. If the cache is
 * too small for all of them, it keeps the first. With ends, it keeps all or nothing.
 *
 * The tokens must be those that were decoded at positions 0 to n - 1 of the sequence, and nothing
 * else: no embeddings, and no cells that were removed from the middle or shifted.
 *
 * @param     llama     The memory.
 * @param     sequence  The sequence (llama_seq_id).
 * @param[in] prompt    Its tokens and the salt.
 *
 * Statuses: INVALID_ARGUMENT (the sequence has another number of tokens), UNSUPPORTED (with ends:
 * their number is not a multiple of block_size), MISMATCH (its state is not like that of open, or
 * the beginning of its window was removed, or it lacks the cell of a position), IO (llama.cpp
 * did not write the state), TOO_LARGE (with ends: the text has more tokens than the cache),
 * OUT_OF_BLOCKS (all are in use or being moved: try again later), OUT_OF_MEMORY.
 */
PKV_API pkv_status pkv_llama_remember(pkv_llama llama, int32_t sequence, const pkv_prompt* prompt);

/**
 * Restores the longest known beginning of some tokens into an empty sequence.
 *
 * @param      llama     The memory.
 * @param      sequence  The sequence; empty it with llama_memory_seq_rm.
 * @param[in]  prompt    The tokens and the salt. Leave out the last token of a prompt: it must be
 *                       decoded to have its logits.
 * @param[out] length    How many tokens the sequence now has; 0: nothing was known.
 *
 * Statuses: INVALID_ARGUMENT (the sequence is not empty, or out of range), IO (llama.cpp did not
 * take the state, most likely because other sequences use its cells; the sequence is still empty),
 * OUT_OF_MEMORY.
 */
PKV_API pkv_status pkv_llama_recall(pkv_llama llama, int32_t sequence, const pkv_prompt* prompt,
                                    uint64_t* length);

/**
 * Removes what only this text has, from its end on, from memory. What other, longer texts continue
 * stays, and so does what is in a store.
 *
 * @param     llama   The memory.
 * @param[in] prompt  The tokens and the salt.
 *
 * Statuses: none of its own.
 */
PKV_API pkv_status pkv_llama_forget(pkv_llama llama, const pkv_prompt* prompt);

/**
 * Keeps what is known of some tokens in memory for a while, whatever else is remembered. At most a
 * quarter of the cache can be pinned.
 *
 * @param      llama        The memory.
 * @param[in]  prompt       The tokens and the salt.
 * @param      duration_ms  For how long, in milliseconds; 0: until the close.
 * @param[out] tokens       How many tokens are pinned: full blocks. May be NULL.
 *
 * Statuses: none of its own.
 */
PKV_API pkv_status pkv_llama_pin(pkv_llama llama, const pkv_prompt* prompt, uint64_t duration_ms,
                                 uint64_t* tokens);

/** Counts since the open. */
typedef struct pkv_llama_stats {
  uint32_t struct_size; /**< Must be sizeof(pkv_llama_stats). */
  uint32_t block_size;  /**< Tokens per block. */
  uint64_t token_bytes; /**< Bytes that each token adds to a text. */
  /**
   * Bytes of an end: of the windows and recurrent states after a token. 0: the model has neither.
   */
  uint64_t end_bytes;
  uint64_t memory_bytes; /**< Memory for blocks, tables and buffers: at most max_bytes. */
  uint64_t max_tokens;   /**< How many tokens fit. */
  /** How many are cached in memory; a token that texts share counts once. */
  uint64_t cached_tokens;
  uint64_t asked_tokens; /**< Tokens that recalls looked for. */
  uint64_t found_tokens; /**< Tokens that they restored. */
} pkv_llama_stats;

/**
 * Returns the statistics.
 *
 * @param      llama  The memory.
 * @param[out] out    The statistics.
 *
 * Statuses: none of its own.
 */
PKV_API pkv_status pkv_llama_get_stats(pkv_llama llama, pkv_llama_stats* out);

/**
 * Returns the cache, for everything else: quotas, other hints, pkv_cache_flush_store, metrics. It
 * has opaque groups: blocks of tokens, and ends. It belongs to the memory.
 *
 * @param      llama  The memory.
 * @param[out] cache  The cache.
 *
 * Statuses: none of its own.
 */
PKV_API pkv_status pkv_llama_get_cache(pkv_llama llama, pkv_cache* cache);

/**
 * Returns the error message of the last function of this header that failed on this thread: one
 * sentence. Never NULL. The text is valid until the next one fails.
 */
PKV_API const char* pkv_llama_last_error(void);

#ifdef __cplusplus
}
#endif
#endif
