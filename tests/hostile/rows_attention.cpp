// The rows of attention.h.
#include "matrix.h"

namespace hostile {

namespace {

pkv_mask& see(World& world, pkv_attention_params& params, pkv_mask_kind kind, const void* data) {
  auto mask = made<pkv_mask>();
  mask.kind = kind;
  mask.data = data;
  pkv_mask* const kept = world.keep(mask);
  params.mask = kept;
  return *kept;
}

pkv_chosen_blocks& choose(World& world, pkv_attention_params& params) {
  auto blocks = made<pkv_chosen_blocks>();
  blocks.first = blocks.last = 1;
  pkv_chosen_blocks* const kept = world.keep(blocks);
  params.chosen_blocks = kept;
  return *kept;
}

}  // namespace

pkv_mask& see_bits(World& world, pkv_attention_params& params) {
  pkv_mask& mask = see(world, params, PKV_MASK_BITS, world.keep_list<uint64_t>({1, 3, 7, 1}));
  mask.row_stride = 1;
  return mask;
}

pkv_mask& see_tree(World& world, pkv_attention_params& params) {
  return see(world, params, PKV_MASK_PARENTS, world.keep_list<int32_t>({-1, 0, 0, -1}));
}

pkv_mask& see_bytes(World& world, pkv_attention_params& params) {
  pkv_mask& mask =
      see(world, params, PKV_MASK_BYTES, world.keep_list(std::vector<uint8_t>(2 * 3 * 20, 1)));
  mask.columns = 20;
  mask.row_stride = 20;
  mask.batch_stride = 3 * 20;
  mask.first_positions = world.keep_list<int64_t>({0, 0});
  return mask;
}

pkv_chosen_blocks& choose_top(World& world, pkv_attention_params& params) {
  pkv_chosen_blocks& blocks = choose(world, params);
  blocks.top = 1;
  blocks.chosen = world.keep_list(std::vector<uint32_t>(4 * kv_heads));
  return blocks;
}

pkv_chosen_blocks& choose_lists(World& world, pkv_attention_params& params) {
  pkv_chosen_blocks& blocks = choose(world, params);
  blocks.list_size = 2;
  std::vector<uint32_t> lists(2 * 4 * kv_heads, PKV_NO_BLOCK);
  for (size_t i = 0; i < lists.size(); i += 2) lists[i] = 0;
  blocks.lists = world.keep_list(lists);
  return blocks;
}

pkv_block_mass& weigh(World& world, pkv_attention_params& params) {
  auto mass = made<pkv_block_mass>();
  mass.masses = world.keep_list(std::vector<float>(2 * query_heads * 2));
  mass.size = 2;
  pkv_block_mass* const kept = world.keep(mass);
  params.block_mass = kept;
  return *kept;
}

namespace {

// Makes the cases of the parameters at argument `at`.
class ParamsCases {
 public:
  explicit ParamsCases(size_t at) : at_(at) {}

  void add(const std::string& name, std::function<void(pkv_attention_params&)> change,
           Wanted wanted) {
    all.push_back({name, within(at_, std::move(change)), std::move(wanted)});
  }
  void with(const std::string& name, std::function<void(World&, pkv_attention_params&)> change,
            Wanted wanted) {
    all.push_back({name, within(at_, std::move(change)), std::move(wanted)});
  }
  // Adds a case of a struct that the parameters lead to, which `make` makes.
  template <class Struct>
  void in(Struct& (*make)(World&, pkv_attention_params&), const std::string& name,
          std::type_identity_t<std::function<void(Struct&)>> change, Wanted wanted) {
    with(
        name,
        [make, change = std::move(change)](World& world, auto& params) {
          change(make(world, params));
        },
        std::move(wanted));
  }
  template <class Struct>
  void add_sizes(Struct& (*make)(World&, pkv_attention_params&), const std::string& name) {
    const uint32_t size = sizeof(Struct);
    for (const uint32_t wrong : {0u, 8u, size - 8, size - 1, size + 1, size + 8, 4096u, UINT32_MAX})
      in(make, format("%s: struct_size %u", name.c_str(), wrong),
         [wrong](Struct& value) { value.struct_size = wrong; }, {PKV_INVALID_ARGUMENT});
  }

  std::vector<Case> all;

 private:
  const size_t at_;
};

void add_masks(ParamsCases& cases) {
  const Wanted invalid = {PKV_INVALID_ARGUMENT}, range = {PKV_OUT_OF_RANGE}, fine = {PKV_OK};
  for (const auto make : {see_bits, see_tree, see_bytes}) {
    cases.in(make, "mask", [](auto&) {}, fine);
    cases.in(make, "mask: data NULL", [](auto& m) { m.data = nullptr; }, invalid);
    for (const int32_t kind : {0, 4, -1, INT32_MAX, INT32_MIN})
      cases.in(
          make, format("mask: kind %d", kind), [kind](auto& m) { set_enum(m.kind, kind); },
          invalid);
    cases.add_sizes(make, "mask");
  }
  // The fields of another kind.
  for (const auto make : {see_bits, see_tree}) {
    cases.in(make, "mask: columns", [](auto& m) { m.columns = 1; }, invalid);
    cases.in(make, "mask: batch_stride", [](auto& m) { m.batch_stride = 1; }, invalid);
    cases.in(
        make, "mask: first_positions",
        [](auto& m) { m.first_positions = static_cast<const int64_t*>(m.data); }, invalid);
    cases.in(
        make, "mask: words or parents as bytes", [](auto& m) { m.kind = PKV_MASK_BYTES; }, invalid);
  }
  cases.in(see_tree, "mask: row_stride of a tree", [](auto& m) { m.row_stride = 1; }, invalid);
  cases.in(see_tree, "mask: parents as words", [](auto& m) { m.kind = PKV_MASK_BITS; }, invalid);
  for (const pkv_mask_kind kind : {PKV_MASK_BITS, PKV_MASK_PARENTS})
    cases.in(see_bytes, "mask: bytes as another kind", [kind](auto& m) { m.kind = kind; }, invalid);
  cases.in(see_bits, "mask of 0 words", [](auto& m) { m.row_stride = 0; }, invalid);
  cases.with(
      "mask that shows nothing",
      [](World& world, auto& p) {
        see_bits(world, p).data = world.keep_list<uint64_t>({0, 0, 0, 0});
      },
      fine);
  // No mask has these sizes. 2^58 words a row would lead out of the address space, and 2^61 would
  // wrap to row 0.
  for (const int64_t words : {(int64_t{1} << 26) + 1, int64_t{1} << 32, int64_t{1} << 58,
                              int64_t{1} << 61, INT64_MAX, int64_t{-1}, INT64_MIN})
    cases.in(
        see_bits, "mask of " + std::to_string(words) + " words",
        [words](auto& m) { m.row_stride = words; }, range);
  for (const int32_t bad : {-2, 1, 2, INT32_MAX, INT32_MIN})
    cases.with(
        "parent " + std::to_string(bad) + " of token 1",
        [bad](World& world, auto& p) {
          see_tree(world, p).data = world.keep_list<int32_t>({-1, bad, 0, -1});
        },
        invalid);
  cases.in(see_bytes, "mask of bytes without columns", [](auto& m) { m.columns = 0; }, invalid);
  cases.in(see_bytes, "mask of 7 columns", [](auto& m) { m.columns = 7; }, invalid);
  cases.with(
      "mask of bytes from position 1 on, a column less",
      [](World& world, auto& p) {
        pkv_mask& mask = see_bytes(world, p);
        mask.columns--;
        mask.first_positions = world.keep_list<int64_t>({1, 1});
      },
      fine);
  cases.in(see_bytes, "mask of UINT64_MAX columns", [](auto& m) { m.columns = UINT64_MAX; },
           {PKV_OVERFLOW});
  cases.in(see_bytes, "mask of 2^61 columns", [](auto& m) { m.columns = uint64_t{1} << 61; },
           {PKV_OVERFLOW});
  cases.in(see_bytes, "mask of bytes, row_stride -20", [](auto& m) { m.row_stride = -20; }, range);
  cases.in(see_bytes, "mask of bytes, row_stride INT64_MAX",
           [](auto& m) { m.row_stride = INT64_MAX; }, {PKV_OVERFLOW});
  cases.in(
      see_bytes, "mask of bytes, batch_stride -60", [](auto& m) { m.batch_stride = -60; }, range);
  cases.in(
      see_bytes, "mask of bytes, positions NULL", [](auto& m) { m.first_positions = nullptr; },
      fine);
  for (const int64_t bad : {INT64_MIN, int64_t{-20}, int64_t{-16}})
    cases.with(
        "mask of bytes from position " + std::to_string(bad) + " on",
        [bad](World& world, auto& p) {
          see_bytes(world, p).first_positions = world.keep_list<int64_t>({bad, bad});
        },
        invalid);
}

void add_chosen(ParamsCases& cases) {
  const Wanted invalid = {PKV_INVALID_ARGUMENT}, fine = {PKV_OK};
  // Only a cache chooses blocks.
  const Wanted of_caches = {PKV_OK, PKV_UNSUPPORTED};
  cases.in(choose_lists, "block lists", [](auto&) {}, fine);
  cases.in(choose_top, "top", [](auto&) {}, of_caches);
  cases.in(
      choose_top, "top, chosen NULL, together", [](auto& b) { b.chosen = nullptr, b.together = 1; },
      of_caches);
  for (const auto make : {choose_lists, choose_top}) {
    cases.add_sizes(make, "chosen_blocks");
    cases.in(make, "chosen_blocks: reserved 1", [](auto& b) { b.reserved = 1; }, invalid);
    cases.in(
        make, "chosen_blocks: neither top nor lists", [](auto& b) { b.top = 0, b.lists = nullptr; },
        invalid);
    cases.in(make, "chosen_blocks: together 2", [](auto& b) { b.together = 2; }, invalid);
  }
  cases.in(choose_lists, "chosen_blocks: top and lists", [](auto& b) { b.top = 1; }, invalid);
  cases.in(
      choose_lists, "chosen_blocks: lists, together", [](auto& b) { b.together = 1; }, invalid);
  cases.in(
      choose_lists, "chosen_blocks: lists, chosen",
      [](auto& b) { b.chosen = const_cast<uint32_t*>(b.lists); }, invalid);
  cases.in(
      choose_top, "chosen_blocks: list_size without lists", [](auto& b) { b.list_size = 1; },
      invalid);
  cases.in(
      choose_lists, "chosen_blocks: first and last UINT32_MAX",
      [](auto& b) { b.first = b.last = UINT32_MAX; }, fine);
  cases.in(
      choose_lists, "chosen_blocks: first and last 0", [](auto& b) { b.first = b.last = 0; }, fine);
  cases.in(choose_lists, "block lists of size 0", [](auto& b) { b.list_size = 0; }, fine);
  for (const uint64_t size : {uint64_t{1} << 58, uint64_t{1} << 62, UINT64_MAX})
    cases.in(choose_lists, "block lists of a size beyond memory",
             [size](auto& b) { b.list_size = size; }, {PKV_OVERFLOW});
  cases.in(choose_lists, "a block behind the end",
           [](auto& b) { const_cast<uint32_t*>(b.lists)[0] = 2; }, {PKV_OUT_OF_RANGE});
  cases.in(
      choose_lists, "a block twice", [](auto& b) { const_cast<uint32_t*>(b.lists)[1] = 0; },
      invalid);
  cases.with(
      "block lists and a window",
      [](World& world, auto& p) { choose_lists(world, p), p.window = 5; }, fine);
  cases.with(
      "block lists and a tree",
      [](World& world, auto& p) { choose_lists(world, p), see_tree(world, p); }, fine);
  cases.with(
      "block lists and a tree whose parents come later",
      [](World& world, auto& p) {
        choose_lists(world, p);
        see_tree(world, p).data = world.keep_list<int32_t>({1, 0, 0, -1});
      },
      invalid);
  cases.with(
      "block lists and slopes",
      [](World& world, auto& p) {
        choose_lists(world, p);
        p.alibi_slopes = world.keep_list(std::vector<float>(query_heads, 0.5f));
      },
      invalid);
}

void add_mass(ParamsCases& cases) {
  const Wanted invalid = {PKV_INVALID_ARGUMENT}, fine = {PKV_OK};
  cases.in(weigh, "block mass", [](auto&) {}, fine);
  cases.add_sizes(weigh, "block_mass");
  cases.in(weigh, "block_mass: masses NULL", [](auto& m) { m.masses = nullptr; }, invalid);
  cases.in(
      weigh, "block mass of more queries than there are", [](auto& m) { m.queries = UINT32_MAX; },
      fine);
  cases.in(weigh, "block mass of no blocks", [](auto& m) { m.size = 0; }, invalid);
  for (const uint64_t size : {uint64_t{1} << 58, uint64_t{1} << 62, UINT64_MAX})
    cases.in(weigh, "block mass of a size beyond memory", [size](auto& m) { m.size = size; },
             {PKV_OVERFLOW});
  cases.with(
      "block mass and block lists",
      [](World& world, auto& p) { choose_lists(world, p), weigh(world, p); }, invalid);
}

void add_windows(ParamsCases& cases) {
  const Wanted fine = {PKV_OK};
  cases.add("window 1", [](auto& p) { p.window = 1; }, fine);
  cases.add("window UINT32_MAX", [](auto& p) { p.window = UINT32_MAX; }, fine);
  cases.add("sinks without a window", [](auto& p) { p.sinks = 4; }, fine);
  cases.add("no sinks", [](auto& p) { p.sinks = PKV_NO_SINKS; }, fine);
  cases.add(
      "sinks UINT32_MAX - 1, window 1", [](auto& p) { p.sinks = UINT32_MAX - 1, p.window = 1; },
      fine);
  const auto windows = [](World& world, uint32_t first) {
    std::vector<uint32_t> list(kv_heads, UINT32_MAX - 1);
    list[0] = first;
    return world.keep_list(list);
  };
  cases.with(
      "windows of heads", [=](World& world, auto& p) { p.head_windows = windows(world, 1); }, fine);
  cases.with(
      "windows and sinks of heads",
      [=](World& world, auto& p) {
        p.head_windows = windows(world, 0), p.head_sinks = windows(world, PKV_NO_SINKS);
      },
      fine);
  cases.with(
      "sinks of heads and a window",
      [=](World& world, auto& p) { p.head_sinks = windows(world, 0), p.window = 1; }, fine);
}

}  // namespace

std::vector<Case> params_cases(size_t at) {
  ParamsCases cases(at);
  const Wanted invalid = {PKV_INVALID_ARGUMENT}, fine = {PKV_OK};
  cases.add("scale infinite", [](auto& p) { p.scale = __builtin_inff(); }, invalid);
  cases.add("scale NaN", [](auto& p) { p.scale = __builtin_nanf(""); }, invalid);
  cases.add("bidirectional", [](auto& p) { p.bidirectional = 1; }, fine);
  cases.add("bidirectional 2", [](auto& p) { p.bidirectional = 2; }, invalid);
  cases.add("softcap -1", [](auto& p) { p.softcap = -1; }, invalid);
  cases.add("softcap infinite", [](auto& p) { p.softcap = __builtin_inff(); }, invalid);
  cases.add("softcap NaN", [](auto& p) { p.softcap = __builtin_nanf(""); }, invalid);
  cases.add("softcap 50", [](auto& p) { p.softcap = 50; }, fine);
  cases.with(
      "slopes, sink logits, lse",
      [](World& world, auto& p) {
        p.alibi_slopes = world.keep_list(std::vector<float>(query_heads, 0.5f));
        p.sink_logits = world.keep_list(std::vector<float>(query_heads, 1));
        p.lse = world.keep_list(std::vector<float>(4 * query_heads));
      },
      fine);
  add_windows(cases);
  add_masks(cases);
  add_chosen(cases);
  add_mass(cases);
  return cases.all;
}

namespace {

Function attention_row() {
  const auto view = [](World& world) {
    auto value = made<pkv_kv_view>();
    OK(pkv_cache_get_kv_view(world.cache, 0, &value));
    return value;
  };
  // There are two sequences on the blocks of one session: 3 queries of 20 positions, and 1 of 5.
  const auto sequences = [](World& world) {
    uint32_t table[4] = {};
    size_t count = 0;
    OK(pkv_session_get_block_table(world.session, 0, 4, table, &count));
    auto value = made<pkv_attention_sequences>();
    value.query_heads = query_heads;
    value.count = 2;
    value.query_lengths = world.keep_list<uint32_t>({3, 1});
    value.kv_lengths = world.keep_list<uint64_t>({20, 5});
    value.block_tables = world.keep_list<uint32_t>({table[0], table[1], 0, 0, table[0], 0, 0, 0});
    value.block_table_stride = 4;
    return value;
  };
  const auto params = [](World&) { return made<pkv_attention_params>(); };
  Function row{ROW(pkv_attention),
               {optional(handle(Handle::compute)), config_in<pkv_kv_view>(view),
                config_in<pkv_attention_sequences>(sequences),
                optional(config_in<pkv_attention_params>(params)), rows(4, query_heads),
                rows(4, query_heads)}};
  row.cases = params_cases(3);
  // These need two sequences, and the exact length of one.
  row.cases.push_back(
      {"mask of bytes, batch_stride INT64_MAX",
       within<pkv_attention_params>(
           3, [](World& world, auto& p) { see_bytes(world, p).batch_stride = INT64_MAX; }),
       {PKV_OVERFLOW}});
  row.cases.push_back({"mask of bytes, a column too few",
                       within<pkv_attention_params>(
                           3, [](World& world, auto& p) { see_bytes(world, p).columns--; }),
                       {PKV_INVALID_ARGUMENT}});
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
      ROW(pkv_attention_merge),
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
