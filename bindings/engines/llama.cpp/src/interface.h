// Which ggml this process has: its functions, and where its structs have their fields.
#pragma once

#include "ggml.h"

namespace ggml {

// An object that ggml calls: a struct of function pointers and other pointers, seen as words. ggml
// reads no word beyond those that Layout found.
struct Object {
  static constexpr int max_words = 32;
  void* words[max_words];

  template <class Function>
  void set(int word, Function* function) {
    words[word] = reinterpret_cast<void*>(function);
  }
};

// The word that each field of an object is in.
struct Layout {
  struct {
    int guid, name, free, compute, device;
  } backend;
  struct {
    int name, description, memory, type, properties, init, buffer_type, supports_op,
        supports_buffer, registration;
  } device;
  struct {
    int name, device_count, device, proc_address;
  } registration;
};

struct Interface : Functions {
  Layout layout;
  int version;           // of the backend interface, which registrations say
  int accelerator;       // the number of the type of our device
  int attention;         // the number of FLASH_ATTN_EXT
  uint64_t view_ops[4];  // bit i % 64 of word i / 64 is set if operation i computes nothing

  bool is_view(int op) const {
    return op >= 0 && op < 256 && (view_ops[op / 64] >> (op % 64) & 1) != 0;
  }

  // Finds the functions of the ggml whose code `caller` is in, and checks its structs. If it is not
  // one that this plug-in knows, it logs why and returns false.
  bool load(const void* caller);
};

// The ggml of this process, once ggml_backend_init() has returned a registration.
extern Interface api;

}  // namespace ggml
