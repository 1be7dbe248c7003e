/* pagedkv: a store (store.h) in Redis or Valkey, one server or a cluster. It is a library of its
 * own, libpagedkv-redis (pkg-config: pagedkv-redis), so that libpagedkv needs no client library;
 * this one needs hiredis, and OpenSSL for TLS.
 *
 * What it keeps is one string per item, under the key prefix followed by the item's 32 bytes. The
 * server should have a limit (maxmemory) and a policy that evicts (allkeys-lru), or entries a time
 * to live. Its user needs a right to the commands SET, GETRANGE, STRLEN, DEL and PING on keys with
 * the prefix, and to CLUSTER SLOTS and ASKING in a cluster: in an ACL "+set +getrange +strlen +del
 * +ping +cluster|slots +asking ~pagedkv:*".
 *
 * What goes wrong costs hits. A connection ends at the first bytes that are not the protocol's, at
 * more bytes than were asked for, after a time-out, or when the server ends it; the next call
 * connects again, but not before a pause of 100 ms, doubled by every failure up to 10 s. In the
 * meantime calls return -ENOTCONN at once. An item that the server refuses (out of memory, a
 * replica, still loading) is not counted; where no server that was asked answered, the call returns
 * a negative errno.
 *
 * In a cluster a server that is down costs its keys only; keys that move are followed. Credentials
 * go to the configured servers, and to those that CLUSTER SLOTS of a configured server names: a
 * redirection to another one, or from a server that says it is no cluster, is a miss. So configure
 * several servers of a cluster: the others are not asked who has which keys.
 *
 * Secrets: the user and the password are kept until the store is closed, to connect again, and
 * their memory is wiped then (what the caller passed in is the caller's to wipe). No sentence
 * repeats them, nor any text of a server. What stands where a host stands is repeated.
 *
 * Threads: every function, and those of a store, may be called from any thread. put has connections
 * of its own: get, probe and drop do not wait for it. After fork() they return -ECHILD in the
 * child, which may only close the store. pthread_cancel() of a thread inside a call takes effect
 * after the call. No signal is raised or handled, nothing is printed. Memory is the system's, not
 * that of the cache's allocator; where it is refused the connection ends, and the call returns
 * -ENOMEM.
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

/** Where the servers are, what is kept there and for how long, and how connections are made. */
typedef struct pkv_redis_config {
  uint32_t struct_size; /**< sizeof(pkv_redis_config): the caller sets it. */
  uint32_t ttl_seconds; /**< How long an item is kept; 0 (default): until the server evicts it. */

  /* The servers. */
  /**
   * "host:port,host:port" or "redis://[[user]:password@]host:port,host:port[/database]", also
   * valkey://; rediss:// and valkeys:// are the same with TLS. In user and password %XX stands for
   * any byte, and for / ? # @ [ ] and spaces it must. NULL (default): "127.0.0.1:6379".
   *
   * A cluster is recognised by itself, and some of its servers are enough; without a cluster the
   * first server that answers serves all.
   */
  const char* servers;
  const char* user;     /**< NULL (default): the URL's, or Redis' default user. */
  const char* password; /**< NULL (default): the URL's, or none. */

  /** Of every item's name; up to 64 bytes, "" for none. NULL (default): "pagedkv:". */
  const char* key_prefix;

  /* The calls. */
  /**
   * Bytes of K and V sent or asked for at once, if that is more than one item; 64 KiB to 1 GiB; 0
   * (default): 8 MiB.
   */
  uint64_t pipeline_bytes;
  /**
   * Milliseconds to connect, with TLS's handshake, and to authenticate; up to 3,600,000; 0
   * (default): 500. A call waits so long for each configured server that does not answer, but not
   * again during its pause. Looking up a name takes as long as the system's resolver tries
   * (resolv.conf; usually 5 s twice for each name server), and closing waits for that: prefer
   * addresses.
   */
  uint32_t connect_timeout_ms;
  /**
   * Milliseconds for what is sent at once (pipeline_bytes), until all its answers are there; up to
   * 3,600,000; 0 (default): 1000.
   */
  uint32_t command_timeout_ms;
  uint32_t connect_later; /**< 1: open succeeds without a server; calls look for it. Default 0. */

  /* TLS. */
  /**
   * 1: TLS, as rediss:// has it. Default 0; then none of the fields below may be given.
   *
   * With TLS (1.2 or later) each server has to show a certificate that one of the CAs below has
   * signed, that is valid today, and that names the host as servers has it (CLUSTER SLOTS, for the
   * others of a cluster): a name among its DNS names, an address among its IP addresses. Nobody
   * asks whether it was revoked.
   */
  uint32_t tls;
  const char* tls_ca_file;      /**< CAs, PEM. NULL, as the next (default): the system's. */
  const char* tls_ca_directory; /**< CAs in files that are named by hash (openssl rehash). */
  /** The client's certificate and its chain, PEM. Default NULL. */
  const char* tls_certificate_file;
  const char* tls_key_file; /**< The key of that certificate, PEM, no password. Default NULL. */
  /** What each server's certificate must name, and is asked for (SNI). NULL (default): its host. */
  const char* tls_server_name;
  /**
   * 1: believe any certificate. Whoever is between here and the server can then read and change all
   * of it, and has the password. Default 0.
   */
  uint32_t tls_insecure_no_verify;
  uint32_t reserved; /**< 0. */
} pkv_redis_config;

/**
 * Connects to the servers as a store.
 *
 * @param[in]  config  The config. What it points to is not kept.
 * @param[out] out     The store. Close it with out->close(out->user), unless a cache does.
 *
 * Statuses: INVALID_ARGUMENT, UNSUPPORTED (TLS in a library that is built without), IO (no server
 * answers, or it refuses the password or a command, or its certificate is refused, or a file cannot
 * be read: the sentence has address or path, reason and errno), NO_MEMORY. Since 0.1.
 */
PKV_REDIS_API pkv_status pkv_redis_open(const pkv_redis_config* config, pkv_store* out);

/**
 * Tells why the last failed call of this header on this thread failed, as pkv_last_error() does for
 * libpagedkv.
 *
 * It has one of its own because nothing but C functions lies between the two libraries, so that one
 * may be newer than the other, or opened at run time. Since 0.1.
 */
PKV_REDIS_API const char* pkv_redis_last_error(void);

#ifdef __cplusplus
}
#endif
#endif
