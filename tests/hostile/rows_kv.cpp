// The rows of kv.h.
#include <algorithm>

#include "matrix.h"

namespace hostile {

namespace {

constexpr uint32_t blocks = 4;

// Makes a view of fp32 in the caller's memory.
pkv_kv_view own_memory(World& world) {
  auto view = made<pkv_kv_view>({.layout = PKV_LAYOUT_PLAIN,
                                 .block_size = block_size,
                                 .kv_heads = kv_heads,
                                 .key_dim = dim,
                                 .value_dim = dim,
                                 .dtype = PKV_F32,
                                 .blocks = blocks});
  for (void** side : {&view.k, &view.v})
    *side = world.room(blocks * block_size * kv_floats * sizeof(float));
  view.k_row_stride = view.v_row_stride = kv_floats;
  view.k_head_stride = view.v_head_stride = dim;
  view.k_block_stride = view.v_block_stride = block_size * kv_floats;
  return view;
}

void add_view_cases(Function& row, size_t at, bool writes) {
  // Cases that only a write refuses.
  const Wanted of_writes = writes ? invalid : fine;
  const auto add = [&](std::string name, std::function<void(World&, pkv_kv_view&)> change,
                       Wanted wanted) { row.add(name, within(at, std::move(change)), wanted); };
  add(WITH(it.rotation = PKV_ROTATION_HADAMARD), fine);
  add(WITH(it.rotation_matrices = &unit_matrices(world)), fine);
  add(WITH(it.rotation_matrices = &unit_matrices(world); it.rotation = PKV_ROTATION_HADAMARD),
      invalid);
  add(WITH(auto& matrices = unit_matrices(world); matrices.key = matrices.value = nullptr;
           it.rotation_matrices = &matrices),
      invalid);
  add(WITH(auto& matrices = unit_matrices(world); matrices.struct_size--;
           it.rotation_matrices = &matrices),
      invalid);
  add(WITH(it.latent = 1), invalid);
  add(WITH(it.latent = 2), invalid);
  add(WITH(it.dtype = PKV_Q8_0), invalid);  // no multiple of 32 dims
  add(WITH(it.layout = PKV_LAYOUT_PACKED, it.value_dtype = PKV_Q4_0), unsupported);
  add(WITH(it.key_dim = 0), invalid);
  add(WITH(it.key_dim = 577), invalid);
  add(WITH(it.key_dim = 3, it.value_dim = dim - 1), fine);
  add(WITH(it.dtype = it.value_dtype = PKV_INT8, it.key_dim = dim - 1), invalid);
  add(WITH(it.value_dim = dim - 1, it.rotation = PKV_ROTATION_HADAMARD), invalid);
  add(WITH(it.layout = PKV_LAYOUT_PACKED, it.key_dim = dim - 1), invalid);
  add(WITH(it.block_size = 0), invalid);
  add(WITH(it.kv_heads = 0), invalid);
  add(WITH(it.blocks = 0), invalid);
  add(WITH(it.blocks = UINT64_MAX), overflow);
  add(WITH(it.k = nullptr), invalid);
  add(WITH(it.v = nullptr), invalid);
  add(WITH(it.v = nullptr, it.latent = 1), of_writes);
  add(WITH(it.k_head_stride = dim - 1), of_writes);
  add(WITH(it.v_row_stride = dim), of_writes);
  add(WITH(it.v_block_stride = 0), of_writes);
  add(WITH(it.k_row_stride = -1), invalid);
  const uint64_t bytes = blocks * block_size * kv_floats * sizeof(float);
  add(WITH(it.k_bytes = it.v_bytes = bytes), fine);
  add(WITH(it.k_bytes = bytes - 1), invalid);
  add(WITH(it.v_bytes = bytes - 1), invalid);
  add(WITH(it.k_bytes = bytes, it.blocks = blocks + 1), invalid);
  add(WITH(it.v_bytes = bytes, it.v_block_stride++), invalid);
  add(WITH(it.k_bytes = it.v_bytes = UINT64_MAX), fine);
  add(WITH(it.k_block_stride = INT64_MAX), overflow);
}

Function slots_row(Function row, bool writes) {
  add_view_cases(row, 1, writes);
  for (const int64_t bad : {int64_t{blocks * block_size}, int64_t{-2}, INT64_MIN, INT64_MAX})
    row.add(
        "slot " + std::to_string(bad),
        [bad](World&, Values& values) { reinterpret_cast<int64_t*>(values[3])[1] = bad; }, range);
  row.add(
      "padding alone",
      [](World&, Values& values) {
        std::fill_n(reinterpret_cast<int64_t*>(values[3]), 3, PKV_NO_SLOT);
      },
      fine);
  row.add("no rows", set(2, 0, 3, 0), fine);
  row.add("SIZE_MAX rows", set(2, SIZE_MAX), overflow);
  row.add("2^61 rows", set(2, uint64_t{1} << 61), overflow);
  return row;
}

// Two sequences: three rows of the first and one of the second are copied.
Function positions_row(Function row, bool writes) {
  const auto sequences = [](World& world) {
    return made<pkv_kv_sequences>(
        {.query_heads = query_heads,
         .count = 2,
         .query_lengths = world.keep_list<uint32_t>({3, 1}),
         .kv_lengths = world.keep_list<uint64_t>({20, 5}),
         .block_tables = world.keep_list<uint32_t>({3, 1, 9, 9, 0, 9, 9, 9}),
         .block_table_stride = 4});
  };
  row.args.insert(row.args.begin(),
                  {optional(handle(Handle::compute)), config_in<pkv_kv_view>(own_memory),
                   config_in<pkv_kv_sequences>(sequences)});
  add_view_cases(row, 1, writes);
  const auto in_list = [&](std::string name, std::function<void(World&, pkv_kv_sequences&)> change,
                           Wanted wanted) { row.add(name, within(2, std::move(change)), wanted); };
  in_list(WITH(it.block_tables = world.keep_list<uint32_t>({3, 4, 9, 9, 0, 9, 9, 9})), range);
  in_list(WITH(it.block_tables = world.keep_list<uint32_t>({9, 1, 9, 9, 0, 9, 9, 9})), fine);
  in_list(WITH(it.block_table_stride = 1), range);
  in_list(WITH(it.query_lengths = world.keep_list<uint32_t>({21, 1})), range);
  in_list(WITH(it.query_positions = world.keep_list<int64_t>({16, 17, 16, 0})), fine);
  in_list(WITH(it.query_positions = world.keep_list<int64_t>({16, 20, 16, 0})), range);
  in_list(WITH(it.query_positions = world.keep_list<int64_t>({16, -1, 16, 0})), range);
  in_list(WITH(it.first_rows = world.keep_list<uint32_t>({0, 2})), invalid);
  in_list(WITH(it.first_rows = world.keep_list<uint32_t>({0, 3})), fine);
  return row;
}

Function plan_row() {
  Function row{ROW(pkv_kv_view_init), {config_in<pkv_kv_view>(own_memory), out<uint64_t>()}};
  const auto add = [&](std::string name, std::function<void(World&, pkv_kv_view&)> change,
                       Wanted wanted) { row.add(name, within(0, std::move(change)), wanted); };
  add(WITH(it.layout = PKV_LAYOUT_PACKED, it.block_size = 24), invalid);
  add(WITH(it.blocks = 0), invalid);
  add(WITH(it.blocks = uint64_t{1} << 60), overflow);
  add(WITH(it.kv_heads = UINT32_MAX), fine);
  add(WITH(it.value_dim = 0), fine);
  add(WITH(it.latent = 1), fine);
  add(WITH(it.latent = 2), invalid);
  add(WITH(it.latent = 1, it.value_dim = 32), invalid);
  add(WITH(it.dtype = PKV_Q4_0, it.key_dim = it.value_dim = 32), fine);
  add(WITH(it.layout = PKV_LAYOUT_PACKED, it.dtype = PKV_Q4_0), unsupported);
  add(WITH(it.key_dim = dim + 1), fine);
  return row;
}

}  // namespace

pkv_rotation_matrices& unit_matrices(World& world) {
  std::vector<float> matrix(dim * dim);
  for (size_t i = 0; i < dim; i++) matrix[i * (dim + 1)] = 1;
  const float* const kept = world.keep_list(matrix);
  return *world.keep(made<pkv_rotation_matrices>({.key = kept, .value = kept}));
}

std::vector<Function> kv_rows() {
  const Arg view = config_in<pkv_kv_view>(own_memory);
  const Arg compute = optional(handle(Handle::compute));
  const Arg slots = in<int64_t>({0, 17, PKV_NO_SLOT});
  const Arg four = rows(4, kv_heads);
  return {plan_row(), positions_row({ROW(pkv_kv_write), {four, four}}, true),
          positions_row({ROW(pkv_kv_read), {optional(four), optional(four)}}, false),
          slots_row({ROW(pkv_kv_write_slots),
                     {compute, view, number(3), slots, rows(3, kv_heads), rows(3, kv_heads)}},
                    true),
          slots_row({ROW(pkv_kv_read_slots),
                     {compute, view, number(3), slots, optional(rows(3, kv_heads)),
                      optional(rows(3, kv_heads))}},
                    false)};
}

}  // namespace hostile
