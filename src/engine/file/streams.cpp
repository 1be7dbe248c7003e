// Implements sources and sinks for the four kinds of streams.
#include "engine/file/streams.h"

#include <algorithm>
#include <cstring>

#include "base/enums.h"
#include "base/file_replacement.h"
#include "base/files.h"
#include "base/memory.h"
#include "base/status.h"

namespace pkv::file {

namespace {

class FileSource final : public Source {
 public:
  FileSource(os::File file, bool one_file)
      : file_(std::move(file)),
        one_file_(one_file),
        begin_(file_.remaining() ? std::optional(file_.position()) : std::nullopt) {}
  size_t read(void* to, size_t n) override { return file_.read(to, n); }
  std::optional<uint64_t> left() const override { return file_.remaining(); }
  bool holds_one_file() const override { return one_file_; }
  bool can_rewind() const override { return begin_.has_value(); }
  void rewind() override { file_.seek(*begin_); }

 private:
  os::File file_;
  const bool one_file_;
  const std::optional<uint64_t> begin_;  // nullopt if it cannot be rewound
};

class FileSink final : public Sink {
 public:
  explicit FileSink(int descriptor) : file_(os::file_of(descriptor)) {}
  void write(const void* from, size_t n) override { file_.write(from, n); }

 private:
  os::File file_;
};

class PathSink final : public Sink {
 public:
  PathSink(const char* path, bool durable) : replacement_(path, durable) {}
  void write(const void* from, size_t n) override { replacement_.file().write(from, n); }
  void commit() override { replacement_.commit(); }

 private:
  os::FileReplacement replacement_;
};

class BufferSource final : public Source {
 public:
  BufferSource(const void* data, uint64_t size)
      : data_(static_cast<const unsigned char*>(data)), size_(size) {}
  size_t read(void* to, size_t n) override {
    const size_t count = static_cast<size_t>(std::min<uint64_t>(n, size_ - at_));
    if (count > 0) std::memcpy(to, data_ + at_, count);
    at_ += count;
    return count;
  }
  std::optional<uint64_t> left() const override { return size_ - at_; }
  bool holds_one_file() const override { return true; }
  bool can_rewind() const override { return true; }
  void rewind() override { at_ = 0; }

 private:
  const unsigned char* const data_;
  const uint64_t size_;
  uint64_t at_ = 0;
};

class BufferSink final : public Sink {
 public:
  BufferSink(void* data, uint64_t size) : data_(static_cast<unsigned char*>(data)), size_(size) {}
  void expect(uint64_t bytes) override {
    if (bytes > size_)
      fail(PKV_BUFFER_TOO_SMALL, "the file has %llu bytes, the buffer %llu", llu(bytes),
           llu(size_));
  }
  void write(const void* from, size_t n) override {
    std::memcpy(data_ + at_, from, n);
    at_ += n;
  }
  bool writes_to_memory() const override { return true; }

 private:
  unsigned char* const data_;
  const uint64_t size_;
  uint64_t at_ = 0;
};

// Calls a caller's function until it has moved n bytes or returns 0 for the end. Returns how many
// bytes were moved. Throws IO.
template <class Call>
size_t call_for_all(size_t n, const char* what, const Call& call) {
  size_t done = 0;
  while (done < n) {
    const HookScope scope;
    const int64_t moved = call(done, n - done);
    if (moved < 0) {
      const int error = static_cast<int>(-std::max<int64_t>(moved, -INT32_MAX));
      fail(io_details(error), "the caller's %s function returned errno %d", what, error);
    }
    if (static_cast<uint64_t>(moved) > n - done)
      fail(PKV_IO, "the caller's %s function moved %lld bytes of %zu", what, (long long)moved,
           n - done);
    if (moved == 0) break;
    done += static_cast<size_t>(moved);
  }
  return done;
}

class HookSource final : public Source {
 public:
  explicit HookSource(const pkv_stream& stream) : stream_(stream) {}
  size_t read(void* to, size_t n) override {
    return call_for_all(n, "read", [&](size_t at, size_t rest) {
      return stream_.read(stream_.user, static_cast<char*>(to) + at, rest);
    });
  }

 private:
  const pkv_stream stream_;
};

class HookSink final : public Sink {
 public:
  explicit HookSink(const pkv_stream& stream) : stream_(stream) {}
  void write(const void* from, size_t n) override {
    const auto call = [&](size_t at, size_t rest) {
      return stream_.write(stream_.user, static_cast<const char*>(from) + at, rest);
    };
    if (call_for_all(n, "write", call) < n)
      fail(PKV_IO, "the caller's write function takes no more bytes");
  }

 private:
  const pkv_stream stream_;
};

void check(const pkv_stream& stream, bool reads) {
  if (stream.reserved != 0)
    fail(PKV_INVALID_ARGUMENT, "stream: reserved is %u, not 0", stream.reserved);
  check_enum(stream.kind, "kind", "stream");
  switch (stream.kind) {
    case PKV_STREAM_PATH:
      if (stream.path == nullptr) fail(PKV_INVALID_ARGUMENT, "stream: path is NULL");
      return;
    case PKV_STREAM_DESCRIPTOR:
      if (stream.descriptor < 0)
        fail(PKV_INVALID_ARGUMENT, "stream: descriptor is %d", stream.descriptor);
      return;
    case PKV_STREAM_BUFFER:
      if (stream.data == nullptr && stream.size > 0)
        fail(PKV_INVALID_ARGUMENT, "stream: data is NULL for %llu bytes", llu(stream.size));
      return;
    case PKV_STREAM_CALLBACKS:
      if (reads ? stream.read == nullptr : stream.write == nullptr)
        fail(PKV_INVALID_ARGUMENT, "stream: the %s function is NULL", reads ? "read" : "write");
      return;
  }
}

}  // namespace

std::unique_ptr<Source> open_source(const pkv_stream& stream) {
  check(stream, true);
  switch (stream.kind) {
    case PKV_STREAM_PATH:
      return std::make_unique<FileSource>(os::open_to_read(stream.path), true);
    case PKV_STREAM_DESCRIPTOR:
      return std::make_unique<FileSource>(os::file_of(stream.descriptor), false);
    case PKV_STREAM_BUFFER:
      return std::make_unique<BufferSource>(stream.data, stream.size);
    case PKV_STREAM_CALLBACKS:
      break;
  }
  return std::make_unique<HookSource>(stream);
}

std::unique_ptr<Sink> open_sink(const pkv_stream& stream, pkv_durability durability) {
  check(stream, false);
  if (durability == PKV_DURABILITY_ON && stream.kind != PKV_STREAM_PATH)
    fail(PKV_UNSUPPORTED, "durability is ON, but only a file at a PATH can be synced; kind is %s",
         enum_name(stream.kind));
  switch (stream.kind) {
    case PKV_STREAM_PATH:
      return std::make_unique<PathSink>(stream.path, durability != PKV_DURABILITY_OFF);
    case PKV_STREAM_DESCRIPTOR:
      return std::make_unique<FileSink>(stream.descriptor);
    case PKV_STREAM_BUFFER:
      return std::make_unique<BufferSink>(stream.data, stream.size);
    case PKV_STREAM_CALLBACKS:
      break;
  }
  return std::make_unique<HookSink>(stream);
}

}  // namespace pkv::file
