// Certificates for tests, in PEM files of a directory that is removed with its object.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace redis_test {

struct CertificateOptions {
  // The subjectAltName, or "" for none.
  std::string names = "DNS:localhost,IP:127.0.0.1";
  std::string common_name = "server";
  std::string signed_by = "ca";              // The issuer, or "" for itself.
  long valid_from = -3600, valid_to = 3600;  // Seconds from now on.
  bool is_ca = false;
};

class Certificates {
 public:
  // Makes two CAs, "ca" and "other-ca", and a certificate of "server" by the first one.
  Certificates();
  ~Certificates();
  Certificates(const Certificates&) = delete;
  Certificates& operator=(const Certificates&) = delete;

  void make(const std::string& name, const CertificateOptions& options);
  // Returns a directory that has the CA `name` in the form that OpenSSL looks up.
  std::string directory_of(const std::string& name) const;
  // Returns the key of `name`, protected by a password.
  std::string encrypted_key(const std::string& name) const;

  std::string certificate(const std::string& name) const { return directory_ / (name + ".crt"); }
  std::string key(const std::string& name) const { return directory_ / (name + ".key"); }
  std::string path(const std::string& file) const { return directory_ / file; }

 private:
  std::filesystem::path directory_;
};

}  // namespace redis_test
