//! Blocks that a session forgets in the middle.
use pagedkv::*;

#[test]
fn are_given_back() {
    let config = CacheConfig::with_groups([LayerGroup::new(1, 1, 1, 16).blocks(16)]);
    let cache = Cache::new(&config.storage(Storage::EXTERNAL)).unwrap();
    let mut session = cache.open_session().unwrap();
    cache.begin([(&mut session, 100)]).unwrap().commit(None).unwrap();

    session.drop_blocks(0, &[1, 3]).unwrap();
    let table = session.block_table(0).unwrap();
    for (i, &id) in table.iter().enumerate() {
        assert_eq!(id == NO_BLOCK_ID, i == 1 || i == 3, "block {i}");
    }
    assert_eq!(session.length().unwrap(), 100);
    assert_eq!(session.trim_point(60).unwrap(), 48);
    for wrong in [&[6][..], &[u32::MAX], &[2, 2]] {
        assert!(session.drop_blocks(0, wrong).is_err());
    }
    assert_eq!(session.drop_blocks(1, &[0]).unwrap_err().status(), Status::OUT_OF_RANGE);
    session.drop_blocks(0, &[]).unwrap();
}
