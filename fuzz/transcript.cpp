#include "transcript.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "../tests/support/memory.h"
#include "spoil.h"

extern "C" const char* __real_pkv_status_name(pkv_status status);

namespace transcript {

namespace {

struct Layer {
  uint32_t query_heads, kv_heads, key_dim, value_dim;
};

struct Batch {
  double rows, sessions;
  std::vector<uint32_t> new_tokens;
};

// Lives until the process ends. Calls are written to PREFIX.calls, the lists they refer to, each
// once, to PREFIX.lists.
struct State {
  std::mutex one_at_a_time;
  std::FILE *calls = nullptr, *lists = nullptr;
  uint64_t call_count = 0;
  size_t handle_count = 0;
  std::map<const void*, size_t> names;        // of handles: the last that had this value
  std::map<const void*, const void*> caches;  // that handles belong to
  std::map<const void*, std::map<uint32_t, Layer>> layers;
  std::map<const void*, Batch> batches;
  std::map<std::string, std::string> list_names;  // by content
  std::vector<const void*> hooks;

  State() {
    const char* const prefix = std::getenv("PKV_TRANSCRIPT");
    if (prefix == nullptr) {
      std::fputs("PKV_TRANSCRIPT has to name the files that calls are written to\n", stderr);
      std::_Exit(2);
    }
    calls = std::fopen((std::string(prefix) + ".calls").c_str(), "w");
    lists = std::fopen((std::string(prefix) + ".lists").c_str(), "w");
    if (calls != nullptr && lists != nullptr) return;
    std::perror(prefix);
    std::_Exit(2);
  }
};

State& state() {
  static State* const instance = new State;
  return *instance;
}

// No target has more memory than this, so the call must be refused before it follows the pointer.
constexpr double most_bytes = 1 << 26;
constexpr size_t stand_in_bytes = 64;

size_t sane(double bytes) {
  return bytes >= 0 && bytes <= most_bytes ? static_cast<size_t>(bytes) : stand_in_bytes;
}

const Layer* layer_of(const void* handle, uint32_t index) {
  const auto cache = state().caches.find(handle);
  if (cache == state().caches.end()) return nullptr;
  const auto& layers = state().layers[cache->second];
  const auto layer = layers.find(index);
  return layer == layers.end() ? nullptr : &layer->second;
}

Shape shape_of(const void* handle, uint32_t layer, double rows, uint32_t Layer::* heads,
               uint32_t Layer::* dim) {
  const Layer* const known = layer_of(handle, layer);
  if (known == nullptr) return {};
  const auto batch = state().batches.find(handle);
  return {rows,
          amount(known->*heads),
          amount(known->*dim),
          sessions_of(handle),
          rows,
          amount(known->kv_heads),
          batch == state().batches.end() ? std::vector<uint32_t>{} : batch->second.new_tokens};
}

Shape of_sequences(const pkv_kv_view* kv, const pkv_kv_sequences* sequences, uint32_t dim) {
  if (sequences == nullptr) return {};
  const bool placed = sequences->first_rows != nullptr;
  double rows = 0, end = 0;
  std::vector<uint32_t> queries;
  for (uint64_t i = 0; sequences->query_lengths != nullptr && i < sequences->count; i++) {
    rows += sequences->query_lengths[i];
    queries.push_back(sequences->query_lengths[i]);
    end = std::max(
        end, amount(sequences->query_lengths[i]) + (placed ? amount(sequences->first_rows[i]) : 0));
  }
  return {placed ? std::max(rows, end) : rows,
          amount(sequences->query_heads),
          amount(dim),
          amount(sequences->count),
          end,
          kv == nullptr ? 0 : amount(kv->kv_heads),
          std::move(queries)};
}

uint32_t word_at(const unsigned char* bytes, size_t i) {
  uint32_t word;
  std::memcpy(&word, bytes + 4 * i, sizeof word);
  return word;
}

// The period of words that a list repeats.
size_t period_of(const unsigned char* bytes, size_t words) {
  for (size_t period = 1; period < std::min<size_t>(words, 64); period++)
    if (std::memcmp(bytes, bytes + 4 * period, 4 * (words - period)) == 0) return period;
  return words;
}

// The name of a list with these bytes.
std::string list_of(const unsigned char* bytes, size_t size) {
  std::string& name = state().list_names[std::string(reinterpret_cast<const char*>(bytes), size)];
  if (!name.empty()) return name;
  name = "list" + std::to_string(state().list_names.size());
  const bool words = size % 4 == 0;
  std::fprintf(state().lists, "static const %s %s[] = {", words ? "uint32_t" : "uint8_t",
               name.c_str());
  const size_t n = words ? size / 4 : size;
  for (size_t i = 0; i < n; i++)
    std::fprintf(state().lists, "%s%#x",
                 i == 0        ? ""
                 : i % 16 == 0 ? ",\n  "
                               : ", ",
                 words ? word_at(bytes, i) : bytes[i]);
  std::fputs("};\n", state().lists);
  return name;
}

// False for an address without memory: a hostile pointer, which the call must not follow.
bool readable(const void* memory, size_t size) {
  const uintptr_t page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE)),
                  first = reinterpret_cast<uintptr_t>(memory) / page * page;
  std::vector<unsigned char> resident(size / page + 2);
  return mincore(reinterpret_cast<void*>(first), reinterpret_cast<uintptr_t>(memory) + size - first,
                 resident.data()) == 0;
}

// The offset of a pointer in its cache line, so that the copy has the same alignment.
std::string offset_of(const void* memory) {
  return number(reinterpret_cast<uintptr_t>(memory) % 64);
}

std::string handle_text(const void* handle) {
  if (handle == nullptr) return "NULL";
  const auto name = state().names.find(handle);
  if (name != state().names.end()) return "h[" + std::to_string(name->second) + "]";
  return "(void*)" + number(reinterpret_cast<uintptr_t>(handle)) + " /* never given out */";
}

std::string tensor_text(const pkv_tensor& tensor, const std::string& data) {
  return "{" + data + ", " + number(tensor.dtype) + ", " + number(tensor.row_stride) + ", " +
         number(tensor.head_stride) + ", " + number(tensor.batch_stride) + "}";
}

double bytes_of(const pkv_tensor& tensor, Shape shape) {
  if (shape.rows == 0 || shape.heads == 0) return stand_in_bytes;
  const bool padded = tensor.batch_stride != 0;
  const double as_f32 = reach(tensor, padded ? std::max(0.0, shape.sequences - 1) : 0,
                              std::max(0.0, (padded ? shape.entry_rows : shape.rows) - 1),
                              static_cast<uint32_t>(shape.heads), static_cast<uint32_t>(shape.dim));
  return as_f32 / 4 * amount(element_bytes(tensor.dtype));
}

std::string read_tensor(const pkv_tensor& tensor, Shape shape) {
  return tensor_text(tensor, copy_of(tensor.data, bytes_of(tensor, shape)));
}

}  // namespace

// ---- Shapes -----------------------------------------------------------------------------------

Shape keys(const void* handle, uint32_t layer, double rows) {
  return shape_of(handle, layer, rows, &Layer::kv_heads, &Layer::key_dim);
}
Shape values(const void* handle, uint32_t layer, double rows) {
  return shape_of(handle, layer, rows, &Layer::kv_heads, &Layer::value_dim);
}
Shape queries(const void* handle, uint32_t layer, double rows) {
  return shape_of(handle, layer, rows, &Layer::query_heads, &Layer::key_dim);
}
Shape results(const void* handle, uint32_t layer, double rows) {
  return shape_of(handle, layer, rows, &Layer::query_heads, &Layer::value_dim);
}
Shape queries(const pkv_kv_view* kv, const pkv_kv_sequences* sequences) {
  return of_sequences(kv, sequences, kv == nullptr ? 0 : kv->key_dim);
}
Shape results(const pkv_kv_view* kv, const pkv_kv_sequences* sequences) {
  return of_sequences(kv, sequences, kv == nullptr ? 0 : kv->value_dim);
}

Shape keys(const pkv_kv_view* kv, const pkv_kv_sequences* sequences) {
  Shape shape = of_sequences(kv, sequences, kv == nullptr ? 0 : kv->key_dim);
  shape.heads = kv == nullptr ? 0 : kv->kv_heads;
  return shape;
}
Shape values(const pkv_kv_view* kv, const pkv_kv_sequences* sequences) {
  Shape shape = keys(kv, sequences);
  shape.dim = kv == nullptr ? 0 : kv->value_dim;
  return shape;
}
Shape keys(const pkv_kv_view* kv, double rows) {
  if (kv == nullptr) return {};
  return {rows, amount(kv->kv_heads), amount(kv->key_dim), 1, rows, amount(kv->kv_heads)};
}
Shape values(const pkv_kv_view* kv, double rows) {
  if (kv == nullptr) return {};
  return {rows, amount(kv->kv_heads), amount(kv->value_dim), 1, rows, amount(kv->kv_heads)};
}

double rows_of(const pkv_kv_sequences* sequences) {
  double rows = 0;
  for (uint64_t i = 0; sequences->query_lengths != nullptr && i < sequences->count; i++)
    rows += sequences->query_lengths[i];
  return rows;
}

double bytes_of_mask(const pkv_mask& mask, Shape shape) {
  switch (mask.kind) {
    case PKV_MASK_BITS:
      return shape.rows * amount(mask.row_stride) * sizeof(uint64_t);
    case PKV_MASK_PARENTS:
      return shape.rows * sizeof(int32_t);
    case PKV_MASK_BYTES:
      return std::max(0.0, shape.sequences - 1) * amount(mask.batch_stride) +
             std::max(0.0, shape.entry_rows - 1) * amount(mask.row_stride) + amount(mask.columns);
  }
  return 0;
}

double tiles_of(const pkv_chosen_blocks& blocks, const Shape& shape) {
  double tiles = 0;
  for (const double queries : shape.queries)
    tiles += std::ceil(queries / std::max(1.0, amount(blocks.queries_together)));
  return tiles;
}

double rows_of(const void* batch) {
  const auto known = state().batches.find(batch);
  return known == state().batches.end() ? 0 : known->second.rows;
}

double sessions_of(const void* batch) {
  const auto known = state().batches.find(batch);
  return known == state().batches.end() ? 0 : known->second.sessions;
}

void remember_layers(const void* cache, const pkv_cache_config& config) {
  auto& layers = state().layers[cache];
  layers.clear();
  uint32_t next = 0;
  const auto add = [&](uint32_t count, const uint32_t* indices, Layer layer) {
    if (layer.value_dim == 0) layer.value_dim = layer.key_dim;
    for (uint32_t i = 0; i < count; i++) {
      const uint32_t index = indices != nullptr ? indices[i] : next;
      layers[index] = layer;
      next = index + 1;
    }
  };
  for (uint32_t i = 0; i < std::max(config.group_count, 1u); i++) {
    const pkv_layer_group& group = config.groups[i];
    add(group.layers, group.layer_indices,
        {group.query_heads, group.kv_heads, group.key_dim, group.value_dim});
  }
}

void remember_rows(const void* batch, size_t count, const uint32_t* new_tokens) {
  double rows = 0;
  for (size_t i = 0; i < count; i++) rows += new_tokens[i];
  state().batches[batch] = {rows, amount(count), {new_tokens, new_tokens + count}};
}

// ---- Arguments as C ---------------------------------------------------------------------------

std::string number_of(uint64_t value) {
  return std::to_string(value) + (value > INT32_MAX ? "u" : "");
}

std::string number_of(int64_t value) {
  return value == INT64_MIN ? "INT64_MIN" : std::to_string(value);
}

std::string number(float value) {
  char text[64];
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  if (std::isfinite(value))
    std::snprintf(text, sizeof text, "%af", static_cast<double>(value));
  else
    std::snprintf(text, sizeof text, "float_of(%#x)", bits);
  return text;
}

std::string copy_of(const void* memory, double bytes) {
  if (memory == nullptr) return "NULL";
  if (!(bytes <= most_bytes)) return room_for(memory, bytes);
  const size_t size = sane(bytes);
  if (size == 0) return room_for(memory, 0);
  if (!readable(memory, size))
    return "(void*)" + number(reinterpret_cast<uintptr_t>(memory)) + " /* no memory */";
  const auto* const first = static_cast<const unsigned char*>(memory);
  const size_t given = size % 4 == 0 ? 4 * period_of(first, size / 4) : size;
  const std::string name = list_of(first, given);
  return "in(" + name + ", sizeof " + name + ", " + number(size) + ", " + offset_of(memory) + ")";
}

std::string room_for(const void* memory, double bytes) {
  return memory == nullptr ? "NULL"
                           : "room(" + number(sane(bytes)) + ", " + offset_of(memory) + ")";
}

std::string memory_of(const pkv_kv_view& view, const void* memory, int64_t block, int64_t row,
                      int64_t head, pkv_dtype dtype, uint32_t width) {
  return copy_of(memory, reach(view, block, row, head, dtype, width));
}

std::string allocator(const pkv_allocator* hooks) {
  if (hooks == nullptr) return "NULL";
  if (hooks->alloc == nullptr || hooks->free == nullptr) return "&(pkv_allocator){0}";
  auto& known = state().hooks;
  const size_t i =
      static_cast<size_t>(std::find(known.begin(), known.end(), hooks->user) - known.begin());
  if (i == known.size()) known.push_back(hooks->user);
  return "allocator(" + number(i) + ", " +
         number(static_cast<const memory::Hooks*>(hooks->user)->budget()) + ")";
}

std::string logger(const pkv_logger* hooks) {
  if (hooks == nullptr) return "NULL";
  return hooks->log == nullptr ? "&(pkv_logger){NULL, NULL}" : "&(pkv_logger){ignore, NULL}";
}

std::string runner(const pkv_runner* hooks) {
  if (hooks == nullptr) return "NULL";
  return std::string("&(pkv_runner){") + (hooks->run == nullptr ? "NULL" : "run_alone") +
         ", NULL, " + number(hooks->threads) + ", " + number(hooks->reserved) + "}";
}

std::string left_out(const void* what) {
  return what == nullptr ? "NULL" : "NULL /* left out: it needs threads */";
}

std::string groups(const pkv_layer_group* list, uint32_t count) {
  if (list == nullptr) return "NULL";
  count = std::max(count, 1u);
  const std::string size = number(count * sizeof *list);
  std::string result = "copied((const pkv_layer_group[]){";
  for (uint32_t i = 0; i < count; i++) result += (i == 0 ? "" : ", ") + text(list[i], {});
  return result + "}, " + size + ", " + size + ")";
}

// ---- One call ---------------------------------------------------------------------------------

Call::Call(const char* function, bool has_status) : function_(function), has_status_(has_status) {
  countdown_ = std::exchange(memory::countdown, 0);
  state().one_at_a_time.lock();
}

Call::~Call() {
  function_ = arguments_ = {};
  state().one_at_a_time.unlock();
  memory::countdown = countdown_;
}

void Call::add(const std::string& argument) {
  arguments_ += (arguments_.empty() ? "" : ", ") + argument;
}

void Call::handle(const void* handle) {
  if (owner_ == nullptr) owner_ = handle;
  add(handle_text(handle));
}

void Call::add_handles(const void* const* list, double n, const char* type) {
  if (list == nullptr || n == 0) return add(list == nullptr ? "NULL" : room_for(list, 0));
  std::string text = std::string("(") + type + "[]){";
  for (size_t i = 0; i < static_cast<size_t>(n); i++)
    text += (i == 0 ? "" : ", ") + handle_text(list[i]);
  add(text + "}");
}

void Call::add_made(void** out, const char* type) {
  made_ = out;
  add(out == nullptr
          ? "NULL"
          : std::string("(") + type + "*)&h[" + std::to_string(state().handle_count) + "]");
}

void Call::filled(const void* s) {
  add(s == nullptr ? "NULL"
                   : "sized(" + transcript::number(*static_cast<const uint32_t*>(s)) + ")");
}

void Call::tensor_in(const pkv_tensor* tensor, Shape shape) {
  add(tensor == nullptr ? "NULL" : "&(pkv_tensor)" + read_tensor(*tensor, shape));
}

void Call::tensor_out(const pkv_tensor* tensor, Shape shape) {
  add(tensor == nullptr
          ? "NULL"
          : "&(pkv_tensor)" +
                tensor_text(*tensor, room_for(tensor->data, bytes_of(*tensor, shape))));
}

void Call::tensors(const pkv_tensor* list, size_t count, Shape shape) {
  if (list == nullptr || count == 0) return add(list == nullptr ? "NULL" : room_for(list, 0));
  std::string text = "(pkv_tensor[]){";
  for (size_t i = 0; i < count; i++) text += (i == 0 ? "" : ", ") + read_tensor(list[i], shape);
  add(text + "}");
}

void Call::lists(const float* const* lists, size_t count, double n) {
  if (lists == nullptr || count == 0) return add(lists == nullptr ? "NULL" : room_for(lists, 0));
  std::string text = "(const float*[]){";
  for (size_t i = 0; i < count; i++) text += (i == 0 ? "" : ", ") + in(lists[i], n);
  add(text + "}");
}

void Call::write() {
  std::FILE* const calls = state().calls;
  std::fprintf(calls, "  call(\"%s\"); ", function_.c_str());
  if (countdown_ != 0)
    std::fprintf(calls, "refuse(%llu); ", static_cast<unsigned long long>(countdown_));
  std::fprintf(calls, "%slib.%s(%s);\n", has_status_ ? "got = " : "", function_.c_str(),
               arguments_.c_str());
  std::fflush(state().lists);
  std::fflush(calls);  // a crash is the last line
  if (made_ != nullptr) state().handle_count++;
  memory::countdown = countdown_;
}

void Call::returned(pkv_status status) {
  countdown_ = std::exchange(memory::countdown, 0);
  const std::string name = __real_pkv_status_name(status);
  std::fprintf(state().calls, "  expect(%s);\n",
               name == "PKV_UNKNOWN_STATUS" ? transcript::number(status).c_str() : name.c_str());
  std::fflush(state().calls);
  if (status != PKV_OK || made_ == nullptr) return;
  state().names[*made_] = state().handle_count - 1;
  const auto cache = state().caches.find(owner_);
  state().caches[*made_] = owner_ == nullptr               ? *made_
                           : cache == state().caches.end() ? nullptr
                                                           : cache->second;
}

void Call::returned() {
  countdown_ = std::exchange(memory::countdown, 0);
  std::fputs("  done();\n", state().calls);
  std::fflush(state().calls);
}

}  // namespace transcript
