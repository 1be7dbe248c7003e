//! A store that was opened for a cache.
use crate::sys;
use std::time::Duration;

/// A store that is closed unless a cache takes it.
pub(crate) struct OpenStore(pub sys::pkv_store);

impl Drop for OpenStore {
    fn drop(&mut self) {
        if let Some(close) = self.0.close {
            unsafe { close(self.0.user) };
        }
    }
}

/// Milliseconds as C counts them.
pub(crate) fn milliseconds(time: Duration) -> u32 {
    u32::try_from(time.as_millis()).unwrap_or(u32::MAX)
}
