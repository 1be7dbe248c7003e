//! Values that `Debug` does not show.
use std::fmt;

/// A password, a key, or a text that may contain one. `Debug` prints only `(hidden)`.
#[derive(Clone, Copy)]
pub(crate) struct Secret<T>(pub T);

impl<T> fmt::Debug for Secret<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}
