//! The promises of the types: lifetimes, errors, hooks, arrays, and every function that the
//! scenarios do not reach.
use pagedkv::*;
use std::alloc::{GlobalAlloc, Layout as Memory, System};
use std::sync::atomic::{AtomicIsize, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const DIM: usize = 16;

fn config() -> CacheConfig {
    config_of(8)
}

fn config_of(blocks: u64) -> CacheConfig {
    CacheConfig::new(LayerGroup::new(1, 2, 1, DIM as u32).blocks(blocks)).threads(1)
}

fn cache() -> Cache {
    Cache::new(&config()).unwrap()
}

/// Adds rows to a session in a step of its own.
fn add<'a>(
    cache: &Cache,
    session: &mut Session,
    n: u32,
    k: impl Into<Rows<'a>>,
    v: impl Into<Rows<'a>>,
) -> Result<()> {
    let mut batch = cache.begin([(session, n)])?;
    batch.write(0, k, v)?;
    batch.commit(None)
}

fn filled(cache: &Cache, tokens: &[i32]) -> Session {
    let mut session = cache.open_session().unwrap();
    let kv: Vec<f32> = tokens.iter().flat_map(|&token| [token as f32; DIM]).collect();
    let mut batch = cache.begin([(&mut session, tokens.len() as u32)]).unwrap();
    batch.write(0, &kv, &kv).unwrap();
    batch.commit(tokens).unwrap();
    session
}

#[track_caller]
fn refused<T: std::fmt::Debug>(outcome: Result<T>, status: Status) {
    assert_eq!(outcome.unwrap_err().status(), status);
}

#[test]
fn owners_go_in_any_order() {
    let cache = cache();
    let session = filled(&cache, &[1; 20]);
    let snapshot = session.snapshot().unwrap();
    let fork = session.fork().unwrap();
    drop(cache);
    drop(session);
    let opened = snapshot.fork().unwrap();
    drop(snapshot);
    assert_eq!((opened.length().unwrap(), fork.length().unwrap()), (20, 20));
}

#[test]
fn a_dropped_batch_leaves_no_trace() {
    let cache = cache();
    let mut session = filled(&cache, &[1; 20]);
    drop(cache.begin([(&mut session, 30)]).unwrap());
    assert_eq!(session.length().unwrap(), 20);
    assert_eq!(cache.pool_stats().unwrap().held_blocks, 2);
}

#[test]
fn a_forgotten_batch_keeps_its_session_until_the_cache_goes() {
    let cache = cache();
    let mut session = filled(&cache, &[1; 20]);
    std::mem::forget(cache.begin([(&mut session, 1)]).unwrap());
    refused(session.trim(0), Status::BUSY);
    drop(session);
    assert_eq!(cache.stats().unwrap().sessions, 1);
}

#[test]
fn a_commit_that_fails_gives_the_batch_back() {
    let cache = cache();
    let mut session = cache.open_session().unwrap();
    let batch = cache.begin([(&mut session, 1)]).unwrap();
    let (batch, error) = batch.try_commit(&[1, 2]).unwrap_err();
    assert_eq!(error.status(), Status::INVALID_ARGUMENT);
    let (mut batch, error) = batch.try_commit(Some([1].as_slice())).unwrap_err();
    assert_eq!(error.status(), Status::INCOMPLETE);
    assert!(error.to_string().ends_with("(INCOMPLETE)"), "{error}");
    batch.write(0, &[0f32; DIM], &[0f32; DIM]).unwrap();
    assert_eq!(batch.session(0).length().unwrap(), 0);
    batch.commit(None).unwrap();
    assert_eq!(session.tokens(0..1).unwrap(), [UNKNOWN_TOKEN]);
    session.set_tokens(0, &[5]).unwrap();
    assert_eq!(session.tokens(0..1).unwrap(), [5]);
}

#[test]
fn rows_of_another_shape_are_refused() {
    let cache = cache();
    let mut session = cache.open_session().unwrap();
    let mut batch = cache.begin([(&mut session, 2)]).unwrap();
    let (short, long) = ([0f32; DIM], [0f32; 2 * DIM]);
    let error = batch.write(0, &long, &short).unwrap_err();
    assert_eq!(error.message(), "v: 2 rows of 1 heads of 16 reach over 128 bytes; bytes is 64");
    refused(batch.write(0, &long, &[0f32; 0]), Status::INVALID_ARGUMENT);
    refused(batch.write(1, &long, &long), Status::OUT_OF_RANGE);
    batch.write(0, &long, &long).unwrap();
    assert!(batch.attend(0, &[0f32; 4 * DIM], &mut [0f32; 3 * DIM]).is_err());
    let slopes = AttentionParams::new().alibi_slopes(&[1.0]);
    assert!(batch.attend_with(0, &slopes, &[0f32; 4 * DIM], &mut [0f32; 4 * DIM], None).is_err());
    let params = AttentionParams::new();
    let masked = params.mask(Mask::Bits { words: &[1], words_per_row: 1, positions: None });
    assert!(batch.attend_with(0, &masked, &[0f32; 4 * DIM], &mut [0f32; 4 * DIM], None).is_err());
    assert!(batch
        .attend_with(
            0,
            &params,
            &[0f32; 4 * DIM],
            &mut [0f32; 4 * DIM],
            Some(AttentionOutputs::lse(&mut [0.0; 3]))
        )
        .is_err());
}

#[test]
fn strided_rows_and_halves() {
    let cache = cache();
    let mut session = cache.open_session().unwrap();
    let one = 0x3F80; // 1.0 in bfloat16
    let mut k = [Bf16(0); 3 * 20];
    (0..3).for_each(|row| k[row * 20..][..DIM].fill(Bf16(one)));
    let v = [F16(0x4000); 3 * DIM]; // 2.0 in binary16
    add(&cache, &mut session, 3, Rows::strided(&k[..2 * 20 + DIM], 20, DIM), &v).unwrap();
    add(&cache, &mut session, 1, &[3f32; DIM], &[4f32; DIM]).unwrap();
    let (mut keys, mut values) = ([0f32; 4 * 24], [F16(0); 4 * DIM]);
    session.read(0, 0..4, RowsMut::strided(&mut keys, 24, DIM), &mut values).unwrap();
    assert_eq!((keys[0], keys[15], keys[16], keys[3 * 24]), (1.0, 1.0, 0.0, 3.0));
    assert_eq!((values[0], values[3 * DIM]), (F16(0x4000), F16(0x4400)));
    session.read_keys(0, 3..4, &mut keys[..DIM]).unwrap();
    session.read_values(0, 3..4, &mut keys[DIM..2 * DIM]).unwrap();
    assert_eq!((keys[0], keys[DIM]), (3.0, 4.0));
}

#[cfg(feature = "ndarray")]
#[test]
fn arrays() {
    use ndarray::{s, Array2, Array3};
    let cache = cache();
    let mut session = cache.open_session().unwrap();
    let wide = Array3::from_shape_fn((4, 3, 2 * DIM), |(row, head, dim)| {
        (row * 100 + head * 32 + dim) as f32
    });
    let view = wide.slice(s![..;2, 1..2, 4..4 + DIM]); // rows 0 and 2, one head, some dims
    let flat = Array2::from_elem((2, DIM), 0.5f32);
    add(&cache, &mut session, 2, view, &flat).unwrap();
    let mut k = Array3::<f32>::zeros((2, 1, DIM));
    let mut v = Array3::<f32>::zeros((2, 2, DIM));
    session.read(0, 0..2, &mut k, v.slice_mut(s![.., 1..2, ..])).unwrap();
    assert_eq!(k, view);
    assert_eq!((v[[0, 0, 0]], v[[0, 1, 0]], v[[1, 1, DIM - 1]]), (0.0, 0.5, 0.5));

    let mut refused = |rows: Rows<'_>| {
        let error = add(&cache, &mut session, 2, rows, &flat).unwrap_err();
        assert_eq!(error.status(), Status::INVALID_ARGUMENT)
    };
    refused(wide.slice(s![..2, ..1, ..;2]).into()); // dims with gaps
    refused(wide.slice(s![..2;-1, ..1, ..DIM]).into()); // backwards
    refused(flat.slice(s![0, ..]).broadcast((2, DIM)).unwrap().into()); // the same row twice
    refused(wide.slice(s![..2, ..2, ..DIM]).into()); // two heads
    refused(wide.slice(s![.., ..1, ..DIM]).into()); // four rows
}

#[cfg(feature = "half")]
#[test]
fn halves_of_the_half_crate() {
    let cache = cache();
    let mut session = cache.open_session().unwrap();
    let (k, v) = ([half::f16::from_f32(0.5); DIM], [half::bf16::from_f32(2.0); DIM]);
    add(&cache, &mut session, 1, &k, &v).unwrap();
    let (mut k, mut v) = ([half::bf16::ZERO; DIM], [0f32; DIM]);
    session.read(0, 0..1, &mut k, &mut v).unwrap();
    assert_eq!((k[3].to_f32(), v[3]), (0.5, 2.0));
}

#[test]
fn attention_says_how_much_it_saw_and_states_merge() {
    let cache = cache();
    let mut session = filled(&cache, &[1; 3]);
    let mut batch = cache.begin([(&mut session, 1)]).unwrap();
    batch.write(0, &[0f32; DIM], &[5f32; DIM]).unwrap();
    let (mut out, mut lse) = ([0f32; 2 * DIM], [0f32; 2]);
    // Queries are zeros, so all scores are 0 and outputs are means.
    let params = AttentionParams::new();
    batch
        .attend_with(0, &params, &[0f32; 2 * DIM], &mut out, Some(AttentionOutputs::lse(&mut lse)))
        .unwrap();
    assert!((lse[0] - 4f32.ln()).abs() < 1e-6 && (out[0] - 2.0).abs() < 1e-6);
    let window = AttentionParams::new().window(2);
    batch.attend_with(0, &window, &[0f32; 2 * DIM], &mut out, None).unwrap();
    assert!((out[0] - 3.0).abs() < 1e-6);
    let masked = params.mask(Mask::Bits { words: &[0], words_per_row: 1, positions: None });
    batch
        .attend_with(0, &masked, &[0f32; 2 * DIM], &mut out, Some(AttentionOutputs::lse(&mut lse)))
        .unwrap();
    assert!((out[0] - 1.0).abs() < 1e-6);

    let (mut merged, mut merged_lse) = ([0f32; 2 * DIM], [0f32; 2]);
    let states = [(Rows::from(&out), &lse[..]), (Rows::from(&[5f32; 2 * DIM]), &[0.0, 0.0][..])];
    attention_merge(None, &states, [1, 2, DIM], &mut merged, Some(&mut merged_lse)).unwrap();
    assert!((merged[0] - 2.0).abs() < 1e-6 && (merged_lse[0] - 4f32.ln()).abs() < 1e-6);
    assert!(attention_merge(None, &states, [2, 2, DIM], &mut merged, None).is_err());
}

#[test]
fn attention_reads_the_memory_of_a_cache() {
    let cache = Cache::new(&config().layout(Layout::PLAIN)).unwrap();
    let session = filled(&cache, &[1, 2, 3]);
    let table = session.block_table(0).unwrap();
    // Nothing is written to the cache meanwhile.
    let view = unsafe { KvView::of_cache(&cache, 0).unwrap() };
    assert_eq!(view.as_raw().k, unsafe { KvView::from_raw(cache.kv_view(0).unwrap()) }.as_raw().k);
    let sequences = Sequences {
        query_heads: 2,
        query_lengths: &[1],
        kv_lengths: &[3],
        block_tables: &table,
        block_table_stride: 1,
        ..Sequences::default()
    };
    let mut out = [0f32; 2 * DIM];
    kv_attend(None, &view, &sequences, &AttentionParams::new(), &[0f32; 2 * DIM], &mut out, None)
        .unwrap();
    assert!((out[0] - 2.0).abs() < 1e-6);
    let wrong = Sequences { block_table_stride: 2, ..sequences };
    assert!(kv_attend(
        None,
        &view,
        &wrong,
        &AttentionParams::new(),
        &[0f32; 2 * DIM],
        &mut out,
        None
    )
    .is_err());
    assert!(KvView::new(&[0f32; 40], &[0f32; 32], 16, 1, 2, 2).is_err());
    assert!(KvView::new::<f32>(&[], &[], 0, 1, 2, 2).is_err());
}

#[test]
fn memory_of_ones_own_is_written_and_attended() {
    const N: usize = 3;
    let compute = Compute::new(1, Isa::AUTO).unwrap();
    assert_eq!(compute.info().unwrap().threads, 1);
    let mut memory = KvMemory::new(Layout::PACKED, Dtype::F32, [4, 16, 2, 16]).unwrap();
    // Two sequences, of 3 new rows and of 1. Keys are equal, and values are the numbers of their
    // rows.
    let (keys, mut values) = ([0f32; 4 * 32], [0f32; 4 * 32]);
    for (i, value) in values.iter_mut().enumerate() {
        *value = (i / 32) as f32;
    }
    let sequences = Sequences {
        query_heads: 2,
        query_lengths: &[3, 1],
        kv_lengths: &[3, 1],
        block_tables: &[2, 1],
        block_table_stride: 1,
        ..Sequences::default()
    };
    memory.write(Some(&compute), &sequences, &keys, &values).unwrap();
    let mut out = [0f32; 4 * 32];
    let params = AttentionParams::new();
    kv_attend(Some(&compute), &memory.view(), &sequences, &params, &keys, &mut out, None).unwrap();
    let means = |out: &[f32]| [out[0], out[32], out[64], out[96]];
    assert_eq!(means(&out), [0.0, 0.5, 1.0, 3.0]);

    // A tree whose third token has no parent, and a mask that hides the first position.
    let tree = params.mask(Mask::Parents(&[-1, 0, -1, -1]));
    kv_attend(None, &memory.view(), &sequences, &tree, &keys, &mut out, None).unwrap();
    assert_eq!(means(&out), [0.0, 0.5, 2.0, 3.0]);
    let bytes = [0, 1, 1, 1];
    let halves = [0xFC00, 0, 0, 0].map(F16);
    // exp(-100) is as good as nothing.
    let floats = MaskData::F32(&[-50.0, 0.0, 0.0, 0.0]);
    for (data, head_factors) in [
        (MaskData::Bytes(&bytes), None),
        (MaskData::F16(&halves), None),
        (floats, Some(&[2.0, 2.0][..])),
    ] {
        let mask =
            ColumnMask { data, columns: 3, batch_stride: 1, head_factors, ..ColumnMask::default() };
        let masked = params.mask(Mask::Columns(mask));
        kv_attend(None, &memory.view(), &sequences, &masked, &keys, &mut out, None).unwrap();
        assert_eq!(means(&out), [0.0, 1.0, 1.5, 3.0]);
    }

    // The same in a padded batch [2][3][2][16] with padding on the left, and [2][2][3][16].
    let left = Sequences { first_rows: Some(&[0, 2]), ..sequences };
    let mut padded = vec![9f32; 2 * N * 32];
    padded[..96].copy_from_slice(&values[..96]);
    padded[160..].copy_from_slice(&values[96..]);
    let queries = vec![0f32; 2 * N * 32];
    let wide = |data| Rows::strided::<f32>(data, 0, 0).batch_stride(3 * 32);
    memory.write_slots(None, &[32, NO_SLOT, 33, 34], &keys, &keys).unwrap();
    memory.write(None, &left, wide(&queries), wide(&padded)).unwrap();
    let mut apart = vec![7f32; 2 * N * 32];
    let q = Rows::strided(&queries, 16, N * 16).batch_stride(6 * 16);
    let to = RowsMut::strided(&mut apart, 16, N * 16).batch_stride(6 * 16);
    kv_attend(None, &memory.view(), &left, &params, q, to, None).unwrap();
    assert_eq!([apart[0], apart[16], apart[32], apart[96], apart[128]], [0.0, 0.5, 1.0, 7.0, 3.0]);
    let short = Rows::strided(&queries[1..], 16, N * 16).batch_stride(6 * 16);
    assert!(kv_attend(None, &memory.view(), &left, &params, short, &mut apart, None).is_err());

    let (mut k, mut v) = ([1f32; 64], [1f32; 64]);
    memory.read_slots(None, &[34, 16], &mut k, &mut v).unwrap();
    assert_eq!((k[0], v[0], v[32]), (0.0, 2.0, 3.0));
    let last = Sequences { query_lengths: &[1, 1], ..sequences };
    memory.read(None, &last, &mut k, &mut v).unwrap();
    assert_eq!((k[0], v[0], v[32]), (0.0, 2.0, 3.0));
    assert!(memory.read(None, &last, &mut k[1..], &mut v).is_err());
    let status = |error: pagedkv::Error| error.status();
    let refused = memory.write_slots(None, &[64], &[0f32; 32], &[0f32; 32]);
    assert_eq!(refused.map_err(status), Err(Status::OUT_OF_RANGE));
    assert!(memory.write_slots(None, &[0, 1], &[0f32; 32], &[0f32; 32]).is_err());
    assert!(KvMemory::new(Layout::PACKED, Dtype::INT8, [4, 8, 2, 16]).is_err());
    assert!(KvMemory::new(Layout::PLAIN, Dtype::F32, [u32::MAX, 16, 2, 16]).is_err());
}

#[test]
fn values_inside_keys() {
    let latent = LayerGroup::new(1, 4, 1, 32).value_dim(16).latent().blocks(8);
    let cache = Cache::new(&CacheConfig::new(latent)).unwrap();
    let mut session = cache.open_session().unwrap();
    let mut batch = cache.begin([(&mut session, 2)]).unwrap();
    batch.write_latent(0, &[[1f32; 32], [2.0; 32]].concat()).unwrap();
    batch.commit(None).unwrap();
    let mut batch = cache.begin([(&mut session, 1)]).unwrap();
    batch.write_latent(0, &[3f32; 32]).unwrap();
    let mut out = [0f32; 4 * 16];
    batch.attend(0, &[0f32; 4 * 32], &mut out).unwrap();
    assert!((out[0] - 2.0).abs() < 1e-6);
    assert!(batch.write(0, &[3f32; 32], &[3f32; 16]).is_err());
    batch.commit(&[1]).unwrap();
}

#[test]
fn memory_is_rotated() {
    let sizes = [1, 16, 1, 16];
    let mut memory =
        KvMemory::with_rotation(Layout::PACKED, Dtype::F32, sizes, Rotation::HADAMARD).unwrap();
    let (mut k, mut v) = ([0f32; 16], [0f32; 16]);
    memory.write_slots(None, &[3], &[1f32; 16], &[2f32; 16]).unwrap();
    memory.read_slots(None, &[3], &mut k, &mut v).unwrap();
    assert!((k[5] - 1.0).abs() < 1e-6 && (v[7] - 2.0).abs() < 1e-6);
    assert_eq!(memory.view().as_raw().rotation, Rotation::HADAMARD);
    let short = LayerGroup::new(1, 2, 1, 32).blocks(8).key_rotation([0.0; 16 * 16]);
    assert!(CacheConfig::new(short).sizes().is_err());
}

#[test]
fn engines_with_bytes_of_their_own() {
    let cache = Cache::new(&config().storage(Storage::EXTERNAL)).unwrap();
    let mut session = cache.open_session().unwrap();
    cache.begin([(&mut session, 20)]).unwrap().commit(&[1; 20]).unwrap();
    let mut fork = session.fork().unwrap();
    let batch = cache.begin([(&mut fork, 2), (&mut session, 0)]).unwrap();
    let (old, new) =
        (batch.session(1).block_table(0).unwrap(), batch.session(0).block_table(0).unwrap());
    assert_eq!(batch.block_copies(0).unwrap(), [(old[1], new[1])]);
    assert_eq!(
        batch.slot_mapping(0).unwrap(),
        [i64::from(new[1]) * 16 + 4, i64::from(new[1]) * 16 + 5]
    );
    let blocks = batch.kv_indices(0, IndexUnit::BLOCKS).unwrap();
    assert_eq!((blocks.indptr, blocks.last_block_length), (vec![0, 2, 4], vec![6, 4]));
    assert_eq!(blocks.indices, [new, old].concat());
    assert_eq!(batch.kv_indices(0, IndexUnit::SLOTS).unwrap().indices.len(), 42);
    batch.commit(&[2; 2]).unwrap();
}

#[test]
fn speculative_tokens() {
    let cache = cache();
    let mut session = filled(&cache, &[1, 2]);
    let kv: Vec<f32> = [3, 4, 5].iter().flat_map(|&token| [token as f32; DIM]).collect();
    let mut batch = cache.begin([(&mut session, 3)]).unwrap();
    batch.write(0, &kv, &kv).unwrap();
    batch.accept(0, &[0, 2]).unwrap();
    batch.commit(&[3, 4, 5]).unwrap();
    assert_eq!(session.tokens(0..4).unwrap(), [1, 2, 3, 5]);
    refused(session.tokens(0..5), Status::OUT_OF_RANGE);
}

#[test]
fn victims_are_named_by_id() {
    let cache = cache();
    let (mut high, low) = (
        cache.open_session_with(&SessionConfig::new().priority(1)).unwrap(),
        filled(&cache, &[1; 100]),
    );
    assert_eq!(cache.choose_victims([(&high, 60)]).unwrap(), [low.id()]);
    let error = cache.begin([(&mut high, 60)]).unwrap_err();
    assert_eq!((error.status(), error.blocks_short()), (Status::OUT_OF_BLOCKS, Some(3)));
    assert_eq!((error.group(), error.index()), (Some(0), None));
    high.set_priority(-1).unwrap();
    assert_eq!(high.info().unwrap().priority, -1);
}

#[test]
fn an_error_names_the_entry_of_the_list() {
    let cache = cache();
    let (mut first, mut second) = (filled(&cache, &[1]), filled(&cache, &[2]));
    second.suspend().unwrap();
    let error = cache.begin([(&mut first, 1), (&mut second, 1)]).unwrap_err();
    assert_eq!((error.status(), error.index()), (Status::SUSPENDED, Some(1)));
    assert_eq!((error.group(), error.blocks_short()), (None, None));
}

#[test]
#[allow(clippy::reversed_empty_ranges)]
fn hints_are_taken_within_a_batch() {
    let cache = Cache::new(&config().prefix(PrefixConfig::new())).unwrap();
    let mut session = cache.open_session().unwrap();
    let returns = Hint::new(HintAction::EXPECT_RETURN);
    for ms in [0, 1, RETURN_NEVER - 1, RETURN_NEVER] {
        session.hint(returns.duration(Duration::from_millis(ms))).unwrap();
    }
    std::mem::forget(cache.begin([(&mut session, 1)]).unwrap());
    let result =
        session.hint(Hint::new(HintAction::SET_RETENTION).retention(Retention::HIGH)).unwrap();
    assert_eq!((result.outcome, result.reason), (HintOutcome::DONE, HintReason::NONE));
    refused(session.hint(Hint::new(HintAction::DROP).range(2..1)), Status::INVALID_ARGUMENT);
    refused(session.hint(returns.range(..)), Status::INVALID_ARGUMENT);
}

#[test]
fn the_prefix_index_tells_what_it_does() {
    static NOW_MS: AtomicU64 = AtomicU64::new(0);
    let prefix = PrefixConfig::new().max_events(16).max_tokens_per_salt(32).max_pinned_tokens(16);
    let cache = Cache::new(
        &config().prefix(prefix).clock(|| Duration::from_millis(NOW_MS.load(Ordering::Relaxed))),
    )
    .unwrap();
    let (prefix, text) = (cache.prefix(), [7; 40]);
    drop(filled(&cache, &text));
    let events = prefix.read_events(0, 16).unwrap();
    let hashes = hash_blocks(Salt::None, 16, &text).unwrap();
    assert_eq!(events.events.iter().map(|event| event.hash).collect::<Vec<_>>(), hashes);
    assert_eq!(
        (events.events[0].kind, events.next, events.lost),
        (PrefixEventKind::PUBLISHED, events.events[0].number + 2, 0)
    );
    let pin = Hint::new(HintAction::PIN).duration(Duration::from_secs(1));
    let pinned = cache.hint(Salt::None, &text, pin).unwrap();
    assert_eq!((pinned.outcome, pinned.reason), (HintOutcome::CLIPPED, HintReason::LIMIT));
    assert_eq!(pinned.tokens, 16);
    let unpin = Hint::new(HintAction::UNPIN).range(0..16);
    for (salt, outcome) in
        [(Salt::from("tenant"), HintOutcome::MISSING), (Salt::None, HintOutcome::DONE)]
    {
        assert_eq!(cache.hint(salt, &text, unpin).unwrap().outcome, outcome);
    }
    let short = Hint::new(HintAction::PIN).duration(Duration::from_nanos(1));
    assert_eq!(cache.hint(Salt::None, &text, short).unwrap().tokens, 16);
    NOW_MS.store(1000, Ordering::Relaxed);
    assert_eq!(cache.hint(Salt::None, &text, unpin).unwrap().outcome, HintOutcome::MISSING);
    let all = cache.hint(Salt::All, &text, short).unwrap_err();
    assert!(all.message().contains("this call is about one salt"), "{all}");
    prefix.set_quota(Salt::None, Quota::Tokens(16)).unwrap();
    assert_eq!(prefix.stats(Salt::None).unwrap().cached_tokens, 16);
    prefix.set_quota(Salt::None, Quota::Unlimited).unwrap();
    prefix.set_quota(Salt::None, Quota::OfConfig).unwrap();
    assert!(prefix.set_quota(Salt::All, Quota::OfConfig).is_err());
    prefix.clear(Salt::All).unwrap();
    assert_eq!(
        prefix.read_events(events.next, 16).unwrap().events.last().unwrap().kind,
        PrefixEventKind::CLEARED
    );
}

#[test]
fn pools_hand_out_ids() {
    let pool = Pool::new(&PoolConfig::new(64)).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..1000).for_each(|_| pool.release(&pool.alloc(3).unwrap()).unwrap()));
        }
    });
    let mut block = [Block::default()];
    pool.alloc_into(&mut block).unwrap();
    let [block] = block;
    assert!(block.id() < 64 && block.generation() > 0);
    assert_eq!(pool.stats().unwrap().references, 1);
    refused(pool.alloc(usize::MAX), Status::TOO_LARGE);
    pool.validate().unwrap();
}

#[test]
fn sessions_work_on_threads_of_their_own() {
    let cache = Cache::new(&config_of(64)).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let cache = &cache;
            scope.spawn(move || {
                (0..20).for_each(|i| {
                    assert_eq!(filled(cache, &[thread; 50]).length().unwrap(), 50, "{i}")
                })
            });
        }
    });
    assert_eq!(cache.stats().unwrap().committed_tokens, 4 * 20 * 50);
}

#[test]
fn files_bring_sessions_back() {
    let cache = cache();
    let (session, frozen) = (filled(&cache, &[1; 20]), filled(&cache, &[2; 5]).snapshot().unwrap());
    let plain = FileConfig::new().fingerprint(b"a model").durable(false);
    let path = std::env::temp_dir().join(format!("pagedkv-{}.kv", std::process::id()));
    let items = [(Saved::Session(&session), 7), (Saved::Snapshot(&frozen), 8)];
    let bytes = cache.save(items, &plain, Sink::Path(&path)).unwrap();
    let info = inspect_file(&plain, Source::Path(&path)).unwrap();
    assert_eq!((info.bytes, info.sessions, info.tokens), (bytes, 2, 25));

    let check = |sessions: Vec<(Session, u64)>| {
        let found: Vec<_> =
            sessions.iter().map(|(session, label)| (session.length().unwrap(), *label)).collect();
        assert_eq!(found, [(20, 7), (5, 8)]);
        let mut k = [0f32; DIM];
        sessions[1].0.read_keys(0, 4..5, &mut k).unwrap();
        assert_eq!(k, [2.0; DIM]);
    };
    check(cache.load(&plain, Source::Path(&path)).unwrap());
    #[cfg(unix)]
    let file = std::fs::File::open(&path).unwrap();
    #[cfg(unix)]
    check(cache.load(&plain, Source::Descriptor(std::os::unix::io::AsFd::as_fd(&file))).unwrap());
    check(cache.load(&plain, Source::Reader(&mut std::fs::File::open(&path).unwrap())).unwrap());
    let keyed = plain.secret_key(b"a key of 24 secret bytes");
    let saved = cache.save(items, &keyed, Sink::Path(&path));
    if !matches!(&saved, Err(e) if e.status() == Status::UNSUPPORTED) {
        saved.unwrap();
        assert_eq!(inspect_file(&keyed, Source::Path(&path)).unwrap().encrypted, 1);
        check(cache.load(&keyed.trust_salts(), Source::Path(&path)).unwrap());
        refused(cache.load(&plain, Source::Path(&path)), Status::WRONG_KEY);
    } // else this is a build without libcrypto
    refused(cache.save(items, &plain.secret_key(b""), Sink::Path(&path)), Status::INVALID_ARGUMENT);
    let mut written = Vec::new();
    cache.save(items, &plain, Sink::Writer(&mut written)).unwrap();
    check(cache.load(&plain, Source::Bytes(&written)).unwrap());

    let another = FileConfig::new().fingerprint(b"another");
    refused(cache.load(&another, Source::Bytes(&written)), Status::MISMATCH);
    let nowhere = Source::Path(std::path::Path::new("/nonexistent/file"));
    let error = cache.load(&plain, nowhere).unwrap_err();
    assert_eq!((error.status(), error.system_error()), (Status::IO, Some(2)));
    let half = written.len() / 2;
    refused(cache.load(&plain, Source::Bytes(&written[..half])), Status::CORRUPT);
    written[half] ^= 1;
    refused(cache.load(&plain, Source::Bytes(&written)), Status::CORRUPT);
    std::fs::remove_file(path).unwrap();
}

#[test]
fn stores_outlive_their_cache() {
    let directory = std::env::temp_dir().join(format!("pagedkv-objects-{}", std::process::id()));
    let store =
        StoreConfig::directory(&directory).fingerprint(*b"a model").wait(Duration::from_secs(10));
    let with = |store| Cache::new(&config().prefix(PrefixConfig::new()).store(store)).unwrap();
    let (first, text) = (with(store.clone()), [7; 40]);
    drop(filled(&first, &text));
    assert_eq!(first.flush_store(Duration::from_secs(10)).unwrap(), 0);
    assert_eq!(first.store_stats().unwrap().written_items, 2);
    assert_eq!(with(store).open_session().unwrap().admit(&text, 0).unwrap(), 32);
    let other = with(StoreConfig::directory(&directory).fingerprint(*b"another"));
    other.hint(Salt::None, &text, Hint::new(HintAction::PREFETCH)).unwrap();
    other.cancel_prefetch(Salt::None, &text).unwrap();
    assert_eq!(other.wait_for_prefetch(Salt::None, &text, Duration::from_secs(10)).unwrap(), 0);
    // Without a prefix index the cache refuses a store; the opened store is closed again.
    assert!(Cache::new(&config().store(StoreConfig::directory(&directory))).is_err());
    let no_key = config().prefix(PrefixConfig::new());
    let no_key =
        Cache::new(&no_key.store(StoreConfig::directory(&directory).secret_key(b"".to_vec())));
    refused(no_key, Status::INVALID_ARGUMENT);
    refused(cache().store_stats(), Status::UNSUPPORTED);
    drop((first, other));
    std::fs::remove_dir_all(directory).unwrap();
}

/// A reader or writer that fails or panics in the middle.
struct Broken(Option<i32>);

impl std::io::Write for Broken {
    fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
        match self.0 {
            None => std::panic::resume_unwind(Box::new("a panic without a message")),
            Some(errno) => Err(std::io::Error::from_raw_os_error(errno)),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn writers_that_break_are_errors() {
    let cache = cache();
    let session = filled(&cache, &[1; 20]);
    for errno in [None, Some(28), Some(0), Some(-1), Some(i32::MIN)] {
        let error = cache
            .save([(&session, 0)], &FileConfig::new(), Sink::Writer(&mut Broken(errno)))
            .unwrap_err();
        assert_eq!(error.status(), Status::IO);
    }
    assert_eq!(session.length().unwrap(), 20);
}

// ---- Hooks
// -------------------------------------------------------------------------------------------------

/// The system allocator with a count of bytes and a limit.
struct Counted {
    bytes: Arc<AtomicIsize>,
    limit: isize,
}

unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, memory: Memory) -> *mut u8 {
        if self.bytes.fetch_add(memory.size() as isize, Ordering::Relaxed) + memory.size() as isize
            > self.limit
        {
            self.bytes.fetch_sub(memory.size() as isize, Ordering::Relaxed);
            return std::ptr::null_mut();
        }
        System.alloc(memory)
    }

    unsafe fn dealloc(&self, pointer: *mut u8, memory: Memory) {
        self.bytes.fetch_sub(memory.size() as isize, Ordering::Relaxed);
        System.dealloc(pointer, memory);
    }
}

#[test]
fn memory_of_the_caller() {
    let bytes = Arc::new(AtomicIsize::new(0));
    let counted = |limit| Counted { bytes: bytes.clone(), limit };
    let cache = Cache::new(&config().allocator(counted(1 << 30))).unwrap();
    let session = filled(&cache, &[1; 20]);
    assert!(bytes.load(Ordering::Relaxed) >= 8 * 16 * 2 * 64);
    drop((cache, session));
    assert_eq!(bytes.load(Ordering::Relaxed), 0);
    refused(Cache::new(&config().allocator(counted(1000))), Status::OUT_OF_MEMORY);
    drop(Pool::new(&PoolConfig::new(1 << 16).allocator(counted(1 << 30))).unwrap());
    assert_eq!(bytes.load(Ordering::Relaxed), 0);
}

#[test]
fn a_logger_that_panics_does_no_harm() {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let log = {
        let lines = lines.clone();
        move |level: LogLevel, line: &str| {
            lines.lock().unwrap().push((level, line.to_string()));
            std::panic::resume_unwind(Box::new("a panic without a message"));
        }
    };
    let cache = Cache::new(&config().prefault().huge_pages(HugePages::OFF).logger(log)).unwrap();
    drop(filled(&cache, &[1; 20]));
    drop(cache);
    assert!(lines
        .lock()
        .unwrap()
        .iter()
        .all(|(_, line)| !line.is_empty() && !line.ends_with('\n')));
}

/// Checks that outputs do not depend on what a runner does with its tasks. Returns the number of
/// its calls.
fn with_runner(run: impl Fn(&Tasks<'_>) + Send + Sync + 'static) -> (Vec<f32>, usize) {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = {
        let calls = calls.clone();
        move |tasks: &Tasks<'_>| {
            calls.fetch_add(1, Ordering::Relaxed);
            run(tasks)
        }
    };
    let model = LayerGroup::new(1, 8, 8, 64).blocks(64);
    let cache = Cache::new(&CacheConfig::new(model).runner(2, counted)).unwrap();
    let mut session = cache.open_session().unwrap();
    let rows: Vec<f32> = (0..512 * 8 * 64).map(|i| ((i * 37 % 101) as f32 - 50.0) / 50.0).collect();
    let mut out = vec![0f32; rows.len()];
    let mut batch = cache.begin([(&mut session, 512)]).unwrap();
    batch.write(0, &rows, &rows).unwrap();
    batch.attend(0, &rows, &mut out).unwrap();
    batch.commit(&[0; 512]).unwrap();
    let calls = calls.load(Ordering::Relaxed);
    (out, calls)
}

#[test]
fn threads_of_the_caller() {
    let (alone, calls) = with_runner(|tasks| (0..tasks.count()).for_each(|i| tasks.run(i, 0)));
    assert!(calls > 0);
    let halves = |tasks: &Tasks<'_>| {
        let half = |first: usize, worker| {
            (first..tasks.count()).step_by(2).for_each(|i| tasks.run(i, worker))
        };
        std::thread::scope(|scope| {
            scope.spawn(|| half(0, 0));
            half(1, 1);
        });
    };
    assert_eq!(with_runner(halves).0, alone);
    // Tasks that are not done, done twice, or panic do not change the outputs.
    assert_eq!(with_runner(|_| {}).0, alone);
    let twice = |tasks: &Tasks<'_>| {
        tasks.run(0, 0);
        let again = std::panic::AssertUnwindSafe(|| tasks.run(0, 1));
        assert!(std::panic::catch_unwind(again).is_err());
        std::panic::resume_unwind(Box::new("a panic without a message"));
    };
    assert_eq!(with_runner(twice).0, alone);
}

#[test]
fn a_runner_that_panics_does_no_harm() {
    let (alone, _) = with_runner(|tasks| (0..tasks.count()).for_each(|i| tasks.run(i, 0)));
    // A task number out of range panics, and its worker is free again.
    assert_eq!(with_runner(|tasks| tasks.run(tasks.count(), 0)).0, alone);
    assert_eq!(with_runner(|tasks| tasks.run(0, 2)).0, alone);
    // A task for the second time by the same worker, and a panic that panics again when it is
    // dropped.
    struct Again;
    impl Drop for Again {
        fn drop(&mut self) {
            std::panic::resume_unwind(Box::new("another panic"));
        }
    }
    let twice = |tasks: &Tasks<'_>| {
        let caught =
            |call: &dyn Fn()| std::panic::catch_unwind(std::panic::AssertUnwindSafe(call)).is_err();
        tasks.run(0, 1);
        assert!(caught(&|| tasks.run(0, 1)));
        assert!(caught(&|| tasks.run(tasks.count(), 1)));
        tasks.run(1, 1);
        std::panic::resume_unwind(Box::new(Again));
    };
    assert_eq!(with_runner(twice).0, alone);
    let panics = |tasks: &Tasks<'_>| {
        std::thread::scope(|scope| {
            scope.spawn(|| tasks.run(usize::MAX, 0));
        });
    };
    assert_eq!(with_runner(panics).0, alone);
}

#[test]
fn what_the_library_says_of_itself() {
    assert_eq!(version().unwrap(), sys::VERSION);
    assert_eq!(isa_name(Isa::AVX2).unwrap(), "avx2");
    let cache = cache();
    let info = cache.info().unwrap();
    assert_eq!((info.storage, info.layers, info.block_size), (Storage::INTERNAL, 1, 16));
    assert_eq!(cache.pool_stats().unwrap().blocks, 8);
    assert_eq!(cache.pool_stats_of(0).unwrap().blocks, 8);
    refused(cache.pool_stats_of(1), Status::OUT_OF_RANGE);
    assert!(cache.metrics().unwrap().contains("# TYPE "));
    assert!(cache.metrics().unwrap().ends_with('\n'));
    assert_eq!(format!("{:?}", Status::OUT_OF_BLOCKS), "OUT_OF_BLOCKS");
    assert_eq!(format!("{:?}", Status(7)), "pkv_status(7)");
    refused(config().block_size(17).sizes(), Status::INVALID_ARGUMENT);
    let group = || LayerGroup::new(1, 2, 1, 16).blocks(8);
    let hybrid = [group().layer_indices([0, 1]), group()];
    refused(CacheConfig::with_groups(hybrid).sizes(), Status::INVALID_ARGUMENT);
}
