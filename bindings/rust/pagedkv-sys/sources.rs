//! Builds the library from its C++ sources, as a static one. src/meson.build is where the project
//! builds it; the test `rust packages` compares what the two give to the compiler.
use std::collections::HashMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Mutex;

/// All of these folders' files are compiled, except for the other way to run threads, and files for
/// other systems.
const FOLDERS: [&str; 3] = ["api", "base", "engine"];
const THREADS: [&str; 2] = ["parallel_tbb.cpp", "parallel_own.cpp"];
/// How many files are compiled as one, since half of the time of compiling is headers.
const JOINED: usize = 16;

/// Optional libraries of the system: the feature, and what pkg-config calls it.
const LIBRARIES: [(&str, &str, &str); 3] = [
    ("TBB", "tbb", "2021.5"),
    ("SODIUM", "libsodium", "1.0.18"),
    ("OPENSSL", "libcrypto", "1.1.1"),
];

/// The systems of the library, and how the names of their own files end.
const SYSTEMS: [(&str, &[&str]); 3] = [
    ("linux", &["_linux.cpp", "_posix.cpp"]),
    ("macos", &["_macos.cpp", "_posix.cpp"]),
    ("windows", &["_windows.cpp"]),
];
/// As in meson.build.
const WINDOWS_DEFINES: [(&str, Option<&str>); 4] = [
    ("_WIN32_WINNT", Some("0x0A00")),
    ("WIN32_LEAN_AND_MEAN", None),
    ("NOMINMAX", None),
    ("__USE_MINGW_ANSI_STDIO", Some("1")),
];
const UNALIGNED: &str = "-Wa,-muse-unaligned-vector-move";
const WINDOWS_LIBRARIES: [&str; 3] = ["advapi32", "bcrypt", "synchronization"];

pub fn build() -> Result<(), String> {
    let system = env::var("CARGO_CFG_TARGET_OS").unwrap();
    if !SYSTEMS.iter().any(|(name, _)| *name == system) {
        return Err(format!("libpagedkv is not a library for {system}"));
    }
    let root = find_sources()?;
    let mut common = cc::Build::new();
    common.cpp(true).std("c++20").opt_level(3).debug(false).warnings(false).pic(true);
    common.flag("-fvisibility=hidden").flag("-fvisibility-inlines-hidden").define("NDEBUG", None);
    // A package has headers of other projects beside the sources. In a clone the compiler finds
    // those of the system.
    for folder in ["include", "src", "third-party"].map(|name| root.join(name)) {
        if folder.exists() {
            println!("cargo:rerun-if-changed={}", folder.display());
            common.include(folder);
        }
    }
    if system == "windows" {
        for (name, value) in WINDOWS_DEFINES {
            common.define(name, value);
        }
        common.flag(UNALIGNED);
    }
    let libraries = find_libraries(&mut common)?;
    // What takes longest begins first.
    let mut jobs = kernel_jobs(&root, &common)?;
    jobs.extend(other_jobs(&root, &common)?);
    common.objects(compile(&jobs)?).try_compile("pagedkv").map_err(|error| error.to_string())?;
    // Linked after the library that needs them.
    for library in libraries {
        for path in &library.link_paths {
            println!("cargo:rustc-link-search=native={}", path.display());
        }
        for name in &library.libs {
            println!("cargo:rustc-link-lib={name}");
        }
    }
    if system == "windows" {
        for name in WINDOWS_LIBRARIES {
            println!("cargo:rustc-link-lib={name}");
        }
    }
    println!("cargo:include={}", root.join("include").display());
    Ok(())
}

/// Sums are rounded in the same way wherever they are inlined; kernels ask for fma by name.
const NO_CONTRACTION: &str = "-ffp-contract=off";

/// The files of instruction sets, each with flags of its own.
fn kernel_jobs(root: &Path, common: &cc::Build) -> Result<Vec<cc::Build>, String> {
    let family = env::var("CARGO_CFG_TARGET_ARCH").unwrap();
    let mut jobs = Vec::new();
    for (isa, flags) in read_isa_flags(&root.join("src/kernels/isa/flags.txt"), &family)? {
        let mut job = common.clone();
        job.flag(NO_CONTRACTION).flag("-fno-exceptions");
        for flag in &flags {
            job.flag(flag);
        }
        job.file(root.join(format!("src/kernels/isa/{isa}.cpp")));
        jobs.push(job);
    }
    for name in ["select", "scalar"] {
        let mut job = common.clone();
        job.flag(NO_CONTRACTION).file(root.join(format!("src/kernels/{name}.cpp")));
        jobs.insert(0, job);
    }
    jobs.reverse(); // the later sets have more instructions, and take longer
    Ok(jobs)
}

fn other_jobs(root: &Path, common: &cc::Build) -> Result<Vec<cc::Build>, String> {
    let threads = if super::has_feature("TBB") { THREADS[0] } else { THREADS[1] };
    let mut files = Vec::new();
    for folder in FOLDERS {
        list_sources(&root.join("src").join(folder), &mut files)?;
    }
    files.retain(|file| !THREADS.iter().any(|name| *name != threads && file.ends_with(name)));
    let system = env::var("CARGO_CFG_TARGET_OS").unwrap();
    let own = SYSTEMS.iter().find(|(name, _)| *name == system).unwrap().1;
    let endings: Vec<&str> = SYSTEMS.iter().flat_map(|(_, endings)| *endings).copied().collect();
    files.retain(|file| {
        let name = file.to_string_lossy().into_owned();
        !endings.iter().any(|ending| !own.contains(ending) && name.ends_with(ending))
    });
    let directory = PathBuf::from(env::var("OUT_DIR").unwrap());
    let mut jobs = Vec::new();
    for (i, files) in files.chunks(JOINED).enumerate() {
        let joined = directory.join(format!("joined{i}.cpp"));
        let lines: String =
            files.iter().map(|file| format!("#include \"{}\"\n", file.display())).collect();
        fs::write(&joined, lines).map_err(|error| format!("{}: {error}", joined.display()))?;
        let mut job = common.clone();
        job.file(joined);
        jobs.push(job);
    }
    Ok(jobs)
}

/// The sources lie in the package, or this is a clone of the project.
fn find_sources() -> Result<PathBuf, String> {
    let package = PathBuf::from(env::var("CARGO_MANIFEST_DIR").unwrap());
    let places = [package.join("sources"), package.join("../../..")];
    let found = places.iter().find(|place| place.join("src/kernels/isa/flags.txt").exists());
    found.cloned().ok_or_else(|| {
        format!("there are no sources in {} or {}", places[0].display(), places[1].display())
    })
}

/// Instruction sets of a CPU family with the flags of their files: see flags.txt.
fn read_isa_flags(file: &Path, family: &str) -> Result<Vec<(String, Vec<String>)>, String> {
    let text = fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let mut by_name: HashMap<String, Vec<String>> = HashMap::new();
    let mut isas = Vec::new();
    for line in text.lines() {
        let mut parts = line.splitn(2, ':');
        let mut names = parts.next().unwrap_or_default().split(' ');
        if names.next() != Some(family) {
            continue;
        }
        let (isa, words) = (names.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let mut flags = Vec::new();
        for word in words.split_whitespace() {
            match word.strip_prefix('+') {
                Some(other) => flags.extend(by_name[other].iter().cloned()),
                None => flags.push(word.to_string()),
            }
        }
        by_name.insert(isa.to_string(), flags.clone());
        isas.push((isa.to_string(), flags));
    }
    Ok(isas)
}

fn find_libraries(common: &mut cc::Build) -> Result<Vec<pkg_config::Library>, String> {
    let mut libraries = Vec::new();
    for (feature, name, version) in LIBRARIES {
        if !super::has_feature(feature) {
            continue;
        }
        let mut search = pkg_config::Config::new();
        let found = search.atleast_version(version).cargo_metadata(false).probe(name);
        let library = found.map_err(|error| error.to_string())?;
        common.includes(&library.include_paths);
        libraries.push(library);
    }
    if super::has_feature("SODIUM") {
        common.define("PKV_WITH_SODIUM", None);
        if super::has_feature("OPENSSL") {
            common.define("PKV_WITH_CIPHERS", None);
        }
    }
    Ok(libraries)
}

fn list_sources(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), String> {
    let describe = |error| format!("{}: {error}", folder.display());
    let mut entries = Vec::new();
    for entry in fs::read_dir(folder).map_err(describe)? {
        entries.push(entry.map_err(describe)?.path());
    }
    entries.sort(); // the same library from the same sources
    for path in entries {
        if path.is_dir() {
            list_sources(&path, files)?;
        } else if path.extension().map_or(false, |extension| extension == "cpp") {
            files.push(path);
        }
    }
    Ok(())
}

/// Compiles each job, as many at once as cargo allows. The objects are in the order of the jobs.
fn compile(jobs: &[cc::Build]) -> Result<Vec<PathBuf>, String> {
    let count = env::var("NUM_JOBS").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let next = AtomicUsize::new(0);
    let done = Mutex::new(vec![Vec::new(); jobs.len()]);
    let failed = Mutex::new(None);
    let work = || loop {
        let index = next.fetch_add(1, Ordering::Relaxed);
        if index >= jobs.len() {
            break;
        }
        match jobs[index].try_compile_intermediates() {
            Ok(objects) => done.lock().unwrap()[index] = objects,
            Err(error) => {
                *failed.lock().unwrap() = Some(error.to_string());
                next.store(jobs.len(), Ordering::Relaxed);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..count {
            scope.spawn(work);
        }
    });
    match failed.into_inner().unwrap() {
        Some(error) => Err(format!("a compiler of C++20 is needed (g++ 12 or clang 16): {error}")),
        None => Ok(done.into_inner().unwrap().concat()),
    }
}
