// The threads of attention: those of ggml's CPU backend, which would otherwise wait beside others
// of libpagedkv, and spin on the CPUs that these need.
//
// A program gives its CPU backend a pool of threads through a function that it asks the CPU's
// registration for. watch_pools() puts a function before it. If a program gives none, ggml makes
// threads for each part of a graph, and attention cuts a graph into many parts. The CPU backend
// then gets a pool that it shares with attention.
#pragma once

#include <pagedkv/pagedkv.h>

#include "interface.h"

namespace ggml_pagedkv {

// Learns from now on which pools CPU backends are given. Call it once.
void watch_pools();

// The threads of one backend of the plug-in. A CPU backend that has got its pool ends with it.
class Threads {
 public:
  Threads() = default;
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;
  ~Threads();

  // Sets the number of threads of the next graphs. A program does so after it has given the CPU
  // backend of these graphs its pool.
  void set(int count);
  int count() const { return count_; }  // 0: one per CPU

  // Returns a runner on ggml's threads, for as long as the count is the same. Its `run` is NULL if
  // they are not known: libpagedkv then has its own.
  pkv_runner runner();

 private:
  // A pool that was made for a CPU backend.
  struct Own {
    ggml::Pool* pool = nullptr;
    ggml::Backend* cpu = nullptr;
    int threads = 0, process = 0;
  };

  ggml::Pool* own_pool(ggml::Backend* cpu);
  static void run(void* self, size_t n, void (*task)(void*, size_t, uint32_t), void* context);
  void run_in_pool();
  bool make_graph();

  int count_ = 0;
  ggml::Pool* pool_ = nullptr;  // of the next graphs, or NULL
  Own own_;
  // A CPU backend with pool_of_backend_, and a graph that runs tasks.
  ggml::Backend* backend_ = nullptr;
  ggml::Pool* pool_of_backend_ = nullptr;
  ggml::Context* context_ = nullptr;
  ggml::Graph* graph_ = nullptr;
  struct Tasks* tasks_ = nullptr;
};

}  // namespace ggml_pagedkv
