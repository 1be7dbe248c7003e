//! Helpers for structs that C reads or fills.
use crate::error::{call, Result, Status};
use std::os::raw::c_void;
use std::ptr::null;

/// Returns the address of a value; null for none.
pub(crate) fn address<T>(value: &Option<T>) -> *const T {
    value.as_ref().map_or(null(), |value| value)
}

/// Returns the address and the size of bytes; null for none.
pub(crate) fn bytes(given: Option<&[u8]>) -> (*const c_void, u64) {
    given.map_or((null(), 0), |bytes| (bytes.as_ptr().cast(), bytes.len() as u64))
}

/// Returns the struct that a getter of the library fills.
pub(crate) fn filled<T: Default>(get: impl FnOnce(*mut T) -> Status) -> Result<T> {
    let mut out = T::default();
    call(|| get(&mut out))?;
    Ok(out)
}

/// Methods that set the field of their name, by `name(argument: type) = value;`.
macro_rules! setters {
    ($($(#[$doc:meta])* $field:ident($($given:ident: $type:ty),*) = $value:expr;)*) => {
        $(
            $(#[$doc])*
            pub fn $field(mut self, $($given: $type),*) -> Self {
                self.$field = $value;
                self
            }
        )*
    };
}
pub(crate) use setters;
