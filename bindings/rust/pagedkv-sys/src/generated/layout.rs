//! Sizes and offsets are those that a C compiler gives.
//!
//! Made by generate_raw.py from the headers of C: do not edit.
#![cfg_attr(rustfmt, rustfmt_skip)]
use super::raw::*;
use std::mem::{align_of, size_of, MaybeUninit};

macro_rules! layout {
    (
        $name:ident, $size:literal, $alignment:literal,
        $($field:ident $offset:literal $bytes:literal),*
    ) => {
        #[test]
        fn $name() {
            assert_eq!((size_of::<$name>(), align_of::<$name>()), ($size, $alignment));
            let place = MaybeUninit::<$name>::uninit();
            let base = place.as_ptr();
            $({
                // Nothing is read: these are addresses of fields only.
                let field = unsafe { std::ptr::addr_of!((*base).$field) };
                assert_eq!(field as usize - base as usize, $offset, stringify!($field));
                fn bytes<T>(_: *const T) -> usize { size_of::<T>() }
                assert_eq!(bytes(field), $bytes, stringify!($field));
            })*
        }
    };
}

layout!(pkv_tensor, 32, 8,
    data 0 8, dtype 8 4, batch_rows 12 4, row_stride 16 8, head_stride 24 8);
layout!(pkv_allocator, 24, 8,
    alloc 0 8, free 8 8, user 16 8);
layout!(pkv_logger, 16, 8,
    log 0 8, user 8 8);
layout!(pkv_runner, 24, 8,
    run 0 8, user 8 8, threads 16 4, reserved 20 4);
layout!(pkv_pool_stats, 72, 8,
    struct_size 0 4, block_size 4 4, blocks 8 8, free_blocks 16 8, used_blocks 24 8,
    used_blocks_peak 32 8, shared_blocks 40 8, retired_blocks 48 8, references 56 8, filled_slots 64
    8);
layout!(pkv_cache_stats, 160, 8,
    struct_size 0 4, sessions 4 4, snapshots 8 4, batches 12 4, suspended_sessions 16 8, blocks 24
    8, free_blocks 32 8, used_blocks 40 8, used_blocks_peak 48 8, evictable_blocks 56 8, tokens 64
    8, filled_slots 72 8, used_slots 80 8, memory_bytes 88 8, copied_blocks 96 8, commits 104 8,
    aborts 112 8, committed_tokens 120 8, suspensions 128 8, page_bytes 136 8, pages 144 8,
    free_pages 152 8);
layout!(pkv_layer_group, 96, 8,
    struct_size 0 4, layers 4 4, layer_indices 8 8, query_heads 16 4, kv_heads 20 4, key_dim 24 4,
    value_dim 28 4, dtype 32 4, value_dtype 36 4, window 40 4, sinks 44 4, latent 48 4, rotation 52
    4, key_rotation 56 8, value_rotation 64 8, state_bytes 72 8, checkpoint_tokens 80 4,
    draft_tokens 84 4, blocks 88 8);
layout!(pkv_prefix_config, 32, 8,
    struct_size 0 4, eviction 4 4, max_pinned_blocks 8 8, quota_blocks 16 8, kept_events 24 4,
    doubling_depth 28 4);
layout!(pkv_cache_config, 120, 8,
    struct_size 0 4, group_count 4 4, groups 8 8, storage 16 4, layout 20 4, block_size 24 4,
    groups_share_memory 28 4, blocks 32 8, memory_bytes 40 8, watermark_blocks 48 4, huge_pages 52
    4, prefault 56 4, reserved 60 4, memory_directory 64 8, threads 72 4, isa 76 4, prefix 80 8,
    store 88 8, allocator 96 8, runner 104 8, logger 112 8);
layout!(pkv_cache_plan, 56, 8,
    struct_size 0 4, groups 4 4, bytes_per_token 8 8, bytes_per_block 16 8, blocks 24 8, tokens 32
    8, memory_bytes 40 8, bookkeeping_bytes 48 8);
layout!(pkv_cache_info, 32, 4,
    struct_size 0 4, storage 4 4, layout 8 4, block_size 12 4, groups 16 4, layers 20 4, threads 24
    4, isa 28 4);
layout!(pkv_pool_config, 24, 8,
    struct_size 0 4, blocks 4 4, block_size 8 4, reserved 12 4, allocator 16 8);
layout!(pkv_block_info, 24, 4,
    struct_size 0 4, id 4 4, generation 8 4, references 12 4, filled_slots 16 4, sealed 20 4);
layout!(pkv_session_config, 32, 8,
    struct_size 0 4, priority 4 4, prefix_use 8 4, retention 12 4, salt 16 8, salt_size 24 8);
layout!(pkv_session_info, 48, 8,
    struct_size 0 4, priority 4 4, suspended 8 4, reserved 12 4, length 16 8, total 24 8, blocks 32
    8, exclusive_blocks 40 8);
layout!(pkv_compute_config, 32, 8,
    struct_size 0 4, threads 4 4, isa 8 4, reserved 12 4, allocator 16 8, runner 24 8);
layout!(pkv_compute_info, 16, 4,
    struct_size 0 4, threads 4 4, isa 8 4, reserved 12 4);
layout!(pkv_kv_view, 128, 8,
    struct_size 0 4, layout 4 4, block_size 8 4, kv_heads 12 4, key_dim 16 4, value_dim 20 4, dtype
    24 4, value_dtype 28 4, blocks 32 8, k 40 8, v 48 8, k_block_stride 56 8, k_row_stride 64 8,
    k_head_stride 72 8, v_block_stride 80 8, v_row_stride 88 8, v_head_stride 96 8, rotation 104 4,
    reserved 108 4, key_rotation 112 8, value_rotation 120 8);
layout!(pkv_kv_sequences, 64, 8,
    struct_size 0 4, query_heads 4 4, count 8 8, query_lengths 16 8, kv_lengths 24 8, block_tables
    32 8, block_table_stride 40 8, first_rows 48 8, query_positions 56 8);
layout!(pkv_mask, 48, 8,
    struct_size 0 4, kind 4 4, data 8 8, row_stride 16 8, batch_stride 24 8, columns 32 8,
    first_positions 40 8);
layout!(pkv_chosen_blocks, 48, 8,
    struct_size 0 4, top_blocks 4 4, first_blocks 8 4, last_blocks 12 4, together 16 4, reserved 20
    4, lists 24 8, list_blocks 32 8, chosen 40 8);
layout!(pkv_block_mass, 24, 8,
    struct_size 0 4, queries 4 4, masses 8 8, blocks 16 8);
layout!(pkv_attention_params, 88, 8,
    struct_size 0 4, scale 4 4, bidirectional 8 4, window 12 4, sinks 16 4, softcap 20 4,
    head_windows 24 8, head_sinks 32 8, alibi_slopes 40 8, sink_logits 48 8, mask 56 8,
    chosen_blocks 64 8, block_mass 72 8, lse 80 8);
layout!(pkv_prefix_stats, 96, 8,
    struct_size 0 4, reserved 4 4, matches 8 8, asked_tokens 16 8, matched_tokens 24 8,
    matched_blocks 32 8, published_blocks 40 8, evicted_blocks 48 8, expelled_blocks 56 8,
    cleared_blocks 64 8, cached_blocks 72 8, evictable_blocks 80 8, pinned_blocks 88 8);
layout!(pkv_prefix_event, 40, 8,
    number 0 8, hash 8 8, parent 16 8, position 24 8, kind 32 4, reserved 36 4);
layout!(pkv_stream, 64, 8,
    struct_size 0 4, kind 4 4, path 8 8, descriptor 16 4, reserved 20 4, data 24 8, size 32 8, read
    40 8, write 48 8, user 56 8);
layout!(pkv_file_config, 48, 8,
    struct_size 0 4, prefix_index 4 4, trust_salts 8 4, skip_fsync 12 4, fingerprint 16 8,
    fingerprint_size 24 8, secret_key 32 8, secret_key_size 40 8);
layout!(pkv_file_item, 24, 8,
    session 0 8, snapshot 8 8, label 16 8);
layout!(pkv_file_info, 144, 8,
    struct_size 0 4, version 4 4, bytes 8 8, kv_bytes 16 8, sessions 24 8, tokens 32 8,
    stored_tokens 40 8, prefix_entries 48 8, block_size 56 4, groups 60 4, layers 64 4, has_kv 68 4,
    authenticated 72 4, fingerprint_size 76 4, fingerprint 80 64);
layout!(pkv_store_item, 48, 8,
    name 0 32, data 32 8, size 40 8);
layout!(pkv_store, 56, 8,
    struct_size 0 4, reserved 4 4, user 8 8, put 16 8, get 24 8, probe 32 8, drop 40 8, close 48 8);
layout!(pkv_store_config, 64, 8,
    struct_size 0 4, wait_ms 4 4, store 8 8, fingerprint 16 8, fingerprint_size 24 8, secret_key 32
    8, secret_key_size 40 8, buffer_bytes 48 8, queue_blocks 56 8);
layout!(pkv_store_stats, 88, 8,
    struct_size 0 4, down 4 4, queued_blocks 8 8, dropped_blocks 16 8, written_items 24 8,
    written_bytes 32 8, known_items 40 8, asked_items 48 8, read_items 56 8, read_bytes 64 8,
    corrupt_items 72 8, failures 80 8);
layout!(pkv_directory_config, 24, 8,
    struct_size 0 4, durable 4 4, path 8 8, capacity_bytes 16 8);
#[cfg(feature = "redis")]
use crate::redis::pkv_redis_config;
#[cfg(feature = "redis")]
layout!(pkv_redis_config, 112, 8,
    struct_size 0 4, ttl_seconds 4 4, servers 8 8, user 16 8, password 24 8, key_prefix 32 8,
    pipeline_bytes 40 8, connect_timeout_ms 48 4, command_timeout_ms 52 4, connect_later 56 4, tls
    60 4, tls_ca_file 64 8, tls_ca_directory 72 8, tls_certificate_file 80 8, tls_key_file 88 8,
    tls_server_name 96 8, tls_insecure_no_verify 104 4, reserved 108 4);
