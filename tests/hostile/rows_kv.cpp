// The rows of kv.h.
#include <algorithm>

#include "matrix.h"

namespace hostile {

namespace {

constexpr uint32_t blocks = 4;

// Makes a view of fp32 in the caller's memory.
pkv_kv_view own_memory(World& world) {
  auto view = made<pkv_kv_view>();
  view.layout = PKV_LAYOUT_PLAIN;
  view.block_size = block_size;
  view.kv_heads = kv_heads;
  view.key_dim = view.value_dim = dim;
  view.dtype = PKV_F32;
  view.blocks = blocks;
  for (void** side : {&view.k, &view.v})
    *side = world.room(blocks * block_size * kv_floats * sizeof(float));
  view.k_row_stride = view.v_row_stride = kv_floats;
  view.k_head_stride = view.v_head_stride = dim;
  view.k_block_stride = view.v_block_stride = block_size * kv_floats;
  return view;
}

Change in_view(size_t at, std::function<void(pkv_kv_view&)> change) {
  return within(at, std::move(change));
}

void add_view_cases(Function& row, size_t at, bool writes) {
  const Wanted invalid = {PKV_INVALID_ARGUMENT};
  // What only a write refuses.
  const Wanted of_writes = writes ? invalid : Wanted{PKV_OK};
  const auto add = [&](const char* name, std::function<void(pkv_kv_view&)> change, Wanted wanted) {
    row.cases.push_back({name, in_view(at, std::move(change)), std::move(wanted)});
  };
  add("dtype 9", [](auto& v) { set_enum(v.dtype, 9); }, invalid);
  add("layout 9", [](auto& v) { set_enum(v.layout, 9); }, invalid);
  add("rotation 3", [](auto& v) { set_enum(v.rotation, 3); }, invalid);
  add("rotation HADAMARD", [](auto& v) { v.rotation = PKV_ROTATION_HADAMARD; }, {PKV_OK});
  add(
      "rotation MATRIX without matrices", [](auto& v) { v.rotation = PKV_ROTATION_MATRIX; },
      invalid);
  add(
      "a matrix without rotation", [](auto& v) { v.key_rotation = static_cast<float*>(v.k); },
      invalid);
  add("reserved set", [](auto& v) { v.reserved = 1; }, invalid);
  add("block_size 0", [](auto& v) { v.block_size = 0; }, invalid);
  add("no KV heads", [](auto& v) { v.kv_heads = 0; }, invalid);
  add("no blocks", [](auto& v) { v.blocks = 0; }, invalid);
  add("blocks UINT64_MAX", [](auto& v) { v.blocks = UINT64_MAX; }, {PKV_OVERFLOW});
  add("k NULL", [](auto& v) { v.k = nullptr; }, invalid);
  add("v NULL, values given", [](auto& v) { v.v = nullptr; }, of_writes);
  add("heads overlap", [](auto& v) { v.k_head_stride = dim - 1; }, of_writes);
  add("rows overlap", [](auto& v) { v.v_row_stride = dim; }, of_writes);
  add("blocks overlap", [](auto& v) { v.v_block_stride = 0; }, of_writes);
  add("row stride negative", [](auto& v) { v.k_row_stride = -1; }, {PKV_OUT_OF_RANGE});
  add("block stride INT64_MAX", [](auto& v) { v.k_block_stride = INT64_MAX; }, {PKV_OVERFLOW});
}

Function slots_row(Function row, bool writes) {
  add_view_cases(row, 1, writes);
  for (const int64_t bad : {int64_t{blocks * block_size}, int64_t{-2}, INT64_MIN, INT64_MAX})
    row.cases.push_back(
        {"slot " + std::to_string(bad),
         [bad](World&, Values& values) { reinterpret_cast<int64_t*>(values[3])[1] = bad; },
         {PKV_OUT_OF_RANGE}});
  row.cases.push_back({"padding alone",
                       [](World&, Values& values) {
                         std::fill_n(reinterpret_cast<int64_t*>(values[3]), 3, PKV_NO_SLOT);
                       },
                       {PKV_OK}});
  row.cases.push_back({"no rows", set(2, 0, 3, 0), {PKV_OK}});
  row.cases.push_back({"SIZE_MAX rows", set(2, SIZE_MAX), {PKV_OVERFLOW}});
  row.cases.push_back({"2^61 rows", set(2, uint64_t{1} << 61), {PKV_OVERFLOW}});
  return row;
}

Function write_row() {
  // Two sequences: rows 1 to 3 of the first and row 2 of the second are written.
  const auto sequences = [](World& world) {
    auto value = made<pkv_attention_sequences>();
    value.query_heads = query_heads;
    value.count = 2;
    value.query_lengths = world.keep_list<uint32_t>({3, 1});
    value.kv_lengths = world.keep_list<uint64_t>({20, 5});
    value.block_tables = world.keep_list<uint32_t>({3, 1, 9, 9, 0, 9, 9, 9});
    value.block_table_stride = 4;
    return value;
  };
  Function row{
      ROW(pkv_kv_write),
      {optional(handle(Handle::compute)), config_in<pkv_kv_view>(own_memory),
       config_in<pkv_attention_sequences>(sequences), rows(4, kv_heads), rows(4, kv_heads)}};
  add_view_cases(row, 1, true);
  const auto in_list = [&](const char* name,
                           std::function<void(World&, pkv_attention_sequences&)> change,
                           Wanted wanted) {
    row.cases.push_back({name, within(2, std::move(change)), std::move(wanted)});
  };
  const Wanted range = {PKV_OUT_OF_RANGE};
  in_list(
      "block id beyond",
      [](World& world, auto& s) {
        s.block_tables = world.keep_list<uint32_t>({3, 4, 9, 9, 0, 9, 9, 9});
      },
      range);
  in_list("a block id that is not written to",
          [](World& world, auto& s) {
            s.block_tables = world.keep_list<uint32_t>({9, 1, 9, 9, 0, 9, 9, 9});
          },
          {PKV_OK});
  in_list("stride 1", [](World&, auto& s) { s.block_table_stride = 1; }, range);
  in_list(
      "more rows than positions",
      [](World& world, auto& s) { s.query_lengths = world.keep_list<uint32_t>({21, 1}); }, range);
  in_list(
      "positions of the text",
      [](World& world, auto& s) { s.query_positions = world.keep_list<int64_t>({16, 17, 16, 0}); },
      {PKV_OK});
  in_list(
      "a position behind the text",
      [](World& world, auto& s) { s.query_positions = world.keep_list<int64_t>({16, 20, 16, 0}); },
      range);
  in_list(
      "a negative position",
      [](World& world, auto& s) { s.query_positions = world.keep_list<int64_t>({16, -1, 16, 0}); },
      range);
  in_list("first rows that meet",
          [](World& world, auto& s) { s.first_rows = world.keep_list<uint32_t>({0, 2}); },
          {PKV_INVALID_ARGUMENT});
  in_list("first rows",
          [](World& world, auto& s) { s.first_rows = world.keep_list<uint32_t>({0, 3}); },
          {PKV_OK});
  return row;
}

Function plan_row() {
  Function row{ROW(pkv_kv_view_plan),
               {config_in<pkv_kv_view>(own_memory), number(0), optional(out<unsigned char>(1)),
                out<uint64_t>()}};
  const Wanted invalid = {PKV_INVALID_ARGUMENT};
  const auto add = [&](const char* name, std::function<void(pkv_kv_view&)> change, Wanted wanted) {
    row.cases.push_back({name, in_view(0, std::move(change)), std::move(wanted)});
  };
  add("dtype 0", [](auto& v) { set_enum(v.dtype, 0); }, invalid);
  add("value_dtype 9", [](auto& v) { set_enum(v.value_dtype, 9); }, invalid);
  add(
      "packed, block_size 24", [](auto& v) { v.layout = PKV_LAYOUT_PACKED, v.block_size = 24; },
      invalid);
  add("no blocks", [](auto& v) { v.blocks = 0; }, invalid);
  add("blocks 2^60", [](auto& v) { v.blocks = uint64_t{1} << 60; }, {PKV_OVERFLOW});
  add("KV heads UINT32_MAX", [](auto& v) { v.kv_heads = UINT32_MAX; }, {PKV_OK});
  add("value_dim 0", [](auto& v) { v.value_dim = 0; }, {PKV_OK});
  row.cases.push_back({"latent", set(1, 1), {PKV_OK}});
  row.cases.push_back({"latent 2", set(1, 2), invalid});
  row.cases.push_back({"latent, values wider than keys",
                       [](World&, Values& values) {
                         values[1] = 1;
                         reinterpret_cast<pkv_kv_view*>(values[0])->value_dim = 32;
                       },
                       invalid});
  return row;
}

}  // namespace

std::vector<Function> kv_rows() {
  const Arg view = config_in<pkv_kv_view>(own_memory);
  const Arg compute = optional(handle(Handle::compute));
  const Arg slots = in<int64_t>({0, 17, PKV_NO_SLOT});
  return {plan_row(), write_row(),
          slots_row({ROW(pkv_kv_write_slots),
                     {compute, view, number(3), slots, rows(3, kv_heads), rows(3, kv_heads)}},
                    true),
          slots_row({ROW(pkv_kv_read_slots),
                     {compute, view, number(3), slots, optional(rows(3, kv_heads)),
                      optional(rows(3, kv_heads))}},
                    false)};
}

}  // namespace hostile
