// Checks the parameters of a call, and the arrays that have a row for each query.
#include "engine/attention/call.h"

#include <algorithm>
#include <cmath>

#include "base/checked.h"
#include "base/status.h"
#include "base/structs.h"

namespace pkv::attention {

pkv_attention_params default_params() {
  pkv_attention_params params{};
  params.struct_size = sizeof params;
  params.causal = 1;
  params.window = PKV_WINDOW_OF_LAYER;
  params.sinks = PKV_SINKS_OF_LAYER;
  return params;
}

AttendParams check_params(const pkv_attention_params* given, uint32_t key_dim,
                          uint32_t window_of_layer, uint32_t sinks_of_layer) {
  const pkv_attention_params params =
      given == nullptr ? default_params() : read_struct(given, default_params(), "params");
  if (!std::isfinite(params.scale))
    fail(PKV_INVALID_ARGUMENT, "scale is %g, not finite", static_cast<double>(params.scale));
  if (params.causal > 1)
    fail(PKV_INVALID_ARGUMENT, "causal is %u; 0 and 1 are known", params.causal);
  if (!std::isfinite(params.softcap) || params.softcap < 0)
    fail(PKV_INVALID_ARGUMENT, "softcap is %g; a finite number, 0 for none, is needed",
         static_cast<double>(params.softcap));
  AttendParams result{};
  result.scale = params.scale != 0 ? params.scale : 1 / std::sqrt(static_cast<float>(key_dim));
  result.causal = params.causal != 0;
  result.window = params.window == PKV_WINDOW_OF_LAYER ? window_of_layer : params.window;
  result.sinks = params.sinks == PKV_SINKS_OF_LAYER ? sinks_of_layer : params.sinks;
  result.transform = {params.softcap, params.alibi_slopes};
  result.sink_logits = params.sink_logits;
  result.mask = params.mask;
  result.mask_words = params.mask_words;
  result.lse = params.lse;
  // A call may see less than the layer keeps, but not more: what left the layer's window is gone.
  if (window_of_layer != 0 && (result.window == 0 || result.window > window_of_layer))
    fail(PKV_OUT_OF_RANGE, "window is %u (0: none), but this layer keeps only %u tokens",
         result.window, window_of_layer);
  if (window_of_layer != 0 && result.sinks > sinks_of_layer)
    fail(PKV_OUT_OF_RANGE, "sinks is %u, but this layer keeps only the first %u tokens",
         result.sinks, sinks_of_layer);
  if (result.window == 0) result.sinks = 0;  // without a window every token is seen
  return result;
}

namespace {

// The words of the longest useful mask row: a step has fewer than 2^32 tokens, at 64 bits a word.
constexpr uint64_t max_mask_words = uint64_t{1} << 26;

// Checks that the sizes of lse and mask do not overflow.
void check_sizes(const AttendCall& call, uint64_t rows) {
  const uint64_t heads = call.shape.query_heads, words = call.params.mask_words;
  if (call.params.lse != nullptr)
    checked_bytes(checked_mul(rows, heads, "lse"), sizeof(float), "lse");
  if (call.params.mask == nullptr) return;
  if (words > max_mask_words)
    fail(PKV_OUT_OF_RANGE, "mask_words is %llu; at most 2^26 are of use",
         (unsigned long long)words);
  checked_bytes(checked_mul(rows, words, "mask"), sizeof(uint64_t), "mask");
}

}  // namespace

void check_call(const AttendCall& call) {
  uint64_t rows = 0;
  for (const AttendSequence& sequence : call.sequences)
    rows = std::max(rows, sequence.first_row + sequence.queries);
  check_sizes(call, rows);
  if (call.params.mask == nullptr) return;
  for (size_t i = 0; i < call.sequences.size(); i++)
    if (ceil_div(call.sequences[i].queries, 64) > call.params.mask_words)
      fail(PKV_INVALID_ARGUMENT, "mask_words is %llu; %u new tokens need %llu",
           (unsigned long long)call.params.mask_words, call.sequences[i].queries,
           (unsigned long long)ceil_div(call.sequences[i].queries, 64));
}

}  // namespace pkv::attention
