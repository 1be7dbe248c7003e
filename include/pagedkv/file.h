/* pagedkv: sessions in files. Saves sessions, snapshots and the prefix index to a path, a
 * descriptor, a buffer or the caller's functions, and loads them into a cache of the same model.
 *
 * The loading cache may be in another process and have a different block size, layout or
 * instruction set. A different block size works without states and opaque groups; what is left of a
 * window must begin at a multiple of the new size. If both caches store F32, F16 or BF16, a load
 * converts between these types; other types must be the same and come back bit for bit. Blocks that
 * sessions share are written once, and shared again after loading. guide/files.md shows examples;
 * FORMAT.md beside it describes every byte.
 *
 * All content is protected by XXH3 checksums or, with a key, encrypted and authenticated by
 * AES-256-GCM; such a file shows only its size and that pagedkv wrote it. A load opens all sessions
 * of the file, or none. A load that fails adds nothing to the prefix index, but may have evicted
 * cached blocks. A regular file and a buffer are checked before that, so that a damaged one evicts
 * nothing.
 *
 * Threads: every function may be called from any thread. A save first takes snapshots; then other
 * threads may use the sessions while it writes. Only the calling thread waits for the stream and
 * for block_io: a pipe that nobody reads delays no step of the cache.
 */
#ifndef PAGEDKV_FILE_H
#define PAGEDKV_FILE_H

#include <pagedkv/session.h>
#include <pagedkv/snapshot.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Where the bytes of a file come from or go to. */
typedef enum pkv_stream_kind PKV_ENUM {
  /**
   * A regular file by its path. A save writes a new file in the same directory and renames it when
   * it is complete and on disk (fsync of the file, rename, fsync of its directory): at any time,
   * even after a crash, the path is the old file or the new one.
   *
   * A new file has mode 0600 and belongs to the effective user. If it replaces a file that no other
   * user can have put there, it keeps that file's permissions. This requires that (1) the old file
   * belongs to the effective user and has one hard link, (2) its directory belongs to that user or
   * to root, and (3) other users cannot write to the directory, or it is sticky. Set-id bits and
   * access control lists are never kept. The permissions of the group and of others are kept only
   * if the old file had no access control list and the new one can have the same Unix group.
   *
   * A path that ends in a symbolic link, a directory, a FIFO, a socket or a device is refused
   * (PKV_IO). Links earlier in the path are followed. Anyone who can write to the directory or
   * rename it can replace or delete saved files, and a load does not check a file's owner: only a
   * key proves that nobody else wrote it.
   *
   * On file systems with O_TMPFILE, an unfinished file has no name. Otherwise, and during a rename,
   * its name is ".pagedkv-", 16 hexadecimal digits and ".tmp", and its writer holds a lock on it
   * (flock). Later saves in the directory delete such files of the effective user that nobody has
   * locked. (If a network file system does not share locks between machines, save from one machine
   * at a time.)
   */
  PKV_STREAM_PATH = 1,
  /**
   * An open, blocking descriptor, from its current position. It stays open; bytes after the file
   * are neither read nor changed. A failed save leaves the bytes that it wrote. After a failed
   * load, and after pkv_file_inspect, the position is somewhere in the file: seek before the next
   * call. Not on Windows (UNSUPPORTED): use the caller's functions.
   */
  PKV_STREAM_DESCRIPTOR = 2,
  PKV_STREAM_BUFFER = 3, /**< The caller's memory. */
  /** The caller's functions. A load reads no byte after the file. */
  PKV_STREAM_CALLBACKS = 4
} pkv_stream_kind;

/** A stream. Only the fields of its kind are used. */
typedef struct pkv_stream {
  uint32_t struct_size; /**< Must be sizeof(pkv_stream). */
  pkv_stream_kind kind; /**< Which of the fields below are used. */
  const char* path;     /**< PATH: the file. */
  int32_t descriptor;   /**< DESCRIPTOR: the descriptor. */
  uint32_t reserved;    /**< Must be 0. */
  void* data;           /**< BUFFER: the memory; only a save writes to it. */
  uint64_t size;        /**< BUFFER: its bytes; for a load, exactly those of the file. */
  /**
   * CALLBACKS, a hook (common.h): copies up to n bytes to `to`. Returns how many, or a negative
   * errno; 0 is the end of the stream.
   */
  int64_t (*read)(void* user, void* to, uint64_t n);
  /**
   * CALLBACKS, a hook: writes up to n bytes from `from`. Returns how many, or a negative errno; 0
   * is an error.
   */
  int64_t (*write)(void* user, const void* from, uint64_t n);
  void* user; /**< CALLBACKS: passed to both functions. */
} pkv_stream;

/** Options for saving and loading. */
typedef struct pkv_file_config {
  uint32_t struct_size; /**< Must be sizeof(pkv_file_config). */
  /** 1: also saves or loads the prefix index, if the cache has one. 0 (default): only sessions. */
  uint32_t prefix_index;
  /**
   * For loading a file without a key into a cache with a prefix index. A user that can write such a
   * file can put sequences under any salt, and so into any tenant's part of the index. 0 (default):
   * an unencrypted file that contains salts is a MISMATCH. 1: it is accepted. Sequences without a
   * salt are accepted in both cases, so never load an unencrypted file that others can write.
   */
  uint32_t trust_salts;
  /**
   * For saving: whether the call waits until the file is on disk. DEFAULT: with PATH it does; other
   * kinds cannot, and ON is UNSUPPORTED for them.
   */
  pkv_durability durability;
  /**
   * Identifies what K and V depend on besides the config and the tokens: the weights, RoPE
   * settings, the rank with tensor or pipeline parallelism, and for opaque groups the order of the
   * engine's bytes; for example a hash of these. A load refuses a file with a different one
   * (MISMATCH); NULL is none, and loads only files without one.
   */
  const void* fingerprint;
  uint64_t fingerprint_size; /**< Its bytes, up to 64. */
  /**
   * Secret bytes that encrypt and authenticate the file: random ones, not a password. NULL: only
   * checksums, which detect accidental changes.
   */
  const void* secret_key;
  uint64_t secret_key_size; /**< Its bytes, 16 to 64. */
  /**
   * For loading: the most tokens that the sessions of the file may have in all; shared ones count
   * in each (`tokens` of pkv_file_info). Each takes 4 bytes for its id and a share of a block
   * table, so a small file could take any amount of memory. 0 (default): 64 times as many tokens as
   * the blocks of the largest group hold, plus the tokens whose ids are in the file, shared ones
   * counted once.
   */
  uint64_t max_tokens;
} pkv_file_config;

/** A session or a snapshot to save. This struct will never grow. */
typedef struct pkv_file_item {
  pkv_session session;   /**< NULL if there is a snapshot. */
  pkv_snapshot snapshot; /**< NULL if there is a session. */
  uint64_t label;        /**< Any number of the caller's; pkv_file_load returns it. */
} pkv_file_item;

/**
 * Saves sessions, snapshots and, if the config says so, the prefix index of a cache. A file
 * contains
 *
 * - token ids, including those that suspended sessions remember,
 * - K, V and states as stored: of a group with a window what is still held, of an opaque group what
 *   block_io reads; with storage EXTERNAL and no opaque groups none,
 * - priorities, and if the cache has a prefix index how sessions use it, retentions and salts.
 *
 * It does not contain reserved blocks, nor hints except for a retention of all tokens without a
 * duration. The blocks of the items are held until the call returns. Blocks of the prefix index are
 * held only while block_io reads them: if steps evict some before they are written, their sequences
 * are shorter in the file. Texts that enter the index while it is saved may be missing.
 *
 * @param      cache   The cache.
 * @param      n       The number of items; may be 0.
 * @param[in]  items   [n]: the sessions and snapshots.
 * @param[in]  config  The config. NULL: defaults.
 * @param[in]  to      The stream to write. The data of a buffer may be NULL if its size is 0.
 * @param[out] bytes   The size of the file; set on PKV_OK and, for a buffer, on BUFFER_TOO_SMALL.
 *                     May be NULL.
 *
 * Statuses: BUFFER_TOO_SMALL, WRONG_CACHE, BUSY (an item is in a step), IO, UNSUPPORTED (a key, in
 * a build without libsodium or libcrypto; a descriptor, on Windows), LIMIT_REACHED. Since 1.0.
 */
PKV_API pkv_status pkv_file_save(pkv_cache cache, size_t n, const pkv_file_item* items,
                                 const pkv_file_config* config, const pkv_stream* to,
                                 uint64_t* bytes);

/**
 * Opens every item of a file as a session of the cache, in the order of pkv_file_save.
 *
 * - Groups must match those of the cache in kind, layers, layer indices, KV heads, dims, window,
 *   sinks, rotation and layer_bytes. For a different block size, see above: a window fits if the
 *   new size divides the old one. A path or a buffer must end where the file ends.
 * - Blocks are allocated after the file was checked. This may evict cached blocks, but ends no pins
 *   and does not wait as pkv_batch_begin may. A pipe or a callback cannot be read twice: only the
 *   part before K and V is checked first, and a call that fails has used up the stream.
 * - A session that was suspended when it was saved is suspended.
 * - Loaded sessions share blocks, but each has its own copy of its token ids: see max_tokens.
 * - Entries of the saved prefix index are left out if the cache has them already or has no room for
 *   them. If they have more than 64 times as many tokens as the cache can hold, the least recently
 *   used ones are left out as well. Files do not contain pins, quotas, or what the eviction policy
 *   has learned.
 *
 * @param      cache     The cache.
 * @param[in]  config    The config. NULL: defaults.
 * @param[in]  from      The stream to read.
 * @param      capacity  The number of entries that fit into sessions and labels.
 * @param[out] sessions  [capacity]: the sessions, to be closed by the caller.
 * @param[out] labels    [capacity]: the label of each session. May be NULL.
 * @param[out] count     The number of items in the file.
 *
 * Statuses: BUFFER_TOO_SMALL, CORRUPT, WRONG_VERSION, WRONG_KEY, MISMATCH (a different model,
 * fingerprint or dtype; storage EXTERNAL and another; salts without a key, see trust_salts), IO,
 * OUT_OF_BLOCKS, TOO_LARGE (more blocks than the cache has, or more than max_tokens), UNSUPPORTED
 * (as pkv_file_save), LIMIT_REACHED. Since 1.0.
 */
PKV_API pkv_status pkv_file_load(pkv_cache cache, const pkv_file_config* config,
                                 const pkv_stream* from, size_t capacity, pkv_session* sessions,
                                 uint64_t* labels, size_t* count);

/** The properties of a file. */
typedef struct pkv_file_info {
  uint32_t struct_size;    /**< Must be sizeof(pkv_file_info). */
  uint32_t version;        /**< Version of the format: 1. */
  uint64_t bytes;          /**< Size of the file. */
  uint64_t kv_bytes;       /**< Bytes of K and V. */
  uint64_t sessions;       /**< Sessions and snapshots. */
  uint64_t tokens;         /**< Tokens of all of these; shared ones count in each. */
  uint64_t stored_tokens;  /**< Positions whose K and V are in the file; shared ones count once. */
  uint64_t prefix_entries; /**< Entries of the prefix index. */
  uint32_t block_size;     /**< Tokens per block of the cache that was saved. */
  uint32_t group_count;    /**< Layer groups. */
  uint32_t layers;         /**< Layers over all groups. */
  uint32_t has_kv;         /**< 0: saved with storage EXTERNAL, without opaque groups. */
  uint32_t encrypted;      /**< 1: saved with a key, so encrypted and authenticated. */
  uint32_t fingerprint_size;     /**< Bytes of the fingerprint; 0: the file has none. */
  unsigned char fingerprint[64]; /**< The fingerprint. */
} pkv_file_info;

/**
 * Returns the properties of a file. Reads everything except K and V. Needs no cache.
 *
 * @param[in]  config  The key of the file, and the fingerprint that it must have (NULL: any). NULL:
 *                     no key, any fingerprint.
 * @param[in]  from    The stream to read.
 * @param[out] out     The properties.
 *
 * Statuses: CORRUPT, WRONG_VERSION, WRONG_KEY, MISMATCH (fingerprint), IO, UNSUPPORTED. Since 1.0.
 */
PKV_API pkv_status pkv_file_inspect(const pkv_file_config* config, const pkv_stream* from,
                                    pkv_file_info* out);

#ifdef __cplusplus
}
#endif
#endif
