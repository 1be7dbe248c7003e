use crate::cache::Owned;
use crate::closing::{close, Handle};
use crate::error::{call, Result};
use crate::hooks::Hooks;
use crate::session::Session;
use crate::sys;
use std::fmt;
use std::sync::Arc;

/// A frozen sequence: references to its blocks, not copies. Any number of threads may fork it at
/// once.
///
/// It outlives its session:
///
/// ```
/// # use pagedkv::{Cache, CacheConfig, LayerGroup};
/// # let cache = Cache::new(&CacheConfig::new(LayerGroup::new(1, 2, 1, 16).blocks(8)))?;
/// let mut session = cache.open_session()?;
/// let mut batch = cache.begin([(&mut session, 3)])?;
/// batch.write(0, &[0.5; 3 * 16], &[0.5; 3 * 16])?;
/// batch.commit(None)?;
/// let snapshot = session.snapshot()?;
/// drop(session);
/// assert_eq!(snapshot.fork()?.length()?, 3);
/// # Ok::<(), pagedkv::Error>(())
/// ```
pub struct Snapshot {
    handle: sys::pkv_snapshot,
    cache: Arc<Owned>,
    length: u64,
}

// "Everything but close", from any number of threads; close is the drop.
unsafe impl Send for Snapshot {}
unsafe impl Sync for Snapshot {}

impl Snapshot {
    /// The handle of C, for functions of `pagedkv-sys`. It stays this snapshot's.
    pub fn as_raw(&self) -> sys::pkv_snapshot {
        self.handle
    }

    /// Opens a new session with the frozen content.
    pub fn fork(&self) -> Result<Session> {
        Session::opened(&self.cache, |out| unsafe { sys::pkv_snapshot_fork(self.handle, out) })
    }

    /// The number of tokens.
    pub fn length(&self) -> u64 {
        self.length
    }
}

impl Session {
    /// Freezes the current content of the session without copies. The snapshot outlives the
    /// session.
    pub fn snapshot(&self) -> Result<Snapshot> {
        let (mut handle, length) = (std::ptr::null_mut(), self.length()?);
        call(|| unsafe { sys::pkv_snapshot_take(self.as_raw(), &mut handle) })?;
        Ok(Snapshot { handle, cache: self.cache.clone(), length })
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        close(Handle::Snapshot(self.handle), Hooks::default());
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot").field("handle", &self.handle).finish()
    }
}
