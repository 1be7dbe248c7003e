// Reads the sizes and the tables of a file, before anything trusts their numbers.
#include <algorithm>

#include "base/status.h"
#include "engine/file/file.h"

namespace pkv::file {

OpenedFile::OpenedFile(const FileOptions& options, Source& source) : reader(source, options.key) {
  unsigned char read[sizes_bytes];
  reader.read(read, sizeof read);
  sizes = parse_sizes(read, reader.header());
  // Memory grows only with what was read and checked, because a header may claim any size, and not
  // every stream says how much follows.
  std::vector<unsigned char> encoded;
  while (encoded.size() < sizes.tables) {
    const size_t at = encoded.size();
    encoded.resize(at + static_cast<size_t>(std::min<uint64_t>(sizes.tables - at, piece_bytes)));
    reader.read(encoded.data() + at, encoded.size() - at);
  }
  tables = parse_tables(encoded);
  uint64_t kv_bytes = UINT64_MAX;
  try {
    kv_bytes = tables.kv_bytes();
  } catch (const Error&) {
    // It overflowed, so it is not the size in the header: see below.
  }
  if (kv_bytes != sizes.kv)
    fail(PKV_CORRUPT,
         "the tables of the file have %llu bytes of keys and values, its header gives %llu",
         llu(kv_bytes), llu(sizes.kv));
  if (sizes.lengths != tables.lengths_bytes())
    fail(PKV_CORRUPT, "the header of the file gives %llu bytes of lengths; %zu chains have %llu",
         llu(sizes.lengths), tables.chains.size(), llu(tables.lengths_bytes()));
}

void OpenedFile::check_fingerprint(std::span<const unsigned char> expected) const {
  if (!std::equal(expected.begin(), expected.end(), tables.fingerprint.begin(),
                  tables.fingerprint.end()))
    fail(PKV_MISMATCH,
         "the file is of another model: its fingerprint of %zu bytes is not the one of %zu that is "
         "expected",
         tables.fingerprint.size(), expected.size());
}

}  // namespace pkv::file
