// TLS over a socket that is connected or being connected. It calls OpenSSL itself, because hiredis
// has TLS only from 1.0 on, does not check host names, and raises SIGPIPE when a connection breaks.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <memory>
#include <string>

struct bio_method_st;
struct ssl_ctx_st;
struct ssl_st;

namespace pkv::redis {

struct TlsOptions {
  // Paths of files in PEM format, and of a directory of them; NULL for those not given.
  const char* ca_file;
  const char* ca_directory;
  const char* certificate_file;
  const char* key_file;
  const char* server_name;  // the name in certificates; NULL for the host of each server
  bool verify;
};

// Shared by all connections of a store: the trusted certificates, and the store's own certificate.
class TlsContext {
 public:
  // Throws an Error: UNSUPPORTED if the library was built without TLS, IO or INVALID_ARGUMENT if a
  // file cannot be used.
  explicit TlsContext(const TlsOptions& options);
  ~TlsContext();

 private:
  friend class Tls;
  ssl_ctx_st* context_ = nullptr;
  bio_method_st* socket_ = nullptr;
  std::string server_name_;
  bool verify_;
};

// TLS of one connection. Functions that return int return 0 or an errno; after an errno, reason()
// says what went wrong. Nothing blocks: a function that cannot continue returns 0, and is called
// again when poll() reports one of events().
class Tls {
 public:
  // The server must have a certificate for `host`, or for the context's server name if there is
  // one. The caller keeps the descriptor. Throws std::bad_alloc.
  Tls(const TlsContext& context, const std::string& host, int descriptor);
  ~Tls();
  Tls(const Tls&) = delete;
  Tls& operator=(const Tls&) = delete;

  int handshake();
  // Whether the handshake is complete.
  bool ready() const;
  // Writes some bytes of the parts and sets *written to their number.
  int write(const iovec* parts, size_t count, size_t* written);
  // Reads up to `size` bytes and sets *bytes to their number.
  int read(char* to, size_t size, size_t* bytes);
  // Whether no data have arrived; new session tickets and keys do not count as data.
  bool is_idle();
  // The events to poll() for.
  short events(bool has_unsent) const;
  const char* reason() const { return reason_; }

 private:
  int failure(int result, short* wants);

  ssl_st* ssl_;
  std::unique_ptr<char[]> record_;  // where short pieces are joined into one record
  short write_wants_, read_wants_;
  char reason_[160] = "";
};

}  // namespace pkv::redis
