// Sessions in files: what is saved is frozen first, what is loaded is built apart and handed out
// when all of it is there.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "engine/file/body.h"
#include "engine/file/format.h"
#include "engine/session/session.h"
#include "engine/session/snapshot.h"

namespace pkv::file {

struct Options {
  std::span<const unsigned char> fingerprint, key;
  bool prefix_index = false;
  bool trust_salts = false;  // those of a file without a key
};

// One sequence to save. Storage CONTIGUOUS would have to copy it: there the content is the
// session's own, which must not change meanwhile.
struct Frozen {
  std::optional<Content> copy;
  const Content* original = nullptr;
  uint64_t label = 0;
  int32_t priority = 0;
  bool suspended = false, publishes = true;
  std::vector<int32_t> remembered;
  const Content& content() const { return copy ? *copy : *original; }
};

// Throws BUSY, REF_LIMIT.
Frozen freeze(const Session& session, uint64_t label);
Frozen freeze(const Snapshot& snapshot, uint64_t label);

// The layers of a cache, as far as it matters to keys and values.
std::vector<SavedGroup> saved_groups(const CacheConfig& config);

// *bytes: of the file, set before the sink may throw BUFFER_TOO_SMALL.
void save(Cache& cache, std::span<const Frozen> items, const Options& options, Sink& sink,
          uint64_t* bytes);

class Loader;

class Loaded {
 public:
  // Sessions of a file; they publish nothing yet. More than `most` are BUFFER_TOO_SMALL, with their
  // number in *count.
  Loaded(Cache& cache, const Options& options, Source& source, size_t most, size_t* count);
  ~Loaded();
  std::vector<std::unique_ptr<Session>> sessions;
  std::vector<uint64_t> labels;

  // What cannot fail any more: the prefix index gets what the file has for it.
  void publish() noexcept;

 private:
  std::unique_ptr<Loader> loader_;
  std::vector<bool> publishes_;
};

// The header and the tables at the beginning of a file. Throws CORRUPT, VERSION, MISMATCH, IO.
struct Opening {
  Opening(const Options& options, Source& source);
  void check_fingerprint(std::span<const unsigned char> expected) const;
  Header header;
  Tables tables;
  uint64_t bytes;     // of the file
  BodyReader reader;  // what follows are keys and values

 private:
  struct Begun;
  Opening(Begun begun, Source& source);
};

}  // namespace pkv::file
