#include "certificates.h"

#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <stdexcept>

#include "../support/files.h"

namespace redis_test {

namespace {

template <class T>
T* checked(T* made) {
  if (made == nullptr) throw std::runtime_error("OpenSSL made no certificate");
  return made;
}

template <class T, auto function>
struct Deleter {
  void operator()(T* of) const { function(of); }
};
using Key = std::unique_ptr<EVP_PKEY, Deleter<EVP_PKEY, EVP_PKEY_free>>;
using Certificate = std::unique_ptr<X509, Deleter<X509, X509_free>>;
using File = std::unique_ptr<FILE, Deleter<FILE, fclose>>;

File open_file(const std::string& path, const char* mode) {
  return File(checked(std::fopen(path.c_str(), mode)));
}

Key make_key() {
  EVP_PKEY_CTX* const context = checked(EVP_PKEY_CTX_new_id(EVP_PKEY_EC, nullptr));
  EVP_PKEY* key = nullptr;
  if (EVP_PKEY_keygen_init(context) != 1 ||
      EVP_PKEY_CTX_set_ec_paramgen_curve_nid(context, NID_X9_62_prime256v1) != 1)
    throw std::runtime_error("OpenSSL makes no key");
  EVP_PKEY_keygen(context, &key);
  EVP_PKEY_CTX_free(context);
  return Key(checked(key));
}

void add_extension(X509* to, int kind, const std::string& value) {
  X509_EXTENSION* const extension =
      checked(X509V3_EXT_conf_nid(nullptr, nullptr, kind, value.c_str()));
  X509_add_ext(to, extension, -1);
  X509_EXTENSION_free(extension);
}

Key read_key(const std::string& path) {
  return Key(checked(PEM_read_PrivateKey(open_file(path, "r").get(), nullptr, nullptr, nullptr)));
}

Certificate read_certificate(const std::string& path) {
  return Certificate(checked(PEM_read_X509(open_file(path, "r").get(), nullptr, nullptr, nullptr)));
}

}  // namespace

Certificates::Certificates() {
  directory_ = files::make_directory();
  for (const char* ca : {"ca", "other-ca"})
    make(ca, {.names = "", .common_name = ca, .signed_by = "", .is_ca = true});
  make("server", {});
}

Certificates::~Certificates() {
  std::error_code ignored;
  std::filesystem::remove_all(directory_, ignored);
}

void Certificates::make(const std::string& name, const CertificateOptions& options) {
  static long serial = 1;
  const Key own = make_key();
  const Certificate made(checked(X509_new()));
  X509_set_version(made.get(), 2);
  ASN1_INTEGER_set(X509_get_serialNumber(made.get()), serial++);
  X509_gmtime_adj(X509_getm_notBefore(made.get()), options.valid_from);
  X509_gmtime_adj(X509_getm_notAfter(made.get()), options.valid_to);
  X509_set_pubkey(made.get(), own.get());
  X509_NAME* const subject = X509_get_subject_name(made.get());
  X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>(options.common_name.c_str()),
                             -1, -1, 0);
  add_extension(made.get(), NID_basic_constraints, options.is_ca ? "critical,CA:TRUE" : "CA:FALSE");
  if (!options.names.empty()) add_extension(made.get(), NID_subject_alt_name, options.names);
  if (options.signed_by.empty()) {
    X509_set_issuer_name(made.get(), subject);
    X509_sign(made.get(), own.get(), EVP_sha256());
  } else {
    const Certificate ca = read_certificate(certificate(options.signed_by));
    X509_set_issuer_name(made.get(), X509_get_subject_name(ca.get()));
    X509_sign(made.get(), read_key(key(options.signed_by)).get(), EVP_sha256());
  }
  PEM_write_X509(open_file(certificate(name), "w").get(), made.get());
  PEM_write_PrivateKey(open_file(key(name), "w").get(), own.get(), nullptr, nullptr, 0, nullptr,
                       nullptr);
}

std::string Certificates::directory_of(const std::string& name) const {
  const std::filesystem::path directory = directory_ / (name + ".d");
  std::filesystem::create_directories(directory);
  char file[32];
  std::snprintf(file, sizeof file, "%08lx.0",
                X509_subject_name_hash(read_certificate(certificate(name)).get()));
  std::filesystem::copy_file(certificate(name), directory / file,
                             std::filesystem::copy_options::overwrite_existing);
  return directory;
}

std::string Certificates::encrypted_key(const std::string& name) const {
  char password[] = "password";
  const std::string file = path(name + ".encrypted");
  PEM_write_PrivateKey(open_file(file, "w").get(), read_key(key(name)).get(), EVP_aes_256_cbc(),
                       nullptr, 0, nullptr, password);
  return file;
}

}  // namespace redis_test
