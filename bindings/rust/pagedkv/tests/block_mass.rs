//! The attention mass of blocks.
use pagedkv::*;

#[test]
fn a_query_has_one_to_give() {
    let config = CacheConfig::with_groups([LayerGroup::new(1, 2, 1, 16).blocks(16)]);
    let cache = Cache::new(&config).unwrap();
    let mut session = cache.open_session().unwrap();
    let numbers =
        |count: usize| (0..count).map(|i| (i * 37 % 23) as f32 / 23.0).collect::<Vec<_>>();
    let mut batch = cache.begin([(&mut session, 40)]).unwrap();
    batch.write(0, &numbers(40 * 16), &numbers(40 * 16)).unwrap();
    let (q, mut out, mut mass) = (numbers(40 * 2 * 16), vec![0f32; 40 * 2 * 16], [9f32; 2 * 3]);
    let params = AttentionParams::new();
    let mut sum = |mass_queries: u32, masses: &mut [f32]| {
        let outputs = AttentionOutputs {
            masses: Some(masses),
            mass_blocks: 3,
            mass_queries,
            ..Default::default()
        };
        batch.attend_with(0, &params, &q, &mut out, Some(outputs)).unwrap();
        masses.chunks(3).map(|head| head.iter().sum::<f32>()).collect::<Vec<_>>()
    };
    for (queries, whole) in [(0, 40.0), (7, 7.0)] {
        for head in sum(queries, &mut mass) {
            assert!((head - whole).abs() < 1e-3, "{head} of {whole}");
        }
    }
    for masses in [&mut mass[..4], &mut [0.0; 6]] {
        let short = AttentionOutputs { masses: Some(masses), mass_blocks: 2, ..Default::default() };
        let error = batch.attend_with(0, &params, &q, &mut out, Some(short)).unwrap_err();
        assert_eq!(error.status(), Status::INVALID_ARGUMENT);
    }
}
