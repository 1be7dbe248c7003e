/* pagedkv: sessions in files. What sessions, snapshots and the prefix index hold is written to a
 * path, a descriptor, a buffer or a caller's functions, and read back into a cache of the same
 * model.
 *
 * The reader may be another process and have another block size, layout, storage kind or
 * instruction set, and between F32, F16 and BF16 another dtype; other stored types come back bit
 * for bit. What sessions share is written once and shared again after loading.
 * src/engine/file/FORMAT.md has every byte.
 *
 * All content is checked by XXH3 checksums or, with a key, encrypted and authenticated by
 * AES-256-GCM: then a file tells its size, that it is one of pagedkv's, and nothing else. Loading
 * is a transaction: it gives all sessions of the file, or an error and a cache as before.
 *
 * Threads: every function may be called from any thread. Saving freezes what it saves first, as
 * pkv_snapshot_take does; then the sessions may be used again while bytes are still being written
 * (storage CONTIGUOUS: they are read, and PKV_BUSY for writers, until the call returns). The thread
 * that calls is the one that reads or writes the stream, and the only one that waits for it: a pipe
 * that nobody drains stops no step of the cache.
 */
#ifndef PAGEDKV_FILE_H
#define PAGEDKV_FILE_H

#include <pagedkv/session.h>
#include <pagedkv/snapshot.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Where bytes come from or go to. */
typedef enum pkv_stream_kind PKV_ENUM {
  /**
   * A regular file by its path. Saving writes a new file in the same directory and gives it the
   * name when it is complete and on disk (fsync of the file, rename, fsync of its directory): at
   * every moment, and after a crash, the path has the old file or the new one.
   *
   * Only its owner, the effective user, can read and write a new file (mode 0600). One that
   * replaces a file keeps the permissions of that file if nobody else can have put it there: it
   * belongs to the effective user and has no second name (hard link), its directory belongs to that
   * user or to root, and nobody else may write to that directory, or it is sticky. Set-id bits are
   * never kept, access control lists neither. Permissions of other users are kept only together
   * with the Unix group of the old file, and not where it had an access control list.
   *
   * A path that ends in a symbolic link, a directory, a FIFO, a socket or a device is refused
   * (PKV_IO). Links before the last name are followed: the directory is the caller's choice, and
   * whoever may write to it, or rename it, can replace or delete what was saved. A load does not
   * ask whose a file is: only a key tells that nobody else wrote it.
   *
   * What a killed process leaves has no name on file systems with O_TMPFILE. Where it has, and for
   * the moment of a rename, its name is ".pagedkv-", 16 digits and ".tmp". Its writer holds a lock
   * on it (flock), and later saves in the directory remove those of the effective user that nobody
   * has locked. (On a network file system whose locks other machines do not see, save from one
   * machine at a time.)
   */
  PKV_STREAM_PATH = 1,
  /**
   * An open, blocking descriptor, from where it stands. It stays open, and what follows the file in
   * it is left alone. A save that fails leaves what it has written.
   */
  PKV_STREAM_DESCRIPTOR = 2,
  PKV_STREAM_BUFFER = 3, /**< The caller's memory. */
  /** The caller's functions. A load asks for no byte beyond the file. */
  PKV_STREAM_CALLBACKS = 4
} pkv_stream_kind;

/** One stream. Only the fields of its kind are looked at. */
typedef struct pkv_stream {
  uint32_t struct_size; /**< sizeof(pkv_stream): the caller sets it. */
  pkv_stream_kind kind; /**< Where the bytes come from or go to. */
  const char* path;     /**< PATH: the file. */
  int32_t descriptor;   /**< DESCRIPTOR: the descriptor. */
  uint32_t reserved;    /**< 0. */
  void* data;           /**< BUFFER: the memory; a save writes it, others only read it. */
  uint64_t size;        /**< BUFFER: its bytes; of a load, just those of the file. */
  /**
   * CALLBACKS: moves up to n bytes to the library; returns how many, or a negative errno. 0 ends
   * the file. A hook: see common.h.
   */
  int64_t (*read)(void* user, void* to, uint64_t n);
  /**
   * CALLBACKS: takes up to n bytes from the library; returns how many, or a negative errno. 0 is an
   * error. A hook: see common.h.
   */
  int64_t (*write)(void* user, const void* from, uint64_t n);
  void* user; /**< CALLBACKS: passed to both functions. */
} pkv_stream;

/** What goes with saving and with loading. */
typedef struct pkv_file_config {
  uint32_t struct_size;  /**< sizeof(pkv_file_config): the caller sets it. */
  uint32_t prefix_index; /**< 1: with the prefix index, as far as the cache has one. Default 0. */
  /**
   * Loading into a cache with a prefix index: 1 takes salts from a file without a key. Default 0:
   * such a file is a MISMATCH if it has texts under a salt, since whoever can write it chooses to
   * which tenant's index they go. Texts without a salt are taken either way: load no file that
   * others can write without a key. Saving does not look at it.
   */
  uint32_t trust_salts;
  /**
   * Saving to PATH: 0 (default) waits for the disk. With 1 a power cut may lose the old file and
   * the new one; a killed process loses neither.
   */
  uint32_t skip_fsync;
  /**
   * Names the model (a hash of its weights, say); a file with another one is a MISMATCH. NULL:
   * none.
   */
  const void* fingerprint;
  uint64_t fingerprint_size; /**< Its bytes, up to 64. */
  /**
   * Secret bytes that encrypt and authenticate the file. NULL: checksums, which tell accidents
   * only.
   */
  const void* key;
  uint64_t key_size; /**< Its bytes, 16 to 64. */
} pkv_file_config;

/** One sequence to save: a session or a snapshot. This struct is pinned: it will not grow. */
typedef struct pkv_file_item {
  pkv_session session;   /**< NULL where there is a snapshot. */
  pkv_snapshot snapshot; /**< NULL where there is a session. */
  uint64_t label;        /**< The caller's name for it, which pkv_file_load gives back. */
} pkv_file_item;

/**
 * Saves sequences of a cache and, if the config says so, its prefix index: tokens, K and V as they
 * are stored, what a window has left, priorities, uses of the prefix index, retentions, salts,
 * tokens remembered by a suspension. Storage NONE saves tokens and tables only. Reserved blocks and
 * return hints are not saved. A snapshot is saved with what the session had when it was taken.
 *
 * Sequences stay in use until the call returns. The prefix index does not: steps evict from it as
 * ever, and a text whose blocks they take before these were written is shorter in the file.
 *
 * @param      cache   The cache.
 * @param      n       How many sequences; 0 is OK.
 * @param[in]  items   [n]: the sequences.
 * @param[in]  config  The config. NULL: defaults.
 * @param[in]  to      Where the file goes. The data of a buffer may be NULL if its size is 0.
 * @param[out] bytes   The size of the file; written on PKV_OK and, for a buffer, on
 *                     BUFFER_TOO_SMALL. May be NULL.
 *
 * Statuses: BUFFER_TOO_SMALL, WRONG_CACHE, BUSY (a step is in flight), IO, UNSUPPORTED (a key, in a
 * build without libsodium or libcrypto), TOO_LARGE (fingerprint, key), REF_LIMIT. Since 0.1.
 */
PKV_API pkv_status pkv_file_save(pkv_cache cache, size_t n, const pkv_file_item* items,
                                 const pkv_file_config* config, const pkv_stream* to,
                                 uint64_t* bytes);

/**
 * Opens every sequence of a file as a session of the cache, in the order of pkv_file_save.
 *
 * - Layers, KV heads, dims, windows and sinks must be those of the cache. Blocks may have any size,
 *   except that what a group with a window holds must fill whole blocks (it does if the new size
 *   divides the old one). A path or a buffer must end where the file ends.
 * - Blocks are taken as by pkv_batch_begin, cached ones that nobody uses included. Those are
 *   evicted only after all of the file was checked or, where a stream cannot be read twice (a pipe,
 *   callbacks), as soon as its tables were checked.
 * - Of the prefix index, entries that the cache has already are not loaded twice. Entries for which
 *   there is no memory are left out, and so are those used longest ago of a file whose entries
 *   would fill the cache more than 64 times. Pins, quotas and what the cache has learned of reuse
 *   are not saved.
 *
 * @param      cache     The cache.
 * @param[in]  config    The config. NULL: defaults.
 * @param[in]  from      Where the file comes from.
 * @param      capacity  Entries that sessions and labels have room for.
 * @param[out] sessions  [capacity]: the sessions, to be closed by the caller. May be NULL if
 *                       capacity is 0.
 * @param[out] labels    [capacity]: the label of each session. May be NULL.
 * @param[out] count     How many sequences the file has; written on PKV_OK and on BUFFER_TOO_SMALL.
 *
 * Statuses: BUFFER_TOO_SMALL, CORRUPT (also a wrong key), VERSION, MISMATCH (another model,
 * fingerprint, dtype or storage; a key where there is none in the file, or none given where there
 * is; salts without a key, see trust_salts), IO, OUT_OF_BLOCKS, TOO_LARGE, UNSUPPORTED (as
 * pkv_file_save), REF_LIMIT. Since 0.1.
 */
PKV_API pkv_status pkv_file_load(pkv_cache cache, const pkv_file_config* config,
                                 const pkv_stream* from, size_t capacity, pkv_session* sessions,
                                 uint64_t* labels, size_t* count);

/** What a file says of itself. */
typedef struct pkv_file_info {
  uint32_t struct_size;          /**< sizeof(pkv_file_info): the caller sets it. */
  uint32_t version;              /**< Version of the format: 1 without a key, 2 with one. */
  uint64_t bytes;                /**< Size of the file. */
  uint64_t kv_bytes;             /**< Of these, keys and values. */
  uint64_t sessions;             /**< Sequences. */
  uint64_t tokens;               /**< Tokens of all sequences; shared ones count in each. */
  uint64_t stored_tokens;        /**< Positions whose K and V are stored; shared ones count once. */
  uint64_t prefix_entries;       /**< Texts of the prefix index. */
  uint32_t block_size;           /**< Tokens per block of the cache that was saved. */
  uint32_t groups;               /**< Layer groups. */
  uint32_t layers;               /**< Layers over all groups. */
  uint32_t has_kv;               /**< 0: saved with storage NONE. */
  uint32_t authenticated;        /**< 1: saved with a key, so encrypted and authenticated. */
  uint32_t fingerprint_size;     /**< Bytes of the fingerprint; 0: the file has none. */
  unsigned char fingerprint[64]; /**< What the saver named the model by. */
} pkv_file_info;

/**
 * Reads the tables of a file, not its K and V, and tells what it holds. Needs no cache.
 *
 * @param[in]  config  Its key is used, and its fingerprint compared. NULL: neither.
 * @param[in]  from    Where the file comes from.
 * @param[out] out     The answer.
 *
 * Statuses: CORRUPT, VERSION, MISMATCH (key, fingerprint), IO, UNSUPPORTED, TOO_LARGE. Since 0.1.
 */
PKV_API pkv_status pkv_file_inspect(const pkv_file_config* config, const pkv_stream* from,
                                    pkv_file_info* out);

#ifdef __cplusplus
}
#endif
#endif
