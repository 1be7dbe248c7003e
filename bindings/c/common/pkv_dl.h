/* libpagedkv opened with dlopen: its functions as pointers, `lib.batch_begin(...)` for
 * pkv_batch_begin(...).
 *
 * The program is not linked to the library; the headers only give it types. The pointers get their
 * signatures from the headers, so that the two cannot differ.
 */
#ifndef PKV_DL_H
#define PKV_DL_H

#include <pagedkv/experimental.h>
#include <pagedkv/pagedkv.h>

/* clang-format off */
#define PKV_DL_FUNCTIONS(X)                                                                       \
  X(version) X(status_name) X(last_error) X(last_error_details) X(isa_name)                       \
  X(pool_create) X(pool_destroy) X(pool_alloc) X(pool_retain) X(pool_release)                     \
  X(pool_get_stats) X(pool_validate)                                                              \
  X(cache_compute_sizes) X(cache_create) X(cache_destroy) X(cache_get_info) X(cache_get_stats)     \
  X(cache_get_pool_stats) X(cache_validate) X(cache_get_kv_view) X(session_open) X(session_close) \
  X(session_get_length) X(session_get_tokens) X(session_set_tokens)                               \
  X(session_reserve) X(session_trim) X(session_fork) X(session_get_trim_point)                    \
  X(session_get_state) X(session_drop_blocks) X(session_suspend) X(session_resume)               \
  X(session_set_priority) X(session_get_info)                                                     \
  X(session_get_block_table) X(session_read) X(batch_begin) X(batch_choose_victims)               \
  X(batch_write) X(batch_attend) X(batch_set_first_rows) X(batch_accept) X(batch_commit)          \
  X(batch_abort) X(batch_get_slot_mapping) X(batch_get_block_copies) X(batch_get_kv_indices)      \
  X(batch_get_states) X(batch_get_state_blocks) X(kv_attend) X(attention_merge) X(compute_create) \
  X(compute_destroy) X(compute_get_info) X(openmp_runner) X(kv_view_init) X(kv_write) X(kv_read)  \
  X(kv_write_slots) X(kv_read_slots) X(snapshot_take) X(snapshot_fork) X(snapshot_close)          \
  X(cache_format_metrics) X(session_admit) X(prefix_get_stats)                                    \
  X(prefix_clear) X(prefix_probe) X(prefix_set_quota) X(prefix_read_events)                       \
  X(prefix_hash_blocks) X(hint_prompt) X(hint_session) X(prefetch_wait) X(prefetch_cancel)        \
  X(cache_flush_store) X(cache_get_store_stats)                                                   \
  X(store_open_directory) X(store_close) X(file_save) X(file_load) X(file_inspect)
/* clang-format on */

typedef struct pkv_dl {
  void* handle;
#define PKV_DL_MEMBER(name) __typeof__(pkv_##name)* name;
  PKV_DL_FUNCTIONS(PKV_DL_MEMBER)
#undef PKV_DL_MEMBER
} pkv_dl;

/* Opens the library at `path` or, if that is NULL, the first that exists of: $PAGEDKV_LIBRARY;
 * beside the program, in ../src (a build tree) or ../lib (an installation); wherever the dynamic
 * linker finds the soname. Ends the program if there is none or a function is missing. */
void pkv_dl_open(pkv_dl* lib, const char* path);

#endif
