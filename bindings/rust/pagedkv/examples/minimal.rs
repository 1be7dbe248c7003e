//! The whole life of a cache, in one step of made-up keys, values and queries.
use pagedkv::{Cache, CacheConfig, LayerGroup, Result};

const LAYERS: usize = 2;
const QUERY_HEADS: usize = 4;
const KV_HEADS: usize = 2;
const DIM: usize = 32;
const TOKENS: usize = 20;

fn main() -> Result<()> {
    let model = LayerGroup::new(LAYERS as u32, QUERY_HEADS as u32, KV_HEADS as u32, DIM as u32);
    let cache = Cache::new(&CacheConfig::new(model.blocks(64)))?;
    let mut session = cache.open_session()?;

    let (k, q) = (vec![0f32; TOKENS * KV_HEADS * DIM], vec![0f32; TOKENS * QUERY_HEADS * DIM]);
    // All keys are equal, so attention gives the mean of the values so far.
    let v: Vec<f32> = (0..TOKENS).flat_map(|token| [token as f32; KV_HEADS * DIM]).collect();
    let mut out = vec![0f32; q.len()];

    let mut batch = cache.begin([(&mut session, TOKENS as u32)])?;
    for layer in 0..LAYERS as u32 {
        batch.write(layer, &k, &v)?;
        batch.attend(layer, &q, &mut out)?;
    }
    batch.commit(None)?;

    let (last, mean) = (out[(TOKENS - 1) * QUERY_HEADS * DIM], (TOKENS - 1) as f32 / 2.0);
    println!("token {} attends to {TOKENS} tokens: {last:.2} (expected {mean:.2})", TOKENS - 1);
    println!("block table: {:?}", session.block_table(0)?);
    Ok(())
}
