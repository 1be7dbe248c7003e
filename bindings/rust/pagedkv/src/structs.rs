//! Helpers for structs that C reads or fills.
use crate::error::{call, Result, Status};
use crate::sys;
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

pub(crate) fn durability(durable: bool) -> sys::pkv_durability {
    if durable {
        sys::pkv_durability::ON
    } else {
        sys::pkv_durability::OFF
    }
}

/// Returns the struct that a getter of the library fills.
pub(crate) fn filled<T: Default>(get: impl FnOnce(*mut T) -> Status) -> Result<T> {
    let mut out = T::default();
    call(|| get(&mut out))?;
    Ok(out)
}

/// A struct of C with the numbers of a config. Its addresses are null: they are set for a call.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Numbers<T>(pub T);

// Without addresses, it is plain numbers.
unsafe impl<T> Send for Numbers<T> {}
unsafe impl<T> Sync for Numbers<T> {}

/// Methods that set the field of their name, by `name(argument: type) = value;`. After `c` it is a
/// field of the struct of C.
macro_rules! setters {
    () => {};
    (
        $(#[$doc:meta])* c $field:ident($($given:ident: $type:ty),*) = $value:expr;
        $($others:tt)*
    ) => {
        $(#[$doc])*
        pub fn $field(mut self, $($given: $type),*) -> Self {
            self.c.0.$field = $value;
            self
        }
        setters! { $($others)* }
    };
    (
        $(#[$doc:meta])* $field:ident($($given:ident: $type:ty),*) = $value:expr;
        $($others:tt)*
    ) => {
        $(#[$doc])*
        pub fn $field(mut self, $($given: $type),*) -> Self {
            self.$field = $value;
            self
        }
        setters! { $($others)* }
    };
}
pub(crate) use setters;
