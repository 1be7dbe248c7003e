//! Hints of when a text goes on: what the default policy makes of them.
use pagedkv::*;
use std::collections::VecDeque;

fn cache() -> Cache {
    let config = CacheConfig::with_groups([LayerGroup::new(1, 1, 1, 16)]).blocks(32);
    Cache::new(&config.storage(Storage::NONE).prefix(PrefixConfig::new())).unwrap()
}

/// Computes a text of two full blocks, and returns whether they were cached.
fn serve(cache: &Cache, text: i32, hint: u32) -> bool {
    let tokens = [text; 33];
    let mut session = cache.open_session().unwrap();
    let matched = session.match_prefix(&tokens).unwrap() as usize;
    let rest = &tokens[matched..];
    cache.begin([(&mut session, rest.len() as u32)]).unwrap().commit(Some(rest)).unwrap();
    session.set_return_hint(hint).unwrap();
    matched == 32
}

/// One in nine texts goes on, after 72 others; the cache has room for 16. Nothing but the hints
/// tells them apart. Returns how many of 292 were still cached.
fn serve_many(soon: u32, never: u32) -> usize {
    let (cache, mut found, mut texts) = (cache(), 0, 0..);
    let mut coming = VecDeque::new();
    for _ in 0..300 {
        for text in texts.by_ref().take(8) {
            serve(&cache, text, never);
        }
        let text = texts.next().unwrap();
        serve(&cache, text, soon);
        coming.push_back(text);
        if coming.len() > 8 {
            found += usize::from(serve(&cache, coming.pop_front().unwrap(), never));
        }
    }
    found
}

#[test]
fn keep_texts_that_go_on() {
    let found = serve_many(30, RETURN_HINT_NEVER);
    assert!(found > 200, "{found} of 292 found");
    let found = serve_many(0, 0);
    assert!(found < 50, "{found} of 292 found without a hint");
}

#[test]
fn are_not_taken_within_a_batch() {
    let cache = cache();
    let mut session = cache.open_session().unwrap();
    for hint in [0, 1, u32::MAX - 1, RETURN_HINT_NEVER] {
        session.set_return_hint(hint).unwrap();
    }
    std::mem::forget(cache.begin([(&mut session, 1)]).unwrap());
    assert_eq!(session.set_return_hint(30).unwrap_err().status(), Status::BUSY);
}
