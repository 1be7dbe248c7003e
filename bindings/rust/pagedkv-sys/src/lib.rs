//! The C interface of libpagedkv as it is: types, constants and functions with their names of C.
//! The crate `pagedkv` is the safe way to use it.
//!
//! All of it is made from the C headers, whose comments are the documentation here. Enums are
//! integers with named values (`pkv_dtype::F32`), never enums of Rust: a newer library may have
//! more of them.
//!
//! # Linked, or opened at run time
//!
//! By default programs are linked to the library that `pkg-config` knows, or to the one in the
//! directory `PAGEDKV_LIB_DIR`. A program that is to find it in a directory no loader looks into
//! has a build script that says so:
//!
//! ```ignore
//! println!("cargo:rustc-link-arg=-Wl,-rpath,{}", std::env::var("DEP_PAGEDKV_LIBDIR").unwrap());
//! ```
//!
//! (`DEP_PAGEDKV_LIBDIR` is there for packages that depend on this one directly.) With the feature
//! `dlopen` nothing is linked: `open` opens the library, or the first call of [`ensure`] does, from
//! the file that `PAGEDKV_LIBRARY` names or else as `libpagedkv.so.0`.
#![allow(non_camel_case_types)]
#![warn(missing_debug_implementations)]

mod generated {
    #[cfg(test)]
    mod layout;
    pub mod raw;
}
use generated::raw;
pub use raw::*;

#[cfg(feature = "redis")]
pub mod redis;

#[cfg(feature = "dlopen")]
mod opened;
#[cfg(feature = "dlopen")]
pub use opened::*;
#[cfg(not(feature = "dlopen"))]
mod linked;
#[cfg(not(feature = "dlopen"))]
pub use linked::*;
