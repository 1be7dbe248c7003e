//! The functions of a library that is opened at run time.
use crate::raw::*;
use std::ffi::OsStr;
use std::os::raw::{c_char, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::Mutex;

macro_rules! declare {
    ($(fn $name:ident($($argument:ident: $kind:ty),*) -> $result:ty;)*) => {
        struct Functions {
            $($name: unsafe extern "C" fn($($kind),*) -> $result,)*
        }

        impl Functions {
            /// What the library lacks is an error that names it.
            unsafe fn of(library: &libloading::Library) -> Result<Self, libloading::Error> {
                Ok(Self { $($name: *library.get(concat!(stringify!($name), "\0").as_bytes())?,)* })
            }
        }

        $(
            /// # Safety
            /// As the C function asks. The library must be open: [`open`], [`ensure`].
            #[inline]
            #[allow(clippy::too_many_arguments)]
            pub unsafe fn $name($($argument: $kind),*) -> $result {
                (functions().$name)($($argument),*)
            }
        )*
    };
}
for_each_function!(declare);

/// Of the library that was opened; null before. A library stays open to the end of the program,
/// since its threads may.
static FUNCTIONS: AtomicPtr<Functions> = AtomicPtr::new(std::ptr::null_mut());
static OPENING: Mutex<()> = Mutex::new(());

#[inline]
fn functions() -> &'static Functions {
    // What stands there was written before it was stored, and is never freed.
    match unsafe { FUNCTIONS.load(Ordering::Acquire).as_ref() } {
        Some(functions) => functions,
        None => panic!("libpagedkv is not open: call pagedkv_sys::ensure first"),
    }
}

/// What the dynamic linker looks for.
const NAME: &str = if cfg!(windows) { "pagedkv.dll" } else { "libpagedkv.so.1" };

/// Opens the library in this file. An error where it cannot be opened, lacks a function, or another
/// one is open already.
pub fn open(file: impl AsRef<OsStr>) -> Result<(), String> {
    let _one_at_a_time = OPENING.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if !FUNCTIONS.load(Ordering::Acquire).is_null() {
        return Err("libpagedkv is open already".into());
    }
    open_first(file.as_ref())
}

/// Opens the library, unless one is open, from the file that `PAGEDKV_LIBRARY` names, else as
/// `libpagedkv.so.1` (`pagedkv.dll` on Windows).
pub fn ensure() -> Result<(), String> {
    if !FUNCTIONS.load(Ordering::Acquire).is_null() {
        return Ok(());
    }
    let _one_at_a_time = OPENING.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if !FUNCTIONS.load(Ordering::Acquire).is_null() {
        return Ok(());
    }
    open_first(&std::env::var_os("PAGEDKV_LIBRARY").unwrap_or_else(|| NAME.into()))
}

fn open_first(file: &OsStr) -> Result<(), String> {
    let describe = |error| format!("{}: {error}", file.to_string_lossy());
    // Initialisers of the library may do anything: the caller chose the file.
    let library = unsafe { libloading::Library::new(file) }.map_err(describe)?;
    let functions = unsafe { Functions::of(&library) }.map_err(describe)?;
    std::mem::forget(library);
    FUNCTIONS.store(Box::into_raw(Box::new(functions)), Ordering::Release);
    Ok(())
}
