// Threads of the library's own, for builds without oneTBB, and where oneTBB cannot start its own.
#pragma once

#include "base/logger.h"
#include "base/parallel.h"

namespace pkv {

// Returns an arena whose threads begin with its first call. If the system refuses some, the others
// do the work, and the missing ones are tried again about once a second. The logger, which may be
// NULL, is told of that once; it outlives the arena.
std::unique_ptr<Workers::Arena> make_thread_pool(unsigned threads, const Logger* logger);

// Returns whether the system starts this many more threads now.
bool can_start_threads(unsigned threads) noexcept;

}  // namespace pkv
