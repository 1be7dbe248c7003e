// Rows of batch.h and of pkv_attention.
#include "matrix.h"

namespace hostile {

namespace {

using Change = std::function<void(World&, Values&)>;

Change set(size_t at, uint64_t by) {
  return [=](World&, Values& values) { values[at] = by; };
}

Change sessions(std::function<std::vector<pkv_session>(World&)> list) {
  return [list](World& world, Values& values) {
    const std::vector<pkv_session> all = list(world);
    values[1] = all.size();
    values[2] = bits(world.keep_list(all));
  };
}

Change new_tokens(uint32_t n) {
  return [n](World& world, Values& values) { values[3] = bits(world.keep(n)); };
}

Function begin_row() {
  Arg session = handle(Handle::session);
  // The handle stands in a list.
  Arg list{[](World& world) { return bits(world.keep(world.session)); }, {}, Handle::session};
  list.misuses.push_back({"NULL", [](World&, uint64_t& value) { value = 0; }, {PKV_INVALID_ARGUMENT}});
  for (const Misuse& misuse : session.misuses)
    list.misuses.push_back({"entry: " + misuse.name, [misuse](World& world, uint64_t& value) {
      misuse.apply(world, *reinterpret_cast<uint64_t*>(value));
    }, misuse.wanted});
  Function row{ROW(pkv_batch_begin),
               {handle(Handle::cache), number(1), list, in<uint32_t>({2}), optional(out<uint64_t>()), out<pkv_batch>()}};
  row.undo = [](World&, const Values& values) { OK(pkv_batch_abort(*reinterpret_cast<pkv_batch*>(values[5]))); };
  row.cases = {
      {"no session", set(1, 0), {PKV_OK}},
      {"no session, NULL", [](World&, Values& values) { values[1] = values[2] = values[3] = 0; }, {PKV_OK}},
      {"count SIZE_MAX", set(1, SIZE_MAX), {PKV_OVERFLOW}},
      {"count 2^61", set(1, size_t{1} << 61), {PKV_OVERFLOW}},
      {"twice in the list", sessions([](World& w) { return std::vector{w.session, w.session}; }), {PKV_BUSY}},
      {"in another batch", sessions([](World& w) { return std::vector{w.session, w.stepping}; }), {PKV_BUSY}},
      {"of another cache", sessions([](World& w) { return std::vector{w.session, w.foreign}; }), {PKV_WRONG_CACHE}},
      {"the other cache", [](World& w, Values& values) { values[0] = bits(w.other); }, {PKV_WRONG_CACHE}},
      {"a closed one", sessions([](World& w) { return std::vector{w.session, w.closed_session}; }), {PKV_STALE_HANDLE}},
      {"no new tokens", new_tokens(0), {PKV_OK}},
      {"more than there is", new_tokens(1005), {PKV_TOO_LARGE}},
      {"UINT32_MAX tokens", new_tokens(UINT32_MAX), {PKV_TOO_LARGE, PKV_OVERFLOW}},
  };
  return row;
}


Function attention_row() {
  const auto view = [](World& world) {
    auto value = empty<pkv_kv_view>();
    OK(pkv_cache_kv_view(world.cache, 0, &value));
    return value;
  };
  // Two sequences on the blocks of one session: 3 queries of 20 positions, and 1 of 5.
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
               {config_in<pkv_kv_view>(view, sizeof(pkv_kv_view)), config_in<pkv_attention_sequences>(sequences, sizeof(pkv_attention_sequences), {PKV_INVALID_ARGUMENT}),
                optional(config_in<pkv_attention_params>(params, 12, {PKV_OK})), rows(4, query_heads), rows(4, query_heads)}};
  const Wanted invalid = {PKV_INVALID_ARGUMENT}, range = {PKV_OUT_OF_RANGE}, big = {PKV_OVERFLOW, PKV_OUT_OF_RANGE, PKV_TOO_LARGE};
  const auto in_view = [&](const char* name, std::function<void(pkv_kv_view&)> change, Wanted wanted) {
    row.cases.push_back({name, [change](World&, Values& values) { change(*reinterpret_cast<pkv_kv_view*>(values[0])); }, std::move(wanted)});
  };
  const auto in_list = [&](const char* name, std::function<void(World&, pkv_attention_sequences&)> change, Wanted wanted) {
    row.cases.push_back({name, [change](World& world, Values& values) { change(world, *reinterpret_cast<pkv_attention_sequences*>(values[1])); }, std::move(wanted)});
  };
  in_view("dtype 9", [](auto& v) { set_enum(v.dtype, 9); }, invalid);
  in_view("layout 9", [](auto& v) { set_enum(v.layout, 9); }, invalid);
  in_view("reserved set", [](auto& v) { v.reserved = 1; }, invalid);
  in_view("block_size 0", [](auto& v) { v.block_size = 0; }, invalid);
  in_view("block_size 24", [](auto& v) { v.block_size = 24; }, invalid);
  in_view("no KV heads", [](auto& v) { v.kv_heads = 0; }, invalid);
  in_view("KV heads UINT32_MAX", [](auto& v) { v.kv_heads = UINT32_MAX; }, {PKV_INVALID_ARGUMENT, PKV_OVERFLOW});
  in_view("key_dim UINT32_MAX - 15", [](auto& v) { v.key_dim = UINT32_MAX - 15; }, invalid);
  in_view("no blocks", [](auto& v) { v.blocks = 0; }, invalid);
  in_view("blocks UINT64_MAX", [](auto& v) { v.blocks = UINT64_MAX; }, {PKV_OVERFLOW});
  in_view("k NULL", [](auto& v) { v.k = nullptr; }, invalid);
  in_view("v NULL", [](auto& v) { v.v = nullptr; }, invalid);
  in_view("block stride negative", [](auto& v) { v.k_block_stride = -1; }, range);
  in_view("row stride INT64_MAX", [](auto& v) { v.v_row_stride = INT64_MAX, v.block_size = 32; }, {PKV_OVERFLOW});
  in_view("block stride INT64_MAX", [](auto& v) { v.v_block_stride = INT64_MAX; }, {PKV_OVERFLOW});
  in_view("head stride INT64_MAX", [](auto& v) { v.k_head_stride = INT64_MAX; }, {PKV_OVERFLOW});
  in_list("no query heads", [](World&, auto& s) { s.query_heads = 0; }, invalid);
  in_list("3 query heads", [](World&, auto& s) { s.query_heads = 3; }, invalid);
  in_list("query heads UINT32_MAX - 1", [](World&, auto& s) { s.query_heads = UINT32_MAX - 1; }, invalid);
  in_list("count 0, NULL", [](World&, auto& s) { s = {s.struct_size, query_heads, 0, nullptr, nullptr, nullptr, 0}; }, {PKV_OK});
  in_list("count UINT64_MAX", [](World&, auto& s) { s.count = UINT64_MAX; }, big);
  in_list("stride UINT64_MAX", [](World&, auto& s) { s.block_table_stride = UINT64_MAX; }, big);
  in_list("stride 1", [](World&, auto& s) { s.block_table_stride = 1; }, range);
  in_list("query_lengths NULL", [](World&, auto& s) { s.query_lengths = nullptr; }, invalid);
  in_list("kv_lengths NULL", [](World&, auto& s) { s.kv_lengths = nullptr; }, invalid);
  in_list("block_tables NULL", [](World&, auto& s) { s.block_tables = nullptr; }, invalid);
  in_list("more queries than positions", [](World& w, auto& s) { s.query_lengths = w.keep_list<uint32_t>({21, 1}); }, range);
  in_list("kv_lengths UINT64_MAX", [](World& w, auto& s) { s.kv_lengths = w.keep_list<uint64_t>({20, UINT64_MAX}); }, range);
  in_list("block id beyond", [](World& w, auto& s) { s.block_tables = w.keep_list<uint32_t>({0, 1, 9, 9, 64, 0, 0, 0}); }, range);
  in_list("block id PKV_NO_BLOCK", [](World& w, auto& s) { s.block_tables = w.keep_list<uint32_t>({0, PKV_NO_BLOCK, 9, 9, 0, 0, 0, 0}); }, range);
  return row;
}

// Each parameter of attention that can be wrong.
std::vector<Case> params_cases(size_t at) {
  std::vector<Case> cases;
  const auto add = [&](const char* name, std::function<void(pkv_attention_params&)> change, Wanted wanted) {
    cases.push_back({name, [change, at](World&, Values& values) { change(*reinterpret_cast<pkv_attention_params*>(values[at])); }, std::move(wanted)});
  };
  add("scale infinite", [](auto& p) { p.scale = __builtin_inff(); }, {PKV_INVALID_ARGUMENT});
  add("scale NaN", [](auto& p) { p.scale = __builtin_nanf(""); }, {PKV_INVALID_ARGUMENT});
  add("causal 2", [](auto& p) { p.causal = 2; }, {PKV_INVALID_ARGUMENT});
  add("window 1", [](auto& p) { p.window = 1; }, {PKV_OK});
  add("window UINT32_MAX - 1", [](auto& p) { p.window = UINT32_MAX - 1; }, {PKV_OK});
  return cases;
}

// A batch of the world that is not written yet.
pkv_batch fresh_batch(World& world) {
  pkv_batch fresh = nullptr;
  const uint32_t three = 3;
  OK(pkv_batch_begin(world.cache, 1, &world.session, &three, nullptr, &fresh));
  world.more_batches.push_back(fresh);
  return fresh;
}

}  // namespace

std::vector<Function> batch_rows() {
  const Arg batch = handle(Handle::batch);
  const Arg layer = index(1, layers), group = index(0, 1);
  const auto params = [](World&) { return made(pkv_attention_params_init); };
  const Case unwritten{"no layer written", [](World& world, Values& values) { values[0] = bits(fresh_batch(world)); }, {PKV_INCOMPLETE}};

  Function count{ROW(pkv_batch_rows), {batch, out<size_t>()}};
  Function write{ROW(pkv_batch_write), {batch, layer, rows(3, kv_heads), rows(3, kv_heads)}};
  Function attend{ROW(pkv_batch_attend),
                  {batch, layer, optional(config_in<pkv_attention_params>(params, 12, {PKV_OK})), rows(3, query_heads), rows(3, query_heads)},
                  params_cases(2)};
  attend.cases.push_back(unwritten);
  Function commit{ROW(pkv_batch_commit), {batch, optional(in<int32_t>({1, 2, 3}))}, {unwritten}};
  Function abort{ROW(pkv_batch_abort), {handle(Handle::batch, true)}};
  abort.closes = true;
  Function slots{ROW(pkv_batch_slot_mapping), {batch, group, number(64), out<int64_t>(64), out<size_t>()}};
  slots.cases = {{"capacity SIZE_MAX", set(2, SIZE_MAX), {PKV_OVERFLOW}}, {"just enough", set(2, 3), {PKV_OK}}};
  Function indices{ROW(pkv_batch_kv_indices),
                   {batch, group, enumeration(PKV_INDEX_SLOTS, {0, 3, -1, INT32_MAX}), out<int64_t>(2), number(64), out<int64_t>(64),
                    out<size_t>(), optional(out<uint32_t>())}};
  indices.cases = {{"capacity SIZE_MAX", set(4, SIZE_MAX), {PKV_OVERFLOW}}, {"just enough", set(4, 8), {PKV_OK}}};
  Function copies{ROW(pkv_batch_block_copies), {batch, group, number(64), out<uint32_t>(64), out<uint32_t>(64), out<size_t>()}};
  copies.cases = {{"capacity SIZE_MAX", set(2, SIZE_MAX), {PKV_OVERFLOW}}};
  Function begin = begin_row(), attention = attention_row();
  for (const Case& one : params_cases(2)) attention.cases.push_back(one);
  return {begin, count, write, attend, commit, abort, slots, copies, indices, attention};
}

}  // namespace hostile
