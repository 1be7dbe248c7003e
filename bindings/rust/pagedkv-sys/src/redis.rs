//! libpagedkv-redis, a library of its own, which is opened at run time whether libpagedkv is linked
//! or not: `pagedkv/redis.h`, written by hand.
use crate::raw::{pkv_status, pkv_store};
use std::os::raw::c_char;
use std::sync::Mutex;

/// A Redis or Valkey server, or a cluster: see `pagedkv/redis.h`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_redis_config {
    pub struct_size: u32,
    pub ttl_seconds: u32,
    pub servers: *const c_char,
    pub user: *const c_char,
    pub password: *const c_char,
    pub key_prefix: *const c_char,
    pub pipeline_bytes: u64,
    pub connect_timeout_ms: u32,
    pub command_timeout_ms: u32,
    pub connect_later: u32,
    pub tls: u32,
    pub tls_ca_file: *const c_char,
    pub tls_ca_directory: *const c_char,
    pub tls_certificate_file: *const c_char,
    pub tls_key_file: *const c_char,
    pub tls_server_name: *const c_char,
    pub tls_insecure_no_verify: u32,
    pub reserved: u32,
}

impl Default for pkv_redis_config {
    /// The size of the struct; 0 in every other field.
    fn default() -> Self {
        // Numbers and addresses: 0 is a value of each.
        let zeros: Self = unsafe { std::mem::zeroed() };
        Self { struct_size: std::mem::size_of::<Self>() as u32, ..zeros }
    }
}

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
/// `libpagedkv-redis.so.0`. It stays open to the end of the program.
pub fn ensure() -> Result<Functions, String> {
    let mut opened = OPENED.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if let Some(functions) = *opened {
        return Ok(functions);
    }
    let file =
        std::env::var_os("PAGEDKV_REDIS_LIBRARY").unwrap_or_else(|| "libpagedkv-redis.so.0".into());
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
