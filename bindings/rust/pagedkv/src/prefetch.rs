//! Calls for the store of a cache: wait, flush and statistics.
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

/// These need a store ([`CacheConfig::store`](crate::CacheConfig::store)), else `UNSUPPORTED`.
impl Cache {
    /// Waits until no prefetch of the text is in progress. Returns how many of its tokens are in
    /// memory now.
    pub fn wait_for_prefetch(
        &self,
        salt: Salt<'_>,
        tokens: &[i32],
        timeout: Duration,
    ) -> Result<u64> {
        let (text, timeout, mut cached) = (salt.text(tokens), milliseconds(timeout), 0);
        call(|| unsafe {
            sys::pkv_prefetch_wait(self.as_raw(), &text, timeout, &mut cached, null_mut())
        })?;
        Ok(cached)
    }

    /// Cancels the prefetches that [`wait_for_prefetch`](Self::wait_for_prefetch) would wait for.
    pub fn cancel_prefetch(&self, salt: Salt<'_>, tokens: &[i32]) -> Result<()> {
        let text = salt.text(tokens);
        call(|| unsafe { sys::pkv_prefetch_cancel(self.as_raw(), &text) })
    }

    /// Waits until earlier sessions are written. Returns how many tokens still wait.
    pub fn flush_store(&self, timeout: Duration) -> Result<u64> {
        let mut queued = 0;
        call(|| unsafe {
            sys::pkv_cache_flush_store(self.as_raw(), milliseconds(timeout), &mut queued)
        })?;
        Ok(queued)
    }

    /// Returns the statistics of the store.
    pub fn store_stats(&self) -> Result<StoreStats> {
        filled(|out| unsafe { sys::pkv_cache_get_store_stats(self.as_raw(), out) })
    }
}
