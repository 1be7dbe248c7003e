// Reads what a save writes.
#include "engine/file/save_check.h"

#include "base/status.h"
#include "engine/file/load_plan.h"

namespace pkv::file {

namespace {

#ifdef NDEBUG
constexpr bool debug = false;
#else
constexpr bool debug = true;
#endif

template <class Read>
void expect_to_work(const Read& read) {
  try {
    read();
  } catch (const Error& error) {
    fail(PKV_INTERNAL, "save: a load would refuse this file: %s", error.text);
  }
}

}  // namespace

void check_tables(const Cache& cache, std::span<const unsigned char> encoded) {
  expect_to_work([&] {
    const Tables tables = parse_tables(encoded);
    LoadPlan(cache, tables, true).check_sessions();
  });
}

void CheckedSink::write(const void* from, size_t n) {
  if (!debug || !to_.writes_to_memory()) to_.write(from, n);
  const auto* const bytes = static_cast<const unsigned char*>(from);
  if (debug) written_.insert(written_.end(), bytes, bytes + n);
}

void CheckedSink::commit() {
  if (debug) expect_to_work([&] { read_all(); });
  if (debug && to_.writes_to_memory()) to_.write(written_.data(), written_.size());
  to_.commit();
}

void CheckedSink::read_all() {
  pkv_stream stream{};
  stream.kind = PKV_STREAM_BUFFER;
  stream.data = written_.data();
  stream.size = written_.size();
  const std::unique_ptr<Source> source = open_source(stream);
  OpenedFile(options_, *source)
      .reader.read_rest(workers_, 0, [](uint64_t, uint64_t, const unsigned char*) {});
}

}  // namespace pkv::file
