// The OpenMP threads of the process as a pkv_runner.
#pragma once

#include <pagedkv/common.h>

namespace pkv {

// Throws UNSUPPORTED if the process has loaded no OpenMP library.
pkv_runner openmp_runner();

}  // namespace pkv
