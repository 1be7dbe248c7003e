#include "engine/file/body.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/background_tasks.h"
#include "base/checked.h"
#include "base/status.h"

namespace pkv::file {

namespace {

constexpr size_t window_pieces =
    8;  // fewer wait for one another more often; more are little faster
constexpr size_t window_bytes = window_pieces * piece_bytes;

// Piece i of n bytes.
size_t piece_size(size_t n, size_t i) { return std::min(piece_bytes, n - i * piece_bytes); }

[[noreturn]] void fail_check(size_t n) {
  fail(PKV_CORRUPT,
       "%zu bytes of the file are not what was written, or were written with another key", n);
}

}  // namespace

// ---- Reading ------------------------------------------------------------------------------------

// Bytes [begin, begin + size) of the rest, behind the `longest` bytes before them.
struct BodyReader::Window {
  Window(size_t behind, size_t room) : longest(behind), bytes(behind + room + tag_bytes) {}
  size_t pieces() const { return ceil_div(size, piece_bytes); }
  unsigned char* data() { return bytes.data() + longest; }
  const unsigned char* data() const { return bytes.data() + longest; }
  // What tiles that begin in the window before have of it.
  void put_behind(const Window& before) {
    std::memcpy(bytes.data(), before.bytes.data() + before.size, longest);
  }

  size_t longest;
  std::vector<unsigned char> bytes;
  uint64_t begin = 0;
  size_t size = 0;
  std::array<Place, window_pieces> places;
  std::array<Tag, window_pieces> tags;
};

BodyReader::BodyReader(Source& source, const Sealer& sealer, uint64_t body)
    : source_(&source),
      sealer_(sealer),
      left_(body),
      pieces_(ceil_div(body, piece_bytes)),
      last_(sealer.header_tag()) {}

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
  const Place place = next_place();
  std::copy_n(piece_.begin() + static_cast<std::ptrdiff_t>(n), tag_bytes, last_.begin());
  piece_.resize(n);
  if (!sealer_.open(place, piece_, last_)) fail_check(n);
}

Place BodyReader::next_place() {
  const uint64_t number = next_piece_++;
  return {number, number + 1 == pieces_, last_};
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
  for (size_t i = 0; i < window_pieces && left_ > 0; i++) {
    const size_t n = static_cast<size_t>(std::min<uint64_t>(left_, piece_bytes));
    unsigned char* const to = window.data() + window.size;
    read_piece(to, n);
    window.places[i] = next_place();
    std::copy_n(to + n, tag_bytes, last_.begin());
    window.tags[i] = last_;
    window.size += n;
  }
}

void BodyReader::open(Window& window, size_t piece) const {
  const std::span bytes(window.data() + piece * piece_bytes, piece_size(window.size, piece));
  if (!sealer_.open(window.places[piece], bytes, window.tags[piece])) fail_check(bytes.size());
}

// Three windows go round: this thread reads one while others check (and decrypt) the one before and
// take the one before that.
void BodyReader::read_rest(Workers& workers, size_t longest, const Take& take) {
  const size_t room = static_cast<size_t>(
      std::min<uint64_t>(window_bytes, std::max<uint64_t>(left_, piece_.size() - at_)));
  Window filled(longest, room), opened(longest, room), taken(longest, room);
  taken.size = piece_.size() - at_;
  std::copy(piece_.begin() + static_cast<std::ptrdiff_t>(at_), piece_.end(), taken.data());
  at_ = piece_.size();
  for (uint64_t end = taken.size; taken.size + opened.size + left_ > 0; end += opened.size) {
    const auto task = [&](size_t i) {
      if (i < opened.pieces()) return open(opened, i);
      const size_t piece = i - opened.pieces(), first = piece * piece_bytes;
      take(taken.begin + first, taken.begin + first + piece_size(taken.size, piece),
           taken.data() + first);
    };
    BackgroundTasks tasks(workers, opened.pieces() + taken.pieces(), task);
    fill(filled, end);
    tasks.finish();
    opened.put_behind(taken);
    std::swap(taken, opened);
    std::swap(opened, filled);
  }
}

// ---- Writing ------------------------------------------------------------------------------------

struct FileWriter::Window {
  explicit Window(size_t room) : bytes(room) {}
  size_t pieces() const { return ceil_div(size, piece_bytes); }
  std::span<unsigned char> piece(size_t i) {
    return {bytes.data() + i * piece_bytes, piece_size(size, i)};
  }

  std::vector<unsigned char> bytes;  // behind `size` of them, what goes beyond
  uint64_t begin = 0;                // of the body
  size_t size = 0;
  std::array<Tag, window_pieces> tags;
};

void FileWriter::write_header(std::span<const unsigned char> header) {
  sink_.write(header.data(), header.size());
  sink_.write(sealer_.header_tag().data(), tag_bytes);
}

// Encrypted pieces know nothing of each other; checksums follow from one another, and are made by
// one task.
size_t FileWriter::seal_tasks(const Window& window) const {
  return sealer_.encrypts() ? window.pieces() : std::min<size_t>(window.pieces(), 1);
}

void FileWriter::seal(Window& window, size_t task) {
  const size_t end = sealer_.encrypts() ? task + 1 : window.pieces();
  for (size_t i = task; i < end; i++) {
    const uint64_t first = window.begin + i * piece_bytes;
    const Place place{first / piece_bytes, first + window.piece(i).size() == body_, last_};
    window.tags[i] = sealer_.seal(place, window.piece(i));
    if (!sealer_.encrypts()) last_ = window.tags[i];
  }
}

void FileWriter::write(Window& window) {
  for (size_t i = 0; i < window.pieces(); i++) {
    sink_.write(window.piece(i).data(), window.piece(i).size());
    sink_.write(window.tags[i].data(), tag_bytes);
  }
}

// Three windows go round: others fill one and seal the one before, while this thread writes the one
// before that.
void FileWriter::write(std::span<const unsigned char> header, Workers& workers, const Body& body) {
  body_ = body.bytes + body.last;
  const size_t room = static_cast<size_t>(std::min<uint64_t>(window_bytes, body_)) + body.longest;
  Window filled(room), sealed(room), written(room);
  last_ = sealer_.header_tag();
  write_header(header);
  for (uint64_t begin = 0; begin < body_ || sealed.size + written.size > 0;) {
    filled.begin = begin;
    filled.size = static_cast<size_t>(std::min<uint64_t>(window_bytes, body_ - begin));
    const size_t size = static_cast<size_t>(
        std::min<uint64_t>(filled.size, body.bytes - std::min(begin, body.bytes)));
    std::memcpy(filled.bytes.data(), sealed.bytes.data() + sealed.size, body.longest);
    const size_t seals = seal_tasks(sealed);
    const auto task = [&](size_t i) {
      if (i < seals) return seal(sealed, i);
      const size_t first = (i - seals) * piece_bytes, n = piece_size(size, i - seals);
      body.put(begin + first, begin + first + n, filled.bytes.data() + first);
    };
    BackgroundTasks tasks(workers, seals + ceil_div(size, piece_bytes), task);
    write(written);
    tasks.finish();
    if (size < filled.size) body.put(begin + size, begin + filled.size, filled.bytes.data() + size);
    begin += filled.size;
    std::swap(written, sealed);
    std::swap(sealed, filled);
  }
}

}  // namespace pkv::file
