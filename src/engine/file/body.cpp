// Moves the body of a file through three windows in turn, for reading and for writing.
#include "engine/file/body.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/background_tasks.h"
#include "base/checked.h"
#include "base/status.h"

namespace pkv::file {

namespace {

// With fewer pieces the stages wait for one another more often; more are hardly faster.
constexpr size_t window_pieces = 8;
constexpr size_t window_bytes = window_pieces * piece_bytes;

// Returns the size of piece i of n bytes, of which only the last one may be short.
size_t piece_size(size_t n, size_t i) { return std::min(piece_bytes, n - i * piece_bytes); }

[[noreturn]] void fail_check(size_t n) {
  fail(PKV_CORRUPT,
       "%zu bytes of the file are not what was written, or were written with another key", n);
}

}  // namespace

// ---- Reading ------------------------------------------------------------------------------------

// Bytes [begin, begin + size) of the rest of the body, and the `lookback` bytes before them.
struct BodyReader::Window {
  Window(size_t lookback_bytes, size_t room)
      : lookback(lookback_bytes), bytes(lookback_bytes + room + tag_bytes) {}
  size_t pieces() const { return ceil_div(size, piece_bytes); }
  unsigned char* data() { return bytes.data() + lookback; }
  const unsigned char* data() const { return bytes.data() + lookback; }
  // Copies the end of the window before, where a tile may begin that ends in this one.
  void copy_lookback_from(const Window& before) {
    std::memcpy(bytes.data(), before.bytes.data() + before.size, lookback);
  }

  size_t lookback;
  std::vector<unsigned char> bytes;
  uint64_t begin = 0;
  size_t size = 0;
  std::array<PiecePosition, window_pieces> positions;
  std::array<Tag, window_pieces> tags;
};

BodyReader::BodyReader(Source& source, const Sealer& sealer, uint64_t body)
    : source_(&source),
      sealer_(sealer),
      left_(body),
      pieces_(ceil_div(body, piece_bytes)),
      previous_tag_(sealer.header_tag()) {}

void BodyReader::read_piece(unsigned char* to, size_t n) {
  if (source_->read(to, n + tag_bytes) < n + tag_bytes) fail(PKV_CORRUPT, "the file is cut short");
  left_ -= n;
}

void BodyReader::refill() {
  const size_t n = static_cast<size_t>(std::min<uint64_t>(left_, piece_bytes));
  if (n == 0) fail(PKV_CORRUPT, "the tables of the file need more bytes than it has");
  piece_.resize(n + tag_bytes);
  at_ = 0;
  read_piece(piece_.data(), n);
  const PiecePosition position = next_position();
  std::copy_n(piece_.begin() + static_cast<std::ptrdiff_t>(n), tag_bytes, previous_tag_.begin());
  piece_.resize(n);
  if (!sealer_.open(position, piece_, previous_tag_)) fail_check(n);
}

PiecePosition BodyReader::next_position() {
  const uint64_t number = next_piece_++;
  return {number, number + 1 == pieces_, previous_tag_};
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
    window.positions[i] = next_position();
    std::copy_n(to + n, tag_bytes, previous_tag_.begin());
    window.tags[i] = previous_tag_;
    window.size += n;
  }
}

void BodyReader::open(Window& window, size_t piece) const {
  const std::span bytes(window.data() + piece * piece_bytes, piece_size(window.size, piece));
  if (!sealer_.open(window.positions[piece], bytes, window.tags[piece])) fail_check(bytes.size());
}

// Three windows rotate: this thread fills one, while workers open (check and decrypt) the one
// before and consume the one before that.
void BodyReader::read_rest(Workers& workers, size_t lookback, const Consume& consume) {
  const size_t room = static_cast<size_t>(
      std::min<uint64_t>(window_bytes, std::max<uint64_t>(left_, piece_.size() - at_)));
  Window filling(lookback, room), opening(lookback, room), consuming(lookback, room);
  consuming.size = piece_.size() - at_;
  std::copy(piece_.begin() + static_cast<std::ptrdiff_t>(at_), piece_.end(), consuming.data());
  at_ = piece_.size();
  for (uint64_t end = consuming.size; consuming.size + opening.size + left_ > 0;
       end += opening.size) {
    const auto task = [&](size_t i) {
      if (i < opening.pieces()) return open(opening, i);
      const size_t piece = i - opening.pieces(), first = piece * piece_bytes;
      consume(consuming.begin + first, consuming.begin + first + piece_size(consuming.size, piece),
              consuming.data() + first);
    };
    BackgroundTasks tasks(workers, opening.pieces() + consuming.pieces(), task);
    fill(filling, end);
    tasks.finish();
    opening.copy_lookback_from(consuming);
    std::swap(consuming, opening);
    std::swap(opening, filling);
  }
}

// ---- Writing ------------------------------------------------------------------------------------

struct FileWriter::Window {
  explicit Window(size_t room) : bytes(room) {}
  size_t pieces() const { return ceil_div(size, piece_bytes); }
  std::span<unsigned char> piece(size_t i) {
    return {bytes.data() + i * piece_bytes, piece_size(size, i)};
  }

  std::vector<unsigned char> bytes;  // `size` of them, then the overrun
  uint64_t begin = 0;                // the position in the body
  size_t size = 0;
  std::array<Tag, window_pieces> tags;
};

void FileWriter::write_header(std::span<const unsigned char> header) {
  sink_.write(header.data(), header.size());
  sink_.write(sealer_.header_tag().data(), tag_bytes);
}

// Returns how many tasks seal a window. Pieces are encrypted independently, one task each. A
// checksum depends on the one before it, so one task makes all of them.
size_t FileWriter::seal_tasks(const Window& window) const {
  return sealer_.encrypts() ? window.pieces() : std::min<size_t>(window.pieces(), 1);
}

void FileWriter::seal(Window& window, size_t task) {
  const size_t end = sealer_.encrypts() ? task + 1 : window.pieces();
  for (size_t i = task; i < end; i++) {
    const uint64_t first = window.begin + i * piece_bytes;
    const PiecePosition position{first / piece_bytes, first + window.piece(i).size() == body_,
                                 previous_tag_};
    window.tags[i] = sealer_.seal(position, window.piece(i));
    if (!sealer_.encrypts()) previous_tag_ = window.tags[i];
  }
}

void FileWriter::write(Window& window) {
  for (size_t i = 0; i < window.pieces(); i++) {
    sink_.write(window.piece(i).data(), window.piece(i).size());
    sink_.write(window.tags[i].data(), tag_bytes);
  }
}

// Three windows rotate: workers fill one and seal the one before, while this thread writes the one
// before that.
void FileWriter::write(std::span<const unsigned char> header, Workers& workers,
                       const BodyPlan& body) {
  body_ = body.parallel_bytes + body.serial_bytes;
  const size_t room = static_cast<size_t>(std::min<uint64_t>(window_bytes, body_)) + body.overrun;
  Window filling(room), sealing(room), writing(room);
  previous_tag_ = sealer_.header_tag();
  write_header(header);
  for (uint64_t begin = 0; begin < body_ || sealing.size + writing.size > 0;) {
    filling.begin = begin;
    filling.size = static_cast<size_t>(std::min<uint64_t>(window_bytes, body_ - begin));
    const size_t parallel = static_cast<size_t>(std::min<uint64_t>(
        filling.size, body.parallel_bytes - std::min(begin, body.parallel_bytes)));
    std::memcpy(filling.bytes.data(), sealing.bytes.data() + sealing.size, body.overrun);
    const size_t seals = seal_tasks(sealing);
    const auto task = [&](size_t i) {
      if (i < seals) return seal(sealing, i);
      const size_t first = (i - seals) * piece_bytes, n = piece_size(parallel, i - seals);
      body.put(begin + first, begin + first + n, filling.bytes.data() + first);
    };
    BackgroundTasks tasks(workers, seals + ceil_div(parallel, piece_bytes), task);
    write(writing);
    tasks.finish();
    if (parallel < filling.size)
      body.put(begin + parallel, begin + filling.size, filling.bytes.data() + parallel);
    begin += filling.size;
    std::swap(writing, sealing);
    std::swap(sealing, filling);
  }
}

}  // namespace pkv::file
