//! Caches whose keys and values are in a file.
use pagedkv::*;
use std::path::{Path, PathBuf};

/// A directory that is removed after its test.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let name = format!("pagedkv-slow-tier-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    /// Whether this process maps a file in the directory.
    fn is_mapped(&self) -> bool {
        std::fs::read_to_string("/proc/self/maps").unwrap().contains(self.0.to_str().unwrap())
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

fn config() -> CacheConfig {
    CacheConfig::new(LayerGroup::new(1, 4, 2, 32).blocks(20)).block_size(32).threads(2)
}

#[test]
fn keys_and_values_are_in_a_file() {
    let directory = Directory::new("results");
    let cache = Cache::new(&config().memory_directory(&directory.0)).unwrap();
    assert!(cfg!(windows) || directory.is_mapped());
    let mut session = cache.open_session().unwrap();
    let mut batch = cache.begin([(&mut session, 1)]).unwrap();
    batch.write(0, &[1f32; 64], &[2f32; 64]).unwrap();
    batch.commit(None).unwrap();
    let mut out = [0f32; 64];
    session.read_values(0, 0..1, &mut out).unwrap();
    assert_eq!(out, [2.0; 64]);
    drop((session, cache));
    assert!(cfg!(windows) || !directory.is_mapped());
    assert_eq!(std::fs::read_dir(&directory.0).unwrap().count(), 0);
}

#[test]
fn what_is_no_directory_is_refused() {
    let directory = Directory::new("refused");
    let refused = |config: CacheConfig| Cache::new(&config).err().unwrap();
    std::fs::write(directory.0.join("file"), b"").unwrap();
    #[cfg(unix)]
    std::os::unix::fs::symlink(&directory.0, directory.0.join("link")).unwrap();
    let links = if cfg!(unix) { &["link"][..] } else { &[] };
    for wrong in ["file", "nowhere"].iter().chain(links) {
        let error = refused(config().memory_directory(directory.0.join(wrong)));
        assert_eq!(error.status(), Status::IO);
        assert!(error.message().contains(wrong), "{error}");
    }
    for (wrong, sentence) in [
        (config().memory_directory(""), "memory_directory is an empty string"),
        (config().memory_directory(Path::new("/tmp\0")), "memory_directory has a NUL in it"),
        (
            config().memory_directory(&directory.0).huge_pages(HugePages::REQUIRE),
            "memory_directory: a file has no huge pages",
        ),
    ] {
        let error = refused(wrong);
        assert_eq!(error.status(), Status::INVALID_ARGUMENT);
        assert!(error.message().contains(sentence), "{error}");
    }
    let error = refused(config().storage(Storage::NONE).memory_directory(&directory.0));
    assert_eq!(error.status(), Status::UNSUPPORTED);
}
