// The body of a file, moved a window of pieces at a time: while the calling thread reads or writes
// a window, others work on the ones beside it. Only the calling thread ever waits for the stream,
// and never inside the arena or a runner, so that a pipe nobody drains stops no step. What belongs
// together may lie across the ends of pieces and windows.
#pragma once

#include <functional>
#include <vector>

#include "base/parallel.h"
#include "engine/file/pieces.h"
#include "engine/file/streams.h"

namespace pkv::file {

class BodyReader {
 public:
  // The header was read and checked already.
  BodyReader(Source& source, const Sealer& sealer, uint64_t body);

  // The next n bytes; throws CORRUPT where they are not what was written.
  void read(void* to, size_t n);

  // All the rest: take(begin, end, bytes) for every run [begin, end) of it, by many threads and in
  // no order. `longest` bytes before `bytes` are there, too, as far as the rest goes back. Where
  // something is not what was written, that is told at the end: until then nothing counts that was
  // taken.
  using Take = std::function<void(uint64_t begin, uint64_t end, const unsigned char* bytes)>;
  void read_rest(Workers& workers, size_t longest, const Take& take);

 private:
  struct Window;
  void read_piece(unsigned char* to, size_t n);
  void refill();
  void fill(Window& window, uint64_t begin);
  void open(Window& window, size_t piece) const;
  Place next_place();

  Source* source_;
  Sealer sealer_;
  uint64_t left_;                     // of the body, not yet read from the source
  uint64_t pieces_, next_piece_ = 0;  // of the whole body
  Tag last_;                          // of the piece before
  std::vector<unsigned char> piece_;  // checked
  size_t at_ = 0;
};

class FileWriter {
 public:
  FileWriter(Sink& sink, const Sealer& sealer) : sink_(sink), sealer_(sealer) {}

  // put(begin, end, to) writes all that begins in [begin, end) of the body to `to`, and may go
  // `longest` bytes beyond the end: by many threads and in no order up to `bytes`. The `last` bytes
  // behind them are put by this thread, in order, once all before them is there.
  using Put = std::function<void(uint64_t begin, uint64_t end, unsigned char* to)>;
  struct Body {
    uint64_t bytes, last;
    size_t longest;
    const Put& put;
  };
  // A header and a body. Memory is taken before the first byte is written.
  void write(std::span<const unsigned char> header, Workers& workers, const Body& body);

 private:
  struct Window;
  void write_header(std::span<const unsigned char> header);
  size_t seal_tasks(const Window& window) const;
  void seal(Window& window, size_t task);
  void write(Window& window);

  Sink& sink_;
  const Sealer sealer_;
  uint64_t body_ = 0;
  Tag last_{};  // of the piece before
};

}  // namespace pkv::file
