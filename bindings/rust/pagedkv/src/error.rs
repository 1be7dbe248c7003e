//! Statuses as `Result`.
use crate::closing::close_waiting;
use crate::sys;
use std::ffi::CStr;
use std::fmt;

#[doc(inline)]
pub use crate::sys::pkv_status as Status;

/// A `Result` whose error has the status of a failed call and the library's sentence.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call failed. A failed call has changed nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    status: Status,
    message: Box<str>,
    // As in C, because options would make the error large.
    group: u32,
    index: u64,
    blocks_short: u64,
    system_error: i32,
}

impl Error {
    /// The status of the C function; its hundreds digit is the family.
    pub fn status(&self) -> Status {
        self.status
    }

    /// One sentence with numbers: "begin needs 12 blocks in group 0, 3 of 8 are free (9 short over
    /// all groups)".
    pub fn message(&self) -> &str {
        &self.message
    }

    /// With `OUT_OF_BLOCKS`: how many blocks must be freed before the same call can succeed.
    pub fn blocks_short(&self) -> Option<u64> {
        (self.status == Status::OUT_OF_BLOCKS).then_some(self.blocks_short)
    }

    /// With `OUT_OF_BLOCKS`: the first layer group that lacks blocks.
    pub fn group(&self) -> Option<u32> {
        Some(self.group).filter(|&group| group != u32::MAX)
    }

    /// The entry of a list that the call refused: a session of
    /// [`Cache::begin`](crate::Cache::begin), a block or an item.
    pub fn index(&self) -> Option<u64> {
        Some(self.index).filter(|&index| index != u64::MAX)
    }

    /// With `IO`: the errno, if there is one.
    pub fn system_error(&self) -> Option<i32> {
        Some(self.system_error).filter(|&error| error != 0)
    }

    pub(crate) fn new(status: Status, message: impl Into<Box<str>>) -> Self {
        let (group, index) = (u32::MAX, u64::MAX);
        Self { status, message: message.into(), group, index, blocks_short: 0, system_error: 0 }
    }

    pub(crate) fn misuse(message: impl Into<Box<str>>) -> Self {
        Self::new(Status::INVALID_ARGUMENT, message)
    }

    #[cold]
    fn last(status: Status) -> Self {
        // A string and a struct of C that stay until the next call on this thread fails; never
        // NULL.
        let sentence = unsafe { CStr::from_ptr(sys::pkv_last_error()) };
        let details = unsafe { &*sys::pkv_last_error_details() };
        Self {
            group: details.group,
            index: details.index,
            blocks_short: details.blocks_short,
            system_error: details.system_error,
            ..Self::new(status, sentence.to_string_lossy())
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({:?})", self.message, self.status)
    }
}

impl std::error::Error for Error {}

/// Converts the status of a C function to a `Result`.
#[inline]
pub(crate) fn check(status: Status) -> Result<()> {
    if status == Status::OK {
        Ok(())
    } else {
        Err(Error::last(status))
    }
}

/// Calls the library, after closing objects that wait for it.
#[inline]
pub(crate) fn call(function: impl FnOnce() -> Status) -> Result<()> {
    close_waiting();
    check(function())
}

/// With the feature `dlopen`: opens the library, for calls that need no object. Without it, the
/// library is linked.
pub(crate) fn ensure_library() -> Result<()> {
    sys::ensure().map_err(|message| Error::new(Status::IO, message))
}

/// Returns the buffer that a function fills. It calls again if the buffer was too small.
pub(crate) fn fill<T: Copy>(
    empty: T,
    mut call: impl FnMut(usize, *mut T, *mut usize) -> Status,
) -> Result<Vec<T>> {
    close_waiting();
    let (mut buffer, mut count) = (vec![empty; 32], 0);
    loop {
        match call(buffer.len(), buffer.as_mut_ptr(), &mut count) {
            Status::BUFFER_TOO_SMALL => buffer.resize(count.max(buffer.len() + 1), empty),
            status => {
                check(status)?;
                buffer.truncate(count);
                return Ok(buffer);
            }
        }
    }
}
