// The rows of attention.h.
#include "matrix.h"

namespace hostile {

namespace {

pkv_mask& see(World& world, pkv_attention_params& params, pkv_mask_kind kind, const void* data) {
  pkv_mask* const kept = world.keep(made<pkv_mask>({.kind = kind, .data = data}));
  params.mask = kept;
  return *kept;
}

// Makes a mask with columns.
template <class Element>
pkv_mask& see_columns(World& world, pkv_attention_params& params, pkv_mask_kind kind,
                      Element element) {
  pkv_mask& mask =
      see(world, params, kind, world.keep_list(std::vector<Element>(2 * 3 * 20, element)));
  mask.columns = 20;
  mask.row_stride = 20;
  mask.batch_stride = 3 * 20;
  mask.first_positions = world.keep_list<int64_t>({0, 0});
  return mask;
}

pkv_chosen_blocks& choose(World& world, pkv_attention_params& params) {
  pkv_chosen_blocks* const kept =
      world.keep(made<pkv_chosen_blocks>({.first_blocks = 1, .last_blocks = 1}));
  params.chosen_blocks = kept;
  return *kept;
}

}  // namespace

pkv_mask& see_bits(World& world, pkv_attention_params& params) {
  pkv_mask& mask = see(world, params, PKV_MASK_TREE_BITS, world.keep_list<uint64_t>({1, 3, 7, 1}));
  mask.row_stride = 1;
  mask.positions = world.keep_list<int64_t>({1000, 1001, 1002, 1000});
  return mask;
}

pkv_mask& see_tree(World& world, pkv_attention_params& params) {
  return see(world, params, PKV_MASK_TREE_PARENTS, world.keep_list<int32_t>({-1, 0, 0, -1}));
}

pkv_mask& see_bytes(World& world, pkv_attention_params& params) {
  return see_columns(world, params, PKV_MASK_BYTES, uint8_t{1});
}

// -1.5 everywhere.
pkv_mask& add_halves(World& world, pkv_attention_params& params) {
  return see_columns(world, params, PKV_MASK_F16, uint16_t{0xBE00});
}

pkv_mask& add_floats(World& world, pkv_attention_params& params) {
  pkv_mask& mask = see_columns(world, params, PKV_MASK_F32, -1.5f);
  mask.head_factors = world.keep_list(std::vector<float>(query_heads, 0.5f));
  return mask;
}

pkv_chosen_blocks& choose_top(World& world, pkv_attention_params& params) {
  pkv_chosen_blocks& blocks = choose(world, params);
  blocks.top_blocks = 1;
  return blocks;
}

pkv_chosen_blocks& choose_lists(World& world, pkv_attention_params& params) {
  pkv_chosen_blocks& blocks = choose(world, params);
  blocks.list_blocks = 2;
  std::vector<uint32_t> lists(2 * 4 * kv_heads, PKV_NO_BLOCK_ID);
  for (size_t i = 0; i < lists.size(); i += 2) lists[i] = 0;
  blocks.lists = world.keep_list(lists);
  return blocks;
}

pkv_block_outputs& want_blocks(World& world, pkv_attention_outputs& outputs) {
  pkv_block_outputs* const kept = world.keep(made<pkv_block_outputs>());
  outputs.block_outputs = kept;
  return *kept;
}

pkv_block_outputs& weigh(World& world, pkv_attention_outputs& outputs) {
  pkv_block_outputs& blocks = want_blocks(world, outputs);
  blocks.masses = world.keep_list(std::vector<float>(2 * query_heads * 2));
  blocks.mass_blocks = 2;
  return blocks;
}

Arg attention_outputs() {
  return optional(config_in<pkv_attention_outputs>([](World& world) {
    return made<pkv_attention_outputs>(
        {.lse = world.keep_list(std::vector<float>(4 * query_heads))});
  }));
}

namespace {

// Makes the cases of the parameters at argument `at`, and of the outputs.
class ParamsCases {
 public:
  explicit ParamsCases(size_t at) : at_(at) {}

  void with(const std::string& name, std::function<void(World&, pkv_attention_params&)> change,
            Wanted wanted) {
    all.push_back({name, within(at_, std::move(change)), std::move(wanted)});
  }
  void with_outputs(
      const std::string& name,
      std::function<void(World&, pkv_attention_params&, pkv_attention_outputs&)> change,
      Wanted wanted) {
    all.push_back({name,
                   [at = at_, change = std::move(change)](World& world, Values& values) {
                     change(world, *reinterpret_cast<pkv_attention_params*>(values[at]),
                            *reinterpret_cast<pkv_attention_outputs*>(values[at + 3]));
                   },
                   std::move(wanted)});
  }
  // Adds a case of a struct that the parameters lead to, which `make` makes.
  template <class Struct>
  void in(Struct& (*make)(World&, pkv_attention_params&), const std::string& name,
          std::type_identity_t<std::function<void(World&, Struct&)>> change, Wanted wanted) {
    with(
        name,
        [make, change = std::move(change)](World& world, auto& params) {
          change(world, make(world, params));
        },
        std::move(wanted));
  }
  template <class Struct>
  void add_sizes(Struct& (*make)(World&, pkv_attention_params&), const std::string& name) {
    const uint32_t size = sizeof(Struct);
    for (const uint32_t wrong : {0u, 8u, size - 8, size - 1, size + 1, size + 8, 4096u, UINT32_MAX})
      in(
          make, format("%s: struct_size %u", name.c_str(), wrong),
          [wrong](World&, Struct& value) { value.struct_size = wrong; }, invalid);
  }

  std::vector<Case> all;

 private:
  const size_t at_;
};

void add_columns(ParamsCases& cases, pkv_mask& (*make)(World&, pkv_attention_params&)) {
  cases.in(make, WITH(it.columns = 0), invalid);
  cases.in(make, WITH(it.columns = 7), invalid);
  cases.in(make, WITH(it.columns--; it.first_positions = world.keep_list<int64_t>({1, 1})), fine);
  cases.in(make, WITH(it.columns = UINT64_MAX), overflow);
  cases.in(make, WITH(it.columns = uint64_t{1} << 61), overflow);
  cases.in(make, WITH(it.row_stride = -20), invalid);
  cases.in(make, WITH(it.row_stride = INT64_MAX), overflow);
  cases.in(make, WITH(it.batch_stride = -60), invalid);
  cases.in(make, WITH(it.first_positions = nullptr), fine);
  for (const int64_t bad : {INT64_MIN, int64_t{-20}, int64_t{-16}})
    cases.in(
        make, "mask from position " + std::to_string(bad) + " on",
        [bad](World& world, auto& m) { m.first_positions = world.keep_list<int64_t>({bad, bad}); },
        invalid);
}

void add_masks(ParamsCases& cases) {
  for (const auto make : {see_bits, see_tree, see_bytes, add_halves, add_floats}) {
    cases.in(make, "mask", [](World&, auto&) {}, fine);
    cases.in(make, WITH(it.data = nullptr), invalid);
    cases.add_sizes(make, "mask");
  }
  // The fields of another kind.
  for (const auto make : {see_bits, see_tree}) {
    cases.in(make, WITH(it.columns = 1), invalid);
    cases.in(make, WITH(it.batch_stride = 1), invalid);
    cases.in(make, WITH(it.first_positions = static_cast<const int64_t*>(it.data)), invalid);
    cases.in(make, WITH(it.kind = PKV_MASK_BYTES), invalid);
  }
  for (const auto make : {see_tree, see_bytes, add_floats})
    cases.with(WITH(make(world, it).positions = world.keep_list<int64_t>({9, 9, 9, 9})), invalid);
  // Only a window or slopes need to know where a token is in its text.
  cases.in(see_bits, WITH(it.positions = nullptr), Wanted{PKV_OK, PKV_INVALID_ARGUMENT});
  cases.with(WITH(see_bits(world, it).positions = nullptr; it.window = 5), invalid);
  cases.with(WITH(see_bits(world, it).positions = nullptr;
                  it.kv_head_windows = world.keep_list(std::vector<uint32_t>(kv_heads, 5))),
             invalid);
  cases.with(WITH(see_bits(world, it).positions = nullptr;
                  it.alibi_slopes = world.keep_list(std::vector<float>(query_heads, 0.5f))),
             invalid);
  cases.with(WITH(see_bits(world, it), it.window = 5;
                  it.alibi_slopes = world.keep_list(std::vector<float>(query_heads, 0.5f))),
             fine);
  cases.with(WITH(see_tree(world, it), it.window = 1;
                  it.alibi_slopes = world.keep_list(std::vector<float>(query_heads, 0.5f))),
             fine);
  for (const int64_t bad : {int64_t{-1}, INT64_MIN, int64_t{0}})
    cases.with(
        "bits of a token at position " + std::to_string(bad),
        [bad](World& world, auto& p) {
          see_bits(world, p).positions = world.keep_list<int64_t>({1000, bad, 1000, 1000});
        },
        range);
  cases.with(WITH(see_bits(world, it).positions =
                      world.keep_list<int64_t>({INT64_MAX, INT64_MAX, 1000, INT64_MAX});
                  it.window = 5),
             fine);
  cases.in(see_tree, WITH(it.row_stride = 1), invalid);
  cases.in(see_tree, WITH(it.kind = PKV_MASK_TREE_BITS), invalid);
  for (const pkv_mask_kind kind : {PKV_MASK_TREE_BITS, PKV_MASK_TREE_PARENTS})
    for (const auto make : {see_bytes, add_halves})
      cases.in(
          make, "mask: columns of another kind", [kind](World&, auto& m) { m.kind = kind; },
          invalid);
  cases.in(see_bits, WITH(it.row_stride = 0), invalid);
  cases.with(WITH(see_bits(world, it).data = world.keep_list<uint64_t>({0, 0, 0, 0})), fine);
  // No mask has these sizes. 2^58 words a row would lead out of the address space, and 2^61 would
  // wrap to row 0.
  for (const int64_t words : {(int64_t{1} << 26) + 1, int64_t{1} << 32, int64_t{1} << 58,
                              int64_t{1} << 61, INT64_MAX, int64_t{-1}, INT64_MIN})
    cases.in(
        see_bits, "mask of " + std::to_string(words) + " words",
        [words](World&, auto& m) { m.row_stride = words; }, invalid);
  for (const int32_t bad : {-2, 1, 2, INT32_MAX, INT32_MIN})
    cases.with(
        "parent " + std::to_string(bad) + " of token 1",
        [bad](World& world, auto& p) {
          see_tree(world, p).data = world.keep_list<int32_t>({-1, bad, 0, -1});
        },
        invalid);
  for (const auto make : {see_bytes, add_halves, add_floats}) add_columns(cases, make);
  cases.in(add_floats, WITH(it.columns = uint64_t{1} << 55), overflow);
  // Numbers that are not finite spoil results, no call.
  for (const float odd : {__builtin_nanf(""), __builtin_inff(), -__builtin_inff(), 3e38f})
    cases.with(
        "mask of " + std::to_string(odd),
        [odd](World& world, auto& p) {
          add_floats(world, p).data = world.keep_list(std::vector<float>(2 * 3 * 20, odd));
        },
        fine);
  for (const auto make : {see_bits, see_tree, see_bytes})
    cases.with(
        WITH(make(world, it).head_factors = world.keep_list(std::vector<float>(query_heads, 0.5f))),
        invalid);
  cases.in(add_floats, WITH(it.head_factors = nullptr), fine);
  for (const float bad : {__builtin_nanf(""), __builtin_inff(), -__builtin_inff()})
    cases.with(
        "mask with a factor of " + std::to_string(bad),
        [bad](World& world, auto& p) {
          std::vector<float> factors(query_heads, 0.5f);
          factors.back() = bad;
          add_halves(world, p).head_factors = world.keep_list(factors);
        },
        invalid);
  cases.with(WITH(add_floats(world, it), it.window = 5, it.sink_tokens = 2, it.softcap = 9;
                  it.alibi_slopes = world.keep_list(std::vector<float>(query_heads, 0.5f))),
             fine);
  cases.with(WITH(add_floats(world, it), it.bidirectional = 1), fine);
}

void add_chosen(ParamsCases& cases) {
  // Only a cache chooses blocks.
  const Wanted of_caches{PKV_OK, PKV_UNSUPPORTED};
  cases.in(choose_lists, "block lists", [](World&, auto&) {}, fine);
  cases.in(choose_top, "top", [](World&, auto&) {}, of_caches);
  for (const auto make : {choose_lists, choose_top}) {
    cases.add_sizes(make, "chosen_blocks");
    cases.in(make, WITH(it.top_blocks = 0, it.lists = nullptr), invalid);
    for (const uint32_t tokens : {1u, 2u, UINT32_MAX})
      cases.in(
          make, "tokens_per_choice = " + std::to_string(tokens),
          [tokens](World&, auto& it) { it.tokens_per_choice = tokens; },
          make == choose_top ? of_caches : fine);
  }
  cases.in(choose_lists, WITH(it.top_blocks = 1), invalid);
  cases.in(choose_top, WITH(it.list_blocks = 1), invalid);
  cases.in(choose_lists, WITH(it.first_blocks = it.last_blocks = UINT32_MAX), fine);
  cases.in(choose_lists, WITH(it.first_blocks = it.last_blocks = 0), fine);
  cases.in(choose_lists, WITH(it.list_blocks = 0), fine);
  cases.in(choose_lists, WITH(const_cast<uint32_t*>(it.lists)[0] = 2), range);
  cases.in(choose_lists, WITH(const_cast<uint32_t*>(it.lists)[1] = 0), invalid);
  cases.with(WITH(choose_lists(world, it), it.window = 5), fine);
  cases.with(WITH(choose_lists(world, it), see_tree(world, it)), fine);
  cases.with(WITH(choose_lists(world, it);
                  see_tree(world, it).data = world.keep_list<int32_t>({1, 0, 0, -1})),
             invalid);
  cases.with(WITH(choose_lists(world, it);
                  it.alibi_slopes = world.keep_list(std::vector<float>(query_heads, 0.5f))),
             unsupported);
  cases.with(WITH(choose_lists(world, it), add_halves(world, it)), unsupported);
}

// The name and the change of a case of outputs, which may also change `params`.
#define OUTPUTS(...)                                                             \
  #__VA_ARGS__, []([[maybe_unused]] World& world, [[maybe_unused]] auto& params, \
                   [[maybe_unused]] auto& it) { __VA_ARGS__; }

void add_outputs(ParamsCases& cases) {
  cases.with_outputs(OUTPUTS(it.lse = nullptr), fine);
  cases.with_outputs(OUTPUTS(want_blocks(world, it)), fine);
  for (const uint32_t wrong : {0u, 39u, 41u, UINT32_MAX})
    cases.with_outputs(
        format("outputs: block_outputs: struct_size %u", wrong),
        [wrong](World& world, auto&, auto& it) { want_blocks(world, it).struct_size = wrong; },
        invalid);
  const auto add_chosen = [&](const char* name, auto make, Wanted wanted) {
    cases.with_outputs(
        name,
        [make](World& world, auto& params, auto& it) {
          make(world, params);
          want_blocks(world, it).chosen = world.keep_list(std::vector<uint32_t>(4 * kv_heads));
        },
        std::move(wanted));
  };
  add_chosen("chosen of top_blocks", choose_top, {PKV_OK, PKV_UNSUPPORTED});
  add_chosen("chosen of lists", choose_lists, invalid);
  add_chosen("chosen without a choice", [](World&, auto&) {}, invalid);
  cases.with_outputs(OUTPUTS(weigh(world, it)), fine);
  cases.with_outputs(OUTPUTS(weigh(world, it).masses = nullptr), invalid);
  cases.with_outputs(OUTPUTS(want_blocks(world, it).mass_blocks = 2), invalid);
  cases.with_outputs(OUTPUTS(want_blocks(world, it).mass_queries = 1), invalid);
  cases.with_outputs(OUTPUTS(weigh(world, it).mass_queries = UINT32_MAX), fine);
  cases.with_outputs(OUTPUTS(weigh(world, it).mass_blocks = 0), invalid);
  cases.with_outputs(OUTPUTS(weigh(world, it).mass_blocks = uint64_t{1} << 58), overflow);
  cases.with_outputs(OUTPUTS(weigh(world, it).mass_blocks = uint64_t{1} << 62), overflow);
  cases.with_outputs(OUTPUTS(weigh(world, it).mass_blocks = UINT64_MAX), overflow);
  cases.with_outputs(OUTPUTS(choose_lists(world, params); weigh(world, it)), invalid);
}

void add_windows(ParamsCases& cases) {
  cases.with(WITH(it.window = 1), fine);
  cases.with(WITH(it.window = UINT32_MAX), fine);
  cases.with(WITH(it.sink_tokens = 4), fine);
  cases.with(WITH(it.sink_tokens = PKV_NO_SINK_TOKENS), fine);
  cases.with(WITH(it.sink_tokens = UINT32_MAX - 1, it.window = 1), fine);
  const auto windows = [](World& world, uint32_t first) {
    std::vector<uint32_t> list(kv_heads, UINT32_MAX - 1);
    list[0] = first;
    return world.keep_list(list);
  };
  cases.with(WITH(it.kv_head_windows = windows(world, 1)), fine);
  cases.with(WITH(it.kv_head_windows = windows(world, 0),
                  it.kv_head_sink_tokens = windows(world, PKV_NO_SINK_TOKENS)),
             fine);
  cases.with(WITH(it.kv_head_sink_tokens = windows(world, 0), it.window = 1), fine);
}

}  // namespace

std::vector<Case> attention_cases(size_t at) {
  ParamsCases cases(at);
  cases.with(WITH(it.scale = __builtin_inff()), invalid);
  cases.with(WITH(it.scale = __builtin_nanf("")), invalid);
  cases.with(WITH(it.bidirectional = 1), fine);
  cases.with(WITH(it.bidirectional = 2), invalid);
  cases.with(WITH(it.softcap = -1), invalid);
  cases.with(WITH(it.softcap = __builtin_inff()), invalid);
  cases.with(WITH(it.softcap = __builtin_nanf("")), invalid);
  cases.with(WITH(it.softcap = 50), fine);
  cases.with(WITH(it.alibi_slopes = world.keep_list(std::vector<float>(query_heads, 0.5f));
                  it.sink_logits = world.keep_list(std::vector<float>(query_heads, 1))),
             fine);
  cases.with(WITH(it.alibi_slopes = world.keep_list(std::vector<float>(query_heads, 0.5f));
                  it.bidirectional = 1),
             unsupported);
  cases.with(WITH(it.bidirectional = 1, it.window = 1, it.sink_tokens = 1), fine);
  add_windows(cases);
  add_masks(cases);
  add_chosen(cases);
  add_outputs(cases);
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
    return made<pkv_kv_sequences>(
        {.query_heads = query_heads,
         .count = 2,
         .query_lengths = world.keep_list<uint32_t>({3, 1}),
         .kv_lengths = world.keep_list<uint64_t>({20, 5}),
         .block_tables = world.keep_list<uint32_t>({table[0], table[1], 0, 0, table[0], 0, 0, 0}),
         .block_table_stride = 4});
  };
  const auto params = [](World&) { return made<pkv_attention_params>(); };
  Function row{
      ROW(pkv_kv_attend),
      {optional(handle(Handle::compute)), config_in<pkv_kv_view>(view),
       config_in<pkv_kv_sequences>(sequences), optional(config_in<pkv_attention_params>(params)),
       rows(4, query_heads), rows(4, query_heads), attention_outputs()}};
  row.cases = attention_cases(3);
  // These need two sequences, and the exact length of one.
  const auto in_params = in_struct<pkv_attention_params>(3);
  row.cases.push_back(in_params(WITH(see_bytes(world, it).batch_stride = INT64_MAX), overflow));
  row.cases.push_back(in_params(WITH(see_bytes(world, it).columns--), invalid));
  const Wanted big{PKV_OVERFLOW, PKV_OUT_OF_RANGE};
  const auto in_view = [&](std::string name, std::function<void(World&, pkv_kv_view&)> change,
                           Wanted wanted) { row.add(name, within(1, std::move(change)), wanted); };
  const auto in_list = [&](std::string name, std::function<void(World&, pkv_kv_sequences&)> change,
                           Wanted wanted) { row.add(name, within(2, std::move(change)), wanted); };
  in_view(WITH(it.block_size = 0), invalid);
  in_view(WITH(it.block_size = 24), invalid);
  in_view(WITH(it.kv_heads = 0), invalid);
  in_view(WITH(it.kv_heads = UINT32_MAX), invalid);
  in_view(WITH(it.key_dim = UINT32_MAX - 15), invalid);
  in_view(WITH(it.blocks = 0), invalid);
  in_view(WITH(it.blocks = UINT64_MAX), overflow);
  in_view(WITH(it.k = nullptr), invalid);
  in_view(WITH(it.v = nullptr), invalid);
  in_view(WITH(it.latent = 1), invalid);
  in_view(WITH(it.latent = 2), invalid);
  in_view(WITH(it.v = nullptr, it.latent = 1), fine);
  in_view(WITH(it.v = nullptr, it.latent = 1, it.value_dim = 32), invalid);
  in_view(WITH(it.v = nullptr, it.latent = 1, it.value_dtype = PKV_F16), invalid);
  in_view(WITH(it.dtype = PKV_Q4_0), unsupported);  // the cache has tiles
  in_view(WITH(it.key_dim = dim - 1), invalid);
  in_view(WITH(it.k_block_stride = -1), invalid);
  in_view(WITH(it.v_row_stride = INT64_MAX, it.block_size = 32, it.k_bytes = 0), overflow);
  in_view(WITH(it.v_block_stride = INT64_MAX), overflow);
  in_view(WITH(it.k_head_stride = INT64_MAX), overflow);
  in_list(WITH(it.query_heads = 0), invalid);
  in_list(WITH(it.query_heads = 3), invalid);
  in_list(WITH(it.query_heads = UINT32_MAX - 1), invalid);
  in_list(
      WITH(it = {it.struct_size, query_heads, 0, nullptr, nullptr, nullptr, 0, nullptr, nullptr}),
      fine);
  in_list(WITH(it.count = UINT64_MAX), big);
  in_list(WITH(it.block_table_stride = UINT64_MAX), big);
  in_list(WITH(it.block_table_stride = 1), range);
  in_list(WITH(it.query_lengths = nullptr), invalid);
  in_list(WITH(it.kv_lengths = nullptr), invalid);
  in_list(WITH(it.block_tables = nullptr), invalid);
  in_list(WITH(it.query_lengths = world.keep_list<uint32_t>({21, 1})), range);
  in_list(WITH(it.kv_lengths = world.keep_list<uint64_t>({20, UINT64_MAX})), range);
  in_list(WITH(it.query_positions = world.keep_list<int64_t>({0, INT64_MAX, 3, 19})), fine);
  in_list(WITH(it.query_positions = world.keep_list<int64_t>({0, 1, -1, 2})), range);
  in_list(WITH(it.query_positions = world.keep_list<int64_t>({0, 1, 2, 3});
               it.kv_lengths = world.keep_list<uint64_t>({20, 0})),
          range);
  in_list(WITH(it.first_rows = world.keep_list<uint32_t>({0, 3})), fine);
  in_list(WITH(it.first_rows = world.keep_list<uint32_t>({0, 2})), invalid);
  in_list(WITH(it.block_tables = world.keep_list<uint32_t>({0, 1, 9, 9, 64, 0, 0, 0})), range);
  in_list(WITH(it.block_tables = world.keep_list<uint32_t>({0, PKV_NO_BLOCK_ID, 9, 9, 0, 0, 0, 0})),
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
    row.add(name, set(at, by), std::move(wanted));
  };
  add("count 0", 1, 0, invalid);
  add("count 2^32", 1, uint64_t{1} << 32, invalid);
  add("count SIZE_MAX", 1, SIZE_MAX, invalid);
  add("one result", 1, 1, fine);
  add("no rows", 4, 0, fine);
  add("rows SIZE_MAX", 4, SIZE_MAX, overflow);
  add("rows 2^61", 4, uint64_t{1} << 61, overflow);
  add("no heads", 5, 0, invalid);
  add("heads UINT32_MAX", 5, UINT32_MAX, invalid);
  for (const uint32_t bad : {0u, 577u, 592u, UINT32_MAX, UINT32_MAX - 15})
    add("dim not 1 to 576", 6, bad, invalid);
  for (const uint32_t fewer : {1u, 8u, 15u}) add("fewer dims", 6, fewer, fine);
  row.add(
      "second lse NULL",
      [](World&, Values& values) { reinterpret_cast<const float**>(values[3])[1] = nullptr; },
      invalid);
  row.add(
      "second dtype int4",
      [](World&, Values& values) { reinterpret_cast<pkv_tensor*>(values[2])[1].dtype = PKV_INT4; },
      invalid);
  return row;
}

}  // namespace

std::vector<Function> attention_rows() { return {attention_row(), merge_row()}; }

}  // namespace hostile
