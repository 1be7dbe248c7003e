// The layout of ggml's structs is not told by its version number: functions were inserted without a
// new one. So ggml itself is asked. Objects are filled with functions that say which word they were
// in, and ggml's public functions, each of which calls one of them, are called with these objects.
#include "interface.h"

#include <dlfcn.h>

#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <utility>

namespace ggml {

constinit Interface api{};

namespace {

// Up to these numbers of functions, all that are required are known.
constexpr int max_backend_functions = 16, max_device_functions = 15, max_version = 3;

constinit thread_local int called = -1;

template <int word>
void* called_word() {
  called = word;
  return nullptr;
}

template <int... words>
Object marks(std::integer_sequence<int, words...>) {
  return {{reinterpret_cast<void*>(called_word<words>)...}};
}

// Logs one sentence, as ggml logs its own errors, and returns false.
[[gnu::format(printf, 1, 2)]] bool refuse(const char* format, ...) {
  char reason[256];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(reason, sizeof reason, format, arguments);
  va_end(arguments);
  constexpr const char* line = "pagedkv: not used: %s\n";
  if (api.log_internal != nullptr)
    api.log_internal(log_error, line, reason);
  else
    std::fprintf(stderr, line, reason);
  return false;
}

bool find_functions(const void* caller) {
  Dl_info info{};
  // The library that called, and those that it depends on; for a program, all that it has.
  void* handle = dladdr(caller, &info) != 0 && info.dli_fname != nullptr
                     ? dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD)
                     : nullptr;
  if (handle == nullptr) handle = dlopen(nullptr, RTLD_LAZY);
  const auto find = [handle]<class Function>(const char* name, Function& function) {
    function = reinterpret_cast<Function>(dlsym(handle, name));
    return function != nullptr;
  };
  find("ggml_log_internal", api.log_internal);
  find("ggml_flash_attn_ext_add_sinks", api.flash_attn_ext_add_sinks);
  find("ggml_threadpool_params_init", api.threadpool_params_init);
  find("ggml_map_custom1", api.map_custom1);
  find("ggml_new_graph", api.new_graph);
  find("ggml_build_forward_expand", api.build_forward_expand);
  find("ggml_backend_graph_compute", api.backend_graph_compute);
#define GGML_FIND(name, ...) \
  if (!find("ggml_" #name, api.name)) return refuse("this ggml has no function ggml_" #name);
  GGML_FUNCTIONS(GGML_FIND)
#undef GGML_FIND
  return true;
}

// Makes a tensor of the operation, and compares it with the declaration of Tensor.
bool check_tensors() {
  alignas(64) static char memory[1 << 16];
  Context* const context = api.init({sizeof memory, memory, false});
  if (context == nullptr) return refuse("ggml_init failed");
  Tensor* const q = api.new_tensor_4d(context, F32, 16, 2, 4, 1);
  Tensor* const k = api.new_tensor_4d(context, F16, 16, 3, 2, 1);
  Tensor* const v = api.new_tensor_4d(context, BF16, 32, 3, 2, 1);
  Tensor* const mask = api.new_tensor_4d(context, F16, 3, 64, 1, 1);
  Tensor* const sinks = api.new_tensor_4d(context, F32, 4, 1, 1, 1);
  Tensor* const out = api.flash_attn_ext(context, q, k, v, mask, 0.5f, 0, 2);
  if (api.flash_attn_ext_add_sinks != nullptr) api.flash_attn_ext_add_sinks(out, sinks);
  float params[3];
  std::memcpy(params, out->op_params, sizeof params);
  Tensor* const* const src = out->src;
  const bool known =
      out->type == F32 && k->type == F16 && v->type == BF16 && out->ne[0] == 32 &&
      out->ne[1] == 4 && out->ne[2] == 2 && out->ne[3] == 1 && v->nb[0] == 2 && v->nb[1] == 64 &&
      v->nb[2] == 192 && v->nb[3] == 384 && params[0] == 0.5f && params[1] == 0 && params[2] == 2 &&
      src[0] == q && src[1] == k && src[2] == v && src[3] == mask &&
      src[4] == (api.flash_attn_ext_add_sinks != nullptr ? sinks : nullptr) && src[5] == nullptr &&
      q->view_src == nullptr && q->data != nullptr && q->data == api.get_data(q);
  if (known) {
    api.attention = out->op;
    for (int op = 0; op < out->op && op < 256; op++)
      for (const char* name : {"NONE", "RESHAPE", "VIEW", "PERMUTE", "TRANSPOSE"})
        if (std::strcmp(api.op_name(op), name) == 0)
          api.view_ops[op / 64] |= uint64_t{1} << (op % 64);
  }
  api.free(context);
  if (!known || std::strcmp(api.op_name(api.attention), "FLASH_ATTN_EXT") != 0 ||
      std::strcmp(api.type_name(F32), "f32") != 0 || std::strcmp(api.type_name(F16), "f16") != 0 ||
      std::strcmp(api.type_name(BF16), "bf16") != 0 ||
      std::strcmp(api.type_name(Q8_0), "q8_0") != 0 ||
      std::strcmp(api.type_name(Q4_0), "q4_0") != 0)
    return refuse("this ggml's tensors have a layout that is not known");
  return true;
}

// Returns the word whose function a call called, or -1.
template <class Call>
int word_called(Call call) {
  called = -1;
  call();
  return called;
}

int word_with(const Object& object, const void* value) {
  for (int word = 0; word < Object::max_words; word++)
    if (object.words[word] == value) return word;
  return -1;
}

bool find_layout() {
  Object object = marks(std::make_integer_sequence<int, Object::max_words>());
  auto* const backend = reinterpret_cast<Backend*>(&object);
  auto* const device = reinterpret_cast<Device*>(&object);
  auto* const registration = reinterpret_cast<Registration*>(&object);
  alignas(16) char properties[512];
  size_t bytes;
  Layout& at = api.layout;
  at.backend = {word_with(object, api.backend_guid(backend)),
                word_called([&] { api.backend_name(backend); }),
                word_called([&] { api.backend_free(backend); }),
                word_called([&] { api.backend_graph_compute_async(backend, nullptr); }),
                word_with(object, api.backend_get_device(backend))};
  at.device = {word_called([&] { api.backend_dev_name(device); }),
               word_called([&] { api.backend_dev_description(device); }),
               word_called([&] { api.backend_dev_memory(device, &bytes, &bytes); }),
               word_called([&] { api.backend_dev_type(device); }),
               word_called([&] {
                 api.backend_dev_get_props(device, reinterpret_cast<Properties*>(properties));
               }),
               word_called([&] { api.backend_dev_init(device, nullptr); }),
               word_called([&] { api.backend_dev_buffer_type(device); }),
               word_called([&] { api.backend_dev_supports_op(device, nullptr); }),
               word_called([&] { api.backend_dev_supports_buft(device, nullptr); }),
               word_with(object, api.backend_dev_backend_reg(device))};
  at.registration = {word_called([&] { api.backend_reg_name(registration); }),
                     word_called([&] { api.backend_reg_dev_count(registration); }),
                     word_called([&] { api.backend_reg_dev_get(registration, 0); }),
                     word_called([&] { api.backend_reg_get_proc_address(registration, ""); })};
  // Structs of ints: no word is -1, the functions of a backend are between its guid and its device,
  // those of a device before its registration.
  const auto complete = [](const auto& fields) {
    int words[sizeof fields / sizeof(int)];
    std::memcpy(words, &fields, sizeof fields);
    for (const int word : words)
      if (word < 0) return false;
    return true;
  };
  if (!complete(at.backend) || !complete(at.device) || !complete(at.registration) ||
      at.backend.guid != 0 || at.backend.device > max_backend_functions + 1 ||
      at.device.registration > max_device_functions || at.registration.name != 1)
    return refuse(
        "this ggml's backend interface is not known (%d functions of a backend, %d of a device)",
        at.backend.device - 1, at.device.registration);
  return true;
}

// Reads the version from the registration of the CPU, which every process loads first, and checks
// the properties of its device.
bool check_cpu() {
  Device* const cpu = api.backend_dev_by_type(cpu_device);
  if (cpu == nullptr) return refuse("ggml's CPU backend must be loaded first");
  std::memcpy(&api.version, api.backend_dev_backend_reg(cpu), sizeof api.version);
  if (api.version < 1 || api.version > max_version)
    return refuse("this ggml's backend interface has version %d; known are 1 to %d", api.version,
                  max_version);
  // Version 2 inserted integrated GPUs before accelerators.
  api.accelerator = api.version == 1 ? 2 : 3;
  union {
    char room[512];
    Properties known;
  } properties{};
  api.backend_dev_get_props(cpu, &properties.known);
  size_t free_bytes, total_bytes;
  api.backend_dev_memory(cpu, &free_bytes, &total_bytes);
  if (properties.known.type != cpu_device || properties.known.total_bytes != total_bytes ||
      properties.known.name != api.backend_dev_name(cpu) ||
      properties.known.description != api.backend_dev_description(cpu))
    return refuse("this ggml's device properties have a layout that is not known");
  return true;
}

}  // namespace

bool Interface::load(const void* caller) {
  return find_functions(caller) && find_layout() && check_cpu() && check_tensors();
}

}  // namespace ggml
