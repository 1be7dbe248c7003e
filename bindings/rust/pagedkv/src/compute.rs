use crate::closing::{close, Handle};
use crate::config::Isa;
use crate::error::{call, ensure_library, Result};
use crate::hooks::Hooks;
use crate::stats::ComputeInfo;
use crate::structs::filled;
use crate::sys;
use std::fmt;

/// Threads, kernels and reusable working memory for calls over the caller's own memory. Any number
/// of threads may use it at once.
pub struct Compute {
    handle: sys::pkv_compute,
}

// "Any number of threads at once", except destroy, which is the drop.
unsafe impl Send for Compute {}
unsafe impl Sync for Compute {}

impl Compute {
    /// Uses `threads` threads (0: one per CPU) and an instruction set (`AUTO`: the best).
    pub fn new(threads: u32, isa: Isa) -> Result<Self> {
        ensure_library()?;
        let raw = sys::pkv_compute_config { threads, isa, ..Default::default() };
        let mut handle = std::ptr::null_mut();
        call(|| unsafe { sys::pkv_compute_create(&raw, &mut handle) })?;
        Ok(Self { handle })
    }

    /// The handle of C, for functions of `pagedkv-sys`. It stays this object's.
    pub fn as_raw(&self) -> sys::pkv_compute {
        self.handle
    }

    /// Returns the threads and the instruction set.
    pub fn info(&self) -> Result<ComputeInfo> {
        filled(|out| unsafe { sys::pkv_compute_get_info(self.handle, out) })
    }
}

/// Returns the handle of C; null for none.
pub(crate) fn handle_of(compute: Option<&Compute>) -> sys::pkv_compute {
    compute.map_or(std::ptr::null_mut(), Compute::as_raw)
}

impl Drop for Compute {
    fn drop(&mut self) {
        close(Handle::Compute(self.handle), Hooks::default());
    }
}

impl fmt::Debug for Compute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compute").field("handle", &self.handle).finish()
    }
}
