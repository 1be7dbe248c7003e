// The cache of one run, and the time that steps on it take.
#pragma once

#include <pagedkv/pagedkv.h>

#include <functional>
#include <span>
#include <vector>

#include "../../tests/support/made.h"
#include "options.h"
#include "trace.h"

namespace pkv::serve {

// Ends the program with the library's error sentence.
void check(pkv_status status, const char* what);

inline uint64_t blocks_of(uint64_t tokens, uint32_t block_size) {
  return tokens / block_size + (tokens % block_size != 0);
}

class Cache {
 public:
  // Throws InputError if a request of the trace can never fit.
  Cache(const Options& options, const Setup& setup, const Trace& trace);
  ~Cache() { pkv_cache_destroy(cache_); }
  Cache(const Cache&) = delete;
  Cache& operator=(const Cache&) = delete;

  pkv_cache handle() const { return cache_; }
  uint64_t blocks() const { return blocks_; }
  uint64_t bytes_per_block() const { return bytes_per_block_; }
  uint64_t watermark() const { return watermark_; }
  // Returns the tokens that a session reserves when it begins; 0 if it takes blocks as it grows.
  uint64_t reservation(const Request& request) const;
  pkv_cache_stats stats() const;
  pkv_pool_stats pool_stats() const;

  // Opens a session of the request's tenant, with its reservation. Returns PKV_OK or
  // PKV_OUT_OF_BLOCKS.
  pkv_status open(const Request& request, pkv_session* session) const;

  // Called for each layer between the write and the attention of its rows, [rows][kv_heads][dim];
  // keys and values are the same rows.
  using LayerWritten = std::function<void(uint32_t layer, const float* rows)>;

  // Writes and attends all layers of a step and commits it. seconds is the measured or modelled
  // time. If it returns PKV_OUT_OF_BLOCKS, it has done nothing.
  pkv_status step(std::span<const pkv_session> sessions, std::span<const uint32_t> counts,
                  const int32_t* tokens, double* seconds, const LayerWritten* written = nullptr);

 private:
  void compute(pkv_batch batch, size_t rows, const LayerWritten* written);

  const Options& options_;
  const Setup setup_;
  uint64_t longest_ = 0, blocks_ = 0, bytes_per_block_ = 0;
  uint32_t watermark_ = 0;
  pkv_cache cache_ = nullptr;
  std::vector<float> rows_, out_;  // any rows: the time of attention does not depend on them
};

}  // namespace pkv::serve
