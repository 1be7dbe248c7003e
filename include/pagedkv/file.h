/* pagedkv: sessions in files. What sessions, snapshots and the prefix index hold is written to a path, a descriptor, a buffer or a caller's
 * functions, and read back into a cache of the same model: another process, block size, layout, storage kind or instruction set, and
 * between F32, F16 and BF16 another dtype. Other stored types come back bit for bit. src/engine/file/FORMAT.md has every byte.
 *
 * What sessions share is written once and shared again after loading. All content is checked by XXH3 checksums or, with a
 * key, encrypted and authenticated by AES-256-GCM: then a file tells its size, that it is one of
 * pagedkv's, and nothing else.
 * Loading is a transaction: it gives all sessions of the file, or an error and a cache as before.
 *
 * Threads: every function may be called from any thread. Saving freezes what it saves first, as pkv_snapshot_take does; then the sessions may be
 * used again while bytes are still being written (storage CONTIGUOUS: they are read, and PKV_BUSY for writers, until the call returns).
 * The thread that calls is the one that reads or writes the stream, and the only one that waits
 * for it: a pipe that nobody drains stops no step of the cache.
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
   * never kept, access control lists neither. What the group and others were allowed is kept only
   * together with the old file's group, and not where it had an access control list.
   *
   * A path that ends in a symbolic link, a directory, a FIFO, a socket or a device is refused
   * (PKV_IO). Links before the last name are followed: the directory is the caller's choice, and
   * whoever may write to it, or rename it, can replace or delete what was saved. A load does not
   * ask whose a file is: only a key tells that nobody else wrote it.
   *
   * What a killed process leaves has no name on file systems with O_TMPFILE. Where it has, and for
   * the moment of a rename, it is named ".pagedkv-" and 16 digits and ".tmp"; its writer holds a
   * lock on it (flock), and later saves in the directory remove those of the effective user that
   * nobody has locked. (On a network file system whose locks other machines do not see, save from
   * one machine at a time.)
   */
  PKV_STREAM_PATH = 1,
  PKV_STREAM_DESCRIPTOR = 2, /**< An open, blocking descriptor, from where it stands; stays open. Whatever follows in it is left alone.
                                  A save that fails leaves what it has written. */
  PKV_STREAM_BUFFER = 3,     /**< The caller's memory. */
  PKV_STREAM_CALLBACKS = 4   /**< The caller's functions. What follows what a load needs is not asked for. */
} pkv_stream_kind;

/** One stream; of path, descriptor, data and size, and functions just those of its kind are looked at. */
typedef struct pkv_stream {
  uint32_t struct_size;
  pkv_stream_kind kind;
  const char* path;
  int32_t descriptor;
  uint32_t reserved; /**< 0. */
  void* data;        /**< BUFFER: written by a save, only read by others. */
  uint64_t size;     /**< Its bytes; of a load, just those of the file. */
  /** Moves up to n bytes; returns how many, or a negative errno. 0: the end (read), or an error (write). A hook: see common.h.
      Called by the thread that saves or loads. */
  int64_t (*read)(void* user, void* to, uint64_t n);
  int64_t (*write)(void* user, const void* from, uint64_t n);
  void* user;
} pkv_stream;

/** Fills *stream with zeros and struct_size. Statuses: INVALID_ARGUMENT. Since 0.1. */
PKV_API pkv_status pkv_stream_init(pkv_stream* stream, size_t struct_size);

/** What goes with saving and with loading. */
typedef struct pkv_file_config {
  uint32_t struct_size;
  uint32_t prefix_index;       /**< 1: save and load the prefix index, too, as far as the cache has one. Default 0. */
  const void* fingerprint;     /**< Names the model (a hash of its weights, say): up to 64 bytes; a file with another one is a MISMATCH. NULL: none. */
  uint64_t fingerprint_size;
  const void* key;             /**< 16 to 64 secret bytes: the file is encrypted and authenticated
                                    with it. NULL: it is neither; checksums tell accidents only. */
  uint64_t key_size;           /**< Its bytes. */
  uint32_t durable;            /**< PATH: 1 (default) waits for the disk. With 0 a power cut may lose both files; a killed process does not. */
  /**
   * Loading into a cache with a prefix index: 1 takes salts from a file without a key. Default 0:
   * such a file is a MISMATCH if it has texts under a salt, since whoever can write it chooses to
   * which tenant's index they go. Texts without a salt are taken either way: load no file that
   * others can write without a key. Saving does not look at it.
   */
  uint32_t trust_salts;
} pkv_file_config;

/** Fills *config with defaults. Statuses: INVALID_ARGUMENT. Since 0.1. */
PKV_API pkv_status pkv_file_config_init(pkv_file_config* config, size_t struct_size);

/** One sequence to save: a session or a snapshot, the other one NULL. This struct is pinned: it will not grow. */
typedef struct pkv_file_item {
  pkv_session session;
  pkv_snapshot snapshot;
  uint64_t label; /**< The caller's name for it, which pkv_file_load gives back. */
} pkv_file_item;

/**
 * Saves n sequences of a cache, and (config->prefix_index) its prefix index: tokens, keys and values as they are stored, what a window has left,
 * priorities, retentions, salts, tokens remembered by a suspension. n may be 0; config may be NULL. *bytes (may be NULL) is the size of the file, written
 * on PKV_OK and, for a buffer, on BUFFER_TOO_SMALL; data may be NULL if size is 0. Storage NONE saves tokens and tables only.
 * Sequences stay in use until the call returns. The prefix index does not: steps evict from it as
 * ever, and a text of which they take blocks before these were written is shorter in the file.
 * Statuses: BUFFER_TOO_SMALL, WRONG_CACHE, BUSY (a step is in flight), IO, UNSUPPORTED (a key, in
 * a build without libsodium or libcrypto), TOO_LARGE (fingerprint, key), REF_LIMIT. Since 0.1.
 */
PKV_API pkv_status pkv_file_save(pkv_cache cache, size_t n, const pkv_file_item* items, const pkv_file_config* config, const pkv_stream* to,
                                 uint64_t* bytes);

/**
 * Opens every sequence of a file as a session of the cache, in the order of pkv_file_save; labels may be NULL. *count is how many there are, written on
 * PKV_OK and on BUFFER_TOO_SMALL. Layers, KV heads, dims, windows and sinks must be those of the cache. Blocks may have any size, except that what a
 * window group holds must fill whole blocks (it does if the new size divides the old one). Of the prefix index, entries that the cache has
 * already are not loaded twice; pins, quotas and what it has learned of reuse are not saved. A path or a buffer must end where the file ends.
 * Blocks are taken as by pkv_batch_begin, cached ones nobody uses included: those are evicted only after all of the file was checked, or, where a
 * stream cannot be read twice (a pipe, callbacks), as soon as its tables were.
 * Entries of the prefix index for which there is no memory are left out, and those used longest
 * ago of a file whose entries would fill the cache more than 64 times.
 * Statuses: BUFFER_TOO_SMALL, CORRUPT (also a wrong key), VERSION, MISMATCH (another model, fingerprint, dtype or storage; a key where there is none in
 * the file, or none given where there is; salts without a key, see trust_salts), IO,
 * OUT_OF_BLOCKS, TOO_LARGE, UNSUPPORTED (as above), REF_LIMIT. Since 0.1.
 */
PKV_API pkv_status pkv_file_load(pkv_cache cache, const pkv_file_config* config, const pkv_stream* from, size_t capacity, pkv_session* sessions,
                                 uint64_t* labels, size_t* count);

/** What a file says of itself. */
typedef struct pkv_file_info {
  uint32_t struct_size;
  uint32_t version;          /**< Of the format: 1 without a key, 2 with one. */
  uint64_t bytes;            /**< The file. */
  uint64_t kv_bytes;         /**< Of those, keys and values. */
  uint64_t sessions;
  uint64_t tokens;           /**< Of all sessions; shared ones count in each. */
  uint64_t stored_tokens;    /**< Positions that keys and values are stored of; shared ones count once. */
  uint64_t prefix_entries;   /**< Texts of the prefix index. */
  uint32_t block_size;       /**< Of the cache that was saved. */
  uint32_t groups;
  uint32_t layers;           /**< Over all groups. */
  uint32_t has_kv;           /**< 0: saved with storage NONE. */
  uint32_t authenticated;    /**< 1: saved with a key, so encrypted and authenticated. */
  uint32_t fingerprint_size;
  unsigned char fingerprint[64];
} pkv_file_info;

/**
 * Reads the tables of a file, not its keys and values, and tells what it holds; needs no cache. Of config (may be NULL) the key is used, and a
 * fingerprint compared. Statuses: CORRUPT, VERSION, MISMATCH (key, fingerprint), IO, UNSUPPORTED, TOO_LARGE. Since 0.1.
 */
PKV_API pkv_status pkv_file_inspect(const pkv_file_config* config, const pkv_stream* from, pkv_file_info* out);

#ifdef __cplusplus
}
#endif
#endif
