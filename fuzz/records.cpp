// Mutations of inputs that are a list of operations, each a record of 16 bytes, after a header of 4
// bytes. Whole records are inserted, removed, repeated and moved, so that later records keep their
// meaning; bytes within a record are mutated as usual.
#include "records.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace {

using Records = std::vector<Record>;

// The header and the records of an input; a partial record at its end is padded with zeros.
Records split(const uint8_t* data, size_t size, std::array<uint8_t, header_bytes>& header) {
  header.fill(0);
  std::copy_n(data, std::min(size, header_bytes), header.begin());
  Records records;
  for (size_t at = header_bytes; at < size; at += record_bytes) {
    records.emplace_back();
    std::copy_n(data + at, std::min(record_bytes, size - at), records.back().begin());
  }
  return records;
}

size_t join(const Records& records, const std::array<uint8_t, header_bytes>& header, uint8_t* data,
            size_t max_size) {
  if (max_size < header_bytes) return 0;
  const size_t count = std::min(records.size(), (max_size - header_bytes) / record_bytes);
  std::copy(header.begin(), header.end(), data);
  for (size_t i = 0; i < count; i++)
    std::copy(records[i].begin(), records[i].end(), data + header_bytes + i * record_bytes);
  return header_bytes + count * record_bytes;
}

}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned seed) {
  std::minstd_rand random(seed);
  const auto below = [&](size_t n) { return random() % n; };
  std::array<uint8_t, header_bytes> header;
  Records records = split(data, size, header);
  const auto at = [&](size_t i) { return records.begin() + static_cast<std::ptrdiff_t>(i); };
  const auto fresh = [&] {
    Record record;
    for (uint8_t& byte : record) byte = static_cast<uint8_t>(random() >> 8);
    return record;
  };
  const size_t count = records.size();
  switch (count == 0 ? 0 : below(12)) {
    case 0:
    case 1:
      records.insert(at(below(count + 1)), fresh());
      break;
    case 2:
      records.erase(at(below(count)));
      break;
    case 3: {  // removes a run of records
      const size_t first = below(count), n = 1 + below(std::min<size_t>(count - first, 8));
      records.erase(at(first), at(first + n));
      break;
    }
    case 4: {  // repeats a run of records elsewhere
      const size_t first = below(count), n = 1 + below(std::min<size_t>(count - first, 8));
      const Records run(at(first), at(first + n));
      records.insert(at(below(count + 1)), run.begin(), run.end());
      break;
    }
    case 5:
      std::swap(records[below(count)], records[below(count)]);
      break;
    case 6: {  // moves a record
      const size_t from = below(count);
      const Record moved = records[from];
      records.erase(at(from));
      records.insert(at(below(count)), moved);
      break;
    }
    case 7:
      records[below(count)][0] = static_cast<uint8_t>(random() >> 8);
      break;  // another operation, the same choices
    case 8:
      LLVMFuzzerMutate(header.data(), header_bytes, header_bytes);
      break;
    default: {
      Record& record = records[below(count)];
      LLVMFuzzerMutate(record.data(), record_bytes, record_bytes);
    }
  }
  return join(records, header, data, max_size);
}

// Joins the beginning of one input and the end of the other.
extern "C" size_t LLVMFuzzerCustomCrossOver(const uint8_t* data1, size_t size1,
                                            const uint8_t* data2, size_t size2, uint8_t* out,
                                            size_t max_size, unsigned seed) {
  std::minstd_rand random(seed);
  std::array<uint8_t, header_bytes> header, other;
  Records records = split(data1, size1, header);
  const Records more = split(data2, size2, other);
  records.resize(random() % (records.size() + 1));
  const size_t first = random() % (more.size() + 1);
  records.insert(records.end(), more.begin() + static_cast<std::ptrdiff_t>(first), more.end());
  return join(records, header, out, max_size);
}
