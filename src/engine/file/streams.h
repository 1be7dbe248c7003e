// Reads and writes the bytes of a file wherever a caller's pkv_stream says: a path, a descriptor, a
// buffer or the caller's functions. The rest of this directory only knows Source and Sink.
#pragma once

#include <pagedkv/file.h>

#include <memory>
#include <optional>

namespace pkv::file {

class Source {
 public:
  virtual ~Source() = default;
  // Reads n bytes and returns how many it read: fewer only at the end. Throws IO.
  virtual size_t read(void* to, size_t n) = 0;
  // Returns how many bytes are left, if that is known.
  virtual std::optional<uint64_t> left() const { return std::nullopt; }
  // Returns whether the stream is exactly one file, so that bytes after the file are an error.
  virtual bool holds_one_file() const { return false; }
  virtual bool can_rewind() const { return false; }
  // Goes back to where reading began. Only to be called if can_rewind(). Throws IO.
  virtual void rewind() {}
};

class Sink {
 public:
  virtual ~Sink() = default;
  // Announces, before the first write, how many bytes will be written. Throws BUFFER_TOO_SMALL.
  virtual void expect(uint64_t) {}
  // Throws IO.
  virtual void write(const void* from, size_t n) = 0;
  // Returns whether each write changes memory of the caller, so that nothing may fail after one.
  virtual bool writes_to_memory() const { return false; }
  // Makes the file visible under its path, after the last write. Without it a path keeps what it
  // had before. Throws IO.
  virtual void commit() {}
};

// Open a stream, whose struct has the size of this build. Both throw INVALID_ARGUMENT or IO.
std::unique_ptr<Source> open_source(const pkv_stream& stream);
std::unique_ptr<Sink> open_sink(const pkv_stream& stream, pkv_durability durability);

}  // namespace pkv::file
