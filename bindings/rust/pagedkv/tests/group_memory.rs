//! Layer groups that share one memory.
use pagedkv::*;

#[test]
fn pages_move_between_groups() {
    let group = |layers| LayerGroup::new(layers, 1, 1, 16);
    let create = |full: LayerGroup| {
        let config = CacheConfig::with_groups([full, group(5).window(64)]);
        let config = config.storage(Storage::NONE).memory_bytes(1 << 19);
        Cache::new(&config.groups_share_memory())
    };
    let cache = create(group(1)).unwrap();
    let empty = cache.stats().unwrap();
    assert!(empty.pages > 8);
    assert_eq!(empty.free_pages, empty.pages);
    let mut session = cache.open_session().unwrap();
    cache.begin([(&mut session, 16)]).unwrap().commit(None).unwrap();
    assert_eq!(cache.stats().unwrap().free_pages, empty.pages - 2);
    let both = create(group(1).blocks(4)).err().unwrap();
    assert_eq!(both.status(), Status::INVALID_ARGUMENT);
}
