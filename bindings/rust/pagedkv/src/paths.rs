//! Paths as C gets them.
use crate::error::{Error, Result};
use std::ffi::CString;
use std::path::Path;

/// Converts the path for C: its bytes, and on Windows its text in UTF-8. `name` begins the error.
pub(crate) fn path_of_c(path: &Path, name: &str) -> Result<CString> {
    #[cfg(unix)]
    let bytes = std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str());
    #[cfg(not(unix))]
    let bytes =
        path.to_str().ok_or_else(|| Error::misuse(format!("{name} is not Unicode")))?.as_bytes();
    CString::new(bytes).map_err(|_| Error::misuse(format!("{name} has a NUL in it")))
}
