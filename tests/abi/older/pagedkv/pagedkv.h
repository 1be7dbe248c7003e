/* The interface of commit 7633564 (version 0.1.0 before more storage types came), as one header
 * without its comments: what a program that was compiled then was compiled with. Its structs have
 * the order of fields that they got once more while the version was 0.1.0, and lack later ones at
 * their end. */
#ifndef PAGEDKV_H
#define PAGEDKV_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define PKV_API __attribute__((visibility("default")))
#else
#define PKV_API
#endif

#if defined(__cplusplus)
#define PKV_ENUM : int
#else
#define PKV_ENUM
#endif

typedef enum pkv_status PKV_ENUM {
  PKV_OK = 0,

  PKV_INVALID_ARGUMENT = 100,
  PKV_OUT_OF_RANGE = 101,
  PKV_OVERFLOW = 102,
  PKV_BUFFER_TOO_SMALL = 103,
  PKV_STALE_HANDLE = 104,
  PKV_DOUBLE_FREE = 105,
  PKV_WRONG_CACHE = 106,
  PKV_BUSY = 107,
  PKV_REENTRANT = 108,
  PKV_FORKED = 109,
  PKV_BLOCK_SEALED = 110,
  PKV_UNSUPPORTED = 111,
  PKV_INCOMPLETE = 112,

  PKV_OUT_OF_BLOCKS = 200,
  PKV_TOO_LARGE = 201,
  PKV_NO_MEMORY = 202,
  PKV_REF_LIMIT = 203,
  PKV_BLOCK_FULL = 204,

  PKV_CORRUPT = 300,
  PKV_VERSION = 301,
  PKV_MISMATCH = 302,

  PKV_IO = 400,

  PKV_INTERNAL = 500
} pkv_status;

PKV_API const char* pkv_status_string(pkv_status status);

PKV_API const char* pkv_last_error(void);

typedef enum pkv_dtype PKV_ENUM { PKV_F32 = 1, PKV_F16 = 2, PKV_BF16 = 3 } pkv_dtype;

typedef struct pkv_tensor {
  void* data;
  pkv_dtype dtype;
  uint32_t reserved;
  int64_t row_stride;
  int64_t head_stride;
} pkv_tensor;

typedef struct pkv_allocator {
  void* (*alloc)(void* user, size_t size, size_t alignment);
  void (*free)(void* user, void* memory, size_t size, size_t alignment);
  void* user;
} pkv_allocator;

typedef enum pkv_log_level PKV_ENUM { PKV_LOG_WARNING = 1, PKV_LOG_INFO = 2 } pkv_log_level;

typedef struct pkv_logger {
  void (*log)(void* user, pkv_log_level level, const char* message);
  void* user;
} pkv_logger;

#include <stdint.h>

#define PKV_VERSION_MAJOR 0
#define PKV_VERSION_MINOR 1
#define PKV_VERSION_PATCH 0

PKV_API uint32_t pkv_version(void);

PKV_API const char* pkv_version_string(void);

typedef struct pkv_pool_stats {
  uint32_t struct_size;
  uint32_t block_size;
  uint64_t blocks;
  uint64_t free;
  uint64_t used;
  uint64_t used_peak;
  uint64_t shared;
  uint64_t retired;
  uint64_t references;
} pkv_pool_stats;

typedef struct pkv_cache_stats {
  uint32_t struct_size;
  uint32_t sessions;
  uint32_t snapshots;
  uint32_t batches;
  uint64_t suspended_sessions;
  uint64_t blocks;
  uint64_t free_blocks;
  uint64_t used_blocks;
  uint64_t used_blocks_peak;
  uint64_t evictable_blocks;
  uint64_t tokens;
  uint64_t slots_filled;
  uint64_t slots_reserved;
  uint64_t bytes_reserved;
  uint64_t copied_blocks;
  uint64_t commits;
  uint64_t aborts;
  uint64_t committed_tokens;
} pkv_cache_stats;

typedef struct pkv_pool_t* pkv_pool;

typedef uint64_t pkv_block;

#define PKV_BLOCK_ID(block) ((uint32_t)(block))

#define PKV_NO_BLOCK ((uint32_t)0xFFFFFFFFu)

typedef struct pkv_pool_config {
  uint32_t struct_size;
  uint32_t blocks;
  uint32_t block_size;
  uint32_t reserved;
  const pkv_allocator* allocator;
} pkv_pool_config;

PKV_API pkv_status pkv_pool_config_init(pkv_pool_config* config, size_t struct_size);

PKV_API pkv_status pkv_pool_create(const pkv_pool_config* config, pkv_pool* out);

PKV_API pkv_status pkv_pool_destroy(pkv_pool pool);

PKV_API pkv_status pkv_pool_alloc(pkv_pool pool, size_t n, pkv_block* blocks);

PKV_API pkv_status pkv_pool_retain(pkv_pool pool, size_t n, const pkv_block* blocks);

PKV_API pkv_status pkv_pool_release(pkv_pool pool, size_t n, const pkv_block* blocks);

PKV_API pkv_status pkv_pool_claim(pkv_pool pool, pkv_block block, uint32_t n, uint32_t* offset);

PKV_API pkv_status pkv_pool_seal(pkv_pool pool, pkv_block block);

PKV_API pkv_status pkv_pool_reset(pkv_pool pool, pkv_block block);

typedef struct pkv_block_state {
  uint32_t struct_size;
  uint32_t id;
  uint32_t generation;
  uint32_t references;
  uint32_t filled;
  uint32_t sealed;
} pkv_block_state;

PKV_API pkv_status pkv_pool_block_state(pkv_pool pool, uint32_t id, pkv_block_state* out);

PKV_API pkv_status pkv_pool_get_stats(pkv_pool pool, pkv_pool_stats* out);

PKV_API pkv_status pkv_pool_validate(pkv_pool pool);

typedef struct pkv_cache_t* pkv_cache;

typedef enum pkv_storage PKV_ENUM {
  PKV_STORAGE_PAGED = 1,
  PKV_STORAGE_CONTIGUOUS = 2,
  PKV_STORAGE_NONE = 3
} pkv_storage;

typedef enum pkv_layout PKV_ENUM {

  PKV_LAYOUT_PACKED = 1,

  PKV_LAYOUT_PLAIN = 2
} pkv_layout;

typedef enum pkv_isa PKV_ENUM {
  PKV_ISA_AUTO = 0,
  PKV_ISA_SCALAR = 1,
  PKV_ISA_SSE2 = 2,
  PKV_ISA_AVX2 = 3,
  PKV_ISA_AVX512 = 4,
  PKV_ISA_AVX512_BF16 = 5,
  PKV_ISA_NEON = 6
} pkv_isa;

typedef enum pkv_huge_pages PKV_ENUM {
  PKV_HUGE_PAGES_ADVISE = 0,
  PKV_HUGE_PAGES_OFF = 1,
  PKV_HUGE_PAGES_REQUIRE = 2
} pkv_huge_pages;

typedef struct pkv_layer_group {
  uint32_t struct_size;
  uint32_t layers;
  const uint32_t* layer_indices;
  uint32_t query_heads;
  uint32_t kv_heads;
  uint32_t key_dim;
  uint32_t value_dim;
  pkv_dtype dtype;
  pkv_dtype value_dtype;
  uint32_t window;
  uint32_t sinks;
} pkv_layer_group;

typedef struct pkv_cache_config {
  uint32_t struct_size;
  uint32_t layers;
  uint32_t query_heads;
  uint32_t kv_heads;
  uint32_t key_dim;
  uint32_t value_dim;
  pkv_dtype dtype;
  pkv_dtype value_dtype;
  uint32_t window;
  uint32_t sinks;
  uint32_t latent;
  uint32_t group_count;
  const pkv_layer_group* groups;
  pkv_storage storage;
  pkv_layout layout;
  uint32_t block_size;
  uint32_t watermark;
  uint64_t blocks;
  uint64_t memory_bytes;
  pkv_huge_pages huge_pages;
  uint32_t prefault;
  uint32_t threads;
  pkv_isa isa;
} pkv_cache_config;

PKV_API pkv_status pkv_cache_config_init(pkv_cache_config* config, size_t struct_size);

PKV_API pkv_status pkv_layer_group_init(pkv_layer_group* group, size_t struct_size);

typedef struct pkv_cache_plan {
  uint32_t struct_size;
  uint32_t groups;
  uint64_t bytes_per_token;
  uint64_t bytes_per_block;
  uint64_t blocks;
  uint64_t tokens;
  uint64_t total_bytes;
  uint64_t bookkeeping_bytes;
} pkv_cache_plan;

#define PKV_ALL_GROUPS ((uint32_t)0xFFFFFFFFu)
PKV_API pkv_status pkv_cache_compute_plan(const pkv_cache_config* config, uint32_t group,
                                          pkv_cache_plan* out);

PKV_API pkv_status pkv_cache_create(const pkv_cache_config* config, pkv_cache* out);

PKV_API pkv_status pkv_cache_destroy(pkv_cache cache);

typedef struct pkv_cache_info {
  uint32_t struct_size;
  pkv_storage storage;
  pkv_layout layout;
  uint32_t block_size;
  uint32_t groups;
  uint32_t layers;
  uint32_t threads;
  pkv_isa isa;
} pkv_cache_info;

PKV_API pkv_status pkv_cache_get_info(pkv_cache cache, pkv_cache_info* out);

PKV_API pkv_status pkv_cache_get_stats(pkv_cache cache, pkv_cache_stats* out);

PKV_API pkv_status pkv_cache_get_pool_stats(pkv_cache cache, uint32_t group, pkv_pool_stats* out);

PKV_API pkv_status pkv_cache_validate(pkv_cache cache);

PKV_API pkv_status pkv_isa_supported(pkv_isa isa, int32_t* out);

PKV_API const char* pkv_isa_name(pkv_isa isa);

typedef struct pkv_session_t* pkv_session;

typedef struct pkv_session_config {
  uint32_t struct_size;
  uint32_t reserved;
  uint64_t reserve_tokens;
} pkv_session_config;

PKV_API pkv_status pkv_session_config_init(pkv_session_config* config, size_t struct_size);

PKV_API pkv_status pkv_session_open(pkv_cache cache, const pkv_session_config* config,
                                    pkv_session* out);

PKV_API pkv_status pkv_session_close(pkv_session session);

PKV_API pkv_status pkv_session_length(pkv_session session, uint64_t* tokens);

PKV_API pkv_status pkv_session_layer_length(pkv_session session, uint32_t layer, uint64_t* tokens);

#define PKV_NO_TOKEN (-1)

PKV_API pkv_status pkv_session_tokens(pkv_session session, uint64_t first, size_t n,
                                      int32_t* tokens);

PKV_API pkv_status pkv_session_set_tokens(pkv_session session, uint64_t first, size_t n,
                                          const int32_t* tokens);

PKV_API pkv_status pkv_session_reserve(pkv_session session, uint64_t total_tokens);

PKV_API pkv_status pkv_session_prefill(pkv_session session, uint32_t layer, size_t n,
                                       const pkv_tensor* k, const pkv_tensor* v);

PKV_API pkv_status pkv_session_push(pkv_session session, uint32_t layer, const pkv_tensor* k,
                                    const pkv_tensor* v);

PKV_API pkv_status pkv_session_trim(pkv_session session, uint64_t length);

PKV_API pkv_status pkv_session_fork(pkv_session session, pkv_session* out);

PKV_API pkv_status pkv_session_block_table(pkv_session session, uint32_t group, size_t capacity,
                                           uint32_t* ids, size_t* count);

PKV_API pkv_status pkv_session_slot_mapping(pkv_session session, uint32_t group, uint64_t first,
                                            size_t n, int64_t* slots);

PKV_API pkv_status pkv_session_kv_indices(pkv_session session, uint32_t group, size_t capacity,
                                          int64_t* slots, size_t* count);

PKV_API pkv_status pkv_session_materialize(pkv_session session, uint32_t layer, uint64_t first,
                                           size_t n, const pkv_tensor* k, const pkv_tensor* v);

#define PKV_WINDOW_OF_LAYER ((uint32_t)0xFFFFFFFFu)

typedef struct pkv_attention_params {
  uint32_t struct_size;
  float scale;
  uint32_t causal;
  uint32_t window;
} pkv_attention_params;

PKV_API pkv_status pkv_attention_params_init(pkv_attention_params* params, size_t struct_size);

typedef struct pkv_kv_view {
  uint32_t struct_size;
  pkv_layout layout;
  uint32_t block_size;
  uint32_t kv_heads;
  uint32_t key_dim;
  uint32_t value_dim;
  pkv_dtype dtype;
  pkv_dtype value_dtype;
  uint64_t blocks;
  const void* k;
  const void* v;
  int64_t k_block_stride, k_row_stride, k_head_stride;
  int64_t v_block_stride, v_row_stride, v_head_stride;
} pkv_kv_view;

PKV_API pkv_status pkv_cache_kv_view(pkv_cache cache, uint32_t layer, pkv_kv_view* out);

typedef struct pkv_attention_sequences {
  uint32_t struct_size;
  uint32_t query_heads;
  uint64_t count;
  const uint32_t* query_lengths;
  const uint64_t* kv_lengths;
  const uint32_t* block_tables;
  uint64_t block_table_stride;
} pkv_attention_sequences;

PKV_API pkv_status pkv_attention(const pkv_kv_view* kv, const pkv_attention_sequences* sequences,
                                 const pkv_attention_params* params, const pkv_tensor* q,
                                 const pkv_tensor* out);

typedef struct pkv_batch_t* pkv_batch;

PKV_API pkv_status pkv_batch_begin(pkv_cache cache, size_t count, const pkv_session* sessions,
                                   const uint32_t* new_tokens, uint64_t* blocks_short,
                                   pkv_batch* out);

PKV_API pkv_status pkv_batch_rows(pkv_batch batch, size_t* rows);

PKV_API pkv_status pkv_batch_write(pkv_batch batch, uint32_t layer, const pkv_tensor* k,
                                   const pkv_tensor* v);

PKV_API pkv_status pkv_batch_attend(pkv_batch batch, uint32_t layer,
                                    const pkv_attention_params* params, const pkv_tensor* q,
                                    const pkv_tensor* out);

PKV_API pkv_status pkv_batch_commit(pkv_batch batch, const int32_t* tokens);

PKV_API pkv_status pkv_batch_abort(pkv_batch batch);

PKV_API pkv_status pkv_batch_slot_mapping(pkv_batch batch, uint32_t group, size_t capacity,
                                          int64_t* slots, size_t* count);

PKV_API pkv_status pkv_batch_block_copies(pkv_batch batch, uint32_t group, size_t capacity,
                                          uint32_t* from, uint32_t* to, size_t* count);

typedef enum pkv_index_unit PKV_ENUM { PKV_INDEX_BLOCKS = 1, PKV_INDEX_SLOTS = 2 } pkv_index_unit;

PKV_API pkv_status pkv_batch_kv_indices(pkv_batch batch, uint32_t group, pkv_index_unit unit,
                                        int64_t* indptr, size_t capacity, int64_t* indices,
                                        size_t* count, uint32_t* last_block_length);

typedef struct pkv_snapshot_t* pkv_snapshot;

PKV_API pkv_status pkv_snapshot_take(pkv_session session, pkv_snapshot* out);

PKV_API pkv_status pkv_snapshot_open(pkv_cache cache, pkv_snapshot snapshot, pkv_session* out);

PKV_API pkv_status pkv_snapshot_length(pkv_snapshot snapshot, uint64_t* tokens);

PKV_API pkv_status pkv_snapshot_close(pkv_snapshot snapshot);

#endif
