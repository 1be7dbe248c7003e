// Reads and writes the body of a file, a window of several pieces at a time: while the calling
// thread reads or writes one window, worker threads check, encrypt or convert the windows beside
// it. Only the calling thread ever waits for the stream, and never inside the arena or a runner, so
// a pipe that nobody drains stops no step. Tiles may cross the ends of pieces and windows.
#pragma once

#include <functional>
#include <vector>

#include "base/parallel.h"
#include "engine/file/pieces.h"
#include "engine/file/streams.h"

namespace pkv::file {

class BodyReader {
 public:
  // Reads a body of the given size, which follows a header that was read and checked.
  BodyReader(Source& source, const Sealer& sealer, uint64_t body);

  // Reads the next n bytes. Throws CORRUPT if they are not what was written, and IO.
  void read(void* to, size_t n);

  // Reads the rest and calls consume(begin, end, bytes) for every range [begin, end) of it, from
  // many threads and in no order. The `lookback` bytes before `bytes` can be read, too, except
  // those before the beginning of the rest. Throws CORRUPT if something is not what was written,
  // and IO; then nothing that was consumed may be used.
  using Consume = std::function<void(uint64_t begin, uint64_t end, const unsigned char* bytes)>;
  void read_rest(Workers& workers, size_t lookback, const Consume& consume);

 private:
  struct Window;
  void read_piece(unsigned char* to, size_t n);
  void refill();
  void fill(Window& window, uint64_t begin);
  void open(Window& window, size_t piece) const;
  PiecePosition next_position();

  Source* source_;
  Sealer sealer_;
  uint64_t left_;                     // bytes of the body not yet read from the source
  uint64_t pieces_, next_piece_ = 0;  // the number of pieces, and of the next one
  Tag previous_tag_;                  // of the piece before next_piece_
  std::vector<unsigned char> piece_;  // the last piece that read() needed, checked
  size_t at_ = 0;                     // how much of it was read
};

class FileWriter {
 public:
  FileWriter(Sink& sink, const Sealer& sealer) : sink_(sink), sealer_(sealer) {}

  // put(begin, end, to) writes to `to` everything that begins in [begin, end) of the body, and may
  // write up to `overrun` bytes beyond the end. Many threads call it, in no order, for the first
  // parallel_bytes of the body. The writing thread calls it in order for the serial_bytes after
  // them, when everything before was put.
  using Put = std::function<void(uint64_t begin, uint64_t end, unsigned char* to)>;
  struct BodyPlan {
    uint64_t parallel_bytes, serial_bytes;
    size_t overrun;
    const Put& put;
  };
  // Writes a header and a body. Throws bad_alloc before the first byte is written, or IO.
  void write(std::span<const unsigned char> header, Workers& workers, const BodyPlan& body);

 private:
  struct Window;
  void write_header(std::span<const unsigned char> header);
  size_t seal_tasks(const Window& window) const;
  void seal(Window& window, size_t task);
  void write(Window& window);

  Sink& sink_;
  const Sealer sealer_;
  uint64_t body_ = 0;   // bytes of the body
  Tag previous_tag_{};  // of the last piece that was sealed, for checksums
};

}  // namespace pkv::file
