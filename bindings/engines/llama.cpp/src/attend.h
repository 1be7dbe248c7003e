// Computes ggml's operation FLASH_ATTN_EXT with libpagedkv.
#pragma once

#include <pagedkv/pagedkv.h>

#include <map>

#include "interface.h"
#include "plan.h"

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

  void set_threads(int threads) { threads_ = threads; }

  // Computes an operation. If libpagedkv cannot, it logs why and returns false. Throws bad_alloc.
  bool compute(const ggml::Tensor& op);

 private:
  pkv_compute compute_of_threads();

  int threads_ = 0;  // 0: one per CPU
  std::map<int, pkv_compute> computes_;
  Plans plans_;
};

}  // namespace ggml_pagedkv
