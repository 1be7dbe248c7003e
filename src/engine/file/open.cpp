// Reads the header and the tables of a file, before anything trusts their numbers.
#include <algorithm>

#include "base/status.h"
#include "engine/file/file.h"

namespace pkv::file {

// The header of a file after its tag and the size of the stream were checked.
struct OpenedFile::CheckedHeader {
  CheckedHeader(const Options& options, Source& source)
      : header(read_header(options, source)), sealer(options.key, encode(header)) {
    Tag tag;
    if (source.read(tag.data(), tag.size()) < tag.size())
      fail(PKV_CORRUPT, "the file is cut short behind its header");
    if (!sealer.check_header(tag))
      fail(PKV_CORRUPT,
           "the header of the file is not what was written, or was written with another key");
    const uint64_t needed = tagged_bytes(header.body_bytes);
    bytes = header_bytes + tag_bytes + needed;
    const std::optional<uint64_t> left = source.left();
    if (left && (*left < needed || (source.holds_one_file() && *left > needed)))
      fail(PKV_CORRUPT, "the file should have %llu bytes; it has %llu", llu(bytes),
           llu(*left + header_bytes + tag_bytes));
  }
  static Header read_header(const Options& options, Source& source) {
    unsigned char read[header_bytes];
    const size_t got = source.read(read, sizeof read);
    const Header header = parse_header(std::span(read).first(got));
    if (header.encrypted && options.key.empty())
      fail(PKV_MISMATCH, "the file is encrypted: its key of 16 to 64 bytes is needed");
    if (!header.encrypted && !options.key.empty())
      fail(PKV_MISMATCH, "a key of %zu bytes is given, but the file was saved without one",
           options.key.size());
    return header;
  }
  Header header;
  Sealer sealer;
  uint64_t bytes;
};

OpenedFile::OpenedFile(const Options& options, Source& source)
    : OpenedFile(CheckedHeader(options, source), source) {}

OpenedFile::OpenedFile(CheckedHeader checked, Source& source)
    : header(checked.header),
      bytes(checked.bytes),
      reader(source, checked.sealer, checked.header.body_bytes) {
  SizesBytes sizes_encoded;
  reader.read(sizes_encoded.data(), sizes_encoded.size());
  sizes = parse_sizes(sizes_encoded, header);
  // Memory grows only with what was read and checked, because a header may claim any size and a
  // stream need not tell how much follows.
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
