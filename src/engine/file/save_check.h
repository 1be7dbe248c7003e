// Checks a saved file by the rules of a load, before it replaces an older file. A file that fails
// this check could never be loaded; a failure is a bug in the library.
#pragma once

#include "engine/file/file.h"

namespace pkv::file {

// Checks the tables of a file as a load into the cache they come from does. Throws INTERNAL with
// the sentence of that load.
void check_tables(const Cache& cache, std::span<const unsigned char> encoded);

// Passes a file on. In debug builds it also keeps all bytes, and reads them before it commits. A
// buffer gets them only then, since a save that fails must leave it as it was.
class CheckedSink final : public Sink {
 public:
  CheckedSink(Sink& to, const Options& options, Workers& workers)
      : to_(to), options_(options), workers_(workers) {}
  void expect(uint64_t bytes) override { to_.expect(bytes); }
  void write(const void* from, size_t n) override;
  // Throws INTERNAL with the sentence of a reader.
  void commit() override;

 private:
  void read_all();

  Sink& to_;
  const Options& options_;
  Workers& workers_;
  std::vector<unsigned char> written_;  // in debug builds
};

}  // namespace pkv::file
