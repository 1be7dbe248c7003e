// The rows of attention.h.
#include "matrix.h"

namespace hostile {

// Makes a case for each parameter of attention that can be wrong.
std::vector<Case> params_cases(size_t at) {
  std::vector<Case> cases;
  const auto add = [&](const char* name, std::function<void(pkv_attention_params&)> change,
                       Wanted wanted) {
    cases.push_back({name, within(at, std::move(change)), std::move(wanted)});
  };
  add("scale infinite", [](auto& p) { p.scale = __builtin_inff(); }, {PKV_INVALID_ARGUMENT});
  add("scale NaN", [](auto& p) { p.scale = __builtin_nanf(""); }, {PKV_INVALID_ARGUMENT});
  add("causal 2", [](auto& p) { p.causal = 2; }, {PKV_INVALID_ARGUMENT});
  add("window 1", [](auto& p) { p.window = 1; }, {PKV_OK});
  add("window UINT32_MAX - 1", [](auto& p) { p.window = UINT32_MAX - 1; }, {PKV_OK});
  const auto with = [&](const char* name, std::function<void(World&, pkv_attention_params&)> change,
                        Wanted wanted) {
    cases.push_back({name, within(at, std::move(change)), std::move(wanted)});
  };
  add("softcap -1", [](auto& p) { p.softcap = -1; }, {PKV_INVALID_ARGUMENT});
  add("softcap infinite", [](auto& p) { p.softcap = __builtin_inff(); }, {PKV_INVALID_ARGUMENT});
  add("softcap NaN", [](auto& p) { p.softcap = __builtin_nanf(""); }, {PKV_INVALID_ARGUMENT});
  add("softcap 50", [](auto& p) { p.softcap = 50; }, {PKV_OK});
  add("sinks without a window", [](auto& p) { p.sinks = 4; }, {PKV_OK});
  add("sinks UINT32_MAX - 1, window 1", [](auto& p) { p.sinks = UINT32_MAX - 1, p.window = 1; },
      {PKV_OK});
  add("mask_words without a mask", [](auto& p) { p.mask_words = UINT64_MAX; }, {PKV_OK});
  with("mask of 0 words",
       [](World& world, auto& p) { p.mask = world.keep_list<uint64_t>({1, 3, 7, 1}); },
       {PKV_INVALID_ARGUMENT});
  with("mask of a word",
       [](World& world, auto& p) {
         p.mask = world.keep_list<uint64_t>({1, 3, 7, 1}), p.mask_words = 1;
       },
       {PKV_OK});
  with("mask that shows nothing",
       [](World& world, auto& p) {
         p.mask = world.keep_list<uint64_t>({0, 0, 0, 0}), p.mask_words = 1;
       },
       {PKV_OK});
  // No mask has these sizes. 2^58 words a row would lead out of the address space, and 2^61 would
  // wrap to row 0.
  for (const uint64_t words : {(uint64_t{1} << 26) + 1, uint64_t{1} << 32, uint64_t{1} << 58,
                               uint64_t{1} << 61, uint64_t{1} << 63, UINT64_MAX})
    cases.push_back({"mask of " + std::to_string(words) + " words",
                     [words, at](World& world, Values& values) {
                       auto& p = *reinterpret_cast<pkv_attention_params*>(values[at]);
                       p.mask = world.keep_list<uint64_t>({1, 3, 7, 1}), p.mask_words = words;
                     },
                     {PKV_OUT_OF_RANGE}});
  with("parents",
       [](World& world, auto& p) { p.parents = world.keep_list<int32_t>({-1, 0, 0, -1}); },
       {PKV_OK});
  for (const int32_t bad : {-2, 1, 2, INT32_MAX, INT32_MIN})
    cases.push_back({"parent " + std::to_string(bad) + " of token 1",
                     [bad, at](World& world, Values& values) {
                       reinterpret_cast<pkv_attention_params*>(values[at])->parents =
                           world.keep_list<int32_t>({-1, bad, 0, -1});
                     },
                     {PKV_INVALID_ARGUMENT}});
  const auto add_bools = [](World& world, pkv_attention_params& p) {
    p.bool_mask = world.keep_list(std::vector<uint8_t>(2 * 3 * 20, 1));
    p.bool_mask_columns = p.bool_mask_row_stride = 20;
    p.bool_mask_batch_stride = 3 * 20;
  };
  with("bool mask", add_bools, {PKV_OK});
  with("bool mask without columns",
       [=](World& world, auto& p) { add_bools(world, p), p.bool_mask_columns = 0; },
       {PKV_INVALID_ARGUMENT});
  with("bool mask of 2^61 columns",
       [=](World& world, auto& p) { add_bools(world, p), p.bool_mask_columns = uint64_t{1} << 61; },
       {PKV_OVERFLOW});
  with("bool mask, row stride negative",
       [=](World& world, auto& p) { add_bools(world, p), p.bool_mask_row_stride = -20; },
       {PKV_OUT_OF_RANGE});
  with("bool mask, row stride INT64_MAX",
       [=](World& world, auto& p) { add_bools(world, p), p.bool_mask_row_stride = INT64_MAX; },
       {PKV_OVERFLOW});
  with("two masks",
       [=](World& world, auto& p) {
         add_bools(world, p), p.parents = world.keep_list<int32_t>({-1, 0, 0, -1});
       },
       {PKV_INVALID_ARGUMENT});
  with("slopes, sink logits, lse",
       [](World& world, auto& p) {
         p.alibi_slopes = world.keep_list(std::vector<float>(query_heads, 0.5f));
         p.sink_logits = world.keep_list(std::vector<float>(query_heads, 1));
         p.lse = world.keep_list(std::vector<float>(4 * query_heads));
       },
       {PKV_OK});
  add("first_blocks and last_blocks UINT32_MAX",
      [](auto& p) { p.first_blocks = p.last_blocks = UINT32_MAX; }, {PKV_OK});
  add("block_mass_size without block_mass", [](auto& p) { p.block_mass_size = 1; },
      {PKV_INVALID_ARGUMENT});
  add("block_mass_queries without block_mass", [](auto& p) { p.block_mass_queries = 1; },
      {PKV_INVALID_ARGUMENT});
  const auto add_mass = [](World& world, pkv_attention_params& p) {
    p.block_mass_size = 2;
    p.block_mass = world.keep_list(std::vector<float>(2 * 2 * query_heads));
  };
  with("block mass", add_mass, {PKV_OK});
  with("block mass of more queries than there are",
       [=](World& world, auto& p) { add_mass(world, p), p.block_mass_queries = UINT32_MAX; },
       {PKV_OK});
  with("block mass of no blocks",
       [=](World& world, auto& p) { add_mass(world, p), p.block_mass_size = 0; },
       {PKV_INVALID_ARGUMENT});
  for (const uint64_t size : {uint64_t{1} << 58, uint64_t{1} << 62, UINT64_MAX})
    with("block mass of a size beyond memory",
         [=](World& world, auto& p) { add_mass(world, p), p.block_mass_size = size; },
         {PKV_OVERFLOW});
  add("block_list_size without block_lists", [](auto& p) { p.block_list_size = 1; },
      {PKV_INVALID_ARGUMENT});
  const auto add_lists = [](World& world, pkv_attention_params& p) {
    p.block_list_size = 2;
    p.block_lists = world.keep_list(std::vector<uint32_t>(2 * 4 * kv_heads, PKV_NO_BLOCK));
  };
  with("block lists", add_lists, {PKV_OK});
  with("block lists of size 0",
       [=](World& world, auto& p) { add_lists(world, p), p.block_list_size = 0; }, {PKV_OK});
  for (const uint64_t size : {uint64_t{1} << 58, uint64_t{1} << 62, UINT64_MAX})
    with("block lists of a size beyond memory",
         [=](World& world, auto& p) { add_lists(world, p), p.block_list_size = size; },
         {PKV_OVERFLOW});
  with("a block behind the end",
       [=](World& world, auto& p) {
         add_lists(world, p), const_cast<uint32_t*>(p.block_lists)[0] = 2;
       },
       {PKV_OUT_OF_RANGE});
  with("a block twice",
       [=](World& world, auto& p) {
         add_lists(world, p);
         auto* const list = const_cast<uint32_t*>(p.block_lists);
         list[0] = list[1] = 0;
       },
       {PKV_INVALID_ARGUMENT});
  with("block lists and top_blocks",
       [=](World& world, auto& p) { add_lists(world, p), p.top_blocks = 1; },
       {PKV_INVALID_ARGUMENT});
  with("block lists and a window",
       [=](World& world, auto& p) { add_lists(world, p), p.window = 5; }, {PKV_OK});
  with("block lists and a tree",
       [=](World& world, auto& p) {
         add_lists(world, p), p.parents = world.keep_list<int32_t>({-1, 0, 0, -1});
       },
       {PKV_OK});
  with("block lists and a tree whose parents come later",
       [=](World& world, auto& p) {
         add_lists(world, p), p.parents = world.keep_list<int32_t>({1, 0, 0, -1});
       },
       {PKV_INVALID_ARGUMENT});
  add("choose_together without top_blocks", [](auto& p) { p.choose_together = 1; },
      {PKV_INVALID_ARGUMENT});
  add("choose_together 2", [](auto& p) { p.choose_together = 2; }, {PKV_INVALID_ARGUMENT});
  with("block lists and choose_together",
       [=](World& world, auto& p) { add_lists(world, p), p.choose_together = 1; },
       {PKV_INVALID_ARGUMENT});
  add("reserved 1", [](auto& p) { p.reserved = 1; }, {PKV_INVALID_ARGUMENT});
  const auto windows = [](World& world, std::initializer_list<uint32_t> first) {
    std::vector<uint32_t> list(kv_heads, UINT32_MAX - 1);
    std::copy(first.begin(), first.end(), list.begin());
    return world.keep_list(list);
  };
  with("windows of heads", [=](World& world, auto& p) { p.head_windows = windows(world, {1}); },
       {PKV_OK});
  with("windows and sinks of heads",
       [=](World& world, auto& p) {
         p.head_windows = windows(world, {0}), p.head_sinks = windows(world, {UINT32_MAX});
       },
       {PKV_OK});
  with("sinks of heads and a window",
       [=](World& world, auto& p) { p.head_sinks = windows(world, {0}), p.window = 1; }, {PKV_OK});
  with("block lists and slopes",
       [=](World& world, auto& p) {
         add_lists(world, p);
         p.alibi_slopes = world.keep_list(std::vector<float>(query_heads, 0.5f));
       },
       {PKV_INVALID_ARGUMENT});
  with("chosen_blocks without top_blocks",
       [](World& world, auto& p) {
         p.chosen_blocks = const_cast<uint32_t*>(world.keep_list(std::vector<uint32_t>(8)));
       },
       {PKV_INVALID_ARGUMENT});
  return cases;
}

namespace {

Function attention_row() {
  const auto view = [](World& world) {
    auto value = empty<pkv_kv_view>();
    OK(pkv_cache_kv_view(world.cache, 0, &value));
    return value;
  };
  // There are two sequences on the blocks of one session: 3 queries of 20 positions, and 1 of 5.
  const auto sequences = [](World& world) {
    uint32_t table[4] = {};
    size_t count = 0;
    OK(pkv_session_block_table(world.session, 0, 4, table, &count));
    auto value = empty<pkv_attention_sequences>();
    value.query_heads = query_heads;
    value.count = 2;
    value.query_lengths = world.keep_list<uint32_t>({3, 1});
    value.kv_lengths = world.keep_list<uint64_t>({20, 5});
    value.block_tables = world.keep_list<uint32_t>({table[0], table[1], 0, 0, table[0], 0, 0, 0});
    value.block_table_stride = 4;
    return value;
  };
  const auto params = [](World&) { return made(pkv_attention_params_init); };
  Function row{ROW(pkv_attention),
               {optional(handle(Handle::compute)), config_in<pkv_kv_view>(view, 104),
                config_in<pkv_attention_sequences>(sequences, 48),
                optional(config_in<pkv_attention_params>(params, 16)), rows(4, query_heads),
                rows(4, query_heads)}};
  row.cases = params_cases(3);
  const Wanted invalid = {PKV_INVALID_ARGUMENT}, range = {PKV_OUT_OF_RANGE},
               big = {PKV_OVERFLOW, PKV_OUT_OF_RANGE, PKV_TOO_LARGE};
  const auto in_view = [&](const char* name, std::function<void(pkv_kv_view&)> change,
                           Wanted wanted) {
    row.cases.push_back({name, within(1, std::move(change)), std::move(wanted)});
  };
  const auto in_list = [&](const char* name,
                           std::function<void(World&, pkv_attention_sequences&)> change,
                           Wanted wanted) {
    row.cases.push_back({name, within(2, std::move(change)), std::move(wanted)});
  };
  in_view("dtype 9", [](auto& v) { set_enum(v.dtype, 9); }, invalid);
  in_view("layout 9", [](auto& v) { set_enum(v.layout, 9); }, invalid);
  in_view("value_dtype 9", [](auto& v) { set_enum(v.value_dtype, 9); }, invalid);
  in_view("block_size 0", [](auto& v) { v.block_size = 0; }, invalid);
  in_view("block_size 24", [](auto& v) { v.block_size = 24; }, invalid);
  in_view("no KV heads", [](auto& v) { v.kv_heads = 0; }, invalid);
  in_view("KV heads UINT32_MAX", [](auto& v) { v.kv_heads = UINT32_MAX; },
          {PKV_INVALID_ARGUMENT, PKV_OVERFLOW});
  in_view("key_dim UINT32_MAX - 15", [](auto& v) { v.key_dim = UINT32_MAX - 15; }, invalid);
  in_view("no blocks", [](auto& v) { v.blocks = 0; }, invalid);
  in_view("blocks UINT64_MAX", [](auto& v) { v.blocks = UINT64_MAX; }, {PKV_OVERFLOW});
  in_view("k NULL", [](auto& v) { v.k = nullptr; }, invalid);
  in_view("v NULL", [](auto& v) { v.v = nullptr; }, {PKV_OK});
  in_view("v NULL, value_dim > key_dim", [](auto& v) { v.v = nullptr, v.value_dim = 32; }, invalid);
  in_view(
      "v NULL, another value_dtype", [](auto& v) { v.v = nullptr, v.value_dtype = PKV_F16; },
      invalid);
  in_view("block stride negative", [](auto& v) { v.k_block_stride = -1; }, range);
  in_view("row stride INT64_MAX", [](auto& v) { v.v_row_stride = INT64_MAX, v.block_size = 32; },
          {PKV_OVERFLOW});
  in_view("block stride INT64_MAX", [](auto& v) { v.v_block_stride = INT64_MAX; }, {PKV_OVERFLOW});
  in_view("head stride INT64_MAX", [](auto& v) { v.k_head_stride = INT64_MAX; }, {PKV_OVERFLOW});
  in_list("no query heads", [](World&, auto& s) { s.query_heads = 0; }, invalid);
  in_list("3 query heads", [](World&, auto& s) { s.query_heads = 3; }, invalid);
  in_list(
      "query heads UINT32_MAX - 1", [](World&, auto& s) { s.query_heads = UINT32_MAX - 1; },
      invalid);
  in_list("count 0, NULL",
          [](World&, auto& s) {
            s = {s.struct_size, query_heads, 0, nullptr, nullptr, nullptr, 0, nullptr, nullptr};
          },
          {PKV_OK});
  in_list("count UINT64_MAX", [](World&, auto& s) { s.count = UINT64_MAX; }, big);
  in_list("stride UINT64_MAX", [](World&, auto& s) { s.block_table_stride = UINT64_MAX; }, big);
  in_list("stride 1", [](World&, auto& s) { s.block_table_stride = 1; }, range);
  in_list("query_lengths NULL", [](World&, auto& s) { s.query_lengths = nullptr; }, invalid);
  in_list("kv_lengths NULL", [](World&, auto& s) { s.kv_lengths = nullptr; }, invalid);
  in_list("block_tables NULL", [](World&, auto& s) { s.block_tables = nullptr; }, invalid);
  in_list(
      "more queries than positions",
      [](World& world, auto& s) { s.query_lengths = world.keep_list<uint32_t>({21, 1}); }, range);
  in_list(
      "kv_lengths UINT64_MAX",
      [](World& world, auto& s) { s.kv_lengths = world.keep_list<uint64_t>({20, UINT64_MAX}); },
      range);
  in_list("positions",
          [](World& world, auto& s) {
            s.query_positions = world.keep_list<int64_t>({0, INT64_MAX, 3, 19});
          },
          {PKV_OK});
  in_list(
      "a negative position",
      [](World& world, auto& s) { s.query_positions = world.keep_list<int64_t>({0, 1, -1, 2}); },
      range);
  in_list(
      "positions of a text without any",
      [](World& world, auto& s) {
        s.query_positions = world.keep_list<int64_t>({0, 1, 2, 3});
        s.kv_lengths = world.keep_list<uint64_t>({20, 0});
      },
      range);
  in_list("first rows",
          [](World& world, auto& s) { s.first_rows = world.keep_list<uint32_t>({0, 3}); },
          {PKV_OK});
  in_list(
      "first rows that meet",
      [](World& world, auto& s) { s.first_rows = world.keep_list<uint32_t>({0, 2}); }, invalid);
  in_list(
      "block id beyond",
      [](World& world, auto& s) {
        s.block_tables = world.keep_list<uint32_t>({0, 1, 9, 9, 64, 0, 0, 0});
      },
      range);
  in_list(
      "block id PKV_NO_BLOCK",
      [](World& world, auto& s) {
        s.block_tables = world.keep_list<uint32_t>({0, PKV_NO_BLOCK, 9, 9, 0, 0, 0, 0});
      },
      range);
  return row;
}

Function merge_row() {
  // This lists what can be wrong with one tensor, here with the first of two.
  Arg outs = rows(3, query_heads);
  outs.value = [](World& world) {
    return bits(
        world.keep_list<pkv_tensor>({world.rows(3 * q_floats + 1), world.rows(3 * q_floats)}));
  };
  const Arg lse = pointer([](World& world) {
    return bits(world.keep_list<const float*>({world.keep_list(numbers(3 * query_heads, 5)),
                                               world.keep_list(numbers(3 * query_heads, 6))}));
  });
  Function row{
      ROW(pkv_merge_states),
      {optional(handle(Handle::compute)), number(2), outs, lse, number(3), number(query_heads),
       number(dim), rows(3, query_heads), optional(out<float>(3 * query_heads))}};
  const auto add = [&](const char* name, size_t at, uint64_t by, Wanted wanted) {
    row.cases.push_back(
        {name, [=](World&, Values& values) { values[at] = by; }, std::move(wanted)});
  };
  const Wanted invalid = {PKV_INVALID_ARGUMENT}, big = {PKV_OVERFLOW};
  add("count 0", 1, 0, invalid);
  add("count 2^32", 1, uint64_t{1} << 32, invalid);
  add("count SIZE_MAX", 1, SIZE_MAX, invalid);
  add("one result", 1, 1, {PKV_OK});
  add("no rows", 4, 0, {PKV_OK});
  add("rows SIZE_MAX", 4, SIZE_MAX, big);
  add("rows 2^61", 4, uint64_t{1} << 61, big);
  add("no heads", 5, 0, invalid);
  add("heads UINT32_MAX", 5, UINT32_MAX, invalid);
  for (const uint32_t bad : {0u, 8u, 20u, 592u, UINT32_MAX, UINT32_MAX - 15})
    add("dim not a multiple of 16 up to 576", 6, bad, invalid);
  row.cases.push_back(
      {"second lse NULL",
       [](World&, Values& values) { reinterpret_cast<const float**>(values[3])[1] = nullptr; },
       invalid});
  row.cases.push_back(
      {"second dtype int4",
       [](World&, Values& values) { reinterpret_cast<pkv_tensor*>(values[2])[1].dtype = PKV_INT4; },
       invalid});
  return row;
}

}  // namespace

std::vector<Function> attention_rows() { return {attention_row(), merge_row()}; }

}  // namespace hostile
