//! The C interface of libpagedkv as it is: types, constants and functions with their names of C.
//! The crate `pagedkv` is the safe way to use it.
//!
//! All of it is made from the headers of C, which document the functions and the structs that
//! callers fill in. Enums are integers with named values (`pkv_dtype::F32`), never enums of Rust: a
//! newer library may have more of them. The `Default` of a struct that begins with `struct_size` is
//! that size, and 0 in every other field:
//!
//! ```
//! let config = pagedkv_sys::pkv_pool_config { blocks: 100, ..Default::default() };
//! assert!(config.allocator.is_null());
//! ```
//!
//! # Built, linked, or opened at run time
//!
//! By default programs are linked to the library in the directory `PAGEDKV_LIB_DIR`; else to the
//! one that `pkg-config` knows; else the sources that this package carries are built and linked
//! statically, always optimised. With the feature `vendored` they are built also where a library is
//! installed. `CXX` names the compiler, and `CXXFLAGS` may add to its flags.
//!
//! A program that is to find a shared library in a directory no loader looks into has a build
//! script that says so:
//!
//! ```ignore
//! if let Ok(directory) = std::env::var("DEP_PAGEDKV_LIBDIR") {
//!     println!("cargo:rustc-link-arg=-Wl,-rpath,{directory}");
//! }
//! ```
//!
//! (`DEP_PAGEDKV_LIBDIR` is there for packages that depend on this one directly, and
//! `DEP_PAGEDKV_RUST_LIBDIR` for those that depend on `pagedkv`. Neither is there where the sources
//! were built. `DEP_PAGEDKV_INCLUDE`, in that case, is the directory of the C headers.)
//!
//! With the feature `dlopen` nothing is linked: `open` opens the library, or the first call of
//! [`ensure`] does, from the file that `PAGEDKV_LIBRARY` names or else as `libpagedkv.so.1`.
#![allow(non_camel_case_types)]
#![warn(missing_debug_implementations)]

#[macro_use]
mod macros;

mod raw {
    include!(concat!(env!("OUT_DIR"), "/raw.rs"));
}
pub use raw::*;

#[cfg(test)]
mod layout {
    include!(concat!(env!("OUT_DIR"), "/layout.rs"));
}

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
