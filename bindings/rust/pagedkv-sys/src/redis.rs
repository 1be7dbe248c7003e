//! libpagedkv-redis, a library of its own, which is opened at run time whether libpagedkv is linked
//! or not.
pub use crate::raw::pkv_redis_config;
use crate::raw::{pkv_status, pkv_store};
use std::os::raw::c_char;
use std::sync::Mutex;

/// The functions of the opened library.
#[allow(clippy::type_complexity)]
#[derive(Clone, Copy, Debug)]
pub struct Functions {
    /// Connects.
    pub open: unsafe extern "C" fn(*const pkv_redis_config, *mut pkv_store) -> pkv_status,
    /// The sentence of the last call that failed on this thread.
    pub last_error: unsafe extern "C" fn() -> *const c_char,
}

static OPENED: Mutex<Option<Functions>> = Mutex::new(None);

/// Opens the library, unless it is open, from the file that `PAGEDKV_REDIS_LIBRARY` names, else as
/// `libpagedkv-redis.so.1`. It stays open to the end of the program.
pub fn ensure() -> Result<Functions, String> {
    let mut opened = OPENED.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if let Some(functions) = *opened {
        return Ok(functions);
    }
    let file =
        std::env::var_os("PAGEDKV_REDIS_LIBRARY").unwrap_or_else(|| "libpagedkv-redis.so.1".into());
    let describe = |error| {
        format!(
            "libpagedkv-redis (PAGEDKV_REDIS_LIBRARY may name it): {}: {error}",
            file.to_string_lossy()
        )
    };
    // Initialisers of the library may do anything: the caller chose the file. The types are those
    // of its header.
    let library = unsafe { libloading::Library::new(&file) }.map_err(describe)?;
    let functions = unsafe {
        Functions {
            open: *library.get(b"pkv_redis_open\0").map_err(describe)?,
            last_error: *library.get(b"pkv_redis_last_error\0").map_err(describe)?,
        }
    };
    std::mem::forget(library);
    *opened = Some(functions);
    Ok(functions)
}
