// Records calls at the C interface as C code before they are made; fuzz/reproduce makes a program
// of them. transcript.py writes the wrappers that use this.
#pragma once

#include <pagedkv/pagedkv.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "../tests/support/unwritten.h"

namespace transcript {

// The shape of rows of heads, which may be of hostile numbers.
struct Shape {
  double rows = 0, heads = 0, dim = 0;
  double sequences = 1;
  double entry_rows = 0;  // of one sequence of a padded batch, up to the last that is not padding
  double kv_heads = 0;    // of attention
  std::vector<uint32_t> queries = {};  // of attention: of each sequence
};

// The shapes of caches and batches, from earlier calls; an empty shape for an unknown handle.
Shape keys(const void* handle, uint32_t layer, double rows);
Shape values(const void* handle, uint32_t layer, double rows);
Shape queries(const void* handle, uint32_t layer, double rows);
Shape results(const void* handle, uint32_t layer, double rows);
Shape queries(const pkv_kv_view* kv, const pkv_kv_sequences* sequences);
Shape results(const pkv_kv_view* kv, const pkv_kv_sequences* sequences);
Shape keys(const pkv_kv_view* kv, const pkv_kv_sequences* sequences);
Shape values(const pkv_kv_view* kv, const pkv_kv_sequences* sequences);
Shape keys(const pkv_kv_view* kv, double rows);
Shape values(const pkv_kv_view* kv, double rows);
double rows_of(const void* batch);
double rows_of(const pkv_kv_sequences* sequences);
double bytes_of_mask(const pkv_mask& mask, Shape shape);
double tiles_of(const pkv_chosen_blocks& blocks, const Shape& shape);
double sessions_of(const void* batch);
void remember_layers(const void* cache, const pkv_cache_config& config);
void remember_rows(const void* batch, size_t count, const uint32_t* new_tokens);

template <class T>
double amount(T n) {
  return static_cast<double>(n);
}

// The elements of the matrix of a rotation, which is not read if the dims are refused.
inline double matrix_of(uint32_t dim) { return dim <= 576 ? amount(dim) * dim : 0; }
template <class Struct>
uint32_t values_of(const Struct& of) {
  return of.value_dim == 0 ? of.key_dim : of.value_dim;
}

// ---- Arguments as C. NULL stays NULL; what lies behind another pointer becomes a copy. ----------

std::string number_of(uint64_t value);
std::string number_of(int64_t value);
std::string number(float value);
template <class T>
  requires(std::is_integral_v<T> || std::is_enum_v<T>)
std::string number(T value) {
  if constexpr (std::is_unsigned_v<T>)
    return number_of(static_cast<uint64_t>(value));
  else
    return number_of(static_cast<int64_t>(value));
}

std::string copy_of(const void* memory, double bytes);   // that the library reads
std::string room_for(const void* memory, double bytes);  // that it writes
template <class T>
std::string in(const T* list, double n) {
  return copy_of(list, n * sizeof(T));
}
template <class T>
std::string out(T* list, double n) {
  return room_for(list, n * sizeof(T));
}
std::string memory_of(const pkv_kv_view& view, const void* memory, int64_t block, int64_t row,
                      int64_t head, pkv_dtype dtype, uint32_t width);
std::string allocator(const pkv_allocator* hooks);
std::string logger(const pkv_logger* hooks);
std::string runner(const pkv_runner* hooks);
// With the 0 at its end.
inline double bytes_of(const char* text) {
  return text == nullptr ? 0 : static_cast<double>(std::strlen(text) + 1);
}
// A store has its own threads, whose calls no single thread can repeat; hooks for blocks are called
// from these.
std::string left_out(const void* what);
std::string groups(const pkv_layer_group* list, uint32_t count);

// A compound literal with the fields of a struct. Written by transcript.py.
std::string text(pkv_cache_config s, Shape shape);
std::string text(pkv_layer_group s, Shape shape);
std::string text(pkv_prefix_config s, Shape shape);
std::string text(pkv_pool_config s, Shape shape);
std::string text(pkv_session_config s, Shape shape);
std::string text(pkv_attention_params s, Shape shape);
std::string text(pkv_mask s, Shape shape);
std::string text(pkv_chosen_blocks s, Shape shape);
std::string text(pkv_block_mass s, Shape shape);
std::string text(pkv_kv_view s, Shape shape);
std::string text(pkv_kv_sequences s, Shape shape);

template <class Struct>
std::string structure(const Struct* s, Shape shape) {
  if (s == nullptr) return "NULL";
  return "copied(&" + text(*s, shape) + ", " + number(sizeof(Struct)) + ", " +
         number(s->struct_size) + ")";
}

// ---- One call. While it lives no other thread makes one, and memory is refused to none but the
// call itself. ------

class Call {
 public:
  Call(const char* function, bool has_status);
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  template <class T>
  void number(T value) {
    add(transcript::number(value));
  }
  void handle(const void* handle);
  template <class T>
  void handles(const T* list, double n, const char* type) {
    add_handles(reinterpret_cast<const void* const*>(list), n, type);
  }
  template <class T>
  void made(T* out, const char* type) {
    add_made(reinterpret_cast<void**>(out), type);
  }
  template <class T>
  void in_list(const T* list, double n) {
    add(in(list, n));
  }
  template <class T>
  void out_list(T* list, double n) {
    add(out(list, n));
  }
  template <class Struct>
  void structure(const Struct* s, Shape shape) {
    add(transcript::structure(s, shape));
  }
  void filled(const void* s);  // a struct that the library fills
  void tensor_in(const pkv_tensor* tensor, Shape shape);
  void tensor_out(const pkv_tensor* tensor, Shape shape);
  void tensors(const pkv_tensor* list, size_t count, Shape shape);
  void lists(const float* const* lists, size_t count, double n);

  void write();
  void returned(pkv_status status);
  void returned();

 private:
  void add(const std::string& argument);
  void add_handles(const void* const* list, double n, const char* type);
  void add_made(void** out, const char* type);

  std::string function_, arguments_;
  const bool has_status_;
  const void* owner_ = nullptr;  // the first handle among the arguments
  void** made_ = nullptr;
  uint64_t countdown_ = 0;  // of memory::countdown, put aside
};

}  // namespace transcript
