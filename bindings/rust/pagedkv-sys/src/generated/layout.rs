//! Sizes and offsets are those that a C compiler gives.
//!
//! Made by generate_raw.py from the headers of C: do not edit.
#![cfg_attr(rustfmt, rustfmt_skip)]
use super::raw::*;

layout! {
    pkv_error_details 32 8: status 0, group 4, index 8, blocks_short 16, system_error 24,
        reserved 28;
    pkv_tensor 40 8: data 0, dtype 8, row_stride 16, head_stride 24, batch_stride 32;
    pkv_allocator 24 8: alloc 0, free 8, user 16;
    pkv_logger 16 8: log 0, user 8;
    pkv_clock 16 8: now_ms 0, user 8;
    pkv_runner 24 8: run 0, user 8, threads 16, reserved 20;
    pkv_block_io 32 8: struct_size 0, reserved 4, user 8, read 16, write 24;
    pkv_pool_stats 56 8: struct_size 0, reserved 4, blocks 8, free_blocks 16, used_blocks 24,
        used_blocks_peak 32, shared_blocks 40, references 48;
    pkv_cache_stats 120 8: struct_size 0, sessions 4, snapshots 8, batches 12,
        suspended_sessions 16, evictable_blocks 24, tokens 32, filled_slots 40, memory_bytes 48,
        copied_blocks 56, commits 64, committed_tokens 72, suspensions 80, pages 88, free_pages 96,
        moving_blocks 104, failed_copies 112;
    pkv_layer_group 88 8: struct_size 0, layers 4, layer_indices 8, kind 16, query_heads 20,
        kv_heads 24, key_dim 28, value_dim 32, dtype 36, value_dtype 40, window 44, sinks 48,
        rotation 52, rotation_matrices 56, layer_bytes 64, checkpoint_tokens 72,
        max_draft_tokens 76, blocks 80;
    pkv_prefix_config 40 8: struct_size 0, eviction 4, max_pinned_blocks 8, max_blocks_per_salt 16,
        max_events 24, reserved 28, active_parameters 32;
    pkv_cache_config 128 8: struct_size 0, group_count 4, groups 8, storage 16, layout 20,
        block_size 24, groups_share_memory 28, memory_bytes 32, watermark_blocks 40, huge_pages 44,
        prefault 48, reserved 52, memory_directory 56, threads 64, isa 68, prefix 72, store 80,
        allocator 88, runner 96, logger 104, block_io 112, clock 120;
    pkv_cache_plan 56 8: struct_size 0, group_count 4, bytes_per_token 8, bytes_per_block 16,
        blocks 24, tokens 32, memory_bytes 40, bookkeeping_bytes 48;
    pkv_cache_info 32 4: struct_size 0, storage 4, layout 8, block_size 12, group_count 16,
        layers 20, threads 24, isa 28;
    pkv_pool_config 16 8: struct_size 0, blocks 4, allocator 8;
    pkv_session_config 32 8: struct_size 0, priority 4, prefix_use 8, reserved 12, salt 16,
        salt_size 24;
    pkv_session_info 48 8: struct_size 0, priority 4, suspended 8, reserved 12, length 16, total 24,
        blocks 32, exclusive_blocks 40;
    pkv_compute_config 32 8: struct_size 0, threads 4, isa 8, reserved 12, allocator 16, runner 24;
    pkv_compute_info 16 4: struct_size 0, threads 4, isa 8, reserved 12;
    pkv_kv_view 136 8: struct_size 0, layout 4, block_size 8, kv_heads 12, key_dim 16, value_dim 20,
        dtype 24, value_dtype 28, blocks 32, k 40, v 48, k_bytes 56, v_bytes 64, k_block_stride 72,
        k_row_stride 80, k_head_stride 88, v_block_stride 96, v_row_stride 104, v_head_stride 112,
        rotation 120, latent 124, rotation_matrices 128;
    pkv_kv_sequences 64 8: struct_size 0, query_heads 4, count 8, query_lengths 16, kv_lengths 24,
        block_tables 32, block_table_stride 40, first_rows 48, query_positions 56;
    pkv_mask 56 8: struct_size 0, kind 4, data 8, row_stride 16, batch_stride 24, columns 32,
        first_positions 40, positions 48;
    pkv_attention_params 72 8: struct_size 0, scale 4, bidirectional 8, window 12, sinks 16,
        softcap 20, head_windows 24, head_sinks 32, alibi_slopes 40, sink_logits 48, mask 56,
        chosen_blocks 64;
    pkv_attention_outputs 24 8: struct_size 0, reserved 4, lse 8, blocks 16;
    pkv_text 32 8: salt 0, salt_size 8, tokens 16, n 24;
    pkv_prefix_stats 104 8: struct_size 0, reserved 4, matches 8, asked_tokens 16,
        matched_tokens 24, matched_blocks 32, published_blocks 40, evicted_blocks 48,
        expelled_blocks 56, cleared_blocks 64, cached_blocks 72, evictable_blocks 80,
        pinned_blocks 88, yielded_pins 96;
    pkv_prefix_event 40 8: number 0, hash 8, parent 16, position 24, kind 32, reserved 36;
    pkv_hint 40 8: struct_size 0, action 4, first 8, end 16, retention 24, reserved 28,
        duration_ms 32;
    pkv_hint_result 24 8: struct_size 0, outcome 4, reason 8, reserved 12, tokens 16;
    pkv_stream 64 8: struct_size 0, kind 4, path 8, descriptor 16, reserved 20, data 24, size 32,
        read 40, write 48, user 56;
    pkv_file_config 56 8: struct_size 0, prefix_index 4, trust_salts 8, durable 12, fingerprint 16,
        fingerprint_size 24, secret_key 32, secret_key_size 40, max_tokens 48;
    pkv_file_item 24 8: session 0, snapshot 8, label 16;
    pkv_file_info 144 8: struct_size 0, version 4, bytes 8, kv_bytes 16, sessions 24, tokens 32,
        stored_tokens 40, prefix_entries 48, block_size 56, group_count 60, layers 64, has_kv 68,
        authenticated 72, fingerprint_size 76, fingerprint 80;
    pkv_store_item 48 8: name 0, data 32, size 40;
    pkv_store 64 8: struct_size 0, reserved 4, user 8, put 16, get 24, probe 32, drop 40, close 48,
        last_error 56;
    pkv_store_config 64 8: struct_size 0, wait_ms 4, store 8, fingerprint 16, fingerprint_size 24,
        secret_key 32, secret_key_size 40, buffer_bytes 48, max_queued_blocks 56;
    pkv_store_stats 88 8: struct_size 0, down 4, queued_blocks 8, unwritten_blocks 16,
        written_items 24, written_bytes 32, known_items 40, asked_items 48, read_items 56,
        read_bytes 64, corrupt_items 72, failures 80;
    pkv_directory_config 24 8: struct_size 0, durable 4, path 8, max_bytes 16;
    pkv_chosen_blocks 32 8: struct_size 0, top_blocks 4, first_blocks 8, last_blocks 12,
        tokens_per_choice 16, list_blocks 20, lists 24;
    pkv_block_outputs 32 8: struct_size 0, mass_queries 4, chosen 8, masses 16, mass_blocks 24;
    pkv_rotation_matrices 24 8: struct_size 0, reserved 4, key 8, value 16;
}
#[cfg(feature = "redis")]
layout! {
    pkv_redis_config 112 8: struct_size 0, ttl_seconds 4, servers 8, user 16, password 24,
        key_prefix 32, max_pipeline_bytes 40, connect_timeout_ms 48, command_timeout_ms 52,
        connect_later 56, tls 60, tls_ca_file 64, tls_ca_directory 72, tls_certificate_file 80,
        tls_key_file 88, tls_server_name 96, tls_insecure_no_verify 104, reserved 108;
}
