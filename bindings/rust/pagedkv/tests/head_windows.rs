//! Windows and sinks of single KV heads, and blocks that the tokens of a tree choose together.
mod numbers;

use numbers::numbers;
use pagedkv::*;

const TOKENS: usize = 200;
const NEW: usize = 3;
const DIM: usize = 16;
const HEADS: usize = 2;

#[test]
fn heads_differ_and_trees_agree() {
    let config = CacheConfig::with_groups([LayerGroup::new(1, 2, 2, 16).blocks(16)]);
    let cache = Cache::new(&config).unwrap();
    let mut session = cache.open_session().unwrap();
    for tokens in [TOKENS, NEW] {
        let mut batch = cache.begin([(&mut session, tokens as u32)]).unwrap();
        let rows = numbers(1, tokens * HEADS * DIM);
        batch.write(0, &rows, &rows).unwrap();
        if tokens == TOKENS {
            batch.commit(None).unwrap();
            continue;
        }
        let q = numbers(2, NEW * HEADS * DIM);
        let mut attend = |params: &AttentionParams<'_>| {
            let mut out = vec![0f32; NEW * HEADS * DIM];
            batch.attend_with(0, params, &q, &mut out, None).map(|()| out)
        };
        let params = AttentionParams::new();
        let own = attend(&params.head_windows(&[30, 0]).head_sinks(&[5, 0])).unwrap();
        let (narrow, whole) =
            (attend(&params.window(30).sinks(5)).unwrap(), attend(&params).unwrap());
        for (i, found) in own.iter().enumerate() {
            let wanted = if i / DIM % HEADS == 0 { narrow[i] } else { whole[i] };
            assert!((found - wanted).abs() < 1e-5, "number {i} is {found}, not {wanted}");
        }
        let mut chosen = [0u32; HEADS * 2];
        let tree = params.mask(Mask::Parents(&[-1, 0, 0]));
        let blocks = ChosenBlocks::top_blocks(2).tokens_per_choice(u32::MAX);
        let mut out = vec![0f32; NEW * HEADS * DIM];
        let choosing = tree.chosen_blocks(blocks);
        let outputs = AttentionOutputs { chosen: Some(&mut chosen), ..Default::default() };
        batch.attend_with(0, &choosing, &q, &mut out, Some(outputs)).unwrap();
        let lists = ChosenBlocks::lists(&chosen, 2).tokens_per_choice(u32::MAX);
        let mut same = vec![0f32; NEW * HEADS * DIM];
        batch.attend_with(0, &tree.chosen_blocks(lists), &q, &mut same, None).unwrap();
        assert_eq!(out, same);
    }
}
