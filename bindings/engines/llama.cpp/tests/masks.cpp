// Operations with masks as llama.cpp makes them, computed by the plug-in and in double precision:
//
//   masks LIBGGML-PAGEDKV.SO FOLDER_OF_GGMLS_BACKENDS
#include <ggml-alloc.h>
#include <ggml-backend.h>
#include <ggml.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace {

constexpr float hidden = -std::numeric_limits<float>::infinity();

struct Shape {
  int64_t key_dim, value_dim, kv_heads, group, cells, rows, streams;
  ggml_type key_type, value_type;
  bool cache_order = true;  // as llama.cpp has its memory: [cell][head][dim]; or [head][cell][dim]
  bool latent = false, sinks = false;
  float softcap = 0;
};

// Whether row r of stream s sees cell c.
using Sees = std::function<bool(int64_t s, int64_t r, int64_t c)>;

std::mt19937 generator(1);

ggml_tensor* tensor(ggml_context* context, ggml_type type, int64_t dim, int64_t rows, int64_t heads,
                    int64_t streams, bool cache_order) {
  return cache_order
             ? ggml_permute(context, ggml_new_tensor_4d(context, type, dim, heads, rows, streams),
                            0, 2, 1, 3)
             : ggml_new_tensor_4d(context, type, dim, rows, heads, streams);
}

void fill(ggml_tensor* t) {
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(ggml_nelements(t)));
  for (float& value : values) value = normal(generator);
  if (t->type == GGML_TYPE_F16)
    ggml_fp32_to_fp16_row(values.data(), static_cast<ggml_fp16_t*>(t->data), ggml_nelements(t));
  else if (t->type == GGML_TYPE_BF16)
    ggml_fp32_to_bf16_row(values.data(), static_cast<ggml_bf16_t*>(t->data), ggml_nelements(t));
  else if (ggml_is_quantized(t->type))
    ggml_quantize_chunk(t->type, values.data(), t->data, 0, ggml_nelements(t) / t->ne[0], t->ne[0],
                        nullptr);
  else
    std::copy(values.begin(), values.end(), static_cast<float*>(t->data));
}

char* element(const ggml_tensor* t, int64_t i0, int64_t i1, int64_t i2, int64_t i3) {
  return static_cast<char*>(t->data) +
         i0 / ggml_blck_size(t->type) * static_cast<int64_t>(t->nb[0]) +
         i1 * static_cast<int64_t>(t->nb[1]) + i2 * static_cast<int64_t>(t->nb[2]) +
         i3 * static_cast<int64_t>(t->nb[3]);
}

// The numbers of a tensor as floats, [i3][i2][i1][i0].
class Numbers {
 public:
  explicit Numbers(const ggml_tensor* t)
      : tensor_(t), floats_(static_cast<size_t>(ggml_nelements(t))) {
    float* to = floats_.data();
    for (int64_t i3 = 0; i3 < t->ne[3]; i3++)
      for (int64_t i2 = 0; i2 < t->ne[2]; i2++)
        for (int64_t i1 = 0; i1 < t->ne[1]; i1++, to += t->ne[0]) {
          const char* const from = element(t, 0, i1, i2, i3);
          if (t->type == GGML_TYPE_F32)
            std::memcpy(to, from, static_cast<size_t>(t->ne[0]) * sizeof *to);
          else
            ggml_get_type_traits(t->type)->to_float(from, to, t->ne[0]);
        }
  }

  const float* row(int64_t i1, int64_t i2, int64_t i3) const {
    const auto& n = tensor_->ne;
    return floats_.data() + ((i3 * n[2] + i2) * n[1] + i1) * n[0];
  }

 private:
  const ggml_tensor* tensor_;
  std::vector<float> floats_;
};

// ALiBi's slope of a head, which ggml computes from a power of 2 of the number of heads.
double slope_of(double max_bias, int64_t head, int64_t heads) {
  int64_t half = 1;
  while (half * 2 <= heads) half *= 2;
  if (max_bias == 0) return 1;
  return head < half ? std::pow(2, -max_bias / half * (head + 1))
                     : std::pow(2, -max_bias / 2 / half * (2 * (head - half) + 1));
}

// Returns the largest difference from double precision.
double error_of(const Shape& shape, const ggml_tensor* out, float max_bias) {
  const ggml_tensor *mask = out->src[3], *sinks = out->src[4];
  const Numbers q(out->src[0]), k(out->src[1]), v(out->src[2]), results(out);
  const int64_t heads = shape.kv_heads * shape.group;
  const double scale = 1 / std::sqrt(static_cast<double>(shape.key_dim));
  double worst = 0;
  for (int64_t s = 0; s < shape.streams; s++)
    for (int64_t h = 0; h < heads; h++)
      for (int64_t r = 0; r < shape.rows; r++) {
        const double slope = slope_of(double{max_bias}, h, heads);
        const float* const query = q.row(r, h, s);
        double sum = sinks != nullptr ? std::exp(static_cast<const float*>(sinks->data)[h]) : 0;
        std::vector<double> values(static_cast<size_t>(shape.value_dim));
        for (int64_t c = 0; c < shape.cells; c++) {
          double added = 0;
          if (mask != nullptr)
            added = ggml_fp16_to_fp32(
                *reinterpret_cast<const ggml_fp16_t*>(element(mask, c, r, 0, s % mask->ne[3])));
          if (added == hidden) continue;
          const float *const key = k.row(c, h / shape.group, s), *const value =
                                                                     v.row(c, h / shape.group, s);
          double score = 0;
          for (int64_t d = 0; d < shape.key_dim; d++) score += double{query[d]} * key[d];
          score *= scale;
          if (shape.softcap != 0) score = shape.softcap * std::tanh(score / shape.softcap);
          const double weight = std::exp(score + slope * added);
          sum += weight;
          for (size_t d = 0; d < values.size(); d++) values[d] += weight * value[d];
        }
        for (size_t d = 0; d < values.size(); d++) {
          const double expected = sum != 0 ? values[d] / sum : 0,
                       difference = std::abs(expected - results.row(h, r, s)[d]);
          // Not a number is an error, too.
          if (!(difference <= worst)) worst = difference;
        }
      }
  return worst;
}

// What the mask adds to the score of row r and cell c, and ALiBi's max_bias.
using Adds = std::function<float(int64_t r, int64_t c)>;
struct Bias {
  Adds adds = [](int64_t, int64_t) { return 0.0f; };
  float max_bias = 0;
};

int failures = 0, shapes = 0;
ggml_backend_t backend;
uint64_t (*computed)();

// Runs an operation and checks its result, and that the plug-in computed it.
void check(const char* name, const Shape& shape, const Sees& sees, bool shared_mask = false,
           const Bias& bias = {}) {
  static std::vector<char> memory(size_t{1} << 24);
  ggml_context* const context = ggml_init({memory.size(), memory.data(), false});
  ggml_tensor* const q = tensor(context, GGML_TYPE_F32, shape.key_dim, shape.rows,
                                shape.kv_heads * shape.group, shape.streams, shape.cache_order);
  ggml_tensor* const k = tensor(context, shape.key_type, shape.key_dim, shape.cells, shape.kv_heads,
                                shape.streams, shape.cache_order);
  ggml_tensor* const v =
      shape.latent ? ggml_view_4d(context, k, shape.value_dim, shape.cells, shape.kv_heads,
                                  shape.streams, k->nb[1], k->nb[2], k->nb[3], 0)
                   : tensor(context, shape.value_type, shape.value_dim, shape.cells, shape.kv_heads,
                            shape.streams, shape.cache_order);
  ggml_tensor* mask = nullptr;
  for (ggml_tensor* t : {q, k, v}) fill(t);
  if (sees) {
    const int64_t padded = (shape.rows + 63) / 64 * 64;
    mask = ggml_new_tensor_4d(context, GGML_TYPE_F16, shape.cells, padded, 1,
                              shared_mask ? 1 : shape.streams);
    auto* at = static_cast<ggml_fp16_t*>(mask->data);
    for (int64_t s = 0; s < mask->ne[3]; s++)
      for (int64_t r = 0; r < padded; r++)
        for (int64_t c = 0; c < shape.cells; c++)
          *at++ = ggml_fp32_to_fp16(r < shape.rows && sees(s, r, c) ? bias.adds(r, c) : hidden);
    // What no row sees has no effect, even if it is not a number.
    for (int64_t s = 0; s < shape.streams; s++)
      for (int64_t c = 0; c < shape.cells; c++) {
        bool seen = false;
        for (int64_t r = 0; r < shape.rows && !seen; r++) seen = sees(shared_mask ? 0 : s, r, c);
        for (int64_t h = 0; h < shape.kv_heads && !seen; h++)
          for (ggml_tensor* t : {k, v})
            std::memset(element(t, 0, c, h, s), 0xFF, ggml_row_size(t->type, t->ne[0]));
      }
  }
  ggml_tensor* const out =
      ggml_flash_attn_ext(context, q, k, v, mask, 1 / std::sqrt(static_cast<float>(shape.key_dim)),
                          bias.max_bias, shape.softcap);
  if (shape.sinks) {
    ggml_tensor* const sinks = ggml_new_tensor_1d(context, GGML_TYPE_F32, q->ne[2]);
    fill(sinks);
    ggml_flash_attn_ext_add_sinks(out, sinks);
  }
  ggml_cgraph* const graph = ggml_new_graph(context);
  ggml_build_forward_expand(graph, out);
  // Twice, with the same plan.
  for (int turn = 0; turn < 2; turn++) {
    const uint64_t before = computed();
    ggml_set_zero(out);
    const bool supported = ggml_backend_supports_op(backend, out);
    const bool done =
        supported && ggml_backend_graph_compute(backend, graph) == GGML_STATUS_SUCCESS;
    const double error = done ? error_of(shape, out, bias.max_bias) : NAN;
    // The library rounds queries to 15 bits for quantised keys; ggml rounds them to 8.
    const bool quantised = ggml_is_quantized(shape.key_type) || ggml_is_quantized(shape.value_type);
    if (!(error <= (quantised ? 1e-3 : 1e-5)) || computed() != before + 1) {
      failures++;
      std::printf("FAILED %s, turn %d: %s, error %g, computed %d\n", name, turn,
                  supported ? "supported" : "not supported", error,
                  static_cast<int>(computed() - before));
    }
  }
  shapes++;
  ggml_free(context);
}

int64_t cell_order(int64_t c, int64_t cells) { return c * 37 % cells; }  // 37 and cells are coprime

void check_masks(const Shape& shape) {
  const int64_t n = shape.cells, rows = shape.rows, past = n - rows;
  check("no mask", shape, nullptr);
  const Sees causal = [=](int64_t, int64_t r, int64_t c) { return c <= past + r; };
  const Sees random = [](int64_t, int64_t r, int64_t c) {
    return (r * 7919 + c * 104729) % 11 < 5;
  };
  check("causal", shape, causal);
  check("part of the cache", shape, [=](int64_t, int64_t r, int64_t c) { return c <= n / 2 + r; });
  check("window", shape,
        [=](int64_t, int64_t r, int64_t c) { return c <= past + r && c > past + r - 20; });
  check("window from the start", shape,
        [=](int64_t, int64_t r, int64_t c) { return c <= r && c > r - 5; });
  check("window in a ring", shape, [=](int64_t, int64_t r, int64_t c) {
    const int64_t position = (c + n / 3) % n;
    return position <= past + r && position > past + r - 20;
  });
  check("cells in any order", shape,
        [=](int64_t, int64_t r, int64_t c) { return cell_order(c, n) <= past + r; });
  check("a row that sees nothing", shape,
        [=](int64_t, int64_t r, int64_t c) { return r != rows / 2 && c <= past + r; });
  check("nothing at all", shape, [](int64_t, int64_t, int64_t) { return false; });
  for (const int64_t own : {1, 2, 5})
    check("slots with one prompt", shape, [=](int64_t, int64_t r, int64_t c) {
      return c < n - rows * own || (c - (n - rows * own)) / own == r;
    });
  check("two sequences", shape, [=](int64_t, int64_t r, int64_t c) {
    return c % 2 == (r < rows / 2 ? 0 : 1) && c / 2 <= n / 4 + r;
  });
  check("a tree", shape, [=](int64_t, int64_t r, int64_t c) {
    const int64_t token = c - past;
    return token < 0 || token == r || (token < r && ((r + 1) >> 1) == token + 1);
  });
  check("random", shape, random);
  check("not causal", shape, [=](int64_t, int64_t r, int64_t c) { return c < n - 3 || r < 2; });
  check("streams of different lengths", shape,
        [=](int64_t s, int64_t r, int64_t c) { return c <= n / (s + 2) + r; });
  check("one mask for all streams", shape, causal, true);
  const Adds any = [](int64_t r,
                      int64_t c) { return static_cast<float>((r * 31 + c * 17) % 64) / 16 - 2; },
             distance = [=](int64_t r,
                            int64_t c) { return static_cast<float>(-std::abs(past + r - c)); },
             of_some_rows = [](int64_t r, int64_t) { return r % 3 == 1 ? 1.5f : 0.0f; },
             nothing = [](int64_t, int64_t) { return 0.0f; };
  check("additive", shape, causal, false, {any});
  check("additive, for all streams", shape, causal, true, {any});
  check("additive, random", shape, random, false, {any});
  check("additive in some rows", shape, causal, false, {of_some_rows});
  for (const float max_bias : {8.0f, 1.5f})
    check("ALiBi", shape, causal, false, {distance, max_bias});
  check("ALiBi, random", shape, random, false, {distance, 8});
  check("ALiBi that adds nothing", shape, causal, false, {nothing, 8});
}

}  // namespace

int main(int, char** arguments) {
  ggml_backend_load_all_from_path(arguments[2]);
  const ggml_backend_reg_t plugin = ggml_backend_load(arguments[1]);
  if (plugin == nullptr) return 1;
  computed = reinterpret_cast<uint64_t (*)()>(
      ggml_backend_reg_get_proc_address(plugin, "pagedkv_computed"));
  backend = ggml_backend_dev_init(ggml_backend_reg_dev_get(plugin, 0), nullptr);
  // The first graph of a context may be a question of llama.cpp: see plugin.cpp.
  ggml_init_params one{1 << 26, nullptr, false};
  ggml_context* const context = ggml_init(one);
  for (const int64_t rows : {1, 2}) {
    ggml_tensor* const q = ggml_new_tensor_4d(context, GGML_TYPE_F32, 64, rows, 2, 1);
    ggml_tensor* const k = ggml_new_tensor_4d(context, GGML_TYPE_F16, 64, 32, 2, 1);
    for (int turn = 0; turn < 2; turn++)
      if (ggml_backend_supports_op(
              backend, ggml_flash_attn_ext(context, q, k, k, nullptr, 1, 0, 0)) != (rows == 2)) {
        std::printf("FAILED the first graph, %d rows, turn %d\n", static_cast<int>(rows), turn);
        failures++;
      }
  }
  // What the library refuses is left to ggml.
  ggml_tensor* const k = ggml_new_tensor_4d(context, GGML_TYPE_F16, 64, 32, 2, 1);
  ggml_tensor* const q = ggml_new_tensor_4d(context, GGML_TYPE_F32, 64, 2, 2, 1);
  ggml_tensor* const overlapping = ggml_view_4d(context, q, 64, 2, 2, 1, 256, 128, 1024, 0);
  ggml_tensor* const too_many = ggml_new_tensor_4d(context, GGML_TYPE_F32, 64, 1, 65538, 1);
  for (ggml_tensor* const refused : {overlapping, too_many})
    if (ggml_backend_supports_op(backend,
                                 ggml_flash_attn_ext(context, refused, k, k, nullptr, 1, 0, 0))) {
      std::printf("FAILED queries that the library refuses are supported\n");
      failures++;
    }
  ggml_free(context);

  constexpr ggml_type f32 = GGML_TYPE_F32, f16 = GGML_TYPE_F16, bf16 = GGML_TYPE_BF16,
                      q8_0 = GGML_TYPE_Q8_0, q4_0 = GGML_TYPE_Q4_0;
  for (const bool cache_order : {true, false})
    for (const int64_t streams : {1, 3})
      for (const int64_t rows : {1, 8, 33}) {
        check_masks({64, 64, 2, 3, 144, rows, streams, f16, f16, cache_order});
        check_masks({128, 64, 1, 4, 101, rows, streams, bf16, f32, cache_order, false, true});
        check_masks({80, 96, 2, 1, 97, rows, streams, f32, bf16, cache_order, false, false, 7});
        check_masks({64, 64, 2, 3, 101, rows, streams, q8_0, q8_0, cache_order});
        check_masks({128, 72, 1, 4, 97, rows, streams, q4_0, f16, cache_order});
      }
  check_masks({576, 512, 1, 8, 90, 5, 2, f16, f16, true, true});
  check_masks({576, 512, 1, 8, 90, 5, 2, q8_0, q8_0, true, true});
  check_masks({65, 67, 2, 2, 101, 5, 2, f16, f16});
  std::printf("%d shapes with masks, %d failed\n", shapes, failures);
  ggml_backend_free(backend);
  return failures == 0 ? 0 : 1;
}
