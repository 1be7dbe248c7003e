// A program that looks like ggml to the plug-in, with a layout of its structs that arguments
// choose:
//
//   fake-ggml LIBGGML-PAGEDKV.SO VERSION BACKEND_FUNCTIONS DEVICE_FUNCTIONS FAULT
//
// It prints what the plug-in says if it refuses this ggml; else it asks the plug-in's objects, as
// ggml does, and prints "used". FAULT is none, or what is unlike the known versions: tensor,
// properties or cpu.
#include <dlfcn.h>

#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>

namespace {

using Word = void*;
using Function = void* (*)(void* object, ...);

int version, backend_functions, device_functions;
std::string fault;

struct Tensor {
  int32_t type;
  void* buffer;
  int64_t ne[4];
  size_t nb[4];
  int32_t op;
  int32_t op_params[16];
  int32_t flags;
  Tensor* src[10];
  Tensor* view_src;
  size_t view_offset;
  void* data;
  char name[64];
  void* extra;
};

Tensor tensors[8];
int made = 0;
constexpr int flash_attn_ext = 70;

// The words of an object that functions are in, from the first one.
Function function_of(void* object, int word) {
  Function function;
  std::memcpy(&function, static_cast<Word*>(object) + word, sizeof function);
  if (function == nullptr) std::abort();
  return function;
}

// Where functions are that come after those which versions inserted.
int compute_word() { return backend_functions >= 16 ? 13 : 11; }

void* cpu_name(void*, ...) { return const_cast<char*>("CPU"); }
void* nothing(void*, ...) { return nullptr; }
void* cpu_properties(void*, void* out) {
  const char* const name = "CPU";
  std::memcpy(static_cast<char*>(out) + (fault == "properties" ? 8 : 0), &name, sizeof name);
  if (fault != "properties") std::memcpy(static_cast<char*>(out) + 8, &name, sizeof name);
  return nullptr;
}

Word cpu_registration[8], cpu[32];

// The pools that were made and freed, and the one that the CPU backend has.
int pools_made = 0, pools_freed = 0;
char pools[4];
void* pool_of_cpu = nullptr;

void* make_pool(void*) { return pools + pools_made++; }
void free_pool(void*) { pools_freed++; }
void set_pool(void*, void* pool) { pool_of_cpu = pool; }
void* cpu_function(void*, const char* name) {
  const auto is = [&](const char* other) { return std::strcmp(name, other) == 0; };
  return is("ggml_threadpool_new")               ? reinterpret_cast<void*>(make_pool)
         : is("ggml_threadpool_free")            ? reinterpret_cast<void*>(free_pool)
         : is("ggml_backend_cpu_set_threadpool") ? reinterpret_cast<void*>(set_pool)
                                                 : nullptr;
}

}  // namespace

extern "C" {

// ggml's functions, each of which calls one of an object.
void* ggml_backend_guid(Word* backend) { return backend[0]; }
void* ggml_backend_name(void* backend) { return function_of(backend, 1)(backend); }
void ggml_backend_free(void* backend) { function_of(backend, 2)(backend); }
void* ggml_backend_get_device(Word* backend) { return backend[backend_functions + 1]; }
int ggml_backend_graph_compute_async(void* backend, void* graph) {
  return static_cast<int>(
      reinterpret_cast<intptr_t>(function_of(backend, compute_word())(backend, graph)));
}
void* ggml_backend_dev_name(void* device) { return function_of(device, 0)(device); }
void* ggml_backend_dev_description(void* device) { return function_of(device, 1)(device); }
void ggml_backend_dev_memory(void* device, size_t* free, size_t* total) {
  *free = *total = 0;
  function_of(device, 2)(device, free, total);
}
int ggml_backend_dev_type(void* device) {
  return static_cast<int>(reinterpret_cast<intptr_t>(function_of(device, 3)(device)));
}
void ggml_backend_dev_get_props(void* device, void* properties) {
  std::memset(properties, 0, 56);
  function_of(device, 4)(device, properties);
}
void* ggml_backend_dev_init(void* device, const char* p) {
  return function_of(device, 5)(device, p);
}
void* ggml_backend_dev_buffer_type(void* device) { return function_of(device, 6)(device); }
bool ggml_backend_dev_supports_op(void* device, const void* op) {
  return (reinterpret_cast<uintptr_t>(function_of(device, 9)(device, op)) & 0xFF) != 0;
}
bool ggml_backend_dev_supports_buft(void* device, void* type) {
  return (reinterpret_cast<uintptr_t>(function_of(device, 10)(device, type)) & 0xFF) != 0;
}
void* ggml_backend_dev_backend_reg(Word* device) { return device[device_functions]; }
void* ggml_backend_dev_by_type(int) { return fault == "cpu" ? nullptr : cpu; }
void* ggml_backend_reg_name(void* reg) { return function_of(reg, 1)(reg); }
size_t ggml_backend_reg_dev_count(void* reg) {
  return reinterpret_cast<size_t>(function_of(reg, 2)(reg));
}
void* ggml_backend_reg_dev_get(void* reg, size_t i) { return function_of(reg, 3)(reg, i); }
void* ggml_backend_reg_get_proc_address(void* reg, const char* name) {
  return function_of(reg, 4)(reg, name);
}
void* ggml_backend_cpu_buffer_type() { return cpu; }
bool ggml_backend_buft_is_host(void* type) { return type == cpu; }

void ggml_log_internal(int, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  std::vprintf(format, arguments);
  va_end(arguments);
}

struct InitParams {
  size_t bytes;
  void* memory;
  bool no_alloc;
};
void* ggml_init(InitParams params) { return params.memory; }
void ggml_free(void*) {}
void* ggml_get_data(const Tensor* tensor) { return tensor->data; }
Tensor* ggml_new_tensor_4d(void*, int type, int64_t a, int64_t b, int64_t c, int64_t d) {
  Tensor& t = tensors[made++];
  t = {};
  const size_t bytes = type == 0 ? 4 : 2;
  t.type = type;
  const int64_t ne[] = {a, b, c, d};
  std::memcpy(t.ne, ne, sizeof ne);
  t.nb[0] = bytes;
  for (int i = 1; i < 4; i++) t.nb[i] = t.nb[i - 1] * static_cast<size_t>(t.ne[i - 1]);
  t.data = &t;
  return &t;
}
Tensor* ggml_flash_attn_ext(void* context, Tensor* q, Tensor* k, Tensor* v, Tensor* mask,
                            float scale, float max_bias, float softcap) {
  Tensor* const out = ggml_new_tensor_4d(context, 0, v->ne[0], q->ne[2], q->ne[1], q->ne[3]);
  const float params[] = {scale, max_bias, softcap};
  std::memcpy(out->op_params, params, sizeof params);
  out->op = flash_attn_ext;
  Tensor* const sources[] = {q, k, v, mask};
  std::memcpy(fault == "tensor" ? out->src + 1 : out->src, sources, sizeof sources);
  return out;
}
void ggml_flash_attn_ext_add_sinks(Tensor* out, Tensor* sinks) { out->src[4] = sinks; }
const char* ggml_op_name(int op) {
  return op == 0 ? "NONE" : op == 40 ? "VIEW" : op == flash_attn_ext ? "FLASH_ATTN_EXT" : "ADD";
}
const char* ggml_type_name(int type) {
  return type == 0    ? "f32"
         : type == 1  ? "f16"
         : type == 2  ? "q4_0"
         : type == 8  ? "q8_0"
         : type == 30 ? "bf16"
                      : "?";
}
int ggml_graph_n_nodes(void*) { return 0; }
Tensor* ggml_graph_node(void*, int) { return nullptr; }
// The plug-in looks for these. Nothing is computed here.
void ggml_threadpool_params_init(void*, int) {}
void ggml_map_custom1() {}
void ggml_new_graph() {}
void ggml_build_forward_expand() {}
void ggml_backend_graph_compute() {}

}  // extern "C"

namespace {

void expect(bool holds, const char* what) {
  if (holds) return;
  std::printf("FAILED: %s\n", what);
  std::exit(1);
}

// Gives the CPU backend pools, and the plug-in's backend its number of threads, as a program does
// before each graph.
void use_threads(Word* plugin, void* backend) {
  const auto set_threads = reinterpret_cast<void (*)(void*, int)>(
      ggml_backend_reg_get_proc_address(plugin, "ggml_backend_set_n_threads"));
  const auto give_pool = reinterpret_cast<void (*)(void*, void*)>(
      ggml_backend_reg_get_proc_address(cpu_registration, "ggml_backend_cpu_set_threadpool"));
  char cpu_backend, other_backend, pool;
  const auto graph = [&](void* given, int threads) {
    give_pool(&cpu_backend, given);
    set_threads(backend, threads);
    return pool_of_cpu;
  };
  expect(graph(&pool, 2) == &pool && pools_made == 0, "the program's pool");
  expect(graph(nullptr, 1) == nullptr && pools_made == 0, "no pool for one thread");
  expect(graph(nullptr, 2) == pools, "an own pool");
  pool_of_cpu = nullptr;
  give_pool(&other_backend, &pool);
  expect(pool_of_cpu == &pool, "the pool of another backend");
  expect(graph(nullptr, 2) == pools && pools_made == 1, "the same pool for the next graph");
  expect(graph(nullptr, 4) == pools + 1 && pools_freed == 1, "a pool for more threads");
  expect(graph(nullptr, 2) == pools + 1 && pools_made == 2, "it has enough for fewer threads");
  expect(graph(&pool, 2) == &pool, "the program's pool, again");
}

// Asks the plug-in's objects as the scheduler does.
void use(Word* plugin) {
  int said;
  std::memcpy(&said, plugin, sizeof said);
  expect(said == version, "the version");
  expect(ggml_backend_reg_dev_count(plugin) == 1, "one device");
  void* const device = ggml_backend_reg_dev_get(plugin, 0);
  expect(ggml_backend_dev_backend_reg(static_cast<Word*>(device)) == plugin, "its registration");
  expect(ggml_backend_dev_type(device) == (version == 1 ? 2 : 3), "an accelerator");
  expect(ggml_backend_dev_buffer_type(device) == cpu, "the CPU's buffers");
  expect(ggml_backend_dev_supports_buft(device, cpu), "host memory");
  expect(!ggml_backend_dev_supports_buft(device, plugin), "no other memory");
  Tensor other{};
  other.op = 3;
  expect(!ggml_backend_dev_supports_op(device, &other), "no other operation");
  other.op = 40;
  expect(ggml_backend_dev_supports_op(device, &other), "views");
  void* const backend = ggml_backend_dev_init(device, nullptr);
  expect(ggml_backend_get_device(static_cast<Word*>(backend)) == device, "the backend's device");
  expect(std::strcmp(static_cast<char*>(ggml_backend_name(backend)), "pagedkv") == 0, "its name");
  expect(ggml_backend_graph_compute_async(backend, nullptr) == 0, "an empty graph");
  expect(ggml_backend_reg_get_proc_address(plugin, "ggml_backend_set_n_threads") != nullptr,
         "threads");
  expect(ggml_backend_reg_get_proc_address(plugin, "unknown") == nullptr, "nothing unknown");
  use_threads(plugin, backend);
  ggml_backend_free(backend);
  expect(pools_freed == pools_made, "its pools are freed");
  std::puts("used");
}

}  // namespace

int main(int, char** arguments) {
  version = std::atoi(arguments[2]);
  backend_functions = std::atoi(arguments[3]);
  device_functions = std::atoi(arguments[4]);
  fault = arguments[5];
  const auto set = [](Word* object, int word, auto function) {
    object[word] = reinterpret_cast<void*>(function);
  };
  for (int word = 0; word < device_functions; word++) set(cpu, word, nothing);
  for (const int word : {0, 1}) set(cpu, word, cpu_name);
  set(cpu, 4, cpu_properties);
  cpu[device_functions] = cpu_registration;
  std::memcpy(cpu_registration, &version, sizeof version);
  set(cpu_registration, 4, cpu_function);
  void* const library = dlopen(arguments[1], RTLD_NOW);
  if (library == nullptr) {
    std::puts(dlerror());
    return 1;
  }
  Word* (*init)();
  void* const address = dlsym(library, "ggml_backend_init");
  std::memcpy(&init, &address, sizeof init);
  if (Word* const plugin = init(); plugin != nullptr) use(plugin);
  return 0;
}
