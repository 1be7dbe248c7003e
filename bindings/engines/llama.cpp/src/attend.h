// Computes ggml's operation FLASH_ATTN_EXT with libpagedkv.
#pragma once

#include <pagedkv/pagedkv.h>

#include <map>
#include <utility>

#include "interface.h"
#include "plan.h"
#include "threads.h"

namespace ggml_pagedkv {

// Returns whether Attention computes an operation.
bool supports(const ggml::Tensor& op);

// Threads and plans of one backend.
class Attention {
 public:
  Attention() = default;
  Attention(const Attention&) = delete;
  Attention& operator=(const Attention&) = delete;
  ~Attention();

  Threads& threads() { return threads_; }

  // Computes an operation. If libpagedkv cannot, it logs why and returns false. Throws bad_alloc.
  bool compute(const ggml::Tensor& op);

 private:
  pkv_compute compute_of_threads();

  Threads threads_;
  // By the number of threads, and whether they are ggml's pool.
  std::map<std::pair<int, bool>, pkv_compute> computes_;
  Plans plans_;
};

}  // namespace ggml_pagedkv
