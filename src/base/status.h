// How code below the C boundary reports an error: it throws an Error, which holds the details and a
// sentence for pkv_last_error(). The sentence is in a fixed buffer, so that reporting that memory
// ran out needs no memory.
#pragma once

#include <pagedkv/common.h>

#include <cstddef>
#include <cstdint>

#include "base/printf.h"

namespace pkv {

struct Error : pkv_error_details {
  char text[384];  // the longest sentence without a path or a host's name has 332 characters
};

// The details of an error that concerns no group, no entry of a list and no blocks.
constexpr pkv_error_details plain_details(pkv_status status) {
  return {status, UINT32_MAX, UINT64_MAX, 0, 0, 0};
}

// The details of an error about one entry of a caller's list.
constexpr pkv_error_details entry_details(pkv_status status, uint64_t index) {
  return {status, UINT32_MAX, index, 0, 0, 0};
}

// The details of an error about missing blocks in a layer group; UINT32_MAX: in none.
constexpr pkv_error_details blocks_details(uint32_t group, uint64_t blocks_short) {
  return {PKV_OUT_OF_BLOCKS, group, UINT64_MAX, blocks_short, 0, 0};
}

// The details of an error of the system.
constexpr pkv_error_details io_details(int error) {
  return {PKV_IO, UINT32_MAX, UINT64_MAX, 0, error, 0};
}

// Throws an Error with a printf-formatted sentence.
[[noreturn, PKV_PRINTF(2, 3)]] void fail(pkv_status status, const char* format, ...);
[[noreturn, PKV_PRINTF(2, 3)]] void fail(const pkv_error_details& details, const char* format, ...);

// Calls body() for one entry of a caller's list. An Error gets the index of this entry; in nested
// lists, that of the outermost.
template <class Body>
decltype(auto) for_entry(size_t index, const Body& body) {
  try {
    return body();
  } catch (Error& error) {
    error.index = index;
    throw;
  }
}

// A number for %llu, whatever uint64_t is on the platform.
inline unsigned long long llu(uint64_t number) { return number; }

// The operating system's description of an errno. It is static text, so it is safe in any thread.
const char* errno_text(int error);

}  // namespace pkv
