//! Finds the library to link to: in PAGEDKV_LIB_DIR where that is set, else by pkg-config. With the
//! feature `dlopen` there is nothing to do.
use std::env;

fn main() {
    println!("cargo:rerun-if-env-changed=PAGEDKV_LIB_DIR");
    if env::var_os("CARGO_FEATURE_DLOPEN").is_some() || env::var_os("DOCS_RS").is_some() {
        return;
    }
    let directory = match env::var("PAGEDKV_LIB_DIR") {
        Ok(directory) => directory,
        Err(_) => installed(),
    };
    if !directory.is_empty() {
        println!("cargo:rustc-link-search=native={directory}");
    }
    println!("cargo:rustc-link-lib=dylib=pagedkv");
    // DEP_PAGEDKV_LIBDIR in the build script of a package that depends on this one.
    println!("cargo:libdir={directory}");
}

/// The directory of the installed library; empty where it is one that the linker looks into by
/// itself.
fn installed() -> String {
    match pkg_config::Config::new().cargo_metadata(false).probe("pagedkv") {
        Ok(library) => {
            library.link_paths.first().map_or(String::new(), |path| path.display().to_string())
        }
        Err(error) => panic!(
            "libpagedkv is not installed. Set PAGEDKV_LIB_DIR to the directory that has \
             libpagedkv.so (in a build tree build/src), or use the feature `dlopen`.\n{error}"
        ),
    }
}
