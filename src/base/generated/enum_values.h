// The values of the enums of the C interface, and their names without the enum's prefix.
// Made by bindings/api/generate_raw.py from the headers: do not edit.
// clang-format off
#pragma once

#include <pagedkv/pagedkv.h>

namespace pkv {

struct EnumValue {
  int value;
  const char* name;
};

template <class Enum>
struct EnumValues;

template <>
struct EnumValues<pkv_dtype> {
  static constexpr EnumValue all[] = {
      {PKV_F32, "F32"},
      {PKV_F16, "F16"},
      {PKV_BF16, "BF16"},
      {PKV_INT8, "INT8"},
      {PKV_INT4, "INT4"},
      {PKV_FP8_E4M3, "FP8_E4M3"},
      {PKV_FP8_E5M2, "FP8_E5M2"},
      {PKV_Q8_0, "Q8_0"},
      {PKV_Q4_0, "Q4_0"},
  };
};

template <>
struct EnumValues<pkv_log_level> {
  static constexpr EnumValue all[] = {
      {PKV_LOG_WARNING, "WARNING"},
      {PKV_LOG_INFO, "INFO"},
  };
};

template <>
struct EnumValues<pkv_durability> {
  static constexpr EnumValue all[] = {
      {PKV_DURABILITY_DEFAULT, "DEFAULT"},
      {PKV_DURABILITY_ON, "ON"},
      {PKV_DURABILITY_OFF, "OFF"},
  };
};

template <>
struct EnumValues<pkv_storage> {
  static constexpr EnumValue all[] = {
      {PKV_STORAGE_INTERNAL, "INTERNAL"},
      {PKV_STORAGE_EXTERNAL, "EXTERNAL"},
  };
};

template <>
struct EnumValues<pkv_layout> {
  static constexpr EnumValue all[] = {
      {PKV_LAYOUT_PACKED, "PACKED"},
      {PKV_LAYOUT_PLAIN, "PLAIN"},
  };
};

template <>
struct EnumValues<pkv_isa> {
  static constexpr EnumValue all[] = {
      {PKV_ISA_AUTO, "AUTO"},
      {PKV_ISA_SCALAR, "SCALAR"},
      {PKV_ISA_SSE2, "SSE2"},
      {PKV_ISA_AVX2, "AVX2"},
      {PKV_ISA_AVX512, "AVX512"},
      {PKV_ISA_AVX512_VNNI, "AVX512_VNNI"},
      {PKV_ISA_AVX512_BF16, "AVX512_BF16"},
      {PKV_ISA_AMX, "AMX"},
      {PKV_ISA_NEON, "NEON"},
      {PKV_ISA_NEON_DOT, "NEON_DOT"},
      {PKV_ISA_NEON_BF16, "NEON_BF16"},
      {PKV_ISA_AVX_VNNI, "AVX_VNNI"},
  };
};

template <>
struct EnumValues<pkv_rotation> {
  static constexpr EnumValue all[] = {
      {PKV_ROTATION_NONE, "NONE"},
      {PKV_ROTATION_HADAMARD, "HADAMARD"},
  };
};

template <>
struct EnumValues<pkv_huge_pages> {
  static constexpr EnumValue all[] = {
      {PKV_HUGE_PAGES_ADVISE, "ADVISE"},
      {PKV_HUGE_PAGES_OFF, "OFF"},
      {PKV_HUGE_PAGES_REQUIRE, "REQUIRE"},
  };
};

template <>
struct EnumValues<pkv_layer_kind> {
  static constexpr EnumValue all[] = {
      {PKV_LAYERS_KV, "KV"},
      {PKV_LAYERS_LATENT, "LATENT"},
      {PKV_LAYERS_STATES, "STATES"},
      {PKV_LAYERS_OPAQUE_KV, "OPAQUE_KV"},
      {PKV_LAYERS_OPAQUE_STATES, "OPAQUE_STATES"},
  };
};

template <>
struct EnumValues<pkv_eviction> {
  static constexpr EnumValue all[] = {
      {PKV_EVICTION_LEARNED, "LEARNED"},
      {PKV_EVICTION_LRU, "LRU"},
  };
};

template <>
struct EnumValues<pkv_prefix_use> {
  static constexpr EnumValue all[] = {
      {PKV_PREFIX_SHARE, "SHARE"},
      {PKV_PREFIX_MATCH, "MATCH"},
      {PKV_PREFIX_OFF, "OFF"},
  };
};

template <>
struct EnumValues<pkv_retention> {
  static constexpr EnumValue all[] = {
      {PKV_RETENTION_LOW, "LOW"},
      {PKV_RETENTION_NORMAL, "NORMAL"},
      {PKV_RETENTION_HIGH, "HIGH"},
  };
};

template <>
struct EnumValues<pkv_mask_kind> {
  static constexpr EnumValue all[] = {
      {PKV_MASK_TREE_BITS, "TREE_BITS"},
      {PKV_MASK_TREE_PARENTS, "TREE_PARENTS"},
      {PKV_MASK_BYTES, "BYTES"},
      {PKV_MASK_F16, "F16"},
      {PKV_MASK_F32, "F32"},
  };
};

template <>
struct EnumValues<pkv_index_unit> {
  static constexpr EnumValue all[] = {
      {PKV_INDEX_BLOCKS, "BLOCKS"},
      {PKV_INDEX_SLOTS, "SLOTS"},
  };
};

template <>
struct EnumValues<pkv_prefix_event_kind> {
  static constexpr EnumValue all[] = {
      {PKV_PREFIX_EVENT_PUBLISHED, "PUBLISHED"},
      {PKV_PREFIX_EVENT_EVICTED, "EVICTED"},
      {PKV_PREFIX_EVENT_EXPELLED, "EXPELLED"},
      {PKV_PREFIX_EVENT_CLEARED, "CLEARED"},
  };
};

template <>
struct EnumValues<pkv_hint_action> {
  static constexpr EnumValue all[] = {
      {PKV_HINT_SET_RETENTION, "SET_RETENTION"},
      {PKV_HINT_EXPECT_RETURN, "EXPECT_RETURN"},
      {PKV_HINT_PIN, "PIN"},
      {PKV_HINT_UNPIN, "UNPIN"},
      {PKV_HINT_PREFETCH, "PREFETCH"},
      {PKV_HINT_STORE, "STORE"},
      {PKV_HINT_DEMOTE, "DEMOTE"},
      {PKV_HINT_DROP, "DROP"},
  };
};

template <>
struct EnumValues<pkv_hint_outcome> {
  static constexpr EnumValue all[] = {
      {PKV_HINT_OUTCOME_DONE, "DONE"},
      {PKV_HINT_OUTCOME_CLIPPED, "CLIPPED"},
      {PKV_HINT_OUTCOME_DEFERRED, "DEFERRED"},
      {PKV_HINT_OUTCOME_REJECTED, "REJECTED"},
      {PKV_HINT_OUTCOME_MISSING, "MISSING"},
  };
};

template <>
struct EnumValues<pkv_hint_reason> {
  static constexpr EnumValue all[] = {
      {PKV_HINT_REASON_NONE, "NONE"},
      {PKV_HINT_REASON_NOT_CACHED, "NOT_CACHED"},
      {PKV_HINT_REASON_LIMIT, "LIMIT"},
      {PKV_HINT_REASON_QUOTA, "QUOTA"},
      {PKV_HINT_REASON_IN_USE, "IN_USE"},
      {PKV_HINT_REASON_NO_STORE, "NO_STORE"},
      {PKV_HINT_REASON_STORE_DOWN, "STORE_DOWN"},
      {PKV_HINT_REASON_NO_INDEX, "NO_INDEX"},
  };
};

template <>
struct EnumValues<pkv_stream_kind> {
  static constexpr EnumValue all[] = {
      {PKV_STREAM_PATH, "PATH"},
      {PKV_STREAM_DESCRIPTOR, "DESCRIPTOR"},
      {PKV_STREAM_BUFFER, "BUFFER"},
      {PKV_STREAM_CALLBACKS, "CALLBACKS"},
  };
};

}  // namespace pkv
