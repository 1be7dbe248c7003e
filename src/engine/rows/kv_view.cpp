// Checks views field by field, and computes strides.
#include "engine/rows/kv_view.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/checked.h"
#include "base/enums.h"
#include "base/status.h"
#include "base/structs.h"
#include "engine/memory/layout.h"
#include "engine/memory/rotation.h"
#include "kernels/kernels.h"
#include "kernels/tile_layout.h"

namespace pkv::rows {

namespace {

void check_dim(uint32_t dim, pkv_dtype dtype, pkv_layout layout, const char* name) {
  const uint32_t unit = kernels::is_in_blocks(dtype) ? kernels::block_dims
                        : layout == PKV_LAYOUT_PLAIN && kernels::dtype_of_rows(dtype) ? 1
                                                                                      : 16;
  if (dim >= unit && dim <= kernels::max_dim && dim % unit == 0) return;
  if (unit == 1)
    fail(PKV_INVALID_ARGUMENT, "kv: %s is %u; it must be 1 to %u", name, dim, kernels::max_dim);
  fail(PKV_INVALID_ARGUMENT,
       "kv: %s is %u; with %s in layout %s it must be a multiple of %u, to %u", name, dim,
       enum_name(dtype), enum_name(layout), unit, kernels::max_dim);
}

void check_dtype(pkv_dtype dtype, pkv_layout layout, const char* name) {
  check_enum(dtype, name, "kv");
  if (!kernels::dtype_stored(dtype) && layout != PKV_LAYOUT_PLAIN)
    fail(PKV_UNSUPPORTED, "kv: %s is %s, which only layout PLAIN can have; the layout is %s", name,
         enum_name(dtype), enum_name(layout));
}

// K or V of a view.
struct Side {
  int64_t block, row, head;  // strides
  pkv_dtype dtype;
  uint32_t dim;
  uint64_t bytes;  // 0: not known
  const char* name;
};

Side key_side(const pkv_kv_view& kv) {
  return {kv.k_block_stride, kv.k_row_stride, kv.k_head_stride, kv.dtype, kv.key_dim,
          kv.k_bytes,        "kv.k"};
}

Side value_side(const pkv_kv_view& kv) {
  return {kv.v_block_stride,
          kv.v_row_stride,
          kv.v_head_stride,
          kv.value_dtype != 0 ? kv.value_dtype : kv.dtype,
          kv.value_dim,
          kv.v_bytes,
          "kv.v"};
}

// Returns the bytes from the beginning of K or V to its end. Throws if a stride is negative, or the
// offset of a byte overflows.
uint64_t reach_of(const pkv_kv_view& kv, const Side& side) {
  if (side.block < 0 || side.row < 0 || side.head < 0)
    fail(PKV_INVALID_ARGUMENT, "%s: negative stride (block %lld, row %lld, head %lld)", side.name,
         (long long)side.block, (long long)side.row, (long long)side.head);
  // Every stride is converted to bytes, even if it is not used because there is only one block, row
  // or head. So each stride must fit by itself.
  const unsigned unit = kernels::stride_unit(side.dtype);
  for (const int64_t stride : {side.block, side.row, side.head})
    if (stride > INT64_MAX / unit)
      fail(PKV_OVERFLOW, "%s: a stride of %lld elements is beyond 2^63 bytes", side.name,
           (long long)stride);
  const bool packed = kv.layout == PKV_LAYOUT_PACKED;
  const uint64_t rows = packed ? kv.block_size / kernels::tile_tokens : kv.block_size;
  uint64_t reach = (packed ? kernels::tile_bytes : kernels::row_bytes)(side.dtype, side.dim) / unit;
  for (const auto& [count, stride] : {std::pair{kv.blocks, side.block}, std::pair{rows, side.row},
                                      std::pair{uint64_t{kv.kv_heads}, side.head}})
    reach = checked_add(reach, checked_mul(count - 1, static_cast<uint64_t>(stride), side.name),
                        side.name);
  return checked_bytes(reach, unit, side.name);
}

void check_strides(const pkv_kv_view& kv, const Side& side) {
  const uint64_t reach = reach_of(kv, side);
  if (side.bytes != 0 && reach > side.bytes)
    fail(PKV_INVALID_ARGUMENT,
         "%s: with these strides it reaches over %llu bytes; %s_bytes is %llu", side.name,
         llu(reach), side.name, llu(side.bytes));
}

// What is left to know of a shape once it was checked.
struct CheckedShape {
  pkv_dtype value_dtype;
  memory::GivenRotation rotation;
};

// Checks the fields that describe the arrangement of K and V, except addresses and strides.
CheckedShape check_shape(const pkv_kv_view& kv) {
  const pkv_dtype value_dtype = kv.value_dtype == 0 ? kv.dtype : kv.value_dtype;
  check_enum(kv.layout, "layout", "kv");
  check_dtype(kv.dtype, kv.layout, "dtype");
  check_dtype(value_dtype, kv.layout, "value_dtype");
  if (kv.block_size == 0 ||
      (kv.layout == PKV_LAYOUT_PACKED && kv.block_size % kernels::tile_tokens != 0))
    fail(PKV_INVALID_ARGUMENT, "kv: block_size is %u; it must be %s", kv.block_size,
         kv.layout == PKV_LAYOUT_PACKED ? "a multiple of 16" : "1 or more");
  if (kv.kv_heads == 0 || kv.blocks == 0) fail(PKV_INVALID_ARGUMENT, "kv: kv_heads or blocks is 0");
  check_dim(kv.key_dim, kv.dtype, kv.layout, "key_dim");
  check_dim(kv.value_dim, value_dtype, kv.layout, "value_dim");
  check_flag(kv.latent, "kv: latent");
  if (kv.latent != 0 && (kv.value_dim > kv.key_dim || value_dtype != kv.dtype))
    fail(PKV_INVALID_ARGUMENT,
         "kv: latent: V is the first value_dim of the %u dims of K, and has its dtype, %s; "
         "value_dim is %u, value_dtype %s",
         kv.key_dim, enum_name(kv.dtype), kv.value_dim, enum_name(value_dtype));
  if ((kv.rotation != PKV_ROTATION_NONE || kv.rotation_matrices != nullptr) &&
      (kv.key_dim % 16 != 0 || kv.value_dim % 16 != 0))
    fail(PKV_INVALID_ARGUMENT,
         "kv: rotated rows need dims that are multiples of 16; key_dim is %u, value_dim %u",
         kv.key_dim, kv.value_dim);
  return {value_dtype, memory::read_rotation(kv.rotation, kv.rotation_matrices, kv.key_dim,
                                             kv.value_dim, kv.latent != 0, "kv")};
}

// Throws if rows cannot be written: they are only read, or overlap. Strides are checked in
// ascending order: each must be at least the size of everything that the smaller strides span.
void check_side_writable(const pkv_kv_view& kv, const kernels::SideView& side, const char* name) {
  const bool packed = kv.layout == PKV_LAYOUT_PACKED;
  struct Axis {
    int64_t stride;
    uint64_t count;
  };
  std::array<Axis, 3> axes = {
      Axis{side.block_stride, kv.blocks},
      Axis{side.row_stride, packed ? kv.block_size / kernels::tile_tokens : kv.block_size},
      Axis{side.head_stride, kv.kv_heads}};
  std::sort(axes.begin(), axes.end(),
            [](const Axis& a, const Axis& b) { return a.stride < b.stride; });
  const auto [dtype, dim] = kernels::format_of(side);
  uint64_t extent = (packed ? kernels::tile_bytes : kernels::row_bytes)(dtype, dim);
  if (!kernels::dtype_stored(dtype))
    fail(PKV_UNSUPPORTED, "%s: rows of %s can be read but not written", name, enum_name(dtype));
  for (const Axis& axis : axes) {
    if (axis.count == 1) continue;
    const auto stride = static_cast<uint64_t>(axis.stride);
    if (stride < extent)
      fail(PKV_INVALID_ARGUMENT,
           "%s: rows overlap, so they cannot be written: a stride of %llu bytes lies in %llu", name,
           llu(stride), llu(extent));
    extent += (axis.count - 1) * stride;
  }
}

// Sets the type in which kernels process rows that they cannot use as stored.
void set_format(kernels::SideView& side) {
  if (kernels::dtype_stored(side.dtype) && side.dim % 16 == 0) return;
  side.in_memory = {side.dtype, side.dim};
  side.dtype = PKV_F32;
  side.dim = kernels::whole_dims(side.dim);
}

}  // namespace

kernels::KvView check_view(const pkv_kv_view& kv) {
  const auto [value_dtype, rotation] = check_shape(kv);
  if (kv.k == nullptr) fail(PKV_INVALID_ARGUMENT, "kv: k is NULL");
  if ((kv.v == nullptr) != (kv.latent != 0))
    fail(PKV_INVALID_ARGUMENT, "kv: v is %s, and latent is %u", kv.v == nullptr ? "NULL" : "set",
         kv.latent);
  check_strides(kv, key_side(kv));
  if (kv.v != nullptr) check_strides(kv, value_side(kv));

  const int64_t key_unit = kernels::stride_unit(kv.dtype),
                value_unit = kernels::stride_unit(value_dtype);
  kernels::KvView view{};
  view.k = {static_cast<unsigned char*>(kv.k),
            kv.k_block_stride * key_unit,
            kv.k_row_stride * key_unit,
            kv.k_head_stride * key_unit,
            kv.dtype,
            kv.key_dim,
            {}};
  // Without V its strides are unchecked and may have any value.
  view.v = {nullptr, 0, 0, 0, value_dtype, kv.value_dim, {}};
  if (kv.v != nullptr)
    view.v = {static_cast<unsigned char*>(kv.v),
              kv.v_block_stride * value_unit,
              kv.v_row_stride * value_unit,
              kv.v_head_stride * value_unit,
              value_dtype,
              kv.value_dim,
              {}};
  memory::set_rotation(view, rotation, kv.v == nullptr);
  set_format(view.k);
  set_format(view.v);
  view.layout = kv.layout;
  view.block_size = kv.block_size;
  view.kv_heads = kv.kv_heads;
  return view;
}

void check_writable(const pkv_kv_view& kv) {
  const kernels::KvView view = check_view(kv);
  check_side_writable(kv, view.k, "kv.k");
  if (view.v.data != nullptr) check_side_writable(kv, view.v, "kv.v");
}

pkv_kv_view plan_view(const pkv_kv_view& given, uint64_t* bytes) {
  pkv_kv_view kv = given;
  if (kv.value_dim == 0) kv.value_dim = kv.key_dim;
  memory::Shape shape{};
  shape.layers = 1;
  shape.kv_heads = kv.kv_heads;
  shape.key_dim = kv.key_dim;
  shape.value_dim = kv.value_dim;
  shape.dtype = kv.dtype;
  shape.value_dtype = check_shape(kv).value_dtype;
  shape.kind = kv.latent != 0 ? PKV_LAYERS_LATENT : PKV_LAYERS_KV;
  const memory::Layout layout(kv.layout, shape, kv.block_size, kv.blocks);
  checked_bytes(layout.total_bytes(), 1, "bytes of all blocks");
  // The size is known only now, so an address is made only where there is memory.
  static unsigned char nowhere[1];
  auto* const begin = static_cast<unsigned char*>(kv.k);
  pkv_kv_view out = public_view(layout.view(begin != nullptr ? begin : nowhere, 0), kv.blocks);
  if (begin == nullptr) out.k = out.v = nullptr;
  out.rotation = kv.rotation;
  out.rotation_matrices = kv.rotation_matrices;
  // aligned_alloc() wants a multiple.
  *bytes = checked_add(layout.total_bytes(), 63, "bytes of all blocks") / 64 * 64;
  return out;
}

pkv_kv_view public_view(const kernels::KvView& view, uint64_t blocks) {
  const int64_t key_unit = kernels::stride_unit(view.k.dtype),
                value_unit = kernels::stride_unit(view.v.dtype);
  pkv_kv_view out{};
  out.struct_size = sizeof out;
  out.layout = view.layout;
  out.block_size = view.block_size;
  out.kv_heads = view.kv_heads;
  out.key_dim = view.k.dim;
  out.value_dim = view.v.dim;
  out.dtype = view.k.dtype;
  out.value_dtype = view.v.dtype;
  out.blocks = blocks;
  out.k = view.k.data;
  out.v = view.v.data;
  out.k_block_stride = view.k.block_stride / key_unit;
  out.k_row_stride = view.k.row_stride / key_unit;
  out.k_head_stride = view.k.head_stride / key_unit;
  out.v_block_stride = view.v.block_stride / value_unit;
  out.v_row_stride = view.v.row_stride / value_unit;
  out.v_head_stride = view.v.head_stride / value_unit;
  out.latent = view.v.data == nullptr ? 1 : 0;
  out.k_bytes = reach_of(out, key_side(out));
  if (out.latent == 0) out.v_bytes = reach_of(out, value_side(out));
  return out;
}

}  // namespace pkv::rows
