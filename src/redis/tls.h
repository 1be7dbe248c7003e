// TLS over a socket that is connected or being connected, by OpenSSL itself: hiredis has TLS
// from 1.0 on only, checks no host names, and raises SIGPIPE where a connection broke.
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
  // Files in PEM format; NULL where the caller gave none.
  const char* ca_file;
  const char* ca_directory;
  const char* certificate_file;
  const char* key_file;
  const char* server_name;  // NULL: the host of each server
  bool verify;
};

// What all connections of a store have in common: whom to believe, and who we are.
class TlsContext {
 public:
  // Throws an Error: UNSUPPORTED where the library was built without TLS, IO or INVALID_ARGUMENT
  // where a file cannot be used.
  explicit TlsContext(const TlsOptions& options);
  ~TlsContext();

 private:
  friend class Tls;
  ssl_ctx_st* context_ = nullptr;
  bio_method_st* socket_ = nullptr;
  std::string server_name_;
  bool verify_;
};

// One connection. Its functions return 0 or an errno; reason() then says in words what went wrong.
// Nothing blocks: what cannot be done yet is tried again when poll() reports one of events().
class Tls {
 public:
  // The server has to show a certificate for `host`, unless the context has another name. The
  // descriptor stays the caller's. Throws std::bad_alloc.
  Tls(const TlsContext& context, const std::string& host, int descriptor);
  ~Tls();
  Tls(const Tls&) = delete;
  Tls& operator=(const Tls&) = delete;

  int handshake();
  bool ready() const;
  int write(const iovec* parts, size_t count, size_t* taken);
  int read(char* to, size_t size, size_t* bytes);
  // Nothing has arrived that anybody would have to read.
  bool quiet();
  short events(bool has_unsent) const;
  const char* reason() const { return reason_; }

 private:
  int failure(int result, short* wants);

  ssl_st* ssl_;
  std::unique_ptr<char[]> record_;  // short pieces, to go out in one record
  short write_wants_, read_wants_;
  char reason_[160] = "";
};

}  // namespace pkv::redis
