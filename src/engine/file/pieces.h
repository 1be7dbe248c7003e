// Reads and writes a file piece by piece, in buffers of several pieces: while the calling thread
// reads or writes one buffer, worker threads check, encrypt or convert the buffers beside it. Only
// the calling thread ever waits for the stream, and never inside the arena or a runner, so a pipe
// that nobody drains stops no step. Tiles may cross the ends of pieces and buffers.
#pragma once

#include <functional>
#include <vector>

#include "base/parallel.h"
#include "engine/file/format.h"
#include "engine/file/sealer.h"
#include "engine/file/streams.h"

namespace pkv::file {

// Returns the bytes of a whole file: header, body and all tags. Throws OVERFLOW.
uint64_t file_bytes(const Header& header);

class FileReader {
 public:
  // Reads the header, and checks it, its tag and the size of the stream. Throws CORRUPT,
  // WRONG_VERSION, MISMATCH, UNSUPPORTED or IO.
  FileReader(Source& source, std::span<const unsigned char> key);
  const Header& header() const { return header_; }

  // Reads the next n bytes of the body. Throws CORRUPT if they are not what was written, and IO.
  void read(void* to, size_t n);

  // Reads the rest and calls consume(begin, end, bytes) for every range [begin, end) of it, from
  // many threads and in no order. The `lookback` bytes before `bytes` can be read, too, except
  // those before the beginning of the rest. Throws CORRUPT if something is not what was written,
  // and IO; then nothing that was consumed may be used. consume_here, if given, is called in the
  // same way, but by the calling thread and in order, so it may wait for something.
  using Consume = std::function<void(uint64_t begin, uint64_t end, const unsigned char* bytes)>;
  void read_rest(Workers& workers, size_t lookback, const Consume& consume,
                 const Consume& consume_here = {});

 private:
  // Where a piece belongs, and its tag.
  struct Piece {
    PiecePosition position;
    Tag tag;
  };
  struct Buffer;
  size_t read_piece(unsigned char* to, Piece& piece);
  void open(const Piece& piece, std::span<unsigned char> bytes) const;
  void refill();
  void fill(Buffer& buffer, uint64_t begin);

  Source* source_;
  Header header_;
  Sealer sealer_;
  uint64_t left_;                     // bytes of the body not yet read from the source
  uint64_t next_piece_ = 0;           // the number of the piece to read next
  Tag previous_tag_;                  // of the piece before it, or of the header
  std::vector<unsigned char> piece_;  // the last piece that read() needed, checked
  size_t at_ = 0;                     // how much of it was read
};

class FileWriter {
 public:
  FileWriter(Sink& sink, std::span<const unsigned char> key, const Header& header);

  // put(begin, end, to) writes to `to` everything that begins in [begin, end) of the body, and may
  // write up to `overrun` bytes beyond the end. Many threads call it, in no order, for the first
  // parallel_bytes of the body. Then the writing thread calls it, in order, for the rest.
  using Put = std::function<void(uint64_t begin, uint64_t end, unsigned char* to)>;
  // Writes the header and the body. put_here, if given, is called for the first parallel_bytes,
  // too, by the writing thread and in order, so it may wait for something; it and put write
  // different bytes. Throws bad_alloc before the first byte is written, IO, and what put_here
  // throws.
  void write(Workers& workers, uint64_t parallel_bytes, size_t overrun, const Put& put,
             const Put& put_here = {});

 private:
  struct Buffer;
  size_t seal_tasks(const Buffer& buffer) const;
  void seal(Buffer& buffer, size_t task);
  void write(Buffer& buffer);

  Sink& sink_;
  const std::vector<unsigned char> header_;
  const Sealer sealer_;
  const uint64_t body_;  // bytes of the body
  Tag previous_tag_;     // of the last piece that was sealed, for checksums
};

}  // namespace pkv::file
