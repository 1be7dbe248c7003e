//! Objects that were dropped but could not be closed yet: in a hook no call works, and another
//! thread may be using the object. They wait here, with the hooks that C may still call. Every
//! later call of the library first tries to close them.
use crate::hooks::{contained, Hooks};
use crate::sys::{self, pkv_status as Status};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

pub(crate) enum Handle {
    Pool(sys::pkv_pool),
    Cache(sys::pkv_cache),
    Session(sys::pkv_session),
    Batch(sys::pkv_batch),
    Snapshot(sys::pkv_snapshot),
    Compute(sys::pkv_compute),
}

/// An object that is no longer used, and the hooks that C may call until it is closed.
struct Ending {
    handle: Handle,
    _hooks: Hooks,
    next: *mut Ending,
}

impl Ending {
    /// Returns whether the object is closed now. Closing a cache also closes its objects.
    fn close(&self) -> bool {
        let status = unsafe {
            match self.handle {
                Handle::Pool(pool) => sys::pkv_pool_destroy(pool),
                Handle::Cache(cache) => sys::pkv_cache_destroy(cache),
                Handle::Session(session) => sys::pkv_session_close(session),
                Handle::Batch(batch) => sys::pkv_batch_abort(batch),
                Handle::Snapshot(snapshot) => sys::pkv_snapshot_close(snapshot),
                Handle::Compute(compute) => sys::pkv_compute_destroy(compute),
            }
        };
        matches!(status, Status::OK | Status::STALE_HANDLE)
    }
}

/// A list: threads push single objects and take all of them. It has no lock that a fork could leave
/// locked forever.
static WAITING: AtomicPtr<Ending> = AtomicPtr::new(null_mut());

fn wait(ending: Box<Ending>) {
    let ending = Box::into_raw(ending);
    let mut first = WAITING.load(Ordering::Relaxed);
    loop {
        unsafe { (*ending).next = first };
        // Release: a thread that takes the list sees its contents.
        match WAITING.compare_exchange_weak(first, ending, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => return,
            Err(found) => first = found,
        }
    }
}

/// Closes an object that is no longer used: now if possible, else at a later call of the library.
pub(crate) fn close(handle: Handle, hooks: Hooks) {
    let ending = Ending { handle, _hooks: hooks, next: null_mut() };
    if !ending.close() {
        wait(Box::new(ending));
    }
}

/// Runs before each call of the library.
#[inline]
pub(crate) fn close_waiting() {
    if !WAITING.load(Ordering::Relaxed).is_null() {
        // A session waits for its batch, so one round may not be enough.
        while close_all() {}
    }
}

/// Tries to close each object of the list. Returns whether at least one was closed.
#[cold]
fn close_all() -> bool {
    let mut progress = false;
    let mut first = WAITING.swap(null_mut(), Ordering::Acquire);
    while !first.is_null() {
        // It was a box, and nothing else refers to it.
        let ending = unsafe { Box::from_raw(first) };
        first = ending.next;
        if ending.close() {
            progress = true;
            contained(|| drop(ending)); // with hooks, whose drop may panic
        } else {
            wait(ending);
        }
    }
    progress
}
