//! The block manager of an engine that keeps keys and values itself: a request is matched,
//! computed, extended, preempted and continued.
use pagedkv::{Cache, CacheConfig, LayerGroup, PrefixConfig, Result, Session, Storage};

const BLOCK: usize = 16;
const BLOCKS: u64 = 8;

// [requests]
/// `match_and_add_prefix`: returns how many tokens of the prompt are cached. The last one is left
/// out, because its output is needed.
fn admit(session: &mut Session, prompt: &[i32]) -> Result<u64> {
    session.admit(&prompt[..prompt.len() - 1], 0)
}

/// `allocate_blocks`, `append_token` and `complete_and_register_pending`: a step with new tokens.
fn step(cache: &Cache, session: &mut Session, tokens: &[i32]) -> Result<()> {
    // All blocks, or an error.
    let batch = cache.begin([(session, tokens.len() as u32)])?;
    // Here the model computes: batch.block_copies(0) first, then batch.slot_mapping(0).
    batch.commit(tokens) // full blocks are registered
}
// [requests end]

fn main() -> Result<()> {
    // With Storage::EXTERNAL the shape has no effect.
    let group = LayerGroup::new(1, 1, 1, 16).blocks(BLOCKS);
    let config = CacheConfig::new(group).storage(Storage::EXTERNAL);
    let cache = Cache::new(&config.block_size(BLOCK as u32).prefix(PrefixConfig::new()))?;
    let prompt: Vec<i32> = (0..50).collect();

    let mut first = cache.open_session()?;
    assert_eq!(admit(&mut first, &prompt)?, 0);
    step(&cache, &mut first, &prompt)?;
    for token in 50..64 {
        step(&cache, &mut first, &[token])?; // the last one fills the fourth block
    }
    println!("first: blocks {:?}", first.block_table(0)?);

    let mut second = cache.open_session()?;
    let matched = admit(&mut second, &prompt)?;
    step(&cache, &mut second, &prompt[matched as usize..])?;
    println!("second: {matched} of 50 tokens cached, blocks {:?}", second.block_table(0)?);
    assert_eq!(second.block_table(0)?, [0, 1, 2, 4]); // block 4 is a copy of 3

    drop(second);
    first.suspend()?; // release
    assert_eq!(cache.pool_stats()?.held_blocks, 4); // cached, as in the inactive pool
    let resumed = first.resume()?; // reacquire
    println!("first: {} of {} tokens still cached", resumed.length, resumed.total);
    assert_eq!((matched, resumed.length, resumed.total), (49, 64, 64));
    assert_eq!(first.block_table(0)?, [0, 1, 2, 3]);
    Ok(())
}
