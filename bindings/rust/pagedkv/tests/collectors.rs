//! Objects that are dropped when they cannot be closed: in hooks, while other threads use them, in
//! forked children. The library's next call closes them, and nothing is lost.
use pagedkv::*;
use std::alloc::{GlobalAlloc, Layout as Memory, System};
use std::any::Any;
use std::io::{Read, Write};
use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering};
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const DIM: usize = 16;

fn config() -> CacheConfig {
    config_of(64)
}

fn config_of(blocks: u64) -> CacheConfig {
    CacheConfig::new(LayerGroup::new(1, 2, 1, DIM as u32).blocks(blocks)).threads(1)
}

fn fill(cache: &Cache, session: &mut Session, tokens: usize) -> Result<()> {
    let rows = vec![0.5; tokens * DIM];
    let mut batch = cache.begin([(session, tokens as u32)])?;
    batch.write(0, &rows, &rows)?;
    batch.commit(None)
}

fn filled(cache: &Cache, tokens: usize) -> Session {
    let mut session = cache.open_session().unwrap();
    fill(cache, &mut session, tokens).unwrap();
    session
}

/// Tests run one at a time, because all of them look at the same list of waiting objects.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn empty(cache: &Cache) {
    let stats = cache.stats().unwrap();
    assert_eq!((stats.sessions, stats.snapshots, stats.batches), (0, 0, 0));
    assert_eq!(cache.pool_stats().unwrap().held_blocks, 0);
    cache.validate().unwrap();
}

/// The system allocator with a count of bytes.
struct Counted(Arc<AtomicIsize>);

unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, memory: Memory) -> *mut u8 {
        self.0.fetch_add(memory.size() as isize, Ordering::Relaxed);
        System.alloc(memory)
    }

    unsafe fn dealloc(&self, pointer: *mut u8, memory: Memory) {
        self.0.fetch_sub(memory.size() as isize, Ordering::Relaxed);
        System.dealloc(pointer, memory);
    }
}

/// A batch and its only session, which is dropped after it.
struct Step {
    batch: Option<Batch<'static>>,
    session: *mut Session,
}

unsafe impl Send for Step {}

impl Step {
    fn begin(cache: &Cache, tokens: u32) -> Self {
        let session = Box::into_raw(Box::new(cache.open_session().unwrap()));
        let batch = cache.begin([(unsafe { &mut *session }, tokens)]).unwrap();
        Self { batch: Some(batch), session }
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        self.batch.take();
        drop(unsafe { Box::from_raw(self.session) });
    }
}

type Rubbish = Vec<Box<dyn Any + Send>>;

/// One object of each kind. Caches and pools count their bytes.
fn one_of_each(watched: &Cache, bytes: &Arc<AtomicIsize>) -> Rubbish {
    let session = filled(watched, 20);
    let snapshot = session.snapshot().unwrap();
    let other = Cache::new(&config().allocator(Counted(bytes.clone())).logger(|_, _| {})).unwrap();
    let pool = Pool::new(&PoolConfig::new(8).allocator(Counted(bytes.clone()))).unwrap();
    let of_other = filled(&other, 20);
    let step = Step::begin(watched, 20);
    assert!(bytes.load(Ordering::Relaxed) > 0);
    vec![
        Box::new(session),
        Box::new(snapshot),
        Box::new(other),
        Box::new(pool),
        Box::new(of_other),
        Box::new(step),
    ]
}

/// Objects that a hook drops at its next call.
#[derive(Clone, Default)]
struct Bin {
    rubbish: Arc<Mutex<Rubbish>>,
    dropped: Arc<AtomicUsize>,
}

impl Bin {
    fn empty(&self) {
        let rubbish = std::mem::take(&mut *self.rubbish.lock().unwrap());
        self.dropped.fetch_add(rubbish.len(), Ordering::Relaxed);
    }

    /// Calls the library with objects of each kind in the bin. A hook must empty the bin, and all
    /// of them must be closed then.
    fn check(&self, call: impl FnOnce()) {
        let (watched, bytes) = (Cache::new(&config()).unwrap(), Arc::new(AtomicIsize::new(0)));
        *self.rubbish.lock().unwrap() = one_of_each(&watched, &bytes);
        self.dropped.store(0, Ordering::Relaxed);
        call();
        assert_eq!(self.dropped.load(Ordering::Relaxed), 6);
        empty(&watched);
        assert_eq!(
            (bytes.load(Ordering::Relaxed), Arc::strong_count(&bytes)),
            (0, 1),
            "memory, or hooks"
        );
    }
}

impl Read for Bin {
    fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
        self.empty();
        Ok(0)
    }
}

impl Write for Bin {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.empty();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

struct Emptying(Bin);

unsafe impl GlobalAlloc for Emptying {
    unsafe fn alloc(&self, memory: Memory) -> *mut u8 {
        self.0.empty();
        System.alloc(memory)
    }

    unsafe fn dealloc(&self, pointer: *mut u8, memory: Memory) {
        self.0.empty();
        System.dealloc(pointer, memory);
    }
}

#[test]
fn drops_in_streams() {
    let _alone = alone();
    let cache = Cache::new(&config()).unwrap();
    let session = filled(&cache, 20);
    let bin = Bin::default();
    bin.check(|| {
        cache.save([(&session, 0)], &FileConfig::new(), Sink::Writer(&mut bin.clone())).unwrap();
    });
    bin.check(|| {
        drop(cache.load(&FileConfig::new(), Source::Reader(&mut bin.clone())).unwrap_err())
    });
    bin.check(|| {
        drop(inspect_file(&FileConfig::new(), Source::Reader(&mut bin.clone())).unwrap_err())
    });
}

#[test]
fn drops_in_an_allocator() {
    let _alone = alone();
    let bin = Bin::default();
    let emptying = config().allocator(Emptying(bin.clone()));
    let mut cache = None;
    bin.check(|| cache = Some(Cache::new(&emptying).unwrap()));
    bin.check(|| cache = None); // memory that is freed now is also freed in a hook
    let mut pool = None;
    bin.check(|| {
        pool = Some(Pool::new(&PoolConfig::new(8).allocator(Emptying(bin.clone()))).unwrap())
    });
    bin.check(|| pool = None);
}

#[test]
fn drops_in_a_runner() {
    let _alone = alone();
    let bin = Bin::default();
    let run = {
        let bin = bin.clone();
        move |tasks: &Tasks<'_>| {
            bin.empty();
            (0..tasks.count()).for_each(|i| tasks.run(i, 0));
        }
    };
    let cache =
        Cache::new(&CacheConfig::new(LayerGroup::new(1, 8, 8, 64).blocks(64)).runner(2, run))
            .unwrap();
    let mut session = cache.open_session().unwrap();
    let rows = vec![0f32; 512 * 8 * 64];
    let mut out = rows.clone();
    let mut batch = cache.begin([(&mut session, 512)]).unwrap();
    batch.write(0, &rows, &rows).unwrap();
    bin.check(|| batch.attend(0, &rows, &mut out).unwrap());
}

/// Copies of blocks that say so, wait, empty the bin, and count blocks.
#[derive(Clone)]
struct Copies {
    bin: Bin,
    asked: Arc<Mutex<Sender<()>>>,
    answer: Arc<Mutex<Receiver<()>>>,
    copied: Arc<AtomicUsize>,
}

impl Copies {
    /// The hooks wait until the third is dropped.
    fn new(bin: &Bin) -> (Self, Receiver<()>, Sender<()>) {
        let ((asked, is_asked), (answers, answer)) = (channel(), channel());
        let (asked, answer) = (Arc::new(Mutex::new(asked)), Arc::new(Mutex::new(answer)));
        let copies = Self { bin: bin.clone(), asked, answer, copied: Arc::default() };
        (copies, is_asked, answers)
    }

    fn copy(&self, blocks: usize) -> std::io::Result<()> {
        let _ = self.asked.lock().unwrap().send(());
        let _ = self.answer.lock().unwrap().recv();
        self.bin.empty();
        self.copied.fetch_add(blocks, Ordering::Relaxed);
        Ok(())
    }

    fn cache(&self, store: Option<StoreConfig>) -> Cache {
        let config =
            CacheConfig::new(LayerGroup::opaque_kv(1, 64).blocks(8)).storage(Storage::EXTERNAL);
        let config = config.prefix(PrefixConfig::new()).block_io(self.clone());
        Cache::new(&store.into_iter().fold(config, CacheConfig::store)).unwrap()
    }
}

impl BlockIo for Copies {
    fn read(&self, _: u32, blocks: &[u32], _: &[u32], _: &mut [u8]) -> std::io::Result<()> {
        self.copy(blocks.len())
    }

    fn write(&self, _: u32, blocks: &[u32], _: &[u8]) -> std::io::Result<()> {
        self.copy(blocks.len())
    }
}

/// A session of two blocks, without rows.
fn computed(cache: &Cache) -> Session {
    let mut session = cache.open_session().unwrap();
    let batch = cache.begin([(&mut session, 32)]).unwrap();
    batch.commit(&(0..32).collect::<Vec<i32>>()).unwrap();
    session
}

struct Folder(std::path::PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("pagedkv-{name}-{}", std::process::id())))
    }

    fn store(&self) -> Option<StoreConfig> {
        Some(StoreConfig::directory(&self.0))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn drops_in_copies_of_blocks() {
    let _alone = alone();
    let bin = Bin::default();
    let (copies, _, answers) = Copies::new(&bin);
    drop(answers);
    let (cache, mut file) = (copies.cache(None), Vec::new());
    let session = computed(&cache);
    bin.check(|| {
        cache.save([(&session, 0)], &FileConfig::new(), Sink::Writer(&mut file)).unwrap();
    });
    bin.check(|| {
        drop(cache.load(&FileConfig::new(), Source::Reader(&mut &file[..])).unwrap());
    });
    assert!(copies.copied.load(Ordering::Relaxed) >= 4);
}

/// The hooks live until a later call closes the cache, which waits for all copies.
#[test]
fn a_cache_that_is_dropped_in_its_own_copy_of_blocks() {
    let _alone = alone();
    let (folder, bin) = (Folder::new("own-copy"), Bin::default());
    let (copies, asked, answers) = Copies::new(&bin);
    let cache = copies.cache(folder.store());
    drop(computed(&cache));
    asked.recv().unwrap();
    bin.rubbish.lock().unwrap().push(Box::new(cache));
    drop(answers);
    while Arc::strong_count(&copies.copied) > 1 {
        drop(Pool::new(&PoolConfig::new(1)).unwrap());
    }
    assert_eq!(bin.dropped.load(Ordering::Relaxed), 1);
    assert_eq!(copies.copied.load(Ordering::Relaxed), 2);
}

/// The last object that refers to a cache closes it, in any order.
#[test]
fn the_last_drop_waits_for_copies_of_blocks() {
    let _alone = alone();
    let (folder, bin) = (Folder::new("last-drop"), Bin::default());
    let (copies, asked, answers) = Copies::new(&bin);
    let cache = copies.cache(folder.store());
    let session = computed(&cache);
    drop(cache);
    let last = std::thread::spawn(|| drop(session));
    asked.recv().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(20));
    assert!(!last.is_finished());
    drop(answers);
    last.join().unwrap();
    assert_eq!(copies.copied.load(Ordering::Relaxed), 2);
    assert_eq!(Arc::strong_count(&copies.copied), 1);
}

#[test]
fn drops_in_the_drop_of_a_hook() {
    let _alone = alone();
    let bin = Bin::default();
    struct Dying(Bin);
    impl Drop for Dying {
        fn drop(&mut self) {
            self.0.empty();
            std::panic::resume_unwind(Box::new("a hook that panics when it goes"));
        }
    }
    let dying = Dying(bin.clone());
    let logger = move |_: LogLevel, _: &str| dying.0.empty();
    let cache = Cache::new(&config().logger(logger)).unwrap();
    // The cache is dropped in a hook, so its own hooks are dropped when another call closes it.
    let outer = Bin::default();
    outer.rubbish.lock().unwrap().push(Box::new(cache));
    bin.check(|| {
        let cache = Cache::new(&config()).unwrap();
        let session = filled(&cache, 20);
        cache.save([(&session, 0)], &FileConfig::new(), Sink::Writer(&mut outer.clone())).unwrap();
        let begin = std::time::Instant::now();
        while bin.dropped.load(Ordering::Relaxed) == 0 && begin.elapsed().as_secs() < 10 {
            cache.stats().unwrap();
        }
    });
}

/// A thread that uses a batch by its handle, in a call that waits in the runner.
fn blocked_in_attend(
    cache: &Cache,
    entered: &std::sync::mpsc::Receiver<()>,
    batch: &Batch<'_>,
) -> std::thread::JoinHandle<Status> {
    let handle = batch.as_raw() as usize;
    let thread = std::thread::spawn(move || {
        let rows = vec![0f32; 512 * 8 * 64];
        let mut out = rows.clone();
        let tensor = |data: *const f32| sys::pkv_tensor {
            data: data as *mut _,
            dtype: Dtype::F32,
            reserved: 0,
            row_stride: 0,
            head_stride: 0,
            batch_stride: 0,
            bytes: 4 * 512 * 8 * 64,
        };
        unsafe {
            sys::pkv_batch_attend(
                handle as sys::pkv_batch,
                0,
                std::ptr::null(),
                &tensor(rows.as_ptr()),
                &tensor(out.as_mut_ptr()),
                std::ptr::null(),
            )
        }
    });
    entered.recv().unwrap();
    assert_eq!(cache.stats().unwrap().batches, 1);
    thread
}

#[test]
fn what_another_thread_uses_is_closed_by_a_later_call() {
    let _alone = alone();
    let (tell, entered) = channel();
    let (go_on, wait) = channel::<()>();
    let (tell, wait): (Mutex<Sender<()>>, _) = (Mutex::new(tell), Mutex::new(wait));
    let armed = Arc::new(AtomicUsize::new(0));
    let run = {
        let armed = armed.clone();
        move |_: &Tasks<'_>| {
            if armed.load(Ordering::Relaxed) > 0 {
                let _ = tell.lock().unwrap().send(());
                let _ = wait.lock().unwrap().recv();
            }
        }
    };
    let cache =
        Cache::new(&CacheConfig::new(LayerGroup::new(1, 8, 8, 64).blocks(64)).runner(2, run))
            .unwrap();
    let mut session = cache.open_session().unwrap();
    let rows = vec![0f32; 512 * 8 * 64];
    let mut batch = cache.begin([(&mut session, 512)]).unwrap();
    batch.write(0, &rows, &rows).unwrap();
    armed.store(1, Ordering::Relaxed);
    let thread = blocked_in_attend(&cache, &entered, &batch);
    assert_eq!(batch.abort().unwrap_err().status(), Status::BUSY);
    drop(session);
    assert_eq!((cache.stats().unwrap().batches, cache.stats().unwrap().sessions), (1, 1));
    drop(go_on);
    assert_eq!(thread.join().unwrap(), Status::OK);
    empty(&cache);
}

#[cfg(unix)] // Windows has no fork()
#[test]
fn children_drop_what_they_inherit() {
    let _alone = alone();
    extern "C" {
        fn fork() -> i32;
        fn waitpid(child: i32, status: *mut i32, options: i32) -> i32;
        fn _exit(status: i32) -> !;
    }
    let (watched, bytes) = (Cache::new(&config()).unwrap(), Arc::new(AtomicIsize::new(0)));
    let rubbish = one_of_each(&watched, &bytes);
    let child = unsafe { fork() };
    if child == 0 {
        drop(rubbish);
        drop(watched);
        let own = Cache::new(&config());
        let works = own.and_then(|own| own.open_session()?.length()).is_ok();
        unsafe { _exit(i32::from(!works)) };
    }
    let mut status = -1;
    assert_eq!((unsafe { waitpid(child, &mut status, 0) }, status), (child, 0));
    assert_eq!(watched.stats().unwrap().sessions, 2);
    drop(rubbish);
    empty(&watched);
    assert_eq!(bytes.load(Ordering::Relaxed), 0);
}

/// Threads drop objects of every kind while others read all sessions and thereby make them busy.
/// PAGEDKV_ROUNDS is the number of rounds; tests/README.md has the command.
#[test]
fn many_threads_that_drop_everything() {
    let _alone = alone();
    let rounds = std::env::var("PAGEDKV_ROUNDS").map_or(3, |rounds| rounds.parse().unwrap());
    for _ in 0..rounds {
        let cache = Cache::new(&config_of(4096)).unwrap();
        let bytes = Arc::new(AtomicIsize::new(0));
        std::thread::scope(|scope| {
            for worker in 0..4 {
                let (cache, bytes) = (&cache, &bytes);
                scope.spawn(move || (0..60).for_each(|i| work(cache, bytes, worker + i)));
            }
        });
        empty(&cache);
        assert_eq!((bytes.load(Ordering::Relaxed), Arc::strong_count(&bytes)), (0, 1));
    }
}

/// Another thread that reads all sessions makes calls of this one BUSY. Their results are dropped.
fn work(cache: &Cache, bytes: &Arc<AtomicIsize>, kind: usize) {
    let busy = |error: Error| assert_eq!(error.status(), Status::BUSY, "{error}");
    let mut session = cache.open_session().unwrap();
    fill(cache, &mut session, 20).unwrap_or_else(busy);
    match kind % 5 {
        0 => drop(cache.choose_victims([(&session, 1)]).map_err(busy)),
        1 => drop(session.snapshot().map_err(busy)),
        2 => drop(session.fork().map_err(busy)),
        3 => drop(cache.begin([(&mut session, 30)]).map_err(busy)),
        _ => {
            let other = Cache::new(&config().allocator(Counted(bytes.clone()))).unwrap();
            let mut bin = Bin::default();
            bin.rubbish.lock().unwrap().push(Box::new(session));
            bin.rubbish.lock().unwrap().push(Box::new(filled(&other, 20)));
            other
                .save([(&filled(&other, 20), 0)], &FileConfig::new(), Sink::Writer(&mut bin))
                .unwrap();
        }
    }
}
