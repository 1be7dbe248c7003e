//! Every field that a caller describes arrives in C. The structs are taken apart without `..`, so
//! that a field that is new in C does not compile until it is looked at here.
use crate::attention::Told;
use crate::rows::BatchRows;
use crate::*;
use std::alloc::System;
use std::ffi::CStr;
use std::mem::size_of;
use std::ptr::null;
use std::time::Duration;

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
            reserved,
        } = *raw;
        assert_eq!((shared_memory, reserved), (1, 0));
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
    let config =
        SessionConfig::new().priority(-3).prefix(PrefixUse::MATCH).retention(Retention::HIGH);
    let sys::pkv_session_config { struct_size, priority, prefix, retention, salt, salt_size } =
        config.salt(b"a\0b").raw();
    assert_eq!(struct_size as usize, size_of::<sys::pkv_session_config>());
    assert_eq!((priority, prefix, retention), (-3, PrefixUse::MATCH, Retention::HIGH));
    assert_eq!(bytes(salt, salt_size), b"a\0b");
}

#[test]
fn of_a_pool() {
    let config = PoolConfig::new(3).block_size(4).allocator(System);
    let allocator =
        Some(sys::pkv_allocator { alloc: None, free: None, user: std::ptr::null_mut() });
    let sys::pkv_pool_config { struct_size, blocks, block_size, reserved, allocator: given } =
        config.raw(&allocator);
    assert_eq!(
        (struct_size as usize, blocks, block_size, reserved),
        (size_of::<sys::pkv_pool_config>(), 3, 4, 0)
    );
    assert!(!given.is_null());
}

#[test]
fn of_a_file() {
    let config = FileConfig::new()
        .prefix_index()
        .fingerprint(b"a\0b")
        .key(&[7; 20])
        .skip_fsync()
        .trust_salts();
    let sys::pkv_file_config {
        struct_size,
        prefix_index,
        fingerprint,
        fingerprint_size,
        key,
        key_size,
        skip_fsync,
        trust_salts,
    } = config.raw();
    assert_eq!(
        (struct_size as usize, prefix_index, skip_fsync, trust_salts),
        (size_of::<sys::pkv_file_config>(), 1, 1, 1)
    );
    assert_eq!(
        (bytes(fingerprint, fingerprint_size), bytes(key, key_size)),
        (&b"a\0b"[..], &[7; 20][..])
    );
}

#[test]
fn of_a_store() {
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
    } = config.raw(place);
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
        config.raw_directory(wanted);
    assert_eq!(
        (struct_size as usize, durable, capacity_bytes),
        (size_of::<sys::pkv_directory_config>(), 1, 3)
    );
    assert_eq!(unsafe { CStr::from_ptr(path) }, wanted);
}

const BATCH: BatchRows<'_> = BatchRows { lengths: &[1, 2], first_rows: None };

/// Looks at parameters of a batch of two sequences with three rows, two query heads and two KV
/// heads.
fn look_at(
    params: &AttentionParams<'_>,
    told: Told<'_>,
    look: impl FnOnce(&sys::pkv_attention_params),
) -> Result<()> {
    params.with_raw(&BATCH, [2, 2], told, |raw| {
        look(raw);
        Ok(())
    })
}

fn refused(params: AttentionParams<'_>, told: Told<'_>) {
    let error = look_at(&params, told, |_| panic!("C is asked")).unwrap_err();
    assert_eq!(error.status(), Status::INVALID_ARGUMENT);
}

#[test]
fn of_attention() {
    let (slopes, logits, mut sums) = ([1.5, 2.5], [3.5, 4.5], [0.0; 6]);
    let (windows, kept) = ([10, 11], [12, 13]);
    let params = AttentionParams::new().scale(0.5).window(3).sinks(4).softcap(2.5).bidirectional();
    let params = params.alibi_slopes(&slopes).sink_logits(&logits);
    let params = params.head_windows(&windows).head_sinks(&kept);
    let address = sums.as_ptr();
    look_at(&params, Told::lse(Some(&mut sums)), |raw| {
        let sys::pkv_attention_params {
            struct_size,
            scale,
            bidirectional,
            window,
            sinks,
            softcap,
            head_windows,
            head_sinks,
            alibi_slopes,
            sink_logits,
            mask,
            chosen_blocks,
            block_mass,
            lse,
        } = *raw;
        assert_eq!(struct_size as usize, size_of::<sys::pkv_attention_params>());
        assert_eq!((scale, bidirectional, window, sinks, softcap), (0.5, 1, 3, 4, 2.5));
        assert_eq!((head_windows, head_sinks), (windows.as_ptr(), kept.as_ptr()));
        assert_eq!((alibi_slopes, sink_logits), (slopes.as_ptr(), logits.as_ptr()));
        assert_eq!(lse as *const f32, address);
        assert!(mask.is_null() && chosen_blocks.is_null() && block_mass.is_null());
    })
    .unwrap();
    let params = AttentionParams::new();
    for wrong in [&windows[..1], &[1, 2, 3]] {
        refused(params.head_windows(wrong), Told::default());
        refused(params.head_sinks(wrong), Told::default());
    }
    for wrong in [&slopes[..1], &[1.0; 3]] {
        refused(params.alibi_slopes(wrong), Told::default());
        refused(params.sink_logits(wrong), Told::default());
    }
    refused(params, Told::lse(Some(&mut [0.0; 5])));
}

fn mask_of(mask: Mask<'_>) -> sys::pkv_mask {
    let mut found = sys::pkv_mask::default();
    let params = AttentionParams::new().mask(mask);
    look_at(&params, Told::default(), |raw| found = unsafe { *raw.mask }).unwrap();
    assert_eq!(found.struct_size as usize, size_of::<sys::pkv_mask>());
    found
}

#[test]
fn of_masks() {
    let (words, parents, bytes, firsts) = ([5; 6], [-1, -1, 0], [1; 60], [7, -8]);
    let raw = mask_of(Mask::Bits { words: &words, words_per_row: 2 });
    assert_eq!((raw.kind, raw.row_stride), (sys::pkv_mask_kind::BITS, 2));
    assert_eq!(raw.data, words.as_ptr().cast());

    let raw = mask_of(Mask::Parents(&parents));
    assert_eq!((raw.kind, raw.row_stride), (sys::pkv_mask_kind::PARENTS, 0));
    assert_eq!(raw.data, parents.as_ptr().cast());

    let shown = ByteMask {
        data: &bytes,
        columns: 11,
        row_stride: 12,
        batch_stride: 25,
        first_positions: Some(&firsts),
    };
    let sys::pkv_mask {
        struct_size: _,
        kind,
        data,
        row_stride,
        batch_stride,
        columns,
        first_positions,
    } = mask_of(Mask::Bytes(shown));
    assert_eq!((kind, data), (sys::pkv_mask_kind::BYTES, bytes.as_ptr().cast()));
    assert_eq!((row_stride, batch_stride, columns), (12, 25, 11));
    assert_eq!(first_positions, firsts.as_ptr());

    for wrong in [
        Mask::Bits { words: &words[1..], words_per_row: 2 },
        Mask::Parents(&parents[1..]),
        Mask::Bytes(ByteMask { data: &bytes[..47], ..shown }),
        Mask::Bytes(ByteMask { columns: 24, ..shown }),
        Mask::Bytes(ByteMask { row_stride: usize::MAX, ..shown }),
        Mask::Bytes(ByteMask { first_positions: Some(&firsts[1..]), ..shown }),
    ] {
        refused(AttentionParams::new().mask(wrong), Told::default());
    }
}

fn chosen_of(blocks: ChosenBlocks<'_>, told: Option<&mut [u32]>) -> sys::pkv_chosen_blocks {
    let mut found = sys::pkv_chosen_blocks::default();
    let params = AttentionParams::new().chosen_blocks(blocks);
    let told = Told { chosen: told, ..Told::default() };
    look_at(&params, told, |raw| found = unsafe { *raw.chosen_blocks }).unwrap();
    assert_eq!(found.struct_size as usize, size_of::<sys::pkv_chosen_blocks>());
    found
}

#[test]
fn of_chosen_blocks() {
    let (given, mut told) = ([3; 3 * 2 * 4], [0; 3 * 2 * 5]);
    let address = told.as_ptr();
    let blocks = ChosenBlocks::top(5).first(6).last(7).together();
    let sys::pkv_chosen_blocks {
        struct_size: _,
        top,
        first,
        last,
        together,
        reserved,
        lists,
        list_size,
        chosen,
    } = chosen_of(blocks, Some(&mut told));
    assert_eq!((top, first, last, together, reserved, list_size), (5, 6, 7, 1, 0, 0));
    assert!(lists.is_null());
    assert_eq!(chosen as *const u32, address);
    let raw = chosen_of(ChosenBlocks::lists(&given, 4), None);
    assert_eq!((raw.top, raw.first, raw.last, raw.together), (0, 1, 1, 0));
    assert_eq!((raw.lists, raw.list_size), (given.as_ptr(), 4));
    assert!(raw.chosen.is_null());

    for (count, per_head) in [(23, 4), (25, 4), (24, 3), (0, 4), (24, 0), (24, usize::MAX)] {
        let lists = ChosenBlocks::lists(&[3; 25][..count], per_head);
        refused(AttentionParams::new().chosen_blocks(lists), Told::default());
    }
    for top in [0, 4, 6, u32::MAX] {
        let told = Told { chosen: Some(&mut told), ..Told::default() };
        refused(AttentionParams::new().chosen_blocks(ChosenBlocks::top(top)), told);
    }
}

fn of_mass(mass: BlockMass<'_>) -> Told<'_> {
    Told { block_mass: Some(mass), ..Told::default() }
}

#[test]
fn of_block_mass() {
    let mut told = [0.0; 2 * 2 * 9];
    let address = told.as_ptr();
    let mass = BlockMass { masses: &mut told, size: 9, queries: 8 };
    look_at(&AttentionParams::new(), of_mass(mass), |raw| {
        let sys::pkv_block_mass { struct_size, queries, masses, size } = unsafe { *raw.block_mass };
        assert_eq!(struct_size as usize, size_of::<sys::pkv_block_mass>());
        assert_eq!((queries, masses as *const f32, size), (8, address, 9));
    })
    .unwrap();
    for (count, size) in [(35, 9), (36, 8), (0, 9), (36, 0), (36, usize::MAX)] {
        let mass = BlockMass { masses: &mut told[..count], size, queries: 0 };
        refused(AttentionParams::new(), of_mass(mass));
    }
}

#[test]
fn of_sequences() {
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
