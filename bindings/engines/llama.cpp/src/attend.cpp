#include "attend.h"

#include <dlfcn.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace ggml_pagedkv {

using ggml::api;
using ggml::Tensor;

namespace {

// The sources of the operation. The axes of q are [stream][query head][row][dim], those of k and v
// [stream][KV head][cell][dim], those of out [stream][row][query head][dim].
struct Operation {
  const Tensor &out, &q, &k, &v;
  const Tensor *mask, *sinks;
  float scale, max_bias, softcap;

  explicit Operation(const Tensor& op)
      : out(op), q(*op.src[0]), k(*op.src[1]), v(*op.src[2]), mask(op.src[3]), sinks(op.src[4]) {
    std::memcpy(&scale, &op.op_params[0], sizeof scale);
    std::memcpy(&max_bias, &op.op_params[1], sizeof max_bias);
    std::memcpy(&softcap, &op.op_params[2], sizeof softcap);
  }

  int64_t rows() const { return q.ne[1]; }
  int64_t heads() const { return q.ne[2]; }
  int64_t streams() const { return q.ne[3]; }
  // A row is the only one of its stream, or follows the one before it.
  size_t row_bytes() const { return rows() == 1 ? q.nb[3] : q.nb[1]; }
  // The rows of a stream follow those of the stream before it.
  bool joined() const { return q.nb[3] == static_cast<size_t>(rows()) * row_bytes(); }
  int64_t cells() const { return k.ne[1]; }
  // Cells are blocks of one token. A stream begins this many blocks after the one before it.
  int64_t stream_blocks() const {
    return streams() > 1 ? static_cast<int64_t>(k.nb[3] / k.nb[1]) : 0;
  }
  bool latent() const {
    return v.data == k.data && v.type == k.type && v.nb[1] == k.nb[1] && v.nb[2] == k.nb[2] &&
           v.ne[0] <= k.ne[0];
  }
};

// A type of keys and values. Its elements lie together in blocks.
struct RowType {
  int type;
  pkv_dtype dtype;
  size_t block_bytes;
  int64_t block_elements;
  size_t stride_bytes;  // what strides of a pkv_kv_view count
};
constexpr RowType row_types[] = {{ggml::F32, PKV_F32, 4, 1, 4},
                                 {ggml::F16, PKV_F16, 2, 1, 2},
                                 {ggml::BF16, PKV_BF16, 2, 1, 2},
                                 {ggml::Q8_0, PKV_Q8_0, 34, 32, 1},
                                 {ggml::Q4_0, PKV_Q4_0, 18, 32, 1}};

// Returns NULL for a type that is left to ggml.
const RowType* row_type(const Tensor& tensor) {
  const auto* const found = std::find_if(std::begin(row_types), std::end(row_types),
                                         [&](const RowType& t) { return t.type == tensor.type; });
  return found != std::end(row_types) ? found : nullptr;
}

// Returns whether k or v can be a pkv_kv_view whose blocks are cells.
bool supports_rows(const Tensor& rows) {
  const RowType* const type = row_type(rows);
  if (type == nullptr) return false;
  const size_t unit = type->stride_bytes;
  // Rows that follow each other in memory do so in steps of whole rows.
  return rows.ne[0] >= 1 && rows.ne[0] <= 576 && rows.ne[0] % type->block_elements == 0 &&
         rows.nb[0] == type->block_bytes && rows.nb[1] > 0 && rows.nb[1] % unit == 0 &&
         rows.nb[2] % unit == 0 && (rows.ne[3] == 1 || rows.nb[3] % rows.nb[1] == 0);
}

// One axis of a tensor: how many there are, and the bytes from one to the next.
struct Axis {
  int64_t count;
  size_t bytes;
};

// Returns whether the rows of q, or of out, can be a pkv_tensor, in which none overlap.
bool supports_tensor(const Tensor& t, Axis rows, Axis heads) {
  const auto [inner, outer] =
      std::minmax(rows, heads, [](const Axis& a, const Axis& b) { return a.bytes < b.bytes; });
  size_t extent = static_cast<size_t>(t.ne[0]) * 4;
  for (const Axis& axis : {inner, outer}) {
    if (axis.bytes == 0 || axis.bytes % 4 != 0) return false;
    if (axis.count == 1) continue;
    if (axis.bytes < extent) return false;
    extent += static_cast<size_t>(axis.count - 1) * axis.bytes;
  }
  return t.type == ggml::F32 && t.nb[0] == 4 && t.nb[3] % 4 == 0;
}

// The most query heads of the library.
constexpr int64_t max_heads = 65536;

bool fits(int64_t n) { return n >= 1 && n < INT32_MAX; }

// Returns a stride as pkv_kv_view and pkv_tensor count it.
int64_t stride_of(size_t bytes, const Tensor& tensor) {
  return static_cast<int64_t>(bytes / row_type(tensor)->stride_bytes);
}

pkv_kv_view view_of(const Operation& op) {
  pkv_kv_view kv{};
  kv.struct_size = sizeof kv;
  kv.layout = PKV_LAYOUT_PLAIN;
  kv.block_size = 1;
  kv.kv_heads = static_cast<uint32_t>(op.k.ne[2]);
  kv.key_dim = static_cast<uint32_t>(op.k.ne[0]);
  kv.value_dim = static_cast<uint32_t>(op.v.ne[0]);
  kv.dtype = row_type(op.k)->dtype;
  kv.value_dtype = row_type(op.v)->dtype;
  kv.blocks = static_cast<uint64_t>((op.streams() - 1) * op.stream_blocks() + op.cells());
  kv.k = op.k.data;
  kv.k_block_stride = kv.k_row_stride = stride_of(op.k.nb[1], op.k);
  kv.k_head_stride = stride_of(op.k.nb[2], op.k);
  kv.latent = op.latent() ? 1 : 0;
  if (kv.latent != 0) return kv;
  kv.v = op.v.data;
  kv.v_block_stride = kv.v_row_stride = stride_of(op.v.nb[1], op.v);
  kv.v_head_stride = stride_of(op.v.nb[2], op.v);
  return kv;
}

// The rows of q or out from the first of a stream on.
pkv_tensor tensor_of(const Tensor& t, int64_t stream, size_t row_bytes, size_t head_bytes) {
  pkv_tensor tensor{};
  tensor.data = static_cast<char*>(t.data) + static_cast<size_t>(stream) * t.nb[3];
  tensor.dtype = PKV_F32;
  tensor.row_stride = stride_of(row_bytes, t);
  tensor.head_stride = stride_of(head_bytes, t);
  return tensor;
}

Mask mask_of(const Operation& op) {
  Mask mask{};
  mask.cells = op.cells();
  mask.rows = op.rows();
  mask.streams = op.streams();
  mask.stream_blocks = op.stream_blocks();
  mask.joined = op.joined();
  if (op.mask == nullptr) return mask;
  mask.data = static_cast<const uint16_t*>(op.mask->data);
  mask.row_stride = stride_of(op.mask->nb[1], *op.mask);
  if (op.mask->ne[3] > 1) mask.stream_stride = stride_of(op.mask->nb[3], *op.mask);
  return mask;
}

// Returns the factors of the mask, as ggml computes ALiBi's slopes from max_bias; none if it is 0.
std::vector<float> factors_of(const Operation& op) {
  std::vector<float> factors;
  const auto heads = static_cast<uint32_t>(op.heads());
  const auto half = static_cast<float>(std::bit_floor(heads));
  for (uint32_t head = 0; head < heads && op.max_bias > 0; head++) {
    const auto h = static_cast<float>(head);
    factors.push_back(h < half ? std::exp2(-op.max_bias / half * (h + 1))
                               : std::exp2(-op.max_bias / 2 / half * (2 * (h - half) + 1)));
  }
  return factors;
}

pkv_status attend(pkv_compute compute, const Operation& op, const Call& call) {
  const pkv_kv_view kv = view_of(op);
  pkv_kv_sequences sequences{};
  sequences.struct_size = sizeof sequences;
  sequences.query_heads = static_cast<uint32_t>(op.heads());
  sequences.count = call.query_lengths.size();
  sequences.query_lengths = call.query_lengths.data();
  sequences.kv_lengths = call.kv_lengths.data();
  sequences.block_tables = call.block_tables.data();
  sequences.block_table_stride = call.block_table_stride;
  sequences.first_rows = call.first_rows.data();
  sequences.query_positions = call.query_positions.data();
  pkv_mask mask{};
  mask.struct_size = sizeof mask;
  mask.kind = PKV_MASK_F16;
  mask.data = call.mask.data();
  mask.columns = call.block_table_stride;
  const std::vector<float> factors = factors_of(op);
  if (!factors.empty()) mask.head_factors = factors.data();
  mask.row_stride = static_cast<int64_t>(call.block_table_stride);
  pkv_attention_params params{};
  params.struct_size = sizeof params;
  params.scale = op.scale;
  params.softcap = op.softcap;
  params.window = call.window;
  if (op.sinks != nullptr) params.sink_logits = static_cast<const float*>(op.sinks->data);
  if (!call.mask.empty()) params.mask = &mask;
  const pkv_tensor q = tensor_of(op.q, call.stream, op.row_bytes(), op.q.nb[2]);
  const pkv_tensor out = tensor_of(op.out, call.stream, op.out.nb[2], op.out.nb[1]);
  return pkv_kv_attend(compute, &kv, &sequences, &params, &q, &out, nullptr);
}

// Returns a runner over as many of the OpenMP threads as ggml itself uses, on which its workers
// wait for their next work. UNSUPPORTED: ggml has threads of its own.
pkv_status openmp_runner(int threads, pkv_runner* runner) {
  ggml::Device* const cpu = api.backend_dev_by_type(ggml::cpu_device);
  auto* const features =
      reinterpret_cast<ggml::Feature* (*)(ggml::Registration*)>(api.backend_reg_get_proc_address(
          api.backend_dev_backend_reg(cpu), "ggml_backend_get_features"));
  bool openmp = false;
  if (features != nullptr)
    for (const ggml::Feature* f = features(api.backend_dev_backend_reg(cpu)); f->name != nullptr;
         f++)
      openmp = openmp || std::strcmp(f->name, "OPENMP") == 0;
  if (!openmp) return PKV_UNSUPPORTED;
  // Makes the library that ggml has loaded for itself visible to pkv_openmp_runner().
  for (const char* name : {"libgomp.so.1", "libomp.so.5", "libomp.so", "libiomp5.so"})
    if (void* const library = dlopen(name, RTLD_LAZY | RTLD_NOLOAD | RTLD_GLOBAL);
        library != nullptr) {
      const auto get = reinterpret_cast<int (*)()>(dlsym(library, "omp_get_max_threads"));
      const auto set = reinterpret_cast<void (*)(int)>(dlsym(library, "omp_set_num_threads"));
      if (get == nullptr || set == nullptr) continue;
      // The runner takes the number that is set for the calling thread.
      const int before = get();
      if (threads > 0) set(threads);
      const pkv_status status = pkv_openmp_runner(runner);
      set(before);
      return status;
    }
  return PKV_UNSUPPORTED;
}

}  // namespace

bool supports(const Tensor& out) {
  if (out.src[0] == nullptr || out.src[1] == nullptr || out.src[2] == nullptr) return false;
  const Operation op(out);
  const Tensor &q = op.q, &k = op.k, &v = op.v;
  if (q.ne[0] != k.ne[0] || v.ne[1] != k.ne[1] || v.ne[2] != k.ne[2] || q.ne[3] != k.ne[3] ||
      q.ne[3] != v.ne[3])
    return false;
  if (out.ne[0] != v.ne[0] || out.ne[1] != q.ne[2] || out.ne[2] != q.ne[1] || out.ne[3] != q.ne[3])
    return false;
  if (!fits(q.ne[1]) || !fits(q.ne[2]) || !fits(q.ne[3]) || !fits(k.ne[1]) || !fits(k.ne[2]) ||
      q.ne[2] % k.ne[2] != 0 || op.heads() > max_heads)
    return false;
  const int64_t rows = op.rows() * (op.joined() ? op.streams() : 1);
  if (!supports_rows(k) || !supports_rows(v) ||
      !supports_tensor(q, {rows, op.row_bytes()}, {op.heads(), q.nb[2]}) ||
      !supports_tensor(out, {rows, out.nb[2]}, {op.heads(), out.nb[1]}))
    return false;
  // The streams of K and V have the same cells.
  const int64_t last_stream = (op.streams() - 1) * op.stream_blocks();
  if (op.streams() > 1 && (v.nb[3] / v.nb[1] != k.nb[3] / k.nb[1] || last_stream > INT32_MAX))
    return false;
  if (!fits(op.streams() * op.rows()) || !fits(last_stream + op.cells())) return false;
  if (op.mask != nullptr) {
    const Tensor& m = *op.mask;
    if (m.type != ggml::F16 || m.nb[0] != 2 || m.ne[0] < op.cells() || m.ne[1] < op.rows() ||
        m.ne[2] != 1 || m.nb[1] % 2 != 0 || m.nb[3] % 2 != 0 ||
        (m.ne[3] != 1 && m.ne[3] != op.streams()))
      return false;
  }
  if (op.sinks != nullptr &&
      (op.sinks->type != ggml::F32 || op.sinks->nb[0] != 4 || op.sinks->ne[0] != op.heads()))
    return false;
  // Later parameters and sources than those known (3 is the precision, 4 bounds how many cells a
  // row sees) may mean anything.
  return std::isfinite(op.scale) && op.scale != 0 && std::isfinite(op.max_bias) &&
         op.max_bias >= 0 && std::isfinite(op.softcap) && op.softcap >= 0 &&
         std::all_of(out.op_params + 5, std::end(out.op_params),
                     [](int32_t p) { return p == 0; }) &&
         std::all_of(out.src + 5, std::end(out.src), [](const Tensor* t) { return t == nullptr; });
}

Attention::~Attention() {
  for (const auto& [key, compute] : computes_) pkv_compute_destroy(compute);
}

pkv_compute Attention::compute_of_threads() {
  const int threads = threads_.count();
  pkv_runner runner = threads_.runner();
  const auto [at, is_new] = computes_.try_emplace({threads, runner.run != nullptr}, nullptr);
  if (!is_new) return at->second;
  pkv_compute_config config{};
  config.struct_size = sizeof config;
  if (runner.run != nullptr || openmp_runner(threads, &runner) == PKV_OK) {
    config.runner = &runner;
  } else {
    pkv_compute_info all{};
    all.struct_size = sizeof all;
    if (pkv_compute_get_info(nullptr, &all) == PKV_OK && threads > 0)
      config.threads = std::min(static_cast<uint32_t>(threads), all.threads);
  }
  // If it fails, NULL is the default of the process: one thread per CPU.
  pkv_compute_create(&config, &at->second);
  return at->second;
}

bool Attention::compute(const Tensor& out) {
  const Operation op(out);
  const Plan& plan = plans_.of(mask_of(op));
  const pkv_compute compute = compute_of_threads();
  for (const Call& call : plan.calls)
    if (const pkv_status status = attend(compute, op, call); status != PKV_OK) {
      if (api.log_internal != nullptr)
        api.log_internal(ggml::log_error, "pagedkv: %s (%s)\n", pkv_last_error(),
                         pkv_status_name(status));
      return false;
    }
  for (const int64_t row : plan.unseeing) {
    char* const first = static_cast<char*>(out.data) +
                        static_cast<size_t>(row / op.rows()) * out.nb[3] +
                        static_cast<size_t>(row % op.rows()) * out.nb[2];
    for (int64_t head = 0; head < op.heads(); head++)
      std::memset(first + static_cast<size_t>(head) * out.nb[1], 0,
                  static_cast<size_t>(out.ne[0]) * 4);
  }
  return true;
}

}  // namespace ggml_pagedkv
