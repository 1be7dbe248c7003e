// Moves the body of a file through three buffers in turn, for reading and for writing.
#include "engine/file/pieces.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/background_tasks.h"
#include "base/checked.h"
#include "base/status.h"

namespace pkv::file {

namespace {

// With fewer pieces the stages wait for one another more often; more are hardly faster.
constexpr size_t buffer_pieces = 8;
constexpr size_t window_bytes = buffer_pieces * piece_bytes;

// Returns the size of piece i of n bytes, of which only the last one may be short.
size_t piece_size(size_t n, size_t i) { return std::min(piece_bytes, n - i * piece_bytes); }

// Reads a header. Throws WRONG_KEY if it needs a key and there is none, or the other way round.
Header read_header(Source& source, std::span<const unsigned char> key) {
  unsigned char read[header_bytes];
  const size_t got = source.read(read, sizeof read);
  const Header header = parse_header(std::span(read).first(got));
  if (header.encrypted && key.empty())
    fail(PKV_WRONG_KEY, "the file is encrypted: its key of 16 to 64 bytes is needed");
  if (!header.encrypted && !key.empty())
    fail(PKV_WRONG_KEY, "a key of %zu bytes is given, but the file was saved without one",
         key.size());
  return header;
}

}  // namespace

uint64_t file_bytes(const Header& header) {
  const uint64_t tags =
      checked_mul(ceil_div(header.body_bytes, piece_bytes), tag_bytes, "tags of the file");
  return header_bytes + tag_bytes + checked_add(header.body_bytes, tags, "bytes of the file");
}

// ---- Reading ------------------------------------------------------------------------------------

// Bytes [begin, begin + size) of the rest of the body, and the `lookback` bytes before them.
struct FileReader::Buffer {
  Buffer(size_t lookback_bytes, size_t room)
      : lookback(lookback_bytes), bytes(lookback_bytes + room + tag_bytes) {}
  size_t pieces() const { return ceil_div(size, piece_bytes); }
  unsigned char* data() { return bytes.data() + lookback; }
  // Copies the end of the buffer before, where a tile may begin that ends in this one.
  void copy_lookback_from(const Buffer& before) {
    std::memcpy(bytes.data(), before.bytes.data() + before.size, lookback);
  }

  size_t lookback;
  std::vector<unsigned char> bytes;
  uint64_t begin = 0;
  size_t size = 0;
  std::array<Piece, buffer_pieces> tags;
};

FileReader::FileReader(Source& source, std::span<const unsigned char> key)
    : source_(&source),
      header_(read_header(source, key)),
      sealer_(key, encode(header_)),
      left_(header_.body_bytes),
      previous_tag_(sealer_.header_tag()) {
  Tag tag;
  if (source.read(tag.data(), tag.size()) < tag.size())
    fail(PKV_CORRUPT, "the file is cut short after its header");
  if (!sealer_.check_header(tag))
    fail(header_.encrypted ? PKV_WRONG_KEY : PKV_CORRUPT,
         "the header of the file is not what was written%s",
         header_.encrypted ? ", or was written with a different key" : "");
  const std::optional<uint64_t> left = source.left();
  const uint64_t needed = file_bytes(header_), has = left.value_or(0) + header_bytes + tag_bytes;
  if (left && (has < needed || (source.holds_one_file() && has > needed)))
    fail(PKV_CORRUPT, "the file should have %llu bytes; it has %llu", llu(needed), llu(has));
}

// Reads the next piece of the body, followed by its tag, and returns the size of the piece.
size_t FileReader::read_piece(unsigned char* to, Piece& piece) {
  const size_t n = static_cast<size_t>(std::min<uint64_t>(left_, piece_bytes));
  if (source_->read(to, n + tag_bytes) < n + tag_bytes) fail(PKV_CORRUPT, "the file is cut short");
  left_ -= n;
  piece.position = {next_piece_++, left_ == 0, previous_tag_};
  std::copy_n(to + n, tag_bytes, previous_tag_.begin());
  piece.tag = previous_tag_;
  return n;
}

// Checks a piece that was read, and decrypts it if there is a key.
void FileReader::open(const Piece& piece, std::span<unsigned char> bytes) const {
  if (!sealer_.open(piece.position, bytes, piece.tag))
    fail(PKV_CORRUPT, "%zu bytes of the file are not what was written", bytes.size());
}

void FileReader::refill() {
  if (left_ == 0) fail(PKV_CORRUPT, "the tables of the file need more bytes than it has");
  piece_.resize(static_cast<size_t>(std::min<uint64_t>(left_, piece_bytes)) + tag_bytes);
  at_ = 0;
  Piece piece;
  piece_.resize(read_piece(piece_.data(), piece));
  open(piece, piece_);
}

void FileReader::read(void* to, size_t n) {
  auto* bytes = static_cast<unsigned char*>(to);
  while (n > 0) {
    if (at_ == piece_.size()) refill();
    const size_t count = std::min(n, piece_.size() - at_);
    std::memcpy(bytes, piece_.data() + at_, count);
    at_ += count, bytes += count, n -= count;
  }
}

void FileReader::fill(Buffer& buffer, uint64_t begin) {
  buffer.begin = begin;
  buffer.size = 0;
  for (size_t i = 0; i < buffer_pieces && left_ > 0; i++)
    buffer.size += read_piece(buffer.data() + buffer.size, buffer.tags[i]);
}

// Three buffers rotate: this thread fills one, while workers open (check and decrypt) the one
// before and consume the one before that.
void FileReader::read_rest(Workers& workers, size_t lookback, const Consume& consume,
                           const Consume& consume_here) {
  const size_t room = static_cast<size_t>(
      std::min<uint64_t>(window_bytes, std::max<uint64_t>(left_, piece_.size() - at_)));
  Buffer filling(lookback, room), opening(lookback, room), consuming(lookback, room);
  consuming.size = piece_.size() - at_;
  std::copy(piece_.begin() + static_cast<std::ptrdiff_t>(at_), piece_.end(), consuming.data());
  at_ = piece_.size();
  for (uint64_t end = consuming.size; consuming.size + opening.size + left_ > 0;
       end += opening.size) {
    const auto task = [&](size_t i) {
      if (i < opening.pieces())
        return open(opening.tags[i],
                    {opening.data() + i * piece_bytes, piece_size(opening.size, i)});
      const size_t piece = i - opening.pieces(), first = piece * piece_bytes;
      consume(consuming.begin + first, consuming.begin + first + piece_size(consuming.size, piece),
              consuming.data() + first);
    };
    BackgroundTasks tasks(workers, opening.pieces() + consuming.pieces(), task);
    fill(filling, end);
    if (consume_here)
      consume_here(consuming.begin, consuming.begin + consuming.size, consuming.data());
    tasks.finish();
    opening.copy_lookback_from(consuming);
    std::swap(consuming, opening);
    std::swap(opening, filling);
  }
}

// ---- Writing ------------------------------------------------------------------------------------

struct FileWriter::Buffer {
  explicit Buffer(size_t room) : bytes(room) {}
  size_t pieces() const { return ceil_div(size, piece_bytes); }
  std::span<unsigned char> piece(size_t i) {
    return {bytes.data() + i * piece_bytes, piece_size(size, i)};
  }

  std::vector<unsigned char> bytes;  // `size` of them, then the overrun
  uint64_t begin = 0;                // the position in the body
  size_t size = 0;
  std::array<Tag, buffer_pieces> tags;
};

FileWriter::FileWriter(Sink& sink, std::span<const unsigned char> key, const Header& header)
    : sink_(sink),
      header_(encode(header)),
      sealer_(key, header_),
      body_(header.body_bytes),
      previous_tag_(sealer_.header_tag()) {}

// Returns how many tasks seal a buffer. Pieces are encrypted independently, one task each. A
// checksum depends on the one before it, so one task makes all of them.
size_t FileWriter::seal_tasks(const Buffer& buffer) const {
  return sealer_.encrypts() ? buffer.pieces() : std::min<size_t>(buffer.pieces(), 1);
}

void FileWriter::seal(Buffer& buffer, size_t task) {
  const size_t end = sealer_.encrypts() ? task + 1 : buffer.pieces();
  for (size_t i = task; i < end; i++) {
    const uint64_t first = buffer.begin + i * piece_bytes;
    const PiecePosition position{first / piece_bytes, first + buffer.piece(i).size() == body_,
                                 previous_tag_};
    buffer.tags[i] = sealer_.seal(position, buffer.piece(i));
    if (!sealer_.encrypts()) previous_tag_ = buffer.tags[i];
  }
}

void FileWriter::write(Buffer& buffer) {
  for (size_t i = 0; i < buffer.pieces(); i++) {
    sink_.write(buffer.piece(i).data(), buffer.piece(i).size());
    sink_.write(buffer.tags[i].data(), tag_bytes);
  }
}

// Three buffers rotate: workers fill one and seal the one before, while this thread writes the one
// before that.
void FileWriter::write(Workers& workers, uint64_t parallel_bytes, size_t overrun, const Put& put,
                       const Put& put_here) {
  const size_t room = static_cast<size_t>(std::min<uint64_t>(window_bytes, body_)) + overrun;
  Buffer filling(room), sealing(room), writing(room);
  sink_.write(header_.data(), header_.size());
  sink_.write(sealer_.header_tag().data(), tag_bytes);
  for (uint64_t begin = 0; begin < body_ || sealing.size + writing.size > 0;) {
    filling.begin = begin;
    filling.size = static_cast<size_t>(std::min<uint64_t>(window_bytes, body_ - begin));
    const size_t parallel = static_cast<size_t>(
        std::min<uint64_t>(filling.size, parallel_bytes - std::min(begin, parallel_bytes)));
    std::memcpy(filling.bytes.data(), sealing.bytes.data() + sealing.size, overrun);
    const size_t seals = seal_tasks(sealing);
    const auto task = [&](size_t i) {
      if (i < seals) return seal(sealing, i);
      const size_t first = (i - seals) * piece_bytes, n = piece_size(parallel, i - seals);
      put(begin + first, begin + first + n, filling.bytes.data() + first);
    };
    BackgroundTasks tasks(workers, seals + ceil_div(parallel, piece_bytes), task);
    if (put_here && parallel > 0) put_here(begin, begin + parallel, filling.bytes.data());
    write(writing);
    tasks.finish();
    if (parallel < filling.size)
      put(begin + parallel, begin + filling.size, filling.bytes.data() + parallel);
    begin += filling.size;
    std::swap(writing, sealing);
    std::swap(sealing, filling);
  }
}

}  // namespace pkv::file
