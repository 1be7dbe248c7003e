/* pagedkv: a store (store.h) in Redis or Valkey, one server or a cluster. It is a separate library,
 * libpagedkv-redis (pkg-config: pagedkv-redis), so that libpagedkv needs no client library. This
 * one needs hiredis, and OpenSSL for TLS.
 *
 * Each item is a Redis string. Its key is the key prefix, followed by the 32 bytes of the item's
 * name. Give the server a limit (maxmemory) and a policy that evicts (allkeys-lru), or set
 * ttl_seconds. Its user needs the commands SET, GETRANGE, STRLEN, DEL and PING on keys with the
 * prefix, EXPIRE with ttl_seconds, SELECT for a numbered database and, in a cluster, CLUSTER SLOTS
 * and ASKING. As an ACL: "+set +getrange +strlen +del +expire +ping +select +cluster|slots +asking
 * ~pagedkv:*".
 *
 * Failures only cost hits. A connection is closed when bytes violate the protocol or exceed what
 * was requested, after a time-out, or when the server closes it. For the next 100 ms (doubled with
 * each failure, up to 10 s) calls return -ENOTCONN at once; the first call after that connects
 * again. An item that the server refuses (its memory is full, it is a replica, it is still loading)
 * counts as not stored or not found. If no server answers, or if all items are refused, the call
 * returns a negative errno; the cache counts this and logs the server and its reason. It does the
 * same if only some items of a put were refused.
 *
 * In a cluster, a server that is down costs only the hits on its keys, and keys that move are
 * found. Credentials go to the configured servers and to those that CLUSTER SLOTS of a configured
 * server names. A redirection to any other server, or from a server that is not in cluster mode, is
 * a miss. Configure several servers of a cluster: only these are asked which server has which keys.
 *
 * Secrets: the store keeps the user and the password to connect again, and wipes them from memory
 * when it is closed. (The caller wipes its own copies.) No error message contains them or text from
 * a server. But messages repeat host names: do not put a password in the place of one.
 *
 * Threads: every function here, and those of a store, may be called from any thread. put has its
 * own connections, so get, touch and remove do not wait for it. In the child of a fork(), a store's
 * functions return -ECHILD; the child may only close it. pthread_cancel() of a thread in a call
 * takes effect after the call. No signals are raised or handled, and nothing is printed. Memory
 * comes from the system, not from the cache's allocator; if there is none, the connection is closed
 * and the call returns -ENOMEM.
 */
#ifndef PAGEDKV_REDIS_H
#define PAGEDKV_REDIS_H

#include <pagedkv/common.h>
#include <pagedkv/store.h>

#if defined(__GNUC__)
#define PKV_REDIS_API __attribute__((visibility("default")))
#else
#define PKV_REDIS_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/** Options for pkv_redis_open: servers, names and lifetime of items, time-outs and TLS. */
typedef struct pkv_redis_config {
  uint32_t struct_size; /**< Must be sizeof(pkv_redis_config). */
  /**
   * Lifetime of an item after its last put or touch. Set more than 120: a cache touches what it
   * uses about every two minutes (store.h), and items that expire before are lost. 0 (default):
   * until the server evicts it.
   */
  uint32_t ttl_seconds;

  /* The servers. */
  /**
   * "host:port,host:port" or "redis://[[user]:password@]host:port,host:port[/database]", also
   * valkey://; rediss:// and valkeys:// are the same with TLS. In user and password, write / ? # @
   * [ ] and spaces as %XX, as in any URL. NULL (default): "127.0.0.1:6379".
   *
   * Clusters are detected; a few of their servers are enough. Without a cluster, the first server
   * that answers is used for all items.
   */
  const char* servers;
  const char* user;     /**< NULL (default): the URL's, or Redis' default user. */
  const char* password; /**< NULL (default): the URL's, or none. */

  /** The prefix of item names, up to 64 bytes; "" for none. NULL (default): "pagedkv:". */
  const char* key_prefix;

  /* The calls. */
  /**
   * The most bytes of K and V in one pipeline of commands, 64 KiB to 1 GiB; a larger item has a
   * pipeline of its own. 0 (default): 8 MiB.
   */
  uint64_t max_pipeline_bytes;
  /**
   * Milliseconds to connect (with the TLS handshake) and authenticate; up to 3,600,000. 0
   * (default): 500. Each configured server that does not answer costs this once; servers in their
   * pause are skipped. It does not cover DNS: a look-up of a host name, or a close during one, can
   * block for the resolver's own time-out (resolv.conf; usually twice 5 s per name server). So
   * prefer IP addresses.
   */
  uint32_t connect_timeout_ms;
  /**
   * Milliseconds to send one pipeline and receive all answers; up to 3,600,000. 0 (default):
   * 1000.
   */
  uint32_t command_timeout_ms;
  uint32_t connect_later; /**< 1: open succeeds without a server; calls connect. Default 0. */

  /* TLS. */
  /**
   * 1: TLS, as with rediss://. Default 0. Without TLS, the fields below must be 0 or NULL.
   *
   * With TLS (1.2 or later), each server must have a certificate that is signed by one of the CAs
   * below, is valid now, and names the host as `servers` does (other servers of a cluster: as
   * CLUSTER SLOTS does): a name among its DNS names, an address among its IP addresses. Revocation
   * is not checked.
   */
  uint32_t tls;
  const char* tls_ca_file;      /**< CAs, PEM. If this and the next are NULL: the system's. */
  const char* tls_ca_directory; /**< CAs in files named by hash (openssl rehash). */
  /** The client's certificate and its chain, PEM. Default NULL. */
  const char* tls_certificate_file;
  const char* tls_key_file; /**< Its private key, PEM, without a password. Default NULL. */
  /**
   * The name expected in every server's certificate, also sent as SNI. NULL (default): its host.
   */
  const char* tls_server_name;
  /**
   * 1: accepts any certificate. Anyone between this machine and the server can then read and change
   * all data and learn the password. Default 0.
   */
  uint32_t tls_insecure_no_verify;
  uint32_t reserved; /**< Must be 0. */
} pkv_redis_config;

/**
 * Connects to the servers and returns them as a store.
 *
 * @param[in]  config  The config. Its strings are copied.
 * @param[out] out     The store. Close it with pkv_store_close, which does nothing if a cache has
 *                     taken it.
 *
 * Statuses: INVALID_ARGUMENT, UNSUPPORTED (TLS in a library built without it), IO (no server
 * answers, a server refuses the password, a command can never work there, as with a Sentinel, its
 * certificate is refused, or a file cannot be read; the error message has the address or path, the
 * reason and the errno), OUT_OF_MEMORY.
 * Since 1.0.
 */
PKV_REDIS_API pkv_status pkv_redis_open(const pkv_redis_config* config, pkv_store* out);

/**
 * Returns the error message of the last failed call of this header, or of a store's functions, on
 * this thread, as pkv_last_error() does for libpagedkv.
 *
 * It is separate because this library can be loaded without the other. Since 1.0.
 */
PKV_REDIS_API const char* pkv_redis_last_error(void);

#ifdef __cplusplus
}
#endif
#endif
