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
  params.first_blocks = params.last_blocks = 1;
  return params;
}

namespace {

void check_chosen(const pkv_attention_params& params, const AttendParams& result) {
  if (params.top_blocks != 0 && params.block_lists != nullptr)
    fail(PKV_INVALID_ARGUMENT, "top_blocks (%u) and block_lists are both given", params.top_blocks);
  if (params.block_lists == nullptr && params.block_list_size != 0)
    fail(PKV_INVALID_ARGUMENT, "block_list_size is %llu, but block_lists is NULL",
         (unsigned long long)params.block_list_size);
  if (params.chosen_blocks != nullptr && params.top_blocks == 0)
    fail(PKV_INVALID_ARGUMENT, "chosen_blocks is what top_blocks chose, but top_blocks is 0");
  if (params.choose_together > 1)
    fail(PKV_INVALID_ARGUMENT, "choose_together is %u; 0 and 1 are known", params.choose_together);
  if (params.choose_together != 0 && params.top_blocks == 0)
    fail(PKV_INVALID_ARGUMENT, "choose_together is 1, but top_blocks is 0");
  if (!result.chooses()) return;
  if (result.transform.alibi_slopes != nullptr)
    fail(PKV_INVALID_ARGUMENT, "chosen blocks and alibi_slopes do not go together");
}

// Returns the window of one KV head.
Window check_window(uint32_t window, uint32_t sinks, const Window& of_layer) {
  Window result{window == PKV_WINDOW_OF_LAYER ? of_layer.window : window,
                sinks == PKV_SINKS_OF_LAYER ? of_layer.sinks : sinks};
  // A call may see less than the layer keeps, but not more: what left the layer's window is gone.
  if (of_layer.window != 0 && (result.window == 0 || result.window > of_layer.window))
    fail(PKV_OUT_OF_RANGE, "window is %u (0: none), but this layer keeps only %u tokens",
         result.window, of_layer.window);
  if (of_layer.window != 0 && result.sinks > of_layer.sinks)
    fail(PKV_OUT_OF_RANGE, "sinks is %u, but this layer keeps only the first %u tokens",
         result.sinks, of_layer.sinks);
  if (result.window == 0) result.sinks = 0;  // without a window every token is seen
  return result;
}

void set_windows(const pkv_attention_params& params, uint32_t kv_heads, const Window& of_layer,
                 AttendParams& result) {
  if (params.head_windows == nullptr && params.head_sinks == nullptr) {
    result.window = check_window(params.window, params.sinks, of_layer);
    return;
  }
  for (uint32_t head = 0; head < kv_heads; head++)
    result.head_windows.push_back(check_window(
        params.head_windows != nullptr ? params.head_windows[head] : params.window,
        params.head_sinks != nullptr ? params.head_sinks[head] : params.sinks, of_layer));
  Window& widest = result.window = result.head_windows[0];
  for (const Window& one : result.head_windows) {
    widest.window = widest.window == 0 || one.window == 0 ? 0 : std::max(widest.window, one.window);
    widest.sinks = std::max(widest.sinks, one.sinks);
  }
}

void check_mass(const pkv_attention_params& params, const AttendParams& result) {
  if (params.block_mass != nullptr) {
    if (result.chooses())
      fail(PKV_INVALID_ARGUMENT, "chosen blocks and block_mass do not go together");
    return;
  }
  if (params.block_mass_size != 0 || params.block_mass_queries != 0)
    fail(PKV_INVALID_ARGUMENT,
         "block_mass_size is %llu and block_mass_queries %u, but block_mass is NULL",
         (unsigned long long)params.block_mass_size, params.block_mass_queries);
}

}  // namespace

AttendParams check_params(const pkv_attention_params* given, uint32_t kv_heads, uint32_t key_dim,
                          const Window& of_layer) {
  const pkv_attention_params params =
      given == nullptr ? default_params() : read_struct(given, default_params(), "params");
  if (params.reserved != 0)
    fail(PKV_INVALID_ARGUMENT, "params: reserved is %u, not 0", params.reserved);
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
  result.transform = {params.softcap, params.alibi_slopes};
  result.sink_logits = params.sink_logits;
  result.mask = params.mask;
  result.mask_words = params.mask_words;
  result.parents = params.parents;
  result.bool_mask = {params.bool_mask, params.bool_mask_columns, params.bool_mask_row_stride,
                      params.bool_mask_batch_stride, params.bool_mask_first_positions};
  const int masks =
      (params.mask != nullptr) + (params.parents != nullptr) + (params.bool_mask != nullptr);
  if (masks > 1)
    fail(PKV_INVALID_ARGUMENT, "%d of mask, parents and bool_mask are given; 1 is possible", masks);
  result.lse = params.lse;
  set_windows(params, kv_heads, of_layer, result);
  result.top_blocks = params.top_blocks;
  result.first_blocks = params.first_blocks;
  result.last_blocks = params.last_blocks;
  result.choose_together = params.choose_together != 0;
  result.block_lists = params.block_lists;
  result.block_list_size = params.block_list_size;
  result.chosen_blocks = params.chosen_blocks;
  check_chosen(params, result);
  result.block_mass = params.block_mass;
  result.block_mass_size = params.block_mass_size;
  result.block_mass_queries = params.block_mass_queries;
  check_mass(params, result);
  return result;
}

kernels::QueryView view_of(const AttendParams& params, const AttendSequence& sequence,
                           uint32_t query) {
  if (sequence.views != nullptr) return sequence.views[query];
  // A mask of words and a tree say alone which new tokens are seen.
  const bool causal = params.causal && params.mask == nullptr && params.parents == nullptr;
  kernels::QueryView view{};
  view.position = sequence.position(query);
  view.begin = sequence.window == 0 || view.position + 1 < sequence.window
                   ? 0
                   : view.position + 1 - sequence.window;
  view.end = causal ? std::min(view.position + 1, sequence.length) : sequence.length;
  const MaskRows& mask = sequence.mask;
  view.mask = mask.words == nullptr ? nullptr : mask.words + query * mask.stride;
  view.mask_begin = mask.begin;
  return view;
}

namespace {

// The words of the longest useful mask row: a step has fewer than 2^32 tokens, at 64 bits a word.
constexpr uint64_t max_mask_words = uint64_t{1} << 26;

// Checks a mask of words. `rows` is the number of all queries.
void check_words(const AttendCall& call, uint64_t rows) {
  const uint64_t words = call.params.mask_words;
  if (words > max_mask_words)
    fail(PKV_OUT_OF_RANGE, "mask_words is %llu; at most 2^26 are of use",
         (unsigned long long)words);
  checked_bytes(checked_mul(rows, words, "mask"), sizeof(uint64_t), "mask");
  for (const AttendSequence& sequence : call.sequences)
    if (ceil_div(sequence.queries, 64) > words)
      fail(PKV_INVALID_ARGUMENT, "mask_words is %llu; %u new tokens need %llu",
           (unsigned long long)words, sequence.queries,
           (unsigned long long)ceil_div(sequence.queries, 64));
}

// Throws if a sequence has no room for its queries: then they are not its last positions, and have
// no part in a mask of new tokens.
void check_new_tokens(const AttendCall& call) {
  for (const AttendSequence& sequence : call.sequences)
    if (sequence.queries > sequence.length)
      fail(PKV_INVALID_ARGUMENT, "mask: sequence %llu has %u new tokens but %llu positions in all",
           (unsigned long long)sequence.index, sequence.queries,
           (unsigned long long)sequence.length);
}

// Throws if a query of a mask of new tokens lies so far back that causal hides positions before the
// step from it: the view of a query has one end, and it is that of its new tokens.
void check_positions_of_new_tokens(const AttendCall& call) {
  for (const AttendSequence& sequence : call.sequences)
    for (uint32_t i = 0; i < sequence.queries && sequence.positions != nullptr; i++)
      if (sequence.position(i) + 1 < sequence.start())
        fail(PKV_INVALID_ARGUMENT,
             "query_positions: %lld in sequence %llu; with causal and a mask of new tokens it must "
             "be at least %llu, the last position before them",
             (long long)sequence.positions[i], (unsigned long long)sequence.index,
             (unsigned long long)(sequence.start() - 1));
}

// Checks the lists of chosen blocks, whose contents ChosenBlocks checks.
void check_block_lists(const AttendCall& call, uint64_t rows) {
  const AttendParams& params = call.params;
  const uint64_t lists = checked_mul(rows, call.shape.kv_heads, "block_lists");
  checked_bytes(checked_mul(lists, params.block_list_size, "block_lists"), sizeof(uint32_t),
                "block_lists");
  if (params.chosen_blocks != nullptr)
    checked_bytes(checked_mul(lists, params.top_blocks, "chosen_blocks"), sizeof(uint32_t),
                  "chosen_blocks");
  for (const AttendSequence& sequence : call.sequences) {
    if (sequence.kv.blocks == nullptr) fail(PKV_UNSUPPORTED, "chosen blocks need storage PAGED");
    if (sequence.positions != nullptr)
      fail(PKV_INVALID_ARGUMENT, "chosen blocks and positions of queries do not go together");
  }
}

void check_parents(const AttendCall& call) {
  for (const AttendSequence& sequence : call.sequences)
    for (uint32_t i = 0; i < sequence.queries; i++) {
      const int32_t parent = call.params.parents[sequence.first_query + i];
      if (parent < -1 || parent >= static_cast<int64_t>(i))
        fail(PKV_INVALID_ARGUMENT,
             "parents: new token %u of sequence %llu has parent %d; -1, or one before it, is "
             "needed",
             i, (unsigned long long)sequence.index, parent);
    }
}

void check_bool_mask(const AttendCall& call) {
  const BoolMask& mask = call.params.bool_mask;
  if (mask.row_stride < 0 || mask.batch_stride < 0)
    fail(PKV_OUT_OF_RANGE, "bool_mask: negative stride (row_stride %lld, batch_stride %lld)",
         (long long)mask.row_stride, (long long)mask.batch_stride);
  checked_bytes(mask.columns, 1, "bool_mask");
  for (const AttendSequence& sequence : call.sequences) {
    const uint64_t last_row = sequence.mask_row + sequence.queries - 1;
    uint64_t extent = checked_add(
        mask.columns, checked_mul(last_row, static_cast<uint64_t>(mask.row_stride), "bool_mask"),
        "bool_mask");
    extent = checked_add(
        extent, checked_mul(sequence.index, static_cast<uint64_t>(mask.batch_stride), "bool_mask"),
        "bool_mask");
    checked_bytes(extent, 1, "bool_mask");
    const int64_t first = mask.first_position(sequence.index);
    // Columns fit into 2^56, so neither side overflows.
    if (first < 0 ? static_cast<uint64_t>(-(first + 1)) >= mask.columns ||
                        mask.columns - static_cast<uint64_t>(-first) < sequence.length
                  : static_cast<uint64_t>(first) < sequence.length &&
                        sequence.length - static_cast<uint64_t>(first) > mask.columns)
      fail(PKV_INVALID_ARGUMENT,
           "bool_mask: %llu columns from position %lld on do not reach the %llu positions of "
           "sequence %llu",
           (unsigned long long)mask.columns, (long long)first, (unsigned long long)sequence.length,
           (unsigned long long)sequence.index);
  }
}

// Checks the array of the mass of blocks.
void check_block_mass(const AttendCall& call) {
  const uint64_t size = call.params.block_mass_size;
  uint64_t count = 0;
  for (const AttendSequence& sequence : call.sequences) {
    if (sequence.kv.blocks == nullptr) fail(PKV_UNSUPPORTED, "block_mass needs storage PAGED");
    if (const uint64_t blocks = ceil_div(sequence.length, sequence.kv.block_size); blocks > size)
      fail(PKV_INVALID_ARGUMENT, "block_mass_size is %llu; sequence %llu has %llu blocks",
           (unsigned long long)size, (unsigned long long)sequence.index,
           (unsigned long long)blocks);
    count = std::max(count, sequence.index + 1);
  }
  const uint64_t rows = checked_mul(count, call.shape.query_heads, "block_mass");
  checked_bytes(checked_mul(rows, size, "block_mass"), sizeof(float), "block_mass");
}

}  // namespace

void check_call(const AttendCall& call) {
  uint64_t rows = 0;
  for (const AttendSequence& sequence : call.sequences)
    rows = std::max(rows, sequence.first_query + sequence.queries);
  if (call.params.lse != nullptr)
    checked_bytes(checked_mul(rows, call.shape.query_heads, "lse"), sizeof(float), "lse");
  if (call.params.mask != nullptr || call.params.parents != nullptr) {
    check_new_tokens(call);
    if (call.params.causal) check_positions_of_new_tokens(call);
  }
  if (call.params.mask != nullptr) check_words(call, rows);
  if (call.params.parents != nullptr) {
    checked_bytes(rows, sizeof(int32_t), "parents");
    check_parents(call);
  }
  if (call.params.bool_mask.data != nullptr) check_bool_mask(call);
  if (call.params.chooses()) check_block_lists(call, rows);
  if (call.params.block_mass != nullptr) check_block_mass(call);
}

}  // namespace pkv::attention
