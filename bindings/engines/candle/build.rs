//! Adds a run path, so that the programs and tests of this package find the library where they were
//! linked to it.
use std::env;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if let Some(directory) =
        env::var("DEP_PAGEDKV_LIBDIR").ok().filter(|directory| !directory.is_empty())
    {
        println!("cargo:rustc-link-arg=-Wl,-rpath,{directory}");
    }
}
