//! Makes the C interface for Rust, and says where the library comes from. The first of these is
//! taken: the directory that PAGEDKV_LIB_DIR names; an installed library that pkg-config knows; the
//! C++ sources that this package carries. The feature `vendored` leaves out the second. With the
//! feature `dlopen`, and for docs.rs, no library is needed.
use std::env;
use std::path::Path;
use std::process::Command;

mod sources;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=sources.rs");
    println!("cargo:rerun-if-env-changed=PAGEDKV_LIB_DIR");
    println!("cargo:rerun-if-env-changed=DOCS_RS");
    generate();
    if has_feature("DLOPEN") || env::var_os("DOCS_RS").is_some() {
        return;
    }
    if let Some(directory) = env::var("PAGEDKV_LIB_DIR").ok().filter(|name| !name.is_empty()) {
        return link(&directory);
    }
    let installed = if has_feature("VENDORED") {
        Err("the feature `vendored` takes no installed library".to_string())
    } else {
        find_installed()
    };
    match installed {
        Ok(directory) => link(&directory),
        Err(reason) => {
            if let Err(error) = sources::build() {
                fail(&reason, &error);
            }
        }
    }
}

/// Puts the files that src/lib.rs includes into OUT_DIR: a published package carries them, and in a
/// clone of the project Python makes them from the headers of C.
fn generate() {
    let out = env::var("OUT_DIR").unwrap();
    if Path::new("generated").exists() {
        for name in ["raw.rs", "layout.rs"] {
            std::fs::copy(Path::new("generated").join(name), Path::new(&out).join(name)).unwrap();
        }
        return;
    }
    for input in ["../generate_raw.py", "../../api", "../../../include/pagedkv"] {
        println!("cargo:rerun-if-changed={input}");
    }
    let python = if cfg!(windows) { "python" } else { "python3" };
    let made = Command::new(python).args(["-B", "../generate_raw.py", &out]).status();
    if !matches!(made, Ok(status) if status.success()) {
        eprintln!("error: {python} cannot make the C interface from the headers: {made:?}");
        std::process::exit(1);
    }
}

fn has_feature(name: &str) -> bool {
    env::var_os(format!("CARGO_FEATURE_{name}")).is_some()
}

/// Links to the shared library. DEP_PAGEDKV_LIBDIR names its directory in the build script of a
/// package that depends on this one; an empty name is a directory that the linker looks into by
/// itself.
fn link(directory: &str) {
    if !directory.is_empty() {
        println!("cargo:rustc-link-search=native={directory}");
    }
    println!("cargo:rustc-link-lib=dylib=pagedkv");
    println!("cargo:libdir={directory}");
}

fn find_installed() -> Result<String, String> {
    let version = env!("CARGO_PKG_VERSION");
    let mut search = pkg_config::Config::new();
    let library = search.atleast_version(version).cargo_metadata(false).probe("pagedkv");
    let library = library.map_err(|error| error.to_string())?;
    Ok(library.link_paths.first().map_or(String::new(), |path| path.display().to_string()))
}

/// Ends the build with what was tried, and what the user can do.
fn fail(installed: &str, carried: &str) -> ! {
    eprintln!(
        "error: there is no libpagedkv to link to.\n\
         1. PAGEDKV_LIB_DIR is not set. It may name the directory of libpagedkv.so (in a build \
         tree build/src).\n\
         2. No installed library: {installed}\n\
         3. Not built from the sources of this package: {carried}\n\
         The feature `dlopen` needs no library until the program runs."
    );
    std::process::exit(1);
}
