//! Sizes and offsets are those that a C compiler gives.
//!
//! Made by generate_raw.py from bindings/api/api.json: do not edit.
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
    struct_size 0 4, block_size 4 4, blocks 8 8, free 16 8, used 24 8, used_peak 32 8, shared 40 8,
    retired 48 8, references 56 8, slots_filled 64 8);
layout!(pkv_cache_stats, 160, 8,
    struct_size 0 4, sessions 4 4, snapshots 8 4, batches 12 4, suspended_sessions 16 8, blocks 24
    8, free_blocks 32 8, used_blocks 40 8, used_blocks_peak 48 8, evictable_blocks 56 8, tokens 64
    8, slots_filled 72 8, slots_reserved 80 8, bytes_reserved 88 8, copied_blocks 96 8, commits 104
    8, aborts 112 8, committed_tokens 120 8, suspensions 128 8, page_bytes 136 8, pages 144 8,
    free_pages 152 8);
layout!(pkv_layer_group, 96, 8,
    struct_size 0 4, layers 4 4, layer_indices 8 8, query_heads 16 4, kv_heads 20 4, key_dim 24 4,
    value_dim 28 4, dtype 32 4, value_dtype 36 4, window 40 4, sinks 44 4, latent 48 4, rotation 52
    4, blocks 56 8, key_rotation 64 8, value_rotation 72 8, state_bytes 80 8, checkpoint_tokens 88
    4, draft_tokens 92 4);
layout!(pkv_prefix_config, 32, 8,
    struct_size 0 4, eviction 4 4, pinned_blocks 8 8, salt_blocks 16 8, events 24 4, doubling_depth
    28 4);
layout!(pkv_cache_config, 176, 8,
    struct_size 0 4, layers 4 4, query_heads 8 4, kv_heads 12 4, key_dim 16 4, value_dim 20 4, dtype
    24 4, value_dtype 28 4, window 32 4, sinks 36 4, latent 40 4, group_count 44 4, groups 48 8,
    storage 56 4, layout 60 4, block_size 64 4, watermark 68 4, blocks 72 8, memory_bytes 80 8,
    huge_pages 88 4, prefault 92 4, threads 96 4, isa 100 4, prefix 104 8, store 112 8, allocator
    120 8, runner 128 8, logger 136 8, rotation 144 4, shared_memory 148 4, key_rotation 152 8,
    value_rotation 160 8, memory_directory 168 8);
layout!(pkv_cache_plan, 56, 8,
    struct_size 0 4, groups 4 4, bytes_per_token 8 8, bytes_per_block 16 8, blocks 24 8, tokens 32
    8, total_bytes 40 8, bookkeeping_bytes 48 8);
layout!(pkv_cache_info, 32, 4,
    struct_size 0 4, storage 4 4, layout 8 4, block_size 12 4, groups 16 4, layers 20 4, threads 24
    4, isa 28 4);
layout!(pkv_compute_config, 32, 8,
    struct_size 0 4, threads 4 4, isa 8 4, reserved 12 4, allocator 16 8, runner 24 8);
layout!(pkv_compute_info, 16, 4,
    struct_size 0 4, threads 4 4, isa 8 4, reserved 12 4);
layout!(pkv_kv_view, 128, 8,
    struct_size 0 4, layout 4 4, block_size 8 4, kv_heads 12 4, key_dim 16 4, value_dim 20 4, dtype
    24 4, value_dtype 28 4, blocks 32 8, k 40 8, v 48 8, k_block_stride 56 8, k_row_stride 64 8,
    k_head_stride 72 8, v_block_stride 80 8, v_row_stride 88 8, v_head_stride 96 8, rotation 104 4,
    reserved 108 4, key_rotation 112 8, value_rotation 120 8);
layout!(pkv_attention_sequences, 64, 8,
    struct_size 0 4, query_heads 4 4, count 8 8, query_lengths 16 8, kv_lengths 24 8, block_tables
    32 8, block_table_stride 40 8, first_rows 48 8, query_positions 56 8);
layout!(pkv_attention_params, 192, 8,
    struct_size 0 4, scale 4 4, causal 8 4, window 12 4, sinks 16 4, softcap 20 4, alibi_slopes 24
    8, sink_logits 32 8, mask 40 8, mask_words 48 8, lse 56 8, parents 64 8, bool_mask 72 8,
    bool_mask_columns 80 8, bool_mask_row_stride 88 8, bool_mask_batch_stride 96 8,
    bool_mask_first_positions 104 8, top_blocks 112 4, first_blocks 116 4, last_blocks 120 4,
    block_mass_queries 124 4, block_lists 128 8, block_list_size 136 8, chosen_blocks 144 8,
    block_mass 152 8, block_mass_size 160 8, head_windows 168 8, head_sinks 176 8, choose_together
    184 4, reserved 188 4);
layout!(pkv_pool_config, 24, 8,
    struct_size 0 4, blocks 4 4, block_size 8 4, reserved 12 4, allocator 16 8);
layout!(pkv_block_state, 24, 4,
    struct_size 0 4, id 4 4, generation 8 4, references 12 4, filled 16 4, sealed 20 4);
layout!(pkv_session_config, 40, 8,
    struct_size 0 4, priority 4 4, reserve_tokens 8 8, prefix 16 4, retention 20 4, salt 24 8,
    salt_size 32 8);
layout!(pkv_session_info, 48, 8,
    struct_size 0 4, priority 4 4, suspended 8 4, reserved 12 4, length 16 8, total 24 8, blocks 32
    8, exclusive_blocks 40 8);
layout!(pkv_stream, 64, 8,
    struct_size 0 4, kind 4 4, path 8 8, descriptor 16 4, reserved 20 4, data 24 8, size 32 8, read
    40 8, write 48 8, user 56 8);
layout!(pkv_file_config, 48, 8,
    struct_size 0 4, prefix_index 4 4, trust_salts 8 4, durable 12 4, fingerprint 16 8,
    fingerprint_size 24 8, key 32 8, key_size 40 8);
layout!(pkv_file_item, 24, 8,
    session 0 8, snapshot 8 8, label 16 8);
layout!(pkv_file_info, 144, 8,
    struct_size 0 4, version 4 4, bytes 8 8, kv_bytes 16 8, sessions 24 8, tokens 32 8,
    stored_tokens 40 8, prefix_entries 48 8, block_size 56 4, groups 60 4, layers 64 4, has_kv 68 4,
    authenticated 72 4, fingerprint_size 76 4, fingerprint 80 64);
layout!(pkv_prefix_stats, 96, 8,
    struct_size 0 4, reserved 4 4, matches 8 8, asked_tokens 16 8, matched_tokens 24 8,
    matched_blocks 32 8, published_blocks 40 8, evicted_blocks 48 8, expelled_blocks 56 8,
    cleared_blocks 64 8, cached_blocks 72 8, evictable_blocks 80 8, pinned_blocks 88 8);
layout!(pkv_prefix_event, 40, 8,
    number 0 8, hash 8 8, parent 16 8, position 24 8, kind 32 4, reserved 36 4);
layout!(pkv_store_item, 48, 8,
    key 0 32, data 32 8, size 40 8);
layout!(pkv_store, 56, 8,
    struct_size 0 4, reserved 4 4, user 8 8, put 16 8, get 24 8, probe 32 8, drop 40 8, close 48 8);
layout!(pkv_store_config, 64, 8,
    struct_size 0 4, wait_ms 4 4, store 8 8, fingerprint 16 8, fingerprint_size 24 8, key 32 8,
    key_size 40 8, buffer_bytes 48 8, queue_blocks 56 8);
layout!(pkv_store_stats, 88, 8,
    struct_size 0 4, down 4 4, queued_blocks 8 8, dropped_blocks 16 8, written_items 24 8,
    written_bytes 32 8, known_items 40 8, asked_items 48 8, read_items 56 8, read_bytes 64 8,
    corrupt_items 72 8, failures 80 8);
layout!(pkv_directory_config, 24, 8,
    struct_size 0 4, durable 4 4, path 8 8, capacity_bytes 16 8);
