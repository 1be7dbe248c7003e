//! What a cache does with its store: reading ahead, waiting for what is written, figures.
use crate::cache::Cache;
use crate::error::{call, Result};
use crate::open_store::milliseconds;
use crate::prefix::Salt;
use crate::structs::filled;
use crate::sys;
use std::ptr::null_mut;
use std::time::Duration;

#[doc(inline)]
pub use crate::sys::pkv_store_stats as StoreStats;

/// With a store ([`CacheConfig::store`](crate::CacheConfig::store)); `UNSUPPORTED` without.
impl Cache {
    /// Begins to read what the store has of a text, and returns: for a request that waits for its
    /// turn.
    pub fn prefetch(&self, salt: Salt<'_>, tokens: &[i32]) -> Result<()> {
        let (salt, size) = salt.raw();
        call(|| unsafe {
            sys::pkv_store_prefetch(self.as_raw(), salt, size, tokens.len(), tokens.as_ptr())
        })
    }

    /// Waits until no prefetch of the text is in progress, and says how many of its tokens are in
    /// memory now.
    pub fn wait_for_store(&self, salt: Salt<'_>, tokens: &[i32], timeout: Duration) -> Result<u64> {
        let ((salt, size), mut cached) = (salt.raw(), 0);
        let (n, tokens, timeout) = (tokens.len(), tokens.as_ptr(), milliseconds(timeout));
        call(|| unsafe {
            sys::pkv_store_wait(
                self.as_raw(),
                salt,
                size,
                n,
                tokens,
                timeout,
                &mut cached,
                null_mut(),
            )
        })?;
        Ok(cached)
    }

    /// Gives up the prefetches that [`wait_for_store`](Self::wait_for_store) would wait for.
    pub fn cancel_prefetch(&self, salt: Salt<'_>, tokens: &[i32]) -> Result<()> {
        let (salt, size) = salt.raw();
        call(|| unsafe {
            sys::pkv_store_cancel(self.as_raw(), salt, size, tokens.len(), tokens.as_ptr())
        })
    }

    /// Waits until what ended before is written, and says how many block positions still wait.
    pub fn flush_store(&self, timeout: Duration) -> Result<u64> {
        let mut queued = 0;
        call(|| unsafe {
            sys::pkv_store_flush(self.as_raw(), milliseconds(timeout), &mut queued)
        })?;
        Ok(queued)
    }

    /// What was written, read and lost.
    pub fn store_stats(&self) -> Result<StoreStats> {
        filled(|out| unsafe { sys::pkv_store_get_stats(self.as_raw(), out) })
    }
}
