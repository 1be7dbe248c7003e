//! Layer groups that share one memory.
use pagedkv::*;

#[test]
fn pages_move_between_groups() {
    let group = |layers| LayerGroup::new(layers, 1, 1, 16);
    let config = CacheConfig::with_groups([group(1), group(5).window(64)])
        .storage(Storage::NONE)
        .memory_bytes(1 << 19)
        .groups_share_memory();
    let cache = Cache::new(&config).unwrap();
    let empty = cache.stats().unwrap();
    assert_eq!(empty.pages, (1 << 19) / empty.page_bytes);
    assert_eq!(empty.free_pages, empty.pages);
    let mut session = cache.open_session().unwrap();
    cache.begin([(&mut session, 16)]).unwrap().commit(None).unwrap();
    assert_eq!(cache.stats().unwrap().free_pages, empty.pages - 2);
    let both = Cache::new(&config.clone().blocks(4)).err().unwrap();
    assert_eq!(both.status(), Status::INVALID_ARGUMENT);
}
