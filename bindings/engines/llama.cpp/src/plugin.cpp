// libggml-pagedkv.so: a ggml backend that computes attention. ggml loads it by GGML_BACKEND_PATH or
// ggml_backend_load(). Its device is an accelerator in host memory, so the scheduler gives it those
// operations that it supports, and leaves all memory where it is.
#include <dlfcn.h>

#include <atomic>
#include <cstring>
#include <exception>
#include <new>

#include "attend.h"
#include "interface.h"

namespace ggml_pagedkv {

namespace {

using ggml::api;
using ggml::Object;
using ggml::Tensor;

constinit Object registration{}, device{};

constinit std::atomic<uint64_t> computed{0};  // operations since the process began

// ---- Backends

struct Backend {
  Object object{};
  Attention attention;
};

Backend* own(ggml::Backend* backend) { return reinterpret_cast<Backend*>(backend); }

const char* name(const void*) { return "pagedkv"; }

void free_backend(ggml::Backend* backend) { delete own(backend); }

void set_threads(ggml::Backend* backend, int threads) {
  own(backend)->attention.threads().set(threads);
}

ggml::Status compute_node(Backend& backend, Tensor* node) {
  if (api.is_view(node->op)) return ggml::success;
  if (node->op != api.attention || !supports(*node) || !backend.attention.compute(*node))
    return ggml::failed;
  computed.fetch_add(1, std::memory_order_relaxed);
  return ggml::success;
}

ggml::Status compute_graph(ggml::Backend* backend, ggml::Graph* graph) {
  ggml::Status status = ggml::success;
  try {
    const int nodes = api.graph_n_nodes(graph);
    for (int i = 0; i < nodes && status == ggml::success; i++)
      status = compute_node(*own(backend), api.graph_node(graph, i));
  } catch (const std::exception&) {
    return ggml::no_memory;
  }
  return status;
}

// ---- The device

// llama.cpp's setting "auto" turns flash attention off if its first graph, of one token for each
// sequence, is not computed where the weights of a layer are. It never computes that graph: it
// makes it before all others of a context, in the thread that has just made the context's backends.
// So the first number of rows that is asked about after that is not supported, until another one
// comes.
class FirstGraph {
 public:
  void begin() { rows_ = unknown; }
  bool is_of(const Tensor& op) {
    if (rows_ == over) return false;
    const int64_t rows = op.src[0]->ne[1] * op.src[0]->ne[3];
    if (rows_ == unknown) rows_ = rows;
    if (rows_ != rows) rows_ = over;
    return rows_ == rows;
  }

 private:
  static constexpr int64_t over = -1, unknown = -2;
  int64_t rows_ = over;
};

constinit thread_local FirstGraph first_graph;

bool supports_operation(ggml::Device*, const Tensor* op) {
  if (api.is_view(op->op)) return true;
  return op->op == api.attention && supports(*op) && !first_graph.is_of(*op);
}

bool supports_buffer(ggml::Device*, ggml::BufferType* type) {
  return api.backend_buft_is_host(type);
}

const char* description(ggml::Device*) { return "attention by libpagedkv"; }

void memory(ggml::Device*, size_t* free, size_t* total) { *free = *total = 0; }

int type(ggml::Device*) { return api.accelerator; }

void properties(ggml::Device* self, ggml::Properties* out) {
  out->name = name(self);
  out->description = description(self);
  out->free_bytes = out->total_bytes = 0;
  out->type = type(self);
}

ggml::BufferType* buffer_type(ggml::Device*) { return api.backend_cpu_buffer_type(); }

ggml::Backend* make_backend(ggml::Device* self, const char*) {
  static unsigned char guid[16] = {'l', 'i', 'b', 'p', 'a', 'g', 'e', 'd',
                                   'k', 'v', ' ', 'g', 'g', 'm', 'l', '1'};
  auto* const backend = new (std::nothrow) Backend;
  if (backend == nullptr) return nullptr;
  const auto& at = api.layout.backend;
  backend->object.words[at.guid] = guid;
  backend->object.set(at.name, name);
  backend->object.set(at.free, free_backend);
  backend->object.set(at.compute, compute_graph);
  backend->object.words[at.device] = self;
  first_graph.begin();
  return reinterpret_cast<ggml::Backend*>(backend);
}

// ---- The registration

size_t device_count(ggml::Registration*) { return 1; }

ggml::Device* get_device(ggml::Registration*, size_t index) {
  return index == 0 ? reinterpret_cast<ggml::Device*>(&device) : nullptr;
}

uint64_t count() { return computed.load(std::memory_order_relaxed); }

void* proc_address(ggml::Registration*, const char* name) {
  if (std::strcmp(name, "ggml_backend_set_n_threads") == 0)
    return reinterpret_cast<void*>(set_threads);
  if (std::strcmp(name, "pagedkv_computed") == 0) return reinterpret_cast<void*>(count);
  return nullptr;
}

void fill_objects() {
  const auto& of_device = api.layout.device;
  device.set(of_device.name, name);
  device.set(of_device.description, description);
  device.set(of_device.memory, memory);
  device.set(of_device.type, type);
  device.set(of_device.properties, properties);
  device.set(of_device.init, make_backend);
  device.set(of_device.buffer_type, buffer_type);
  device.set(of_device.supports_op, supports_operation);
  device.set(of_device.supports_buffer, supports_buffer);
  device.words[of_device.registration] = &registration;
  const auto& of_registration = api.layout.registration;
  std::memcpy(&registration.words[0], &api.version, sizeof api.version);
  registration.set(of_registration.name, name);
  registration.set(of_registration.device_count, device_count);
  registration.set(of_registration.device, get_device);
  registration.set(of_registration.proc_address, proc_address);
}

}  // namespace

}  // namespace ggml_pagedkv

// Programs with llama.cpp call it first. They call this function, and not that of libllama, only if
// this library is in LD_PRELOAD: ggml loads it without making its symbols visible. So builds that
// do not load backends by themselves have the plug-in, too.
extern "C" [[gnu::visibility("default")]] void llama_backend_init() {
  const auto next = reinterpret_cast<void (*)()>(dlsym(RTLD_NEXT, "llama_backend_init"));
  if (next != nullptr) next();
  const auto load =
      reinterpret_cast<ggml::Registration* (*)(const char*)>(dlsym(RTLD_NEXT, "ggml_backend_load"));
  const auto find = reinterpret_cast<ggml::Registration* (*)(const char*)>(
      dlsym(RTLD_NEXT, "ggml_backend_reg_by_name"));
  Dl_info self{};
  if (load != nullptr && find != nullptr && find("pagedkv") == nullptr &&
      dladdr(reinterpret_cast<void*>(llama_backend_init), &self) != 0)
    load(self.dli_fname);
}

// ggml calls it once, after it has loaded this library. NULL: not for this ggml.
extern "C" [[gnu::visibility("default")]] ggml::Registration* ggml_backend_init() {
  static const bool usable = ggml::api.load(__builtin_return_address(0));
  if (!usable) return nullptr;
  ggml_pagedkv::fill_objects();
  static const bool watching = (ggml_pagedkv::watch_pools(), true);
  static_cast<void>(watching);
  return reinterpret_cast<ggml::Registration*>(&ggml_pagedkv::registration);
}
