// The sizes that the structs of the C interface have had, by which the library knows the headers
// that its caller was compiled against. Any other size is a mistake of the caller: the library
// neither reads nor writes so many bytes.
#pragma once

#include <pagedkv/pagedkv.h>
#include <pagedkv/redis.h>

#include <array>

namespace pkv {

// The sizes of one struct, those of older headers first. A struct that grows gets its new size
// behind the others; the old ones stay for ever. tests/abi/older has the older headers.
template <class Struct>
constexpr auto struct_sizes = nullptr;  // each struct has its own line below

#define PKV_STRUCT_SIZES(Struct, ...)                                                  \
  template <>                                                                          \
  inline constexpr auto struct_sizes<Struct> = std::to_array<uint32_t>({__VA_ARGS__}); \
  static_assert(struct_sizes<Struct>.back() == sizeof(Struct), "add the new size at the end")

PKV_STRUCT_SIZES(pkv_attention_params, 16, 112, 192);
PKV_STRUCT_SIZES(pkv_attention_sequences, 48, 64);
PKV_STRUCT_SIZES(pkv_block_state, 24);
PKV_STRUCT_SIZES(pkv_cache_config, 104, 144, 176);
PKV_STRUCT_SIZES(pkv_cache_info, 32);
PKV_STRUCT_SIZES(pkv_cache_plan, 56);
PKV_STRUCT_SIZES(pkv_cache_stats, 128, 136, 160);
PKV_STRUCT_SIZES(pkv_compute_config, 32);
PKV_STRUCT_SIZES(pkv_compute_info, 16);
PKV_STRUCT_SIZES(pkv_directory_config, 24);
PKV_STRUCT_SIZES(pkv_file_config, 48);
PKV_STRUCT_SIZES(pkv_file_info, 144);
PKV_STRUCT_SIZES(pkv_kv_view, 104, 128);
PKV_STRUCT_SIZES(pkv_layer_group, 48, 64, 96);
PKV_STRUCT_SIZES(pkv_pool_config, 24);
PKV_STRUCT_SIZES(pkv_pool_stats, 64, 72);
PKV_STRUCT_SIZES(pkv_prefix_config, 32);
PKV_STRUCT_SIZES(pkv_prefix_stats, 96);
PKV_STRUCT_SIZES(pkv_redis_config, 112);
PKV_STRUCT_SIZES(pkv_session_config, 16, 40);
PKV_STRUCT_SIZES(pkv_session_info, 48);
PKV_STRUCT_SIZES(pkv_store, 56);
PKV_STRUCT_SIZES(pkv_store_config, 64);
PKV_STRUCT_SIZES(pkv_store_stats, 88);
PKV_STRUCT_SIZES(pkv_stream, 64);

#undef PKV_STRUCT_SIZES

}  // namespace pkv
