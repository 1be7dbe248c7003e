//! Adds a run path, so that the tests and examples of this package find the library where they were
//! linked to it. A package that depends on this one reads DEP_PAGEDKV_RUST_LIBDIR for the same
//! purpose, because cargo does not pass link arguments on.
use std::env;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if let Some(directory) =
        env::var("DEP_PAGEDKV_LIBDIR").ok().filter(|directory| !directory.is_empty())
    {
        println!("cargo:rustc-link-arg=-Wl,-rpath,{directory}");
        println!("cargo:libdir={directory}");
    }
}
