//! What a caller gives by address, or in another form than C's, reaches C; other setters are
//! generated. Structs without setters are compared as text, so a new C field fails here.
use crate::rows::BatchRows;
use crate::*;
use std::alloc::System;
use std::ffi::CStr;
use std::fmt::Debug;
use std::mem::size_of;
use std::time::Duration;

/// Checks all fields of a struct of C; 0x_ is an address, and 0x0 none.
fn check<T: Debug>(raw: &T, fields: &str) {
    let (name, size) = (std::any::type_name::<T>(), size_of::<T>());
    let name = name.rsplit(':').next().unwrap();
    let text = format!("{raw:?}").replace("0x0", "null");
    let mut parts = text.split("0x");
    let mut found = parts.next().unwrap().to_string();
    for part in parts {
        found += "0x_";
        found += part.trim_start_matches(|digit: char| digit.is_ascii_hexdigit());
    }
    let fields = fields.replace("0x0", "null");
    assert_eq!(found, format!("{name} {{ struct_size: {size}, {fields} }}"));
}

fn bytes<'a>(address: *const std::os::raw::c_void, size: u64) -> &'a [u8] {
    unsafe { std::slice::from_raw_parts(address.cast(), size as usize) }
}

struct NoBlocks;

impl BlockIo for NoBlocks {
    fn read(&self, _: u32, _: &[u32], _: &[u32], _: &mut [u8]) -> std::io::Result<()> {
        Ok(())
    }
    fn write(&self, _: u32, _: &[u32], _: &[u8]) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn of_groups() {
    let group = LayerGroup::new(2, 3, 4, 5).layer_indices([1, 0]).value_dim(6).latent();
    let group = group.key_rotation([10.0; 25]).value_rotation([11.0; 36]);
    let look = |raw: &sys::pkv_cache_config| {
        let raw = unsafe { &*raw.groups };
        assert_eq!((raw.layers, raw.query_heads, raw.kv_heads, raw.key_dim), (2, 3, 4, 5));
        assert_eq!((raw.value_dim, raw.kind), (6, LayerKind::LATENT));
        assert_eq!(unsafe { std::slice::from_raw_parts(raw.layer_indices, 2) }, [1, 0]);
        let matrices = unsafe { &*raw.rotation_matrices };
        check(matrices, "reserved: 0, key: 0x_, value: 0x_");
        assert_eq!(unsafe { std::slice::from_raw_parts(matrices.key, 25) }, [10.0; 25]);
        assert_eq!(unsafe { std::slice::from_raw_parts(matrices.value, 36) }, [11.0; 36]);
        Ok(())
    };
    CacheConfig::new(group).with_raw(look).unwrap();
    for (group, kind) in [
        (LayerGroup::states(2, 3), LayerKind::STATES),
        (LayerGroup::opaque_kv(2, 3), LayerKind::OPAQUE_KV),
        (LayerGroup::opaque_states(2, 3), LayerKind::OPAQUE_STATES),
    ] {
        let raw = group.raw(&None).unwrap();
        assert_eq!((raw.kind, raw.layers, raw.layer_bytes, raw.kv_heads), (kind, 2, 3, 0));
    }
}

#[test]
fn of_a_cache() {
    let groups = [LayerGroup::new(2, 1, 1, 16), LayerGroup::new(3, 1, 1, 16)];
    let config = CacheConfig::with_groups(groups)
        .memory_directory("/a/path")
        .prefix(PrefixConfig::new().max_events(5))
        .allocator(System)
        .logger(|_, _| {})
        .block_io(NoBlocks)
        .clock(|| Duration::from_millis(15))
        .runner(14, |_| {});
    let look = |raw: &sys::pkv_cache_config| {
        // The store is opened with the cache.
        assert!(raw.store.is_null() && !raw.block_io.is_null());
        assert_eq!(unsafe { CStr::from_ptr(raw.memory_directory) }.to_bytes(), b"/a/path");
        let groups = unsafe { std::slice::from_raw_parts(raw.groups, raw.group_count as usize) };
        assert_eq!([groups[0].layers, groups[1].layers], [2, 3]);
        assert_eq!(unsafe { &*raw.prefix }.max_events, 5);
        let (allocator, logger, runner) = unsafe { (*raw.allocator, *raw.logger, *raw.runner) };
        assert!(allocator.alloc.is_some() && allocator.free.is_some() && !allocator.user.is_null());
        assert!(logger.log.is_some() && !logger.user.is_null());
        assert!(runner.run.is_some() && !runner.user.is_null());
        let clock = unsafe { *raw.clock };
        assert_eq!(unsafe { clock.now_ms.unwrap()(clock.user) }, 15);
        assert_eq!((runner.threads, runner.reserved), (14, 0));
        Ok(())
    };
    config.with_raw(look).unwrap();
}

#[test]
fn of_a_session() {
    let raw = SessionConfig::new().salt(b"a\0b").raw();
    assert_eq!(bytes(raw.salt, raw.salt_size), b"a\0b");
}

#[test]
fn of_a_pool() {
    let config = PoolConfig::new(3).allocator(System);
    let allocator =
        Some(sys::pkv_allocator { alloc: None, free: None, user: std::ptr::null_mut() });
    check(&config.raw(&allocator), "blocks: 3, allocator: 0x_");
}

#[test]
fn of_a_file() {
    let config = FileConfig::new().fingerprint(b"a\0b").secret_key(&[7; 20]).durable(false);
    let raw = config.raw();
    assert_eq!(raw.durability, sys::pkv_durability::OFF);
    assert_eq!(bytes(raw.fingerprint, raw.fingerprint_size), b"a\0b");
    assert_eq!(bytes(raw.secret_key, raw.secret_key_size), [7; 20]);
}

#[test]
fn of_a_store() {
    let config =
        StoreConfig::directory("/a/path").durable(true).max_bytes(3).wait(Duration::from_millis(4));
    let config =
        config.fingerprint(*b"a\0b").secret_key([7; 20]).buffer_bytes(5).max_queued_tokens(6);
    let place: *mut sys::pkv_store = std::ptr::NonNull::dangling().as_ptr();
    let raw = config.raw(place);
    check(
        &raw,
        "wait_ms: 4, store: 0x_, fingerprint: 0x_, fingerprint_size: 3, \
         secret_key: 0x_, secret_key_size: 20, \
         buffer_bytes: 5, max_queued_tokens: 6",
    );
    assert_eq!(raw.store, place);
    assert_eq!(bytes(raw.fingerprint, raw.fingerprint_size), b"a\0b");
    assert_eq!(bytes(raw.secret_key, raw.secret_key_size), [7; 20]);

    let wanted = CStr::from_bytes_with_nul(b"/a/path\0").unwrap();
    let raw = config.raw_directory(wanted);
    check(&raw, "durability: ON, path: 0x_, max_bytes: 3");
    assert_eq!(unsafe { CStr::from_ptr(raw.path) }, wanted);
}

const BATCH: BatchRows<'_> = BatchRows { lengths: &[1, 2], first_rows: None };

/// Checks parameters and outputs of a batch of two sequences with three rows, two query heads and
/// two KV heads.
fn look_at(
    params: &AttentionParams<'_>,
    outputs: Option<AttentionOutputs<'_>>,
    look: impl FnOnce(&sys::pkv_attention_params, Option<&sys::pkv_attention_outputs>),
) -> Result<()> {
    params.with_raw(&BATCH, [2, 2], outputs, |params, outputs| {
        look(params, unsafe { outputs.as_ref() });
        Ok(())
    })
}

fn refused(params: AttentionParams<'_>, outputs: Option<AttentionOutputs<'_>>) {
    let error = look_at(&params, outputs, |_, _| panic!("C is asked")).unwrap_err();
    assert_eq!(error.status(), Status::INVALID_ARGUMENT);
}

#[test]
fn of_attention() {
    let (slopes, logits) = ([1.5, 2.5], [3.5, 4.5]);
    let (windows, kept) = ([10, 11], [12, 13]);
    let params = AttentionParams::new().alibi_slopes(&slopes).sink_logits(&logits);
    let params = params.kv_head_windows(&windows).kv_head_sink_tokens(&kept);
    look_at(&params, None, |raw, outputs| {
        assert!(outputs.is_none());
        assert_eq!(
            (raw.kv_head_windows, raw.kv_head_sink_tokens),
            (windows.as_ptr(), kept.as_ptr())
        );
        assert_eq!((raw.alibi_slopes, raw.sink_logits), (slopes.as_ptr(), logits.as_ptr()));
    })
    .unwrap();
    let params = AttentionParams::new();
    for wrong in [&windows[..1], &[1, 2, 3]] {
        refused(params.kv_head_windows(wrong), None);
        refused(params.kv_head_sink_tokens(wrong), None);
    }
    for wrong in [&slopes[..1], &[1.0; 3]] {
        refused(params.alibi_slopes(wrong), None);
        refused(params.sink_logits(wrong), None);
    }
}

#[test]
fn of_attention_outputs() {
    let (mut lse, mut chosen, mut masses) = ([0.0; 6], [0; 3 * 2 * 5], [0.0; 2 * 2 * 9]);
    let addresses = (lse.as_ptr(), chosen.as_ptr(), masses.as_ptr());
    let choosing = AttentionParams::new().chosen_blocks(ChosenBlocks::top_blocks(5));
    let outputs = AttentionOutputs {
        lse: Some(&mut lse),
        chosen: Some(&mut chosen),
        masses: Some(&mut masses),
        mass_blocks: 9,
        mass_queries: 8,
    };
    look_at(&choosing, Some(outputs), |_, raw| {
        let raw = raw.unwrap();
        check(raw, "reserved: 0, lse: 0x_, block_outputs: 0x_");
        let blocks = unsafe { &*raw.block_outputs };
        check(blocks, "mass_queries: 8, chosen: 0x_, masses: 0x_, mass_blocks: 9");
        let found =
            (raw.lse as *const f32, blocks.chosen as *const u32, blocks.masses as *const f32);
        assert_eq!(found, addresses);
    })
    .unwrap();
    refused(choosing, Some(AttentionOutputs::lse(&mut lse[1..])));
    for top in [0, 4, 6, u32::MAX] {
        let params = AttentionParams::new().chosen_blocks(ChosenBlocks::top_blocks(top));
        let outputs = AttentionOutputs { chosen: Some(&mut chosen), ..Default::default() };
        refused(params, Some(outputs));
    }
    let outputs = AttentionOutputs { chosen: Some(&mut []), ..Default::default() };
    refused(AttentionParams::new(), Some(outputs));
    for (count, mass_blocks) in [(35, 9), (36, 8), (0, 9), (36, 0), (36, usize::MAX)] {
        let masses = Some(&mut masses[..count]);
        let outputs = AttentionOutputs { masses, mass_blocks, ..Default::default() };
        refused(AttentionParams::new(), Some(outputs));
    }
}

fn mask_of(mask: Mask<'_>) -> sys::pkv_mask {
    let mut found = sys::pkv_mask::default();
    let params = AttentionParams::new().mask(mask);
    look_at(&params, None, |raw, _| found = unsafe { *raw.mask }).unwrap();
    found
}

#[test]
fn of_masks() {
    let (words, parents, bytes, firsts) = ([5; 6], [-1, -1, 0], [1; 60], [7, -8]);
    let positions = [8, 9, 8];
    let bits = Mask::Bits { words: &words, words_per_row: 2, positions: Some(&positions) };
    let raw = mask_of(bits);
    assert_eq!((raw.kind, raw.row_stride), (sys::pkv_mask_kind::TREE_BITS, 2));
    assert_eq!((raw.data, raw.positions), (words.as_ptr().cast(), positions.as_ptr()));

    let raw = mask_of(Mask::Parents(&parents));
    assert_eq!((raw.kind, raw.row_stride), (sys::pkv_mask_kind::TREE_PARENTS, 0));
    assert_eq!(raw.data, parents.as_ptr().cast());

    let (halves, floats, factors) = ([F16(0); 60], [0.5; 60], [0.5; 2]);
    let shown = ColumnMask {
        data: MaskData::Bytes(&bytes),
        columns: 11,
        row_stride: 12,
        batch_stride: 25,
        first_positions: Some(&firsts),
        head_factors: Some(&factors),
    };
    let raw = mask_of(Mask::Columns(shown));
    check(
        &raw,
        "kind: BYTES, data: 0x_, row_stride: 12, batch_stride: 25, columns: 11, \
         first_positions: 0x_, positions: 0x0, head_factors: 0x_",
    );
    assert_eq!((raw.data, raw.first_positions), (bytes.as_ptr().cast(), firsts.as_ptr()));
    assert_eq!(raw.head_factors, factors.as_ptr());
    let raw = mask_of(Mask::Columns(ColumnMask { data: MaskData::F16(&halves), ..shown }));
    assert_eq!((raw.kind, raw.data), (sys::pkv_mask_kind::F16, halves.as_ptr().cast()));
    let raw = mask_of(Mask::Columns(ColumnMask { data: MaskData::F32(&floats), ..shown }));
    assert_eq!((raw.kind, raw.data), (sys::pkv_mask_kind::F32, floats.as_ptr().cast()));

    for wrong in [
        Mask::Bits { words: &words[1..], words_per_row: 2, positions: None },
        Mask::Bits { words: &words, words_per_row: 2, positions: Some(&positions[1..]) },
        Mask::Parents(&parents[1..]),
        Mask::Columns(ColumnMask { data: MaskData::Bytes(&bytes[..47]), ..shown }),
        Mask::Columns(ColumnMask { data: MaskData::F32(&floats[..47]), ..shown }),
        Mask::Columns(ColumnMask { columns: 24, ..shown }),
        Mask::Columns(ColumnMask { row_stride: usize::MAX, ..shown }),
        Mask::Columns(ColumnMask { first_positions: Some(&firsts[1..]), ..shown }),
        Mask::Columns(ColumnMask { head_factors: Some(&factors[1..]), ..shown }),
    ] {
        refused(AttentionParams::new().mask(wrong), None);
    }
}

fn chosen_of(blocks: ChosenBlocks<'_>) -> sys::pkv_chosen_blocks {
    let mut found = sys::pkv_chosen_blocks::default();
    let params = AttentionParams::new().chosen_blocks(blocks);
    look_at(&params, None, |raw, _| found = unsafe { *raw.chosen_blocks }).unwrap();
    found
}

#[test]
fn of_chosen_blocks() {
    let given = [3; 3 * 2 * 4];
    assert_eq!(chosen_of(ChosenBlocks::top_blocks(5)).top_blocks, 5);
    let raw = chosen_of(ChosenBlocks::lists(&given, 4));
    assert_eq!((raw.top_blocks, raw.first_blocks, raw.last_blocks), (0, 1, 1));
    assert_eq!(raw.tokens_per_choice, 0);
    assert_eq!((raw.lists, raw.list_blocks), (given.as_ptr(), 4));

    for (count, per_head) in [(23, 4), (25, 4), (24, 3), (0, 4), (24, 0), (24, u32::MAX)] {
        let lists = ChosenBlocks::lists(&[3; 25][..count], per_head);
        refused(AttentionParams::new().chosen_blocks(lists), None);
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
    let raw = sequences.raw().unwrap();
    check(
        &raw,
        "query_heads: 3, count: 2, query_lengths: 0x_, kv_lengths: 0x_, block_tables: 0x_, \
         block_table_stride: 3, first_rows: 0x_, query_positions: 0x_",
    );
    assert_eq!(unsafe { std::slice::from_raw_parts(raw.first_rows, 2) }, [7, 8]);
    assert_eq!(unsafe { std::slice::from_raw_parts(raw.query_positions, 3) }, [9, 10, 11]);
    assert_eq!(raw.query_lengths, sequences.query_lengths.as_ptr());
    assert_eq!(raw.kv_lengths, sequences.kv_lengths.as_ptr());
    assert_eq!(raw.block_tables, sequences.block_tables.as_ptr());
    assert!(Sequences { first_rows: Some(&[7]), ..sequences }.raw().is_err());
    assert!(Sequences { query_positions: Some(&[7]), ..sequences }.raw().is_err());
}
