// Saves sessions, snapshots and the prefix index to a file, loads them, and lists what a file
// contains. The API uses this directory only through this header.
//
// A save (save.cpp) freezes the sequences, builds the tables from their chains (chains.h), and puts
// tables and tiles (tiles.h) into the body, which a FileWriter (pieces.h) cuts into pieces with
// tags (sealer.h) and passes to a stream (streams.h). A load (open.cpp, load_plan.h, load.cpp)
// reads and checks the tables, plans which blocks each text gets, and only then takes blocks and
// reads tiles. Its sessions become visible when all of it is complete.
#pragma once

#include <memory>
#include <string>

#include "engine/file/pieces.h"
#include "engine/session/session.h"
#include "engine/session/snapshot.h"

namespace pkv::file {

struct FileOptions {
  std::span<const unsigned char> fingerprint, key;
  bool prefix_index = false;
  bool trust_salts = false;  // accept the salts of a file that was saved without a key
  pkv_durability durability = PKV_DURABILITY_DEFAULT;  // of a save
  uint64_t max_tokens = 0;  // of all sessions that a load makes; 0: a default
};

// One sequence to save.
struct FrozenSequence {
  Content content;  // shares the blocks of the original
  uint64_t label;
  Attributes attributes;
  bool suspended;
  std::vector<int32_t> remembered;
};

// The session must not be in a batch. Both throw LIMIT_REACHED or bad_alloc.
FrozenSequence freeze(const Session& session, uint64_t label);
FrozenSequence freeze(const Snapshot& snapshot, uint64_t label);

// Returns the groups of a cache as the tables of a file describe them.
std::vector<SavedGroup> saved_groups(const CacheConfig& config);

// Writes a file. Sets *bytes to its size before it writes, even if it then throws BUFFER_TOO_SMALL.
// Throws UNSUPPORTED, OVERFLOW, BUFFER_TOO_SMALL, IO or bad_alloc, and INTERNAL if a load would
// refuse the file; nothing is committed then.
void save(Cache& cache, std::span<const FrozenSequence> items, const FileOptions& options,
          Sink& sink, uint64_t* bytes);

class Loader;

// The sessions of a file that was loaded into a cache.
class LoadedSessions {
 public:
  // Loads a file. The sessions do not publish to the prefix index before publish(). Sets *count to
  // the number of sessions in the file, and throws BUFFER_TOO_SMALL if it exceeds max_sessions.
  // Also throws what OpenedFile throws, OUT_OF_BLOCKS, TOO_LARGE or LIMIT_REACHED. The cache is as
  // before then, except that unused cached blocks may have been evicted.
  LoadedSessions(Cache& cache, const FileOptions& options, Source& source, size_t max_sessions,
                 size_t* count);
  ~LoadedSessions();
  std::vector<std::unique_ptr<Session>> sessions;
  std::vector<uint64_t> labels;

  // Puts the texts of the file into the prefix index and lets the sessions publish to it. Does not
  // fail: texts for which there is no memory are left out.
  void publish() noexcept;

 private:
  std::unique_ptr<Loader> loader_;
  std::vector<bool> publishes_;
};

// What comes before the keys and values of a file.
struct OpenedFile {
  // Reads and checks it. Throws CORRUPT, WRONG_VERSION, MISMATCH, UNSUPPORTED, IO or bad_alloc.
  OpenedFile(const FileOptions& options, Source& source);
  // Throws MISMATCH if the file has another fingerprint.
  void check_fingerprint(std::span<const unsigned char> expected) const;
  FileReader reader;  // stands at the beginning of keys and values
  Sizes sizes;
  Tables tables;
};

}  // namespace pkv::file
