// How OpenSSL is set up and called, and how its errors become sentences.
#include "redis/tls.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <new>

#include "base/status.h"

namespace pkv::redis {

namespace {

constexpr size_t record_bytes = 16384;  // the largest record of TLS

// ---- A socket for OpenSSL, because OpenSSL's own raises SIGPIPE ---------------------------------

int descriptor_of(BIO* bio) {
  return static_cast<int>(reinterpret_cast<intptr_t>(BIO_get_data(bio)));
}

bool must_wait() { return errno == EAGAIN || errno == EINTR; }

int socket_write(BIO* bio, const char* from, int size) {
  BIO_clear_retry_flags(bio);
  const ssize_t result =
      ::send(descriptor_of(bio), from, static_cast<size_t>(size), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (result < 0 && must_wait()) BIO_set_retry_write(bio);
  return static_cast<int>(result);
}

int socket_read(BIO* bio, char* to, int size) {
  BIO_clear_retry_flags(bio);
  const ssize_t result = ::recv(descriptor_of(bio), to, static_cast<size_t>(size), MSG_DONTWAIT);
  if (result < 0 && must_wait()) BIO_set_retry_read(bio);
  if (result == 0) BIO_set_flags(bio, BIO_FLAGS_IN_EOF);
  return static_cast<int>(result);
}

long socket_control(BIO* bio, int command, long, void*) {
  if (command == BIO_CTRL_FLUSH) return 1;
  if (command == BIO_CTRL_EOF) return BIO_test_flags(bio, BIO_FLAGS_IN_EOF) != 0;
  return 0;
}

int socket_create(BIO* bio) {
  BIO_set_init(bio, 1);
  return 1;
}

bio_method_st* make_socket_method() {
  BIO_METHOD* const method = BIO_meth_new(BIO_TYPE_SOURCE_SINK, "socket without signals");
  if (method == nullptr) throw std::bad_alloc();
  BIO_meth_set_write(method, socket_write);
  BIO_meth_set_read(method, socket_read);
  BIO_meth_set_ctrl(method, socket_control);
  BIO_meth_set_create(method, socket_create);
  return method;
}

// ---- Files of the config ------------------------------------------------------------------------

// Returns static text for the first error in OpenSSL's queue, and empties the queue.
const char* take_reason() {
  const unsigned long error = ERR_peek_error();
  const char* const text = ERR_reason_error_string(error);
  ERR_clear_error();
  return text != nullptr ? text : "unknown error";
}

[[noreturn]] void refuse(const char* field, const char* path, const char* what) {
  fail(PKV_INVALID_ARGUMENT, "%s: '%.100s': %.100s", field, path, what);
}

// Throws IO if a file cannot be opened: OpenSSL's errors say little about files, and nothing about
// directories.
void check_readable(const char* field, const char* path) {
  const int descriptor = path != nullptr ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
  if (path != nullptr && descriptor < 0) {
    const int error = errno;
    fail(io_details(error), "%s: '%.100s': %s (errno %d)", field, path, errno_text(error), error);
  }
  if (descriptor >= 0) close(descriptor);
}

void check_directory(const char* field, const char* path) {
  DIR* const directory = opendir(path);
  if (directory == nullptr) {
    const int error = errno;
    fail(io_details(error), "%s: '%.100s': %s (errno %d)", field, path, errno_text(error), error);
  }
  closedir(directory);
}

// The callback for a key's password. Without it OpenSSL would ask for one on the terminal.
int no_password(char*, int, int, void*) { return 0; }

void load_trusted(SSL_CTX* context, const TlsOptions& options) {
  if (options.ca_file == nullptr && options.ca_directory == nullptr) {
    SSL_CTX_set_default_verify_paths(context);
    return;
  }
  check_readable("tls_ca_file", options.ca_file);
  if (options.ca_directory != nullptr) check_directory("tls_ca_directory", options.ca_directory);
  if (options.ca_file != nullptr &&
      SSL_CTX_load_verify_locations(context, options.ca_file, nullptr) != 1)
    refuse("tls_ca_file", options.ca_file, take_reason());
  if (options.ca_directory != nullptr &&
      SSL_CTX_load_verify_locations(context, nullptr, options.ca_directory) != 1)
    refuse("tls_ca_directory", options.ca_directory, take_reason());
}

void load_own_certificate(SSL_CTX* context, const TlsOptions& options) {
  if (options.certificate_file == nullptr) return;
  check_readable("tls_certificate_file", options.certificate_file);
  check_readable("tls_key_file", options.key_file);
  if (SSL_CTX_use_certificate_chain_file(context, options.certificate_file) != 1)
    refuse("tls_certificate_file", options.certificate_file, take_reason());
  if (SSL_CTX_use_PrivateKey_file(context, options.key_file, SSL_FILETYPE_PEM) != 1 ||
      SSL_CTX_check_private_key(context) != 1)
    refuse("tls_key_file", options.key_file, take_reason());
}

bool is_address(const std::string& host) {
  unsigned char bytes[sizeof(in6_addr)];
  return inet_pton(AF_INET, host.c_str(), bytes) == 1 ||
         inet_pton(AF_INET6, host.c_str(), bytes) == 1;
}

// Makes OpenSSL check the certificate for a host. Names and addresses are checked differently, and
// only a name may be sent to the server (SNI).
bool expect_host(SSL* ssl, const std::string& host_with_zone) {
  const std::string host = host_with_zone.substr(0, host_with_zone.find('%'));
  X509_VERIFY_PARAM* const parameters = SSL_get0_param(ssl);
  X509_VERIFY_PARAM_set_hostflags(
      parameters, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS | X509_CHECK_FLAG_NEVER_CHECK_SUBJECT);
  if (is_address(host)) return X509_VERIFY_PARAM_set1_ip_asc(parameters, host.c_str()) == 1;
  return X509_VERIFY_PARAM_set1_host(parameters, host.c_str(), host.size()) == 1 &&
         SSL_set_tlsext_host_name(ssl, host.c_str()) == 1;
}

}  // namespace

TlsContext::TlsContext(const TlsOptions& options)
    : server_name_(options.server_name != nullptr ? options.server_name : ""),
      verify_(options.verify) {
  const std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)> context(SSL_CTX_new(TLS_client_method()),
                                                             SSL_CTX_free);
  if (context == nullptr) throw std::bad_alloc();
  ERR_clear_error();
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  SSL_CTX_set_options(context.get(), SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
#ifdef SSL_OP_IGNORE_UNEXPECTED_EOF
  // Replies carry their length, so a truncated connection is noticed without this check.
  SSL_CTX_set_options(context.get(), SSL_OP_IGNORE_UNEXPECTED_EOF);
#endif
  SSL_CTX_set_mode(context.get(), SSL_MODE_ENABLE_PARTIAL_WRITE |
                                      SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                      SSL_MODE_RELEASE_BUFFERS);
  // Each call handles one record, so that a server cannot keep it busy with endless session tickets
  // or new keys.
  SSL_CTX_clear_mode(context.get(), SSL_MODE_AUTO_RETRY);
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  SSL_CTX_set_default_passwd_cb(context.get(), no_password);
  SSL_CTX_set_verify(context.get(), verify_ ? SSL_VERIFY_PEER : SSL_VERIFY_NONE, nullptr);
  if (verify_) load_trusted(context.get(), options);
  load_own_certificate(context.get(), options);
  ERR_clear_error();
  socket_ = make_socket_method();
  context_ = context.get();
  SSL_CTX_up_ref(context_);
}

TlsContext::~TlsContext() {
  SSL_CTX_free(context_);
  BIO_meth_free(socket_);
}

Tls::Tls(const TlsContext& context, const std::string& host, int descriptor)
    : ssl_(SSL_new(context.context_)),
      record_(new char[record_bytes]),
      write_wants_(POLLOUT),
      read_wants_(POLLIN) {
  BIO* const bio = ssl_ != nullptr ? BIO_new(context.socket_) : nullptr;
  const std::string& name = context.server_name_.empty() ? host : context.server_name_;
  if (bio == nullptr || !expect_host(ssl_, name)) {
    BIO_free(bio);
    SSL_free(ssl_);
    throw std::bad_alloc();
  }
  BIO_set_data(bio, reinterpret_cast<void*>(static_cast<intptr_t>(descriptor)));
  SSL_set_bio(ssl_, bio, bio);
  SSL_set_connect_state(ssl_);
}

Tls::~Tls() { SSL_free(ssl_); }

// Call it after a call that returned `result`. Sets *wants to what that call waits for and returns
// 0, or returns the errno of what went wrong.
int Tls::failure(int result, short* wants) {
  const int error_of_socket = errno;
  const int kind = SSL_get_error(ssl_, result);
  if (kind == SSL_ERROR_WANT_READ || kind == SSL_ERROR_WANT_WRITE) {
    *wants = kind == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT;
    return 0;
  }
  int error = EPROTO;
  const unsigned long queued = ERR_peek_error();
  const long verified = SSL_get_verify_result(ssl_);
  if (verified != X509_V_OK && SSL_get_verify_mode(ssl_) != SSL_VERIFY_NONE && !ready()) {
    error = EACCES;
    std::snprintf(reason_, sizeof reason_,
                  "TLS: the server's certificate is refused: %s (X509 error %ld)",
                  X509_verify_cert_error_string(verified), verified);
  } else if (queued != 0 && ERR_GET_LIB(queued) != ERR_LIB_SYS) {  // 3.5 queues errno, too
    if (ERR_GET_REASON(queued) == ERR_R_MALLOC_FAILURE) error = ENOMEM;
    const char* const text = ERR_reason_error_string(queued);
    std::snprintf(reason_, sizeof reason_, "TLS: %.120s", text != nullptr ? text : "unknown error");
  } else {
    error = kind == SSL_ERROR_SYSCALL && result < 0 && error_of_socket != 0 ? error_of_socket
                                                                            : ECONNRESET;
    std::snprintf(reason_, sizeof reason_, "TLS: %s",
                  error == ECONNRESET ? "the server closed the connection" : errno_text(error));
  }
  ERR_clear_error();
  return error;
}

int Tls::handshake() {
  ERR_clear_error();
  errno = 0;
  const int result = SSL_do_handshake(ssl_);
  short wants = POLLOUT;
  const int error = result == 1 ? 0 : failure(result, &wants);
  write_wants_ = wants;
  return error;
}

bool Tls::ready() const { return SSL_is_init_finished(ssl_) != 0; }

// A piece that fills a record is sent from where it is. Shorter pieces are copied into one record,
// and the copy is wiped, because it may contain a password. If a call had to wait, OpenSSL wants it
// repeated with the same bytes; this holds because the caller does not change pieces before they
// are written.
int Tls::write(const iovec* parts, size_t count, size_t* written) {
  *written = 0;
  const char* from = static_cast<const char*>(parts[0].iov_base);
  size_t size = parts[0].iov_len, copied = 0;
  if (size < record_bytes) {
    for (size_t i = 0; i < count && copied < record_bytes; i++) {
      const size_t more = std::min(parts[i].iov_len, record_bytes - copied);
      memcpy(record_.get() + copied, parts[i].iov_base, more);
      copied += more;
    }
    from = record_.get();
    size = copied;
  }
  ERR_clear_error();
  errno = 0;
  const int result = SSL_write(ssl_, from, static_cast<int>(std::min<size_t>(size, 1 << 30)));
  const int error = result > 0 ? 0 : failure(result, &write_wants_);
  if (result > 0) {
    *written = static_cast<size_t>(result);
    write_wants_ = POLLOUT;
  }
  explicit_bzero(record_.get(), copied);
  if (error == 0 || error == EPROTO) return error;
  // Read what the server sent before it ended the connection: it may say why, which helps more than
  // the error of the write.
  char byte;
  size_t bytes;
  const int read_error = read(&byte, 1, &bytes);
  return read_error != 0 ? read_error : error;
}

// Reads until nothing more has arrived or `size` bytes are read, because poll() does not see bytes
// that OpenSSL has buffered.
int Tls::read(char* to, size_t size, size_t* bytes) {
  *bytes = 0;
  while (*bytes < size) {
    ERR_clear_error();
    errno = 0;
    read_wants_ = POLLIN;
    const int result = SSL_read(ssl_, to + *bytes, static_cast<int>(size - *bytes));
    if (result <= 0) {
      const int error = failure(result, &read_wants_);
      // Bytes before the end of the connection are returned first; the next call returns the error.
      return *bytes > 0 ? 0 : error;
    }
    *bytes += static_cast<size_t>(result);
  }
  return 0;
}

bool Tls::is_idle() {
  char byte;
  ERR_clear_error();
  const int result = SSL_peek(ssl_, &byte, 1);
  const bool waits = result <= 0 && SSL_get_error(ssl_, result) == SSL_ERROR_WANT_READ;
  ERR_clear_error();
  return waits;
}

short Tls::events(bool has_unsent) const {
  if (!ready()) return write_wants_;
  return static_cast<short>(read_wants_ | (has_unsent ? write_wants_ : 0));
}

}  // namespace pkv::redis
