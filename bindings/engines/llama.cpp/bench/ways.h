// The ways to compute attention that are compared. A context is without the plug-in if it was made
// before the plug-in was loaded, so one process has all of them, and they take turns.
#pragma once

#include <ggml-backend.h>
#include <ggml-cpu.h>
#include <llama.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

struct Way {
  const char *name, *state;  // ways with the same state store keys and values alike
  ggml_type type;
  llama_flash_attn_type flash_attention;
  bool plugged_in;
};
constexpr Way ways[] = {
    {"f32, -fa off", "f32-off", GGML_TYPE_F32, LLAMA_FLASH_ATTN_TYPE_DISABLED, false},
    {"f16, -fa off", "f16-off", GGML_TYPE_F16, LLAMA_FLASH_ATTN_TYPE_DISABLED, false},
    {"f16, -fa on", "f16", GGML_TYPE_F16, LLAMA_FLASH_ATTN_TYPE_ENABLED, false},
    {"f16, plug-in", "f16", GGML_TYPE_F16, LLAMA_FLASH_ATTN_TYPE_ENABLED, true},
    {"q8_0, -fa on", "q8_0", GGML_TYPE_Q8_0, LLAMA_FLASH_ATTN_TYPE_ENABLED, false},
    {"q8_0, plug-in", "q8_0", GGML_TYPE_Q8_0, LLAMA_FLASH_ATTN_TYPE_ENABLED, true},
    {"q4_0, -fa on", "q4_0", GGML_TYPE_Q4_0, LLAMA_FLASH_ATTN_TYPE_ENABLED, false},
    {"q4_0, plug-in", "q4_0", GGML_TYPE_Q4_0, LLAMA_FLASH_ATTN_TYPE_ENABLED, true}};

constexpr int32_t most_tokens = 512;  // of a batch

[[noreturn]] inline void fail(const char* what) {
  std::fprintf(stderr, "%s\n", what);
  std::exit(1);
}

// Loads ggml's backends from a folder, and a model. It logs warnings, errors, and which backends
// are loaded.
inline llama_model* load_model(const char* folder, const char* model) {
  const auto log = [](ggml_log_level level, const char* text, void*) {
    if (level == GGML_LOG_LEVEL_ERROR || level == GGML_LOG_LEVEL_WARN ||
        std::strstr(text, "load_backend") != nullptr)
      std::fputs(text, stderr);
  };
  llama_log_set(log, nullptr);
  ggml_backend_load_all_from_path(folder);
  llama_model* const loaded = llama_model_load_from_file(model, llama_model_default_params());
  if (loaded == nullptr) fail("the model cannot be loaded");
  return loaded;
}

// Returns the pool of threads of all contexts, as llama.cpp's own programs make one.
inline ggml_threadpool_t shared_pool(int threads) {
  static const ggml_threadpool_t pool = [&] {
    const auto make = reinterpret_cast<decltype(&ggml_threadpool_new)>(
        ggml_backend_reg_get_proc_address(ggml_backend_reg_by_name("CPU"), "ggml_threadpool_new"));
    ggml_threadpool_params params = ggml_threadpool_params_default(threads);
    return make(&params);
  }();
  return pool;
}

inline llama_context* make_context(llama_model* model, const Way& way, uint32_t cells,
                                   uint32_t sequences, int threads) {
  llama_context_params params = llama_context_default_params();
  params.n_ctx = cells;
  params.n_batch = params.n_ubatch = most_tokens;
  params.n_seq_max = sequences;
  params.kv_unified = true;
  params.type_k = params.type_v = way.type;
  params.flash_attn_type = way.flash_attention;
  params.n_threads = params.n_threads_batch = threads;
  llama_context* const context = llama_init_from_model(model, params);
  if (context == nullptr) fail("a context cannot be made");
  llama_attach_threadpool(context, shared_pool(threads), shared_pool(threads));
  return context;
}

// Calls make(way) for each way: first for those without the plug-in, which is then loaded.
template <class Make>
void make_all(const char* plugin, const Make& make) {
  for (const bool plugged_in : {false, true}) {
    if (plugged_in && ggml_backend_load(plugin) == nullptr) fail("the plug-in was not loaded");
    for (const Way& way : ways)
      if (way.plugged_in == plugged_in) make(way);
  }
}
