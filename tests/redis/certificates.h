// Certificates for tests, in PEM files of a directory that ends with its object.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace redis_test {

struct CertificateOptions {
  std::string names = "DNS:localhost,IP:127.0.0.1";  // subjectAltName; "" for none
  std::string common_name = "server";
  std::string signed_by = "ca";              // "" for itself
  long valid_from = -3600, valid_to = 3600;  // seconds from now on
  bool is_ca = false;
};

class Certificates {
 public:
  // Makes two CAs, "ca" and "other-ca", and a certificate of "server" by the first.
  Certificates();
  ~Certificates();
  Certificates(const Certificates&) = delete;
  Certificates& operator=(const Certificates&) = delete;

  void make(const std::string& name, const CertificateOptions& options);
  // A directory with the CA `name` as OpenSSL looks for it.
  std::string directory_of(const std::string& name) const;
  // The key of `name`, behind a password.
  std::string encrypted_key(const std::string& name) const;

  std::string certificate(const std::string& name) const { return directory_ / (name + ".crt"); }
  std::string key(const std::string& name) const { return directory_ / (name + ".key"); }
  std::string path(const std::string& file) const { return directory_ / file; }

 private:
  std::filesystem::path directory_;
};

}  // namespace redis_test
