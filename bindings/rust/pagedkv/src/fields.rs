//! Every field that a caller describes arrives in C. The structs are taken apart without `..`, so
//! that a field that is new in C does not compile until it is looked at here.
use crate::attention::Told;
use crate::error::ensure_library;
use crate::rows::BatchRows;
use crate::*;
use std::alloc::System;
use std::ffi::CStr;
use std::mem::size_of;
use std::ptr::null;
use std::time::Duration;

/// With the feature `dlopen` nothing works before the library was opened.
fn open_library() {
    ensure_library().unwrap();
}

fn bytes<'a>(address: *const std::os::raw::c_void, size: u64) -> &'a [u8] {
    unsafe { std::slice::from_raw_parts(address.cast(), size as usize) }
}

fn group() -> LayerGroup {
    let group = LayerGroup::new(2, 3, 4, 5)
        .layer_indices([1, 0])
        .value_dim(6)
        .dtype(Dtype::INT8)
        .value_dtype(Dtype::INT4);
    let group = group.window(7).sinks(8).blocks(9).latent().rotation(Rotation::MATRIX);
    group.key_rotation([10.0; 25]).value_rotation([11.0; 36])
}

fn group_of_states() -> LayerGroup {
    LayerGroup::states(2, 3).layer_indices([3, 2]).checkpoint_tokens(4).draft_tokens(5)
}

fn check_group(raw: &sys::pkv_layer_group) {
    let sys::pkv_layer_group {
        struct_size,
        layers,
        layer_indices,
        query_heads,
        kv_heads,
        key_dim,
        value_dim,
        dtype,
        window,
        blocks,
        value_dtype,
        sinks,
        latent,
        rotation,
        key_rotation,
        value_rotation,
        state_bytes,
        checkpoint_tokens,
        draft_tokens,
    } = *raw;
    assert_eq!(struct_size as usize, size_of::<sys::pkv_layer_group>());
    assert_eq!((state_bytes, checkpoint_tokens, draft_tokens), (0, 0, 0));
    assert_eq!((layers, query_heads, kv_heads, key_dim, value_dim), (2, 3, 4, 5, 6));
    assert_eq!(unsafe { std::slice::from_raw_parts(layer_indices, 2) }, [1, 0]);
    assert_eq!((dtype, value_dtype), (Dtype::INT8, Dtype::INT4));
    assert_eq!((window, sinks, blocks, latent), (7, 8, 9, 1));
    assert_eq!(rotation, Rotation::MATRIX);
    assert_eq!(unsafe { std::slice::from_raw_parts(key_rotation, 25) }, [10.0; 25]);
    assert_eq!(unsafe { std::slice::from_raw_parts(value_rotation, 36) }, [11.0; 36]);
}

fn check_group_of_states(raw: &sys::pkv_layer_group) {
    assert_eq!((raw.layers, raw.query_heads, raw.kv_heads, raw.key_dim), (2, 0, 0, 0));
    assert_eq!(unsafe { std::slice::from_raw_parts(raw.layer_indices, 2) }, [3, 2]);
    assert_eq!((raw.state_bytes, raw.checkpoint_tokens, raw.draft_tokens), (3, 4, 5));
}

fn check_prefix(raw: &sys::pkv_prefix_config) {
    let sys::pkv_prefix_config {
        struct_size,
        eviction,
        pinned_blocks,
        salt_blocks,
        events,
        doubling_depth,
    } = *raw;
    assert_eq!(struct_size as usize, size_of::<sys::pkv_prefix_config>());
    assert_eq!((eviction, pinned_blocks, salt_blocks), (Eviction::LFU, 3, 4));
    assert_eq!((events, doubling_depth), (5, 6));
}

#[test]
fn of_a_cache() {
    open_library();
    let prefix = PrefixConfig::new()
        .eviction(Eviction::LFU)
        .pinned_blocks(3)
        .salt_blocks(4)
        .events(5)
        .doubling_depth(6);
    let config = CacheConfig::with_groups([group(), group(), group_of_states()])
        .storage(Storage::NONE)
        .layout(Layout::PLAIN)
        .block_size(32);
    let config = config
        .blocks(10)
        .memory_bytes(11)
        .shared_memory()
        .memory_directory("/a/path")
        .threads(12)
        .isa(Isa::SCALAR)
        .huge_pages(HugePages::OFF)
        .prefault();
    let config =
        config.watermark(13).prefix(prefix).allocator(System).logger(|_, _| {}).runner(14, |_| {});
    let look = |raw: &sys::pkv_cache_config| {
        let sys::pkv_cache_config {
            struct_size,
            storage,
            layout,
            block_size,
            // Of a model without groups: they stay as they are, since there is always a group here.
            layers: _,
            query_heads: _,
            kv_heads: _,
            key_dim: _,
            value_dim: _,
            dtype: _,
            window: _,
            value_dtype: _,
            sinks: _,
            latent: _,
            rotation: _,
            key_rotation: _,
            value_rotation: _,
            group_count,
            groups,
            blocks,
            memory_bytes,
            threads,
            isa,
            huge_pages,
            prefault,
            allocator,
            logger,
            watermark,
            runner,
            prefix,
            store,
            shared_memory,
            memory_directory,
        } = *raw;
        assert_eq!(shared_memory, 1);
        assert_eq!(unsafe { CStr::from_ptr(memory_directory) }.to_bytes(), b"/a/path");
        assert_eq!(struct_size as usize, size_of::<sys::pkv_cache_config>());
        assert_eq!((storage, layout, block_size), (Storage::NONE, Layout::PLAIN, 32));
        assert_eq!((blocks, memory_bytes, threads, isa), (10, 11, 12, Isa::SCALAR));
        assert_eq!((huge_pages, prefault, watermark, group_count), (HugePages::OFF, 1, 13, 3));
        let groups = unsafe { std::slice::from_raw_parts(groups, 3) };
        groups[..2].iter().for_each(check_group);
        check_group_of_states(&groups[2]);
        check_prefix(unsafe { &*prefix });
        let (allocator, logger, runner) = unsafe { (*allocator, *logger, *runner) };
        assert!(allocator.alloc.is_some() && allocator.free.is_some() && !allocator.user.is_null());
        assert!(logger.log.is_some() && !logger.user.is_null());
        assert!(
            runner.run.is_some()
                && !runner.user.is_null()
                && (runner.threads, runner.reserved) == (14, 0)
        );
        assert!(store.is_null()); // opened with the cache
        Ok(())
    };
    config.with_raw(look).unwrap();
}

#[test]
fn of_a_session() {
    open_library();
    let config = SessionConfig::new()
        .priority(-3)
        .reserve_tokens(4)
        .prefix(PrefixUse::MATCH)
        .retention(Retention::HIGH);
    let sys::pkv_session_config {
        struct_size,
        priority,
        reserve_tokens,
        prefix,
        retention,
        salt,
        salt_size,
    } = config.salt(b"a\0b").raw().unwrap();
    assert_eq!(struct_size as usize, size_of::<sys::pkv_session_config>());
    assert_eq!(
        (priority, reserve_tokens, prefix, retention),
        (-3, 4, PrefixUse::MATCH, Retention::HIGH)
    );
    assert_eq!(bytes(salt, salt_size), b"a\0b");
}

#[test]
fn of_a_pool() {
    open_library();
    let config = PoolConfig::new(3).block_size(4).allocator(System);
    let allocator =
        Some(sys::pkv_allocator { alloc: None, free: None, user: std::ptr::null_mut() });
    let sys::pkv_pool_config { struct_size, blocks, block_size, reserved, allocator: given } =
        config.raw(&allocator).unwrap();
    assert_eq!(
        (struct_size as usize, blocks, block_size, reserved),
        (size_of::<sys::pkv_pool_config>(), 3, 4, 0)
    );
    assert!(!given.is_null());
}

#[test]
fn of_a_file() {
    open_library();
    let config = FileConfig::new()
        .prefix_index()
        .fingerprint(b"a\0b")
        .key(&[7; 20])
        .not_durable()
        .trust_salts();
    let sys::pkv_file_config {
        struct_size,
        prefix_index,
        fingerprint,
        fingerprint_size,
        key,
        key_size,
        durable,
        trust_salts,
    } = config.raw().unwrap();
    assert_eq!(
        (struct_size as usize, prefix_index, durable, trust_salts),
        (size_of::<sys::pkv_file_config>(), 1, 0, 1)
    );
    assert_eq!(
        (bytes(fingerprint, fingerprint_size), bytes(key, key_size)),
        (&b"a\0b"[..], &[7; 20][..])
    );
}

#[test]
fn of_a_store() {
    open_library();
    let config = StoreConfig::directory("/a/path")
        .durable()
        .capacity_bytes(3)
        .wait(Duration::from_millis(4));
    let config = config.fingerprint(*b"a\0b").key([7; 20]).buffer_bytes(5).queue_blocks(6);
    let place: *const sys::pkv_store = std::ptr::NonNull::dangling().as_ptr();
    let sys::pkv_store_config {
        struct_size,
        wait_ms,
        store,
        fingerprint,
        fingerprint_size,
        key,
        key_size,
        buffer_bytes,
        queue_blocks,
    } = config.raw(place).unwrap();
    assert_eq!(
        (struct_size as usize, wait_ms, store),
        (size_of::<sys::pkv_store_config>(), 4, place)
    );
    assert_eq!(
        (bytes(fingerprint, fingerprint_size), bytes(key, key_size)),
        (&b"a\0b"[..], &[7; 20][..])
    );
    assert_eq!((buffer_bytes, queue_blocks), (5, 6));

    let wanted = CStr::from_bytes_with_nul(b"/a/path\0").unwrap();
    let sys::pkv_directory_config { struct_size, durable, path, capacity_bytes } =
        config.raw_directory(wanted).unwrap();
    assert_eq!(
        (struct_size as usize, durable, capacity_bytes),
        (size_of::<sys::pkv_directory_config>(), 1, 3)
    );
    assert_eq!(unsafe { CStr::from_ptr(path) }, wanted);
}

#[test]
fn of_attention() {
    open_library();
    let (slopes, logits, words, mut sums) = ([1.5, 2.5], [3.5, 4.5], [5, 6, 7, 8, 9, 10], [0.0; 6]);
    let params = AttentionParams::new().scale(0.5).window(3).sinks(4).softcap(2.5);
    let params = params.alibi_slopes(&slopes).sink_logits(&logits).mask(&words, 2).not_causal();
    let (bytes, firsts) = ([1; 60], [7, -8]);
    let shown = BoolMask {
        data: &bytes,
        columns: 11,
        row_stride: 12,
        batch_stride: 25,
        first_positions: Some(&firsts),
    };
    let params = params.parents(&[-1, -1, 0]).bool_mask(shown);
    let (lists, mut chosen) = ([3; 3 * 2 * 4], [0; 3 * 2 * 5]);
    let params = params.top_blocks(5).first_blocks(6).last_blocks(7).block_lists(&lists, 4);
    let (windows, kept) = ([10, 11], [12, 13]);
    let params = params.head_windows(&windows).head_sinks(&kept).choose_together();
    let batch = BatchRows { lengths: &[1, 2], first_rows: None };
    let mut mass = [0.0; 2 * 2 * 9];
    let told = Told {
        chosen_blocks: Some(&mut chosen),
        block_mass: Some((&mut mass, 9)),
        ..Told::lse(Some(&mut sums))
    };
    let sys::pkv_attention_params {
        struct_size,
        scale,
        causal,
        window,
        softcap,
        alibi_slopes,
        sink_logits,
        mask,
        mask_words,
        sinks,
        lse,
        parents,
        bool_mask,
        bool_mask_columns,
        bool_mask_row_stride,
        bool_mask_batch_stride,
        bool_mask_first_positions,
        top_blocks,
        first_blocks,
        last_blocks,
        block_mass_queries,
        block_lists,
        block_list_size,
        chosen_blocks,
        block_mass,
        block_mass_size,
        head_windows,
        head_sinks,
        choose_together,
        reserved: _,
    } = params.block_mass_queries(8).raw(&batch, [2, 2], told).unwrap();
    assert_eq!(struct_size as usize, size_of::<sys::pkv_attention_params>());
    assert_eq!((scale, causal, window, softcap, sinks, mask_words), (0.5, 0, 3, 2.5, 4, 2));
    assert_eq!((alibi_slopes, sink_logits), (slopes.as_ptr(), logits.as_ptr()));
    assert_eq!((mask, lse as *const f32), (words.as_ptr(), sums.as_ptr()));
    assert_eq!(unsafe { std::slice::from_raw_parts(parents, 3) }, [-1, -1, 0]);
    assert_eq!((bool_mask_columns, bool_mask_row_stride, bool_mask_batch_stride), (11, 12, 25));
    assert_eq!((bool_mask, bool_mask_first_positions), (bytes.as_ptr(), firsts.as_ptr()));
    assert_eq!((top_blocks, first_blocks, last_blocks, block_list_size), (5, 6, 7, 4));
    assert_eq!((block_mass_queries, block_mass_size), (8, 9));
    assert_eq!(block_mass as *const f32, mass.as_ptr());
    assert_eq!((head_windows, head_sinks), (windows.as_ptr(), kept.as_ptr()));
    assert_eq!(choose_together, 1);
    for wrong in [&windows[..1], &[1, 2, 3]] {
        let params = AttentionParams::new().head_windows(wrong);
        assert!(params.raw(&batch, [2, 2], Told::default()).is_err());
        let params = AttentionParams::new().head_sinks(wrong);
        assert!(params.raw(&batch, [2, 2], Told::default()).is_err());
    }
    assert_eq!((block_lists, chosen_blocks as *const u32), (lists.as_ptr(), chosen.as_ptr()));
    let raw = AttentionParams::new().raw(&batch, [2, 2], Told::default()).unwrap();
    assert_eq!((raw.top_blocks, raw.first_blocks, raw.last_blocks), (0, 1, 1));
    assert!(raw.block_lists.is_null() && raw.chosen_blocks.is_null());
    for (count, per_head) in [(23, 4), (25, 4), (24, 3), (0, 4), (24, 0), (24, usize::MAX)] {
        let params = AttentionParams::new().block_lists(&[3; 25][..count], per_head);
        assert!(params.raw(&batch, [2, 2], Told::default()).is_err());
    }
    for top in [0, 4, 6, u32::MAX] {
        let params = AttentionParams::new().top_blocks(top);
        let told = Told { chosen_blocks: Some(&mut chosen), ..Told::default() };
        assert!(params.raw(&batch, [2, 2], told).is_err());
    }
    for (count, per_head) in [(35, 9), (36, 8), (0, 9), (36, 0), (36, usize::MAX)] {
        let told = Told { block_mass: Some((&mut mass[..count], per_head)), ..Told::default() };
        assert!(AttentionParams::new().raw(&batch, [2, 2], told).is_err());
    }
    for short in [
        BoolMask { data: &bytes[..47], ..shown },
        BoolMask { columns: 24, ..shown },
        BoolMask { row_stride: usize::MAX, ..shown },
        BoolMask { first_positions: Some(&firsts[1..]), ..shown },
    ] {
        assert!(AttentionParams::new()
            .bool_mask(short)
            .raw(&batch, [2, 1], Told::default())
            .is_err());
    }
    assert!(AttentionParams::new().parents(&[0; 2]).raw(&batch, [2, 1], Told::default()).is_err());

    let sequences = Sequences {
        query_heads: 3,
        query_lengths: &[1, 2],
        kv_lengths: &[4, 5],
        block_tables: &[6; 6],
        block_table_stride: 3,
        first_rows: Some(&[7, 8]),
        query_positions: Some(&[9, 10, 11]),
    };
    let sys::pkv_attention_sequences {
        struct_size,
        query_heads,
        count,
        query_lengths,
        kv_lengths,
        block_tables,
        block_table_stride,
        first_rows,
        query_positions,
    } = sequences.raw().unwrap();
    assert_eq!(unsafe { std::slice::from_raw_parts(first_rows, 2) }, [7, 8]);
    assert_eq!(unsafe { std::slice::from_raw_parts(query_positions, 3) }, [9, 10, 11]);
    assert!(Sequences { first_rows: Some(&[7]), ..sequences }.raw().is_err());
    assert!(Sequences { query_positions: Some(&[7]), ..sequences }.raw().is_err());
    assert_eq!(struct_size as usize, size_of::<sys::pkv_attention_sequences>());
    assert_eq!((query_heads, count, block_table_stride), (3, 2, 3));
    assert_eq!(
        (query_lengths, kv_lengths),
        (sequences.query_lengths.as_ptr(), sequences.kv_lengths.as_ptr())
    );
    assert_eq!(block_tables, sequences.block_tables.as_ptr());
    assert_ne!(block_tables, null());
}
