// Checks the parameters of a call, and the arrays that have a row for each query.
#include "engine/attention/call.h"

#include <algorithm>
#include <cmath>

#include "base/checked.h"
#include "base/enums.h"
#include "base/status.h"
#include "base/structs.h"

namespace pkv::attention {

namespace {

// Reads a mask into the fields of its kind. The fields of other kinds must be 0.
void read_mask(const pkv_mask& given, AttendParams& result) {
  const pkv_mask mask = read_struct(&given, "mask");
  if (mask.data == nullptr) fail(PKV_INVALID_ARGUMENT, "mask: data is NULL");
  check_enum(mask.kind, "kind", "mask");
  const bool additive = mask.kind == PKV_MASK_F16 || mask.kind == PKV_MASK_F32;
  if (mask.kind != PKV_MASK_BYTES && !additive &&
      (mask.columns != 0 || mask.batch_stride != 0 || mask.first_positions != nullptr))
    fail(PKV_INVALID_ARGUMENT,
         "mask: columns (%llu), batch_stride (%lld) and first_positions are for kinds BYTES, F16 "
         "and F32; the kind is %s",
         llu(mask.columns), (long long)mask.batch_stride, enum_name(mask.kind));
  if (mask.kind != PKV_MASK_TREE_BITS && mask.positions != nullptr)
    fail(PKV_INVALID_ARGUMENT, "mask: positions are for kind TREE_BITS; the kind is %s",
         enum_name(mask.kind));
  if (!additive && mask.head_factors != nullptr)
    fail(PKV_INVALID_ARGUMENT, "mask: head_factors are for kinds F16 and F32; the kind is %s",
         enum_name(mask.kind));
  switch (mask.kind) {
    case PKV_MASK_TREE_BITS:
      if (mask.row_stride < 0)
        fail(PKV_INVALID_ARGUMENT, "mask: row_stride is %lld words; it must not be negative",
             (long long)mask.row_stride);
      result.mask = static_cast<const uint64_t*>(mask.data);
      result.mask_words = static_cast<uint64_t>(mask.row_stride);
      result.mask_positions = mask.positions;
      return;
    case PKV_MASK_TREE_PARENTS:
      if (mask.row_stride != 0)
        fail(PKV_INVALID_ARGUMENT, "mask: row_stride is %lld; kind TREE_PARENTS has none",
             (long long)mask.row_stride);
      result.parents = static_cast<const int32_t*>(mask.data);
      return;
    case PKV_MASK_F16:
    case PKV_MASK_F32:
      result.transform.bias_dtype = mask.kind == PKV_MASK_F16 ? PKV_F16 : PKV_F32;
      result.transform.bias_factors = mask.head_factors;
      [[fallthrough]];
    case PKV_MASK_BYTES:
      result.column_mask = {mask.kind,         static_cast<const unsigned char*>(mask.data),
                            mask.columns,      mask.row_stride,
                            mask.batch_stride, mask.first_positions};
      return;
  }
}

void read_chosen(const pkv_chosen_blocks& given, AttendParams& result) {
  const pkv_chosen_blocks chosen = read_struct(&given, "chosen_blocks");
  if ((chosen.top_blocks != 0) == (chosen.lists != nullptr))
    fail(PKV_INVALID_ARGUMENT,
         "chosen_blocks: top_blocks is %u and lists %s NULL; give one of the two",
         chosen.top_blocks, chosen.lists != nullptr ? "is not" : "is");
  if (chosen.lists == nullptr && chosen.list_blocks != 0)
    fail(PKV_INVALID_ARGUMENT, "chosen_blocks: list_blocks is %u, but lists is NULL",
         chosen.list_blocks);
  if (result.transform.alibi_slopes != nullptr)
    fail(PKV_UNSUPPORTED, "chosen_blocks and alibi_slopes cannot be combined");
  if (result.column_mask.additive())
    fail(PKV_UNSUPPORTED, "chosen_blocks and a mask of kind %s cannot be combined",
         enum_name(result.column_mask.kind));
  result.top_blocks = chosen.top_blocks;
  result.first_blocks = chosen.first_blocks;
  result.last_blocks = chosen.last_blocks;
  result.tokens_per_choice = std::max(1u, chosen.tokens_per_choice);
  result.block_lists = chosen.lists;
  result.block_list_size = chosen.list_blocks;
}

// Returns the window of one KV head.
Window check_window(uint32_t window, uint32_t sinks, const Window& of_layer) {
  Window result{window == 0 ? of_layer.window : window, sinks == 0 ? of_layer.sinks : sinks};
  if (sinks == PKV_NO_SINK_TOKENS) result.sinks = 0;
  // A call may see less than the layer keeps, but not more: tokens that left its window are
  // dropped.
  if (of_layer.window != 0 && result.window > of_layer.window)
    fail(PKV_OUT_OF_RANGE, "window is %u, but this layer keeps only %u tokens", result.window,
         of_layer.window);
  if (of_layer.window != 0 && result.sinks > of_layer.sinks)
    fail(PKV_OUT_OF_RANGE, "sink_tokens is %u, but this layer keeps only the first %u tokens",
         result.sinks, of_layer.sinks);
  if (result.window == 0) result.sinks = 0;  // without a window every token is seen
  return result;
}

void set_windows(const pkv_attention_params& params, uint32_t kv_heads, const Window& of_layer,
                 AttendParams& result) {
  if (params.kv_head_windows == nullptr && params.kv_head_sink_tokens == nullptr) {
    result.window = check_window(params.window, params.sink_tokens, of_layer);
    return;
  }
  for (uint32_t head = 0; head < kv_heads; head++)
    result.kv_head_windows.push_back(check_window(
        params.kv_head_windows != nullptr ? params.kv_head_windows[head] : params.window,
        params.kv_head_sink_tokens != nullptr ? params.kv_head_sink_tokens[head]
                                              : params.sink_tokens,
        of_layer));
  Window& widest = result.window = result.kv_head_windows[0];
  for (const Window& one : result.kv_head_windows) {
    widest.window = widest.window == 0 || one.window == 0 ? 0 : std::max(widest.window, one.window);
    widest.sinks = std::max(widest.sinks, one.sinks);
  }
}

}  // namespace

bool AttendParams::has_window() const {
  return window.window != 0 || std::any_of(kv_head_windows.begin(), kv_head_windows.end(),
                                           [](const Window& one) { return one.window != 0; });
}

AttendParams check_params(const pkv_attention_params* given, uint32_t kv_heads, uint32_t key_dim,
                          const Window& of_layer) {
  const pkv_attention_params params = read_optional(given, "params");
  if (!std::isfinite(params.scale))
    fail(PKV_INVALID_ARGUMENT, "scale is %g; it must be finite", static_cast<double>(params.scale));
  check_flag(params.bidirectional, "bidirectional");
  if (params.bidirectional != 0 && params.alibi_slopes != nullptr)
    fail(PKV_UNSUPPORTED,
         "bidirectional is 1, but alibi_slopes would raise the scores of positions after a query");
  if (!std::isfinite(params.softcap) || params.softcap < 0)
    fail(PKV_INVALID_ARGUMENT, "softcap is %g; it must be finite and at least 0",
         static_cast<double>(params.softcap));
  AttendParams result{};
  result.scale = params.scale != 0 ? params.scale : 1 / std::sqrt(static_cast<float>(key_dim));
  result.causal = params.bidirectional == 0;
  result.transform = {params.softcap, params.alibi_slopes};
  result.sink_logits = params.sink_logits;
  set_windows(params, kv_heads, of_layer, result);
  if (params.mask != nullptr) read_mask(*params.mask, result);
  if (params.chosen_blocks != nullptr) read_chosen(*params.chosen_blocks, result);
  return result;
}

AttendOutputs check_outputs(const pkv_attention_outputs* given, const AttendParams& params) {
  const pkv_attention_outputs outputs = read_optional(given, "outputs");
  if (outputs.reserved != 0)
    fail(PKV_INVALID_ARGUMENT, "outputs: reserved is %u, not 0", outputs.reserved);
  const pkv_block_outputs blocks = read_optional(outputs.block_outputs, "outputs: block_outputs");
  if (blocks.chosen != nullptr && params.top_blocks == 0)
    fail(PKV_INVALID_ARGUMENT, "outputs: chosen is what top_blocks chose, but top_blocks is 0");
  if (blocks.masses == nullptr && (blocks.mass_blocks != 0 || blocks.mass_queries != 0))
    fail(PKV_INVALID_ARGUMENT,
         "outputs: mass_blocks is %llu and mass_queries %u, but masses is NULL",
         llu(blocks.mass_blocks), blocks.mass_queries);
  if (blocks.masses != nullptr && params.chooses())
    fail(PKV_INVALID_ARGUMENT, "outputs: masses and chosen_blocks cannot be combined");
  return {outputs.lse, blocks.chosen, blocks.masses, blocks.mass_blocks, blocks.mass_queries};
}

namespace {

// The words of the longest useful mask row: a step has fewer than 2^32 tokens, 64 in each word.
constexpr uint64_t max_mask_words = uint64_t{1} << 26;

// Checks a mask of words. `rows` is the number of all queries.
void check_words(const AttendCall& call, uint64_t rows) {
  const uint64_t words = call.params.mask_words;
  if (words > max_mask_words)
    fail(PKV_INVALID_ARGUMENT, "mask: row_stride is %llu words; it must be at most 2^26",
         llu(words));
  checked_bytes(checked_mul(rows, words, "mask"), sizeof(uint64_t), "mask");
  for (const rows::Sequence& sequence : call.sequences)
    if (ceil_div(sequence.queries, 64) > words)
      fail(PKV_INVALID_ARGUMENT, "mask: row_stride is %llu words; %u new tokens need %llu",
           llu(words), sequence.queries, llu(ceil_div(sequence.queries, 64)));
}

// Checks the positions of a mask of words, which does not say itself how deep a token is in a tree.
void check_mask_positions(const AttendCall& call, uint64_t rows) {
  const int64_t* const positions = call.params.mask_positions;
  if (positions != nullptr) checked_bytes(rows, sizeof(int64_t), "mask: positions");
  for (const rows::Sequence& sequence : call.sequences) {
    if (positions != nullptr && sequence.positions != nullptr)
      fail(PKV_INVALID_ARGUMENT, "mask: positions and query_positions are both set; set one");
    if (positions == nullptr && sequence.positions == nullptr && call.params.uses_positions())
      fail(PKV_INVALID_ARGUMENT,
           "mask: positions is NULL; with a window or slopes, a mask of bits needs them");
    for (uint32_t i = 0; i < sequence.queries && positions != nullptr; i++)
      if (const int64_t at = positions[sequence.first_query + i];
          at < static_cast<int64_t>(sequence.start()))
        fail(PKV_OUT_OF_RANGE,
             "mask: new token %u of sequence %llu has position %lld; it must be at least %llu", i,
             llu(sequence.index), (long long)at, llu(sequence.start()));
  }
}

// Throws if a sequence is shorter than its queries: with a mask of new tokens, the queries are the
// last positions.
void check_new_tokens(const AttendCall& call) {
  for (const rows::Sequence& sequence : call.sequences)
    if (sequence.queries > sequence.length)
      fail(PKV_INVALID_ARGUMENT, "mask: sequence %llu has %u new tokens but %llu positions in all",
           llu(sequence.index), sequence.queries, llu(sequence.length));
}

// Throws if the causal rule or a window would hide positions before the step that are after a
// query. With a mask of new tokens the kernels cannot do that: they always read up to the last new
// token.
void check_positions_of_new_tokens(const AttendCall& call) {
  for (const rows::Sequence& sequence : call.sequences)
    for (uint32_t i = 0; i < sequence.queries && sequence.positions != nullptr; i++)
      if (sequence.position(i) + 1 < sequence.start())
        fail(PKV_OUT_OF_RANGE,
             "query_positions: %lld in sequence %llu; with a mask of new tokens, unless attention "
             "is bidirectional and has no window, it must be at least %llu, the last position "
             "before these tokens",
             (long long)sequence.positions[i], llu(sequence.index), llu(sequence.start() - 1));
}

// Checks the arrays with a list for each choice. ChosenBlocks checks the contents of the lists.
void check_block_lists(const AttendCall& call) {
  const AttendParams& params = call.params;
  uint64_t choices = 0;
  for (const rows::Sequence& sequence : call.sequences)
    choices += ceil_div(sequence.queries, params.tokens_per_choice);
  const uint64_t lists = checked_mul(choices, call.shape.kv_heads, "chosen_blocks: lists");
  checked_bytes(checked_mul(lists, params.block_list_size, "chosen_blocks: lists"),
                sizeof(uint32_t), "chosen_blocks: lists");
  if (call.outputs.chosen != nullptr)
    checked_bytes(checked_mul(lists, params.top_blocks, "outputs: chosen"), sizeof(uint32_t),
                  "outputs: chosen");
  for (const rows::Sequence& sequence : call.sequences) {
    if (sequence.positions != nullptr)
      fail(PKV_UNSUPPORTED, "chosen_blocks and query_positions cannot be combined");
  }
}

void check_parents(const AttendCall& call) {
  for (const rows::Sequence& sequence : call.sequences)
    for (uint32_t i = 0; i < sequence.queries; i++) {
      const int32_t parent = call.params.parents[sequence.first_query + i];
      if (parent < -1 || parent >= static_cast<int64_t>(i))
        fail(PKV_INVALID_ARGUMENT,
             "mask: new token %u of sequence %llu has parent %d; it must be -1, or a new token "
             "before it",
             i, llu(sequence.index), parent);
    }
}

void check_factors(const AttendCall& call) {
  const float* const factors = call.params.transform.bias_factors;
  for (uint32_t head = 0; head < call.shape.query_heads && factors != nullptr; head++)
    if (!std::isfinite(factors[head]))
      fail(PKV_INVALID_ARGUMENT, "mask: head_factors[%u] is %g; it must be finite", head,
           static_cast<double>(factors[head]));
}

void check_column_mask(const AttendCall& call) {
  const ColumnMask& mask = call.params.column_mask;
  if (mask.row_stride < 0 || mask.batch_stride < 0)
    fail(PKV_INVALID_ARGUMENT, "mask: negative stride (row_stride %lld, batch_stride %lld)",
         (long long)mask.row_stride, (long long)mask.batch_stride);
  checked_bytes(mask.columns, mask.element_bytes(), "mask");
  for (const rows::Sequence& sequence : call.sequences) {
    const uint64_t last_row = call.mask_row(sequence) + sequence.queries - 1;
    uint64_t extent =
        checked_add(mask.columns,
                    checked_mul(last_row, static_cast<uint64_t>(mask.row_stride), "mask"), "mask");
    extent = checked_add(
        extent, checked_mul(sequence.index, static_cast<uint64_t>(mask.batch_stride), "mask"),
        "mask");
    checked_bytes(extent, mask.element_bytes(), "mask");
    const int64_t first = mask.first_position(sequence.index);
    // Columns fit into 2^56, so neither side overflows.
    if (first < 0 ? static_cast<uint64_t>(-(first + 1)) >= mask.columns ||
                        mask.columns - static_cast<uint64_t>(-first) < sequence.length
                  : static_cast<uint64_t>(first) < sequence.length &&
                        sequence.length - static_cast<uint64_t>(first) > mask.columns)
      fail(PKV_INVALID_ARGUMENT,
           "mask: %llu columns from position %lld on do not reach the %llu positions of "
           "sequence %llu",
           llu(mask.columns), (long long)first, llu(sequence.length), llu(sequence.index));
  }
}

// Checks the array for the attention mass of blocks.
void check_masses(const AttendCall& call) {
  const uint64_t size = call.outputs.mass_blocks;
  uint64_t count = 0;
  for (const rows::Sequence& sequence : call.sequences) {
    if (const uint64_t blocks = ceil_div(sequence.length, sequence.kv.block_size); blocks > size)
      fail(PKV_INVALID_ARGUMENT, "outputs: mass_blocks is %llu; sequence %llu has %llu blocks",
           llu(size), llu(sequence.index), llu(blocks));
    count = std::max(count, sequence.index + 1);
  }
  const uint64_t rows = checked_mul(count, call.shape.query_heads, "outputs: masses");
  checked_bytes(checked_mul(rows, size, "outputs: masses"), sizeof(float), "outputs: masses");
}

}  // namespace

void check_call(const AttendCall& call) {
  const uint64_t rows = call.rows.rows();
  if (call.outputs.lse != nullptr)
    checked_bytes(checked_mul(rows, call.shape.query_heads, "outputs: lse"), sizeof(float),
                  "outputs: lse");
  if (call.params.masks_new_tokens()) {
    check_new_tokens(call);
    if (call.params.causal || call.params.has_window()) check_positions_of_new_tokens(call);
  }
  if (call.params.mask != nullptr) {
    check_words(call, rows);
    check_mask_positions(call, rows);
  }
  if (call.params.parents != nullptr) {
    checked_bytes(rows, sizeof(int32_t), "mask");
    check_parents(call);
  }
  if (call.params.column_mask.data != nullptr) check_column_mask(call);
  check_factors(call);
  if (call.params.chooses()) check_block_lists(call);
  if (call.outputs.masses != nullptr) check_masses(call);
}

}  // namespace pkv::attention
