#include "engine/store/body.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/checked.h"
#include "base/status.h"

namespace pkv {

namespace {

constexpr size_t window_pieces = 4;  // two windows of them fit into a second-level cache, or nearly
constexpr size_t window_bytes = window_pieces * piece_bytes;

// Piece i of n bytes.
size_t piece_size(size_t n, size_t i) { return std::min(piece_bytes, n - i * piece_bytes); }

[[noreturn]] void fail_check(size_t n) {
  fail(PKV_CORRUPT, "%zu bytes of the file are not what was written, or were written with another key", n);
}

}  // namespace

// ---- Reading --------------------------------------------------------------------------------------------------------

// Bytes [begin, begin + size) of the rest, behind the `longest` bytes before them.
struct BodyReader::Window {
  Window(size_t behind, size_t room) : longest(behind), bytes(behind + room + tag_bytes) {}
  size_t pieces() const { return ceil_div(size, piece_bytes); }
  unsigned char* data() { return bytes.data() + longest; }
  const unsigned char* data() const { return bytes.data() + longest; }
  // What tiles that begin in the window before have of it.
  void put_behind(const Window& before) { std::memcpy(bytes.data(), before.bytes.data() + before.size, longest); }

  size_t longest;
  std::vector<unsigned char> bytes;
  uint64_t begin = 0;
  size_t size = 0;
  std::array<Tag, window_pieces + 1> tags{};  // the one before, then that of each piece
};

BodyReader::BodyReader(Source& source, const Tagger& tagger, uint64_t body) : source_(&source), tagger_(tagger), left_(body), last_(tagger.last()) {}

void BodyReader::read_piece(unsigned char* to, size_t n) {
  if (source_->read(to, n + tag_bytes) < n + tag_bytes) fail(PKV_CORRUPT, "the file is cut short");
  left_ -= n;
}

void BodyReader::refill() {
  const size_t n = static_cast<size_t>(std::min<uint64_t>(left_, piece_bytes));
  if (n == 0) fail(PKV_CORRUPT, "the tables of the file tell of more bytes than it has");
  piece_.resize(n + tag_bytes);
  at_ = 0;
  read_piece(piece_.data(), n);
  const Tag before = last_;
  std::copy_n(piece_.begin() + static_cast<std::ptrdiff_t>(n), tag_bytes, last_.begin());
  piece_.resize(n);
  if (!tagger_.check_after(before, piece_, last_)) fail_check(n);
}

void BodyReader::read(void* to, size_t n) {
  auto* bytes = static_cast<unsigned char*>(to);
  while (n > 0) {
    if (at_ == piece_.size()) refill();
    const size_t count = std::min(n, piece_.size() - at_);
    std::memcpy(bytes, piece_.data() + at_, count);
    at_ += count, bytes += count, n -= count;
  }
}

void BodyReader::fill(Window& window, uint64_t begin) {
  window.begin = begin;
  window.size = 0;
  window.tags[0] = last_;
  for (size_t i = 0; i < window_pieces && left_ > 0; i++) {
    const size_t n = static_cast<size_t>(std::min<uint64_t>(left_, piece_bytes));
    unsigned char* const to = window.data() + window.size;
    read_piece(to, n);
    std::copy_n(to + n, tag_bytes, window.tags[i + 1].begin());
    last_ = window.tags[i + 1];
    window.size += n;
  }
}

void BodyReader::check(const Window& window, size_t piece) const {
  const std::span bytes(window.data() + piece * piece_bytes, piece_size(window.size, piece));
  if (!tagger_.check_after(window.tags[piece], bytes, window.tags[piece + 1])) fail_check(bytes.size());
}

// Three windows go round: this thread reads one while others check the one before and take the one before that.
void BodyReader::read_rest(Workers& workers, size_t longest, const Take& take) {
  const size_t room = static_cast<size_t>(std::min<uint64_t>(window_bytes, std::max<uint64_t>(left_, piece_.size() - at_)));
  Window filled(longest, room), checked(longest, room), taken(longest, room);
  taken.size = piece_.size() - at_;
  std::copy(piece_.begin() + static_cast<std::ptrdiff_t>(at_), piece_.end(), taken.data());
  at_ = piece_.size();
  for (uint64_t end = taken.size; taken.size + checked.size + left_ > 0; end += checked.size) {
    const auto task = [&](size_t i) {
      if (i < checked.pieces()) return check(checked, i);
      const size_t piece = i - checked.pieces(), first = piece * piece_bytes;
      take(taken.begin + first, taken.begin + first + piece_size(taken.size, piece), taken.data() + first);
    };
    Beside tasks(workers, checked.pieces() + taken.pieces(), task);
    fill(filled, end);
    tasks.finish();
    checked.put_behind(taken);
    std::swap(taken, checked);
    std::swap(checked, filled);
  }
}

// ---- Writing --------------------------------------------------------------------------------------------------------

struct FileWriter::Window {
  explicit Window(size_t room) : bytes(room) {}
  size_t pieces() const { return ceil_div(size, piece_bytes); }
  std::span<const unsigned char> piece(size_t i) const { return {bytes.data() + i * piece_bytes, piece_size(size, i)}; }

  std::vector<unsigned char> bytes;  // behind `size` of them, what goes beyond
  size_t size = 0;
  std::array<Tag, window_pieces> tags;
};

void FileWriter::write_header(std::span<const unsigned char> header) {
  const Tag tag = tagger_.next(header);
  sink_.write(header.data(), header.size());
  sink_.write(tag.data(), tag.size());
}

void FileWriter::tag(Window& window) {
  for (size_t i = 0; i < window.pieces(); i++) window.tags[i] = tagger_.next(window.piece(i));
}

void FileWriter::write(const Window& window) {
  for (size_t i = 0; i < window.pieces(); i++) {
    sink_.write(window.piece(i).data(), window.piece(i).size());
    sink_.write(window.tags[i].data(), tag_bytes);
  }
}

// Three windows go round: others fill one and tag the one before, while this thread writes the one before that.
void FileWriter::write(std::span<const unsigned char> header, uint64_t bytes, Workers& workers, size_t longest, const Put& put) {
  const size_t room = static_cast<size_t>(std::min<uint64_t>(window_bytes, bytes)) + longest;
  Window filled(room), tagged(room), written(room);
  write_header(header);
  for (uint64_t begin = 0; begin < bytes || tagged.size + written.size > 0;) {
    filled.size = static_cast<size_t>(std::min<uint64_t>(window_bytes, bytes - begin));
    std::memcpy(filled.bytes.data(), tagged.bytes.data() + tagged.size, longest);
    const size_t tags = tagged.size > 0;
    const auto task = [&](size_t i) {
      if (i < tags) return tag(tagged);
      const size_t first = (i - tags) * piece_bytes, n = std::min(piece_bytes, filled.size - first);
      put(begin + first, begin + first + n, filled.bytes.data() + first);
    };
    Beside tasks(workers, tags + filled.pieces(), task);
    write(written);
    tasks.finish();
    begin += filled.size;
    std::swap(written, tagged);
    std::swap(tagged, filled);
  }
}

}  // namespace pkv
