//! Hooks of the program: an allocator, threads, a logger, a clock, copies of blocks. A hook must
//! not call the library (`REENTRANT`).
use crate::sys;
use std::alloc::{GlobalAlloc, Layout};
use std::ffi::CStr;
use std::fmt;
use std::io;
use std::os::raw::{c_char, c_void};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::slice::{from_raw_parts, from_raw_parts_mut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;

#[doc(inline)]
pub use crate::sys::pkv_log_level as LogLevel;

/// Hooks of a cache or a pool. C stores their addresses, so each is in an `Arc` that lives as long.
#[derive(Clone, Default)]
pub(crate) struct Hooks {
    pub allocator: Option<Arc<Allocator>>,
    pub logger: Option<Arc<Logger>>,
    pub clock: Option<Arc<Clock>>,
    pub runner: Option<Arc<Runner>>,
    pub block_io: Option<Arc<BlockHooks>>,
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hooks")
            .field("allocator", &self.allocator.is_some())
            .field("logger", &self.logger.is_some())
            .field("clock", &self.clock.is_some())
            .field("runner", &self.runner.is_some())
            .field("block_io", &self.block_io.is_some())
            .finish()
    }
}

/// Calls a hook. A panic must not unwind through C. Its message was already printed, and its
/// payload may panic again when it is dropped.
pub(crate) fn contained<T>(hook: impl FnOnce() -> T) -> Option<T> {
    let panic = match catch_unwind(AssertUnwindSafe(hook)) {
        Ok(result) => return Some(result),
        Err(panic) => panic,
    };
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        std::mem::forget(again);
    }
    None
}

// ---- Memory
// -------------------------------------------------------------------------------------------------

pub(crate) struct Allocator(pub Box<dyn GlobalAlloc + Send + Sync>);

impl Allocator {
    pub(crate) fn raw(self: &Arc<Self>) -> sys::pkv_allocator {
        sys::pkv_allocator {
            alloc: Some(alloc),
            free: Some(free),
            user: Arc::as_ptr(self) as *mut c_void,
        }
    }
}

/// GlobalAlloc does not accept a layout of 0 bytes.
fn layout(size: usize, alignment: usize) -> Option<Layout> {
    Layout::from_size_align(size.max(1), alignment).ok()
}

unsafe extern "C" fn alloc(user: *mut c_void, size: usize, alignment: usize) -> *mut c_void {
    let allocator = &*(user as *const Allocator);
    layout(size, alignment)
        .map_or(std::ptr::null_mut(), |layout| allocator.0.alloc(layout) as *mut c_void)
}

unsafe extern "C" fn free(user: *mut c_void, memory: *mut c_void, size: usize, alignment: usize) {
    let allocator = &*(user as *const Allocator);
    if let Some(layout) = layout(size, alignment).filter(|_| !memory.is_null()) {
        allocator.0.dealloc(memory as *mut u8, layout);
    }
}

// ---- Log lines
// -------------------------------------------------------------------------------------------------

type Log = dyn Fn(LogLevel, &str) + Send + Sync;
pub(crate) struct Logger(pub Box<Log>);

impl Logger {
    pub(crate) fn raw(self: &Arc<Self>) -> sys::pkv_logger {
        sys::pkv_logger { log: Some(log), user: Arc::as_ptr(self) as *mut c_void }
    }
}

unsafe extern "C" fn log(user: *mut c_void, level: LogLevel, message: *const c_char) {
    let logger = &*(user as *const Logger);
    let line = CStr::from_ptr(message).to_string_lossy();
    contained(|| (logger.0)(level, &line));
}

// ---- Time
// -------------------------------------------------------------------------------------------------

type Now = dyn Fn() -> Duration + Send + Sync;
pub(crate) struct Clock(pub Box<Now>);

impl Clock {
    pub(crate) fn raw(self: &Arc<Self>) -> sys::pkv_clock {
        sys::pkv_clock { now_ms: Some(now_ms), user: Arc::as_ptr(self) as *mut c_void }
    }
}

/// A clock that panics stands still.
unsafe extern "C" fn now_ms(user: *mut c_void) -> u64 {
    let clock = &*(user as *const Clock);
    let now = contained(|| (clock.0)()).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

// ---- Threads
// -------------------------------------------------------------------------------------------------

type Run = dyn Fn(&Tasks<'_>) + Send + Sync;
pub(crate) struct Runner {
    pub threads: u32,
    pub run: Box<Run>,
}

impl Runner {
    pub(crate) fn raw(self: &Arc<Self>) -> sys::pkv_runner {
        sys::pkv_runner {
            run: Some(run),
            user: Arc::as_ptr(self) as *mut c_void,
            threads: self.threads,
            reserved: 0,
        }
    }
}

type TaskFunction = unsafe extern "C" fn(*mut c_void, usize, u32);

/// Tasks to distribute over threads: [`run`](Self::run) each number below [`count`](Self::count)
/// once, on any threads and in any order. Tasks that are left when the hook returns run on the
/// thread that called the hook.
pub struct Tasks<'a> {
    function: TaskFunction,
    context: *mut c_void,
    begun: &'a [AtomicBool],
    workers: &'a [AtomicBool],
}

// The library's function may be called from any thread; `run` checks that no worker is used twice
// at once.
unsafe impl Sync for Tasks<'_> {}

impl Tasks<'_> {
    /// Returns the number of tasks.
    pub fn count(&self) -> usize {
        self.begun.len()
    }

    /// Runs task number `i`. `worker` must be below the configured number of threads, and no two
    /// threads may use the same one at once.
    ///
    /// # Panics
    /// If that does not hold, or the task has already begun.
    pub fn run(&self, i: usize, worker: u32) {
        let begun = &self.begun[i];
        let _at_work = AtWork::begin(&self.workers[worker as usize], worker);
        assert!(!begun.swap(true, Ordering::Relaxed), "task {i} was begun before");
        // This task runs once, and no other thread uses this worker number.
        unsafe { (self.function)(self.context, i, worker) };
    }

    /// Runs the remaining tasks. No other thread uses the tasks any more, so every worker is free.
    fn finish(&self) {
        for (i, begun) in self.begun.iter().enumerate() {
            if !begun.load(Ordering::Relaxed) {
                unsafe { (self.function)(self.context, i, 0) };
            }
        }
    }
}

/// Marks a worker as busy until this is dropped, also by a panic.
struct AtWork<'a>(&'a AtomicBool);

impl<'a> AtWork<'a> {
    fn begin(busy: &'a AtomicBool, worker: u32) -> Self {
        assert!(!busy.swap(true, Ordering::Acquire), "worker {worker} is in use by another thread");
        Self(busy)
    }
}

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl fmt::Debug for Tasks<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tasks").field("count", &self.count()).finish()
    }
}

unsafe extern "C" fn run(
    user: *mut c_void,
    n: usize,
    task: Option<TaskFunction>,
    context: *mut c_void,
) {
    let (runner, function) = match task {
        Some(function) => (&*(user as *const Runner), function),
        None => return,
    };
    let flags = |count: usize| (0..count).map(|_| AtomicBool::new(false)).collect::<Vec<_>>();
    let (begun, workers) = (flags(n), flags(runner.threads as usize));
    let tasks = Tasks { function, context, begun: &begun, workers: &workers };
    // The tasks are borrowed for this call only: when it returns or panics, no thread uses them any
    // more.
    contained(|| (runner.run)(&tasks));
    tasks.finish();
}

// ---- Blocks of the engine -----------------------------------------------------------------------

/// Copies blocks of groups that are [opaque](crate::LayerGroup::opaque_kv), for example
/// between a device and memory: see [`CacheConfig::block_io`](crate::CacheConfig::block_io).
///
/// A cache with a store calls `read` from one thread of its own and `write` from another; saving
/// and loading call them in their thread. No step waits for a call. An error is that of saving or
/// loading, and a miss of a store; a panic counts as an error. What a step computes must be
/// complete for `read` once the step is committed, and `write` must not overtake kernels that were
/// started before. A hook must not call the library, nor wait for a thread that does.
pub trait BlockIo: Send + Sync {
    /// Copies blocks of a group to `to`, which has the bytes of one block after another, all 0.
    /// Block `i` holds `tokens[i]` tokens. Bytes of other slots may be those of other sequences:
    /// leave them 0.
    fn read(&self, group: u32, blocks: &[u32], tokens: &[u32], to: &mut [u8]) -> io::Result<()>;
    /// Copies the bytes of blocks, one after another, to the blocks of a group.
    fn write(&self, group: u32, blocks: &[u32], from: &[u8]) -> io::Result<()>;
}

pub(crate) struct BlockHooks {
    pub io: Box<dyn BlockIo>,
    pub block_bytes: Vec<usize>, // by group
}

impl BlockHooks {
    pub(crate) fn raw(self: &Arc<Self>) -> sys::pkv_block_io {
        sys::pkv_block_io {
            user: Arc::as_ptr(self) as *mut c_void,
            read: Some(read_blocks),
            write: Some(write_blocks),
            ..Default::default()
        }
    }
}

/// EIO: what a hook returns to C for a panic, and for an error that is none of the system's.
pub(crate) const NO_ERRNO: i32 = -5;

/// What a hook returns to C for an error. Any number can be in an `io::Error`, and C takes 0 and
/// positive ones for success.
pub(crate) fn negative_errno(error: &io::Error) -> i32 {
    error.raw_os_error().filter(|&errno| errno > 0).map_or(NO_ERRNO, |errno| -errno)
}

fn answer(copied: Option<io::Result<()>>) -> i32 {
    match copied {
        Some(Ok(())) => 0,
        Some(Err(error)) => negative_errno(&error),
        None => NO_ERRNO,
    }
}

unsafe extern "C" fn read_blocks(
    user: *mut c_void,
    group: u32,
    n: usize,
    blocks: *const u32,
    tokens: *const u32,
    to: *mut c_void,
) -> i32 {
    let hooks = &*(user as *const BlockHooks);
    let size = n * hooks.block_bytes[group as usize];
    let (blocks, tokens) = (from_raw_parts(blocks, n), from_raw_parts(tokens, n));
    let to = from_raw_parts_mut(to as *mut u8, size);
    answer(contained(|| hooks.io.read(group, blocks, tokens, to)))
}

unsafe extern "C" fn write_blocks(
    user: *mut c_void,
    group: u32,
    n: usize,
    blocks: *const u32,
    from: *const c_void,
) -> i32 {
    let hooks = &*(user as *const BlockHooks);
    let size = n * hooks.block_bytes[group as usize];
    let (blocks, from) = (from_raw_parts(blocks, n), from_raw_parts(from as *const u8, size));
    answer(contained(|| hooks.io.write(group, blocks, from)))
}
