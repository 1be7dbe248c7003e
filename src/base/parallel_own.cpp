// Workers on threads of the library's own. Builds without oneTBB use them: the Rust crate that
// carries the sources, and builds for ThreadSanitizer, which does not see into oneTBB.
#include <algorithm>

#include "base/parallel_pool.h"

namespace pkv {

// As with oneTBB, there are never more threads than CPUs, where they would wait for each other.
unsigned Workers::limit_threads(unsigned threads) {
  return std::min(threads, os::processor_count());
}

std::unique_ptr<Workers::Arena> Workers::make_arena(unsigned threads, const Logger* logger) {
  return make_thread_pool(threads, logger);
}

}  // namespace pkv
