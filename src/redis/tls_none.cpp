// Replaces tls.cpp in a library built without OpenSSL: making a context fails.
#include "base/status.h"
#include "redis/tls.h"

namespace pkv::redis {

TlsContext::TlsContext(const TlsOptions& options) : verify_(options.verify) {
  fail(PKV_UNSUPPORTED,
       "servers: this library was built without TLS (it needs OpenSSL 1.1.1 or later)");
}
TlsContext::~TlsContext() = default;

// Never constructed, since there is no context.
Tls::Tls(const TlsContext&, const std::string&, int)
    : ssl_(nullptr), write_wants_(0), read_wants_(0) {}
Tls::~Tls() = default;
int Tls::handshake() { return 0; }
bool Tls::ready() const { return true; }
int Tls::write(const iovec*, size_t, size_t*) { return 0; }
int Tls::read(char*, size_t, size_t*) { return 0; }
bool Tls::is_idle() { return true; }
short Tls::events(bool) const { return 0; }

}  // namespace pkv::redis
