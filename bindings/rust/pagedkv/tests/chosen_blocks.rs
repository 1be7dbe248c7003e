//! Attention that reads chosen blocks only.
mod numbers;

use numbers::numbers;
use pagedkv::*;

const QUERY_HEADS: usize = 4;
const KV_HEADS: usize = 2;
const DIM: usize = 16;
const BLOCK: usize = 16;
const TOKENS: usize = 200;
const NEW: usize = 2;
const TOP: usize = 3;
/// The step begins inside this block, which counts as one of the step.
const STEP: usize = TOKENS / BLOCK;
const BLOCKS: usize = STEP + 1;

/// Keys, values and queries of one session, whose last tokens are the step.
struct Text {
    k: Vec<f32>,
    v: Vec<f32>,
    q: Vec<f32>,
}

impl Text {
    fn new() -> Self {
        let rows = (TOKENS + NEW) * KV_HEADS * DIM;
        Self { k: numbers(1, rows), v: numbers(2, rows), q: numbers(3, NEW * QUERY_HEADS * DIM) }
    }
}

/// Passes a step whose keys and values are written.
fn in_a_step(test: impl FnOnce(&mut Batch<'_>, &Text)) {
    let (text, before) = (Text::new(), TOKENS * KV_HEADS * DIM);
    let group = LayerGroup::new(1, QUERY_HEADS as u32, KV_HEADS as u32, DIM as u32);
    let cache = Cache::new(&CacheConfig::new(group.blocks(16)).threads(1)).unwrap();
    let mut session = cache.open_session().unwrap();
    let mut batch = cache.begin([(&mut session, TOKENS as u32)]).unwrap();
    batch.write(0, &text.k[..before], &text.v[..before]).unwrap();
    batch.commit(None).unwrap();
    let mut batch = cache.begin([(&mut session, NEW as u32)]).unwrap();
    batch.write(0, &text.k[before..], &text.v[before..]).unwrap();
    test(&mut batch, &text);
}

/// Chosen blocks with the numbers of first and last blocks that are also read.
fn read_with(blocks: ChosenBlocks<'_>, always: Option<(usize, usize)>) -> ChosenBlocks<'_> {
    always
        .map_or(blocks, |(first, last)| blocks.first_blocks(first as u32).last_blocks(last as u32))
}

#[test]
fn chosen_blocks_are_read_and_told() {
    in_a_step(|batch, text| {
        let mut attend = |params: AttentionParams<'_>, chosen: Option<&mut [u32]>| {
            let mut out = [0f32; NEW * QUERY_HEADS * DIM];
            let outputs = AttentionOutputs { chosen, ..Default::default() };
            batch.attend_with(0, &params, &text.q, &mut out, Some(outputs)).unwrap();
            out
        };
        for always in [None, Some((2, 3))] {
            let (first, last) = always.unwrap_or((1, 1));
            let mut chosen = [77; NEW * KV_HEADS * TOP];
            let params = AttentionParams::new()
                .chosen_blocks(read_with(ChosenBlocks::top_blocks(TOP as u32), always));
            let out = attend(params, Some(&mut chosen));
            for list in chosen.chunks(TOP) {
                let candidates = first as u32..(STEP - last) as u32;
                assert!(list.iter().all(|block| candidates.contains(block)), "{list:?}");
            }
            assert_eq!(attend(params, None), out);
            let lists = read_with(ChosenBlocks::lists(&chosen, TOP as u32), always);
            assert_eq!(attend(AttentionParams::new().chosen_blocks(lists), None), out);
        }
    });
}

#[test]
fn lists_over_memory_of_ones_own() {
    let text = Text::new();
    let shape = [BLOCKS, BLOCK, KV_HEADS, DIM];
    let mut memory = KvMemory::new(Layout::PACKED, Dtype::F32, shape.map(|n| n as u32)).unwrap();
    let table: Vec<u32> = (0..BLOCKS as u32).rev().collect();
    let sequences = |query_lengths| Sequences {
        query_heads: QUERY_HEADS as u32,
        query_lengths,
        kv_lengths: &[(TOKENS + NEW) as u64],
        block_tables: &table,
        block_table_stride: BLOCKS,
        ..Sequences::default()
    };
    memory.write(None, &sequences(&[(TOKENS + NEW) as u32]), &text.k, &text.v).unwrap();
    let (view, step) = (memory.view(), sequences(&[NEW as u32]));
    let attend = |blocks| {
        let mut out = [0f32; NEW * QUERY_HEADS * DIM];
        let params = AttentionParams::new().chosen_blocks(blocks);
        kv_attend(None, &view, &step, &params, &text.q, &mut out, None).map(|()| out)
    };
    let lists = [2, 5, 3, NO_BLOCK_ID, 1, 10, 4, 9];
    let others = [2, 5, 3, NO_BLOCK_ID, 1, 10, 4, 8];
    let out = attend(ChosenBlocks::lists(&lists, 2)).unwrap();
    assert_ne!(out, attend(ChosenBlocks::lists(&others, 2)).unwrap());
    for wrong in [ChosenBlocks::lists(&lists[1..], 2), ChosenBlocks::top_blocks(2)] {
        assert!(attend(wrong).is_err());
    }
}
