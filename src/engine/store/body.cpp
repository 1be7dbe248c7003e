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

  size_t longest;
  std::vector<unsigned char> bytes;
  uint64_t begin = 0;
  size_t size = 0;
  bool checked = false;
  std::array<Tag, window_pieces + 1> tags;  // the one before, then that of each piece
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

void BodyReader::fill(Window& window, const Window& before) {
  window.begin = before.begin + before.size;
  window.size = 0;
  window.checked = false;
  window.tags[0] = before.tags[before.checked ? 0 : before.pieces()];
  std::memcpy(window.bytes.data(), before.bytes.data() + before.size, window.longest);
  for (size_t i = 0; i < window_pieces && left_ > 0; i++) {
    const size_t n = static_cast<size_t>(std::min<uint64_t>(left_, piece_bytes));
    unsigned char* const to = window.data() + window.size;
    read_piece(to, n);
    std::copy_n(to + n, tag_bytes, window.tags[i + 1].begin());
    window.size += n;
  }
}

void BodyReader::check(const Window& window, size_t piece) const {
  const std::span bytes(window.data() + piece * piece_bytes, piece_size(window.size, piece));
  if (!window.checked && !tagger_.check_after(window.tags[piece], bytes, window.tags[piece + 1])) fail_check(bytes.size());
}

void BodyReader::read_rest(Workers& workers, size_t longest, const Take& take) {
  const size_t room = static_cast<size_t>(std::min<uint64_t>(window_bytes, std::max<uint64_t>(left_, piece_.size() - at_)));
  Window now(longest, room), next(longest, room);
  now.size = piece_.size() - at_;
  now.checked = true;
  now.tags[0] = last_;
  std::copy(piece_.begin() + static_cast<std::ptrdiff_t>(at_), piece_.end(), now.data());
  at_ = piece_.size();
  while (now.size > 0 || left_ > 0) {
    const bool beside = source_->any_thread() && left_ > 0;
    if (!beside) fill(next, now);
    workers.for_each(beside + now.pieces(), [&](size_t i, unsigned) {
      if (beside && i == 0) return fill(next, now);
      const size_t piece = i - beside, first = piece * piece_bytes;
      check(now, piece);
      take(now.begin + first, now.begin + first + piece_size(now.size, piece), now.data() + first);
    });
    std::swap(now, next);
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

// Three windows go round: one is filled while the one before is tagged and the one before that is written.
void FileWriter::write(std::span<const unsigned char> header, uint64_t bytes, Workers& workers, size_t longest, const Put& put) {
  const size_t room = static_cast<size_t>(std::min<uint64_t>(window_bytes, bytes)) + longest;
  Window filled(room), tagged(room), written(room);
  write_header(header);
  for (uint64_t begin = 0; begin < bytes || tagged.size + written.size > 0;) {
    filled.size = static_cast<size_t>(std::min<uint64_t>(window_bytes, bytes - begin));
    std::memcpy(filled.bytes.data(), tagged.bytes.data() + tagged.size, longest);
    const size_t writes = sink_.any_thread() && written.size > 0, tags = tagged.size > 0;
    if (writes == 0) write(written);
    workers.for_each(writes + tags + filled.pieces(), [&](size_t i, unsigned) {
      if (i < writes) return write(written);
      if (i < writes + tags) return tag(tagged);
      const size_t first = (i - writes - tags) * piece_bytes, n = std::min(piece_bytes, filled.size - first);
      put(begin + first, begin + first + n, filled.bytes.data() + first);
    });
    begin += filled.size;
    std::swap(written, tagged);
    std::swap(tagged, filled);
  }
}

}  // namespace pkv
