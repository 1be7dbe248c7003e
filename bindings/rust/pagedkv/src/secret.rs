//! What is not shown.
use std::fmt;

/// A password, a key, or a text that may have one in it. `Debug` only says that there is one.
#[derive(Clone, Copy)]
pub(crate) struct Secret<T>(pub T);

impl<T> fmt::Debug for Secret<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}
