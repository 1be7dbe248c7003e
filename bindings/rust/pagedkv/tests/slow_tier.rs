//! Caches whose keys and values are in a file.
use pagedkv::*;
use std::path::Path;

#[test]
fn what_is_no_directory_is_refused() {
    let create = |directory: &Path| {
        let config = CacheConfig::new(LayerGroup::new(1, 4, 2, 32).blocks(20));
        Cache::new(&config.memory_directory(directory))
    };
    create(&std::env::temp_dir()).unwrap();
    for (wrong, status, sentence) in [
        ("/nowhere", Status::IO, "/nowhere"),
        ("", Status::INVALID_ARGUMENT, "memory_directory is an empty string"),
        ("/tmp\0", Status::INVALID_ARGUMENT, "memory_directory has a NUL in it"),
    ] {
        let error = create(Path::new(wrong)).err().unwrap();
        assert_eq!(error.status(), status);
        assert!(error.message().contains(sentence), "{error}");
    }
}
