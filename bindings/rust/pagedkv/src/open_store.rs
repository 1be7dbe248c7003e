//! A store that was opened for a cache.
use crate::sys;
use std::time::Duration;

/// A store that is closed unless a cache takes it.
pub(crate) struct OpenStore(pub sys::pkv_store);

impl Drop for OpenStore {
    fn drop(&mut self) {
        unsafe { sys::pkv_store_close(&mut self.0) };
    }
}

/// Milliseconds for C, rounded up, because 0 has another meaning.
pub(crate) fn milliseconds(time: Duration) -> u32 {
    u32::try_from((time.as_nanos() + 999_999) / 1_000_000).unwrap_or(u32::MAX)
}

/// Seconds for C, rounded up.
#[cfg(any(feature = "redis", test))]
pub(crate) fn seconds(time: Duration) -> u32 {
    u32::try_from((time.as_nanos() + 999_999_999) / 1_000_000_000).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::{milliseconds, seconds};
    use std::time::Duration;

    #[test]
    fn short_times_are_not_dropped() {
        assert_eq!(milliseconds(Duration::ZERO), 0);
        assert_eq!(milliseconds(Duration::from_nanos(1)), 1);
        assert_eq!(milliseconds(Duration::from_micros(1500)), 2);
        assert_eq!(milliseconds(Duration::from_millis(7)), 7);
        assert_eq!(milliseconds(Duration::MAX), u32::MAX);
        assert_eq!(seconds(Duration::ZERO), 0);
        assert_eq!(seconds(Duration::from_millis(500)), 1);
        assert_eq!(seconds(Duration::from_secs(9)), 9);
        assert_eq!(seconds(Duration::MAX), u32::MAX);
    }
}
