// The part of ggml's binary interface that the plug-in uses, declared here and not taken from
// ggml's headers: one library serves ggml versions whose headers contradict each other, and builds
// without any of them. Interface (interface.h) checks at load that a process has the ggml described
// here.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ggml {

struct Context;
struct Graph;
struct Backend;
struct BufferType;
struct Device;
struct Registration;
struct Pool;  // a ggml_threadpool

// Numbers of types, devices and statuses that are the same in all versions.
enum Type : int32_t { F32 = 0, F16 = 1, Q4_0 = 2, Q8_0 = 8, BF16 = 30 };
constexpr int cpu_device = 0;
constexpr int log_error = 4;
enum Status : int { success = 0, failed = -1, no_memory = -2 };

struct Tensor {
  int32_t type;
  void* buffer;
  int64_t ne[4];  // elements of each axis, innermost first
  size_t nb[4];   // bytes from one to the next
  int32_t op;
  int32_t op_params[16];
  int32_t flags;
  Tensor* src[10];
  Tensor* view_src;
  size_t view_offset;
  void* data;
  // A name and more follow.
};

struct InitParams {
  size_t bytes;
  void* memory;
  bool no_alloc;
};

// The first fields of the properties of a device. ggml sets all fields to 0 before it asks.
struct Properties {
  const char* name;
  const char* description;
  size_t free_bytes, total_bytes;
  int type;
};

struct Feature {
  const char* name;
  const char* value;
};

// Functions of ggml, by their names without the prefix: FUNCTION(name, result, parameters...).
#define GGML_FUNCTIONS(FUNCTION)                                                                \
  FUNCTION(init, Context*, InitParams)                                                          \
  FUNCTION(free, void, Context*)                                                                \
  FUNCTION(new_tensor_4d, Tensor*, Context*, int, int64_t, int64_t, int64_t, int64_t)           \
  FUNCTION(flash_attn_ext, Tensor*, Context*, Tensor*, Tensor*, Tensor*, Tensor*, float, float, \
           float)                                                                               \
  FUNCTION(get_data, void*, const Tensor*)                                                      \
  FUNCTION(op_name, const char*, int)                                                           \
  FUNCTION(type_name, const char*, int)                                                         \
  FUNCTION(graph_n_nodes, int, Graph*)                                                          \
  FUNCTION(graph_node, Tensor*, Graph*, int)                                                    \
  FUNCTION(backend_name, const char*, Backend*)                                                 \
  FUNCTION(backend_guid, void*, Backend*)                                                       \
  FUNCTION(backend_free, void, Backend*)                                                        \
  FUNCTION(backend_get_device, Device*, Backend*)                                               \
  FUNCTION(backend_graph_compute_async, Status, Backend*, Graph*)                               \
  FUNCTION(backend_cpu_buffer_type, BufferType*)                                                \
  FUNCTION(backend_buft_is_host, bool, BufferType*)                                             \
  FUNCTION(backend_dev_name, const char*, Device*)                                              \
  FUNCTION(backend_dev_description, const char*, Device*)                                       \
  FUNCTION(backend_dev_memory, void, Device*, size_t*, size_t*)                                 \
  FUNCTION(backend_dev_type, int, Device*)                                                      \
  FUNCTION(backend_dev_get_props, void, Device*, Properties*)                                   \
  FUNCTION(backend_dev_init, Backend*, Device*, const char*)                                    \
  FUNCTION(backend_dev_buffer_type, BufferType*, Device*)                                       \
  FUNCTION(backend_dev_supports_op, bool, Device*, const Tensor*)                               \
  FUNCTION(backend_dev_supports_buft, bool, Device*, BufferType*)                               \
  FUNCTION(backend_dev_backend_reg, Registration*, Device*)                                     \
  FUNCTION(backend_dev_by_type, Device*, int)                                                   \
  FUNCTION(backend_reg_name, const char*, Registration*)                                        \
  FUNCTION(backend_reg_dev_count, size_t, Registration*)                                        \
  FUNCTION(backend_reg_dev_get, Device*, Registration*, size_t)                                 \
  FUNCTION(backend_reg_get_proc_address, void*, Registration*, const char*)

struct Functions {
#define GGML_MEMBER(name, result, ...) result (*name)(__VA_ARGS__);
  GGML_FUNCTIONS(GGML_MEMBER)
#undef GGML_MEMBER
  // Those that older versions lack may be NULL.
  void (*flash_attn_ext_add_sinks)(Tensor*, Tensor*);
  void (*log_internal)(int level, const char* format, ...);
  void (*threadpool_params_init)(void* params, int threads);
  Tensor* (*map_custom1)(Context*, Tensor*,
                         void (*function)(Tensor*, const Tensor*, int thread, int threads, void*),
                         int tasks, void* user);
  Graph* (*new_graph)(Context*);
  void (*build_forward_expand)(Graph*, Tensor*);
  Status (*backend_graph_compute)(Backend*, Graph*);
};

}  // namespace ggml
