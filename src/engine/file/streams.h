// Bytes one after another, from or to wherever a caller's pkv_stream says.
#pragma once

#include <pagedkv/file.h>

#include <memory>
#include <optional>

namespace pkv::file {

class Source {
 public:
  virtual ~Source() = default;
  // As many bytes as asked for; fewer only at the end.
  virtual size_t read(void* to, size_t n) = 0;
  // Bytes from here to the end, where that can be told.
  virtual std::optional<uint64_t> left() const { return std::nullopt; }
  // True if nothing may follow what is read.
  virtual bool closed() const { return false; }
  // Whether it can be read again, and that.
  virtual bool can_rewind() const { return false; }
  virtual void rewind() {}
};

class Sink {
 public:
  virtual ~Sink() = default;
  // Before the first write: so much is coming. Throws BUFFER_TOO_SMALL.
  virtual void expect(uint64_t) {}
  virtual void write(const void* from, size_t n) = 0;
  // All is there: only now it counts.
  virtual void commit() {}
};

// The stream has the size of this build. Throw INVALID_ARGUMENT, IO.
std::unique_ptr<Source> open_source(const pkv_stream& stream);
std::unique_ptr<Sink> open_sink(const pkv_stream& stream, bool durable);

}  // namespace pkv::file
