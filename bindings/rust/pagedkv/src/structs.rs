//! Structs that C is given, and structs that it fills.
use crate::error::{call, Result, Status};
use crate::sys;
use std::mem::{size_of, MaybeUninit};

/// A struct of C with the defaults that its function fills in.
pub(crate) fn defaults<T>(init: impl FnOnce(*mut T, usize) -> Status) -> Result<T> {
    let mut place = MaybeUninit::<T>::uninit();
    call(|| init(place.as_mut_ptr(), size_of::<T>()))?;
    // Every field was set.
    Ok(unsafe { place.assume_init() })
}

/// The address of a value; null for none.
pub(crate) fn address<T>(value: &Option<T>) -> *const T {
    value.as_ref().map_or(std::ptr::null(), |value| value)
}

/// Structs of numbers that begin with their size.
///
/// # Safety
/// All bytes zero is a value, and the first field is a `u32` named `struct_size`.
pub(crate) unsafe trait Sized32: Copy {}

macro_rules! sized {
    ($($name:ident),*) => { $(unsafe impl Sized32 for sys::$name {})* };
}
sized!(
    pkv_block_state,
    pkv_cache_info,
    pkv_cache_plan,
    pkv_cache_stats,
    pkv_compute_info,
    pkv_file_info,
    pkv_kv_view,
    pkv_pool_stats,
    pkv_prefix_stats,
    pkv_session_info,
    pkv_store,
    pkv_store_stats
);

/// What a getter of the library writes.
pub(crate) fn filled<T: Sized32>(get: impl FnOnce(*mut T) -> Status) -> Result<T> {
    let mut place = MaybeUninit::<T>::zeroed();
    let out = place.as_mut_ptr();
    // The size is the first field, and zeros are a value of the others.
    unsafe { *(out as *mut u32) = size_of::<T>() as u32 };
    call(|| get(out))?;
    Ok(unsafe { place.assume_init() })
}
