//! Layer groups whose blocks only the engine can read: they go to files and stores, and come back.
use pagedkv::*;
use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const BYTES: usize = 100;
const LONG: Duration = Duration::from_secs(60);

#[derive(Default)]
struct Engine {
    blocks: Mutex<HashMap<(u32, u32), Vec<u8>>>,
    error: Mutex<Option<i32>>,
}

impl Engine {
    fn refuse(&self) -> io::Result<()> {
        let error = *self.error.lock().unwrap();
        match error {
            Some(0) => panic!("a hook panics"),
            Some(number) => Err(io::Error::from_raw_os_error(number)),
            None => Ok(()),
        }
    }

    /// Fills the blocks of a session, as its kernels would.
    fn fill(&self, session: &Session, mark: u8) {
        for group in 0..2 {
            for (block, mark) in session.block_table(group).unwrap().into_iter().zip(mark..) {
                self.blocks.lock().unwrap().insert((group, block), vec![mark; BYTES]);
            }
        }
    }

    fn check(&self, session: &Session, mark: u8) {
        for group in 0..2 {
            for (block, mark) in session.block_table(group).unwrap().into_iter().zip(mark..) {
                assert_eq!(self.blocks.lock().unwrap()[&(group, block)], vec![mark; BYTES]);
            }
        }
    }
}

struct Hooks(Arc<Engine>);

impl BlockIo for Hooks {
    fn read(&self, group: u32, blocks: &[u32], tokens: &[u32], to: &mut [u8]) -> io::Result<()> {
        self.0.refuse()?;
        assert_eq!(blocks.len(), tokens.len());
        for (block, to) in blocks.iter().zip(to.chunks_exact_mut(BYTES)) {
            to.copy_from_slice(&self.0.blocks.lock().unwrap()[&(group, *block)]);
        }
        Ok(())
    }

    fn write(&self, group: u32, blocks: &[u32], from: &[u8]) -> io::Result<()> {
        self.0.refuse()?;
        for (&block, from) in blocks.iter().zip(from.chunks_exact(BYTES)) {
            self.0.blocks.lock().unwrap().insert((group, block), from.to_vec());
        }
        Ok(())
    }
}

fn config(engine: &Arc<Engine>) -> CacheConfig {
    let group = || LayerGroup::opaque_kv(1, BYTES as u64).blocks(16);
    CacheConfig::with_groups([group(), group()])
        .storage(Storage::EXTERNAL)
        .prefix(PrefixConfig::new())
        .block_io(Hooks(engine.clone()))
}

fn compute(cache: &Cache, engine: &Engine, text: &[i32], mark: u8) -> Session {
    let mut session = cache.open_session().unwrap();
    let batch = cache.begin([(&mut session, text.len() as u32)]).unwrap();
    batch.commit(text).unwrap();
    engine.fill(&session, mark);
    session
}

#[test]
fn a_file_brings_blocks_back() {
    let (engine, other) = (Arc::new(Engine::default()), Arc::new(Engine::default()));
    let cache = Cache::new(&config(&engine)).unwrap();
    let session = compute(&cache, &engine, &[1; 40], 7);
    let path = std::env::temp_dir().join(format!("pagedkv-elsewhere-{}", std::process::id()));
    let save = || cache.save([(&session, 1)], &FileConfig::new(), Sink::Path(&path));
    for (error, number) in [(28, 28), (0, 5)] {
        *engine.error.lock().unwrap() = Some(error);
        let refused = save().unwrap_err();
        assert_eq!((refused.status(), refused.system_error()), (Status::IO, Some(number)));
        assert!(!path.exists());
    }
    *engine.error.lock().unwrap() = None;
    save().unwrap();
    let loading = Cache::new(&config(&other)).unwrap();
    let loaded = loading.load(&FileConfig::new(), Source::Path(&path)).unwrap();
    other.check(&loaded[0].0, 7);
    std::fs::remove_file(path).unwrap();
}

#[test]
fn an_error_or_a_panic_on_a_thread_of_the_store_is_a_miss() {
    let engine = Arc::new(Engine::default());
    let folder =
        std::env::temp_dir().join(format!("pagedkv-elsewhere-panic-{}", std::process::id()));
    let cache = Cache::new(&config(&engine).store(StoreConfig::directory(&folder))).unwrap();
    let text: Vec<i32> = (0..32).collect();
    for (fails, error, found) in [(1, Some(5), 0), (2, Some(0), 0), (2, None, 32)] {
        *engine.error.lock().unwrap() = error;
        drop(compute(&cache, &engine, &text, 3));
        assert_eq!(cache.flush_store(LONG).unwrap(), 0);
        cache.prefix().clear(Salt::None).unwrap();
        cache.hint(Salt::None, &text, Hint::new(HintAction::PREFETCH)).unwrap();
        assert_eq!(cache.wait_for_prefetch(Salt::None, &text, LONG).unwrap(), found);
        assert_eq!(cache.stats().unwrap().block_io_failures, fails);
    }
    drop(cache);
    std::fs::remove_dir_all(folder).unwrap();
}
