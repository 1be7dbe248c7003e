"""What `meson install` puts where, and that a program built with nothing but pkg-config's words runs with it, as C and as C++.

usage: install.py TREE BUILD VERSION CC CXX MESON..."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile


def run(*command, **more):
    return subprocess.run([str(part) for part in command], check=True, capture_output=True, text=True, **more).stdout


def installed_files(root):
    """Names below the folders that lead to them, whatever the prefix and the libdir are."""
    names = set()
    for path in root.rglob("*"):
        if path.is_dir() and not path.is_symlink():
            continue
        text = path.relative_to(root).as_posix()
        if "tbb" not in text:  # oneTBB is installed beside the library where it was built with it
            names.add(re.sub(r".*/(include|pkgconfig|lib[^/]*\.so)", r"\1", text))
    return names


def expected_files(tree, version, libraries):
    headers = {f"include/pagedkv/{path.name}" for path in (tree / "include/pagedkv").glob("*.h")}
    if "pagedkv-redis" not in libraries:
        headers.discard("include/pagedkv/redis.h")
    return headers.union(*({f"lib{name}.so", f"lib{name}.so.0", f"lib{name}.so.{version}", f"pkgconfig/{name}.pc"} for name in libraries))


def check_library(library):
    dynamic = run("readelf", "--dynamic", "--wide", library)
    assert f"[{library.name}.0]" in re.search(r"SONAME.*", dynamic)[0], dynamic
    if library.name == "libpagedkv.so":
        assert re.search(r"FLAGS_1.*NODELETE", dynamic), "worker threads may outlive a dlclose: linked without -z nodelete"
    assert "RUNPATH" not in dynamic and "RPATH" not in dynamic, f"an installed library looks into somebody's folder: {dynamic}"
    needed = set(re.findall(r"NEEDED.*\[([^.\]]+)", dynamic))
    allowed = {"libtbb", "libsodium", "libhiredis", "libstdc++", "libm", "libgcc_s", "libc", "ld-linux-x86-64", "ld-linux-aarch64"}
    assert needed <= allowed, needed


# Nobody listens on port 1.
REDIS = """#include <pagedkv/redis.h>
int main(void) {
  pkv_redis_config config;
  pkv_store store;
  pkv_redis_config_init(&config, sizeof config);
  config.servers = "127.0.0.1:1";
  return pkv_redis_open(&config, &store) == PKV_IO ? 0 : 1;
}
"""


def build_and_run(package, source, root, compiler, language, directory):
    pc = next(root.rglob("pagedkv.pc"))
    libraries = pc.parent.parent
    environment = dict(os.environ, PKG_CONFIG_PATH=str(pc.parent), PKG_CONFIG_SYSROOT_DIR=str(root), LD_LIBRARY_PATH=str(libraries))
    flags = run("pkg-config", "--cflags", "--libs", package, env=environment).split()
    program = directory / (package + "-" + language.replace("+", "p"))

    def compile_source(source, output):
        return subprocess.run([*compiler, "-x", language, source, "-x", "none", "-o", output, *flags], capture_output=True, text=True)

    result = compile_source(source, program)
    assert result.returncode == 0, f"as {language}: {result.stderr}"
    assert str(libraries) in run("ldd", program, env=environment), "the program does not load the installed library"
    print(run(program, env=environment))

    absent = directory / "absent.c"
    absent.write_text("#include <pagedkv/pagedkv.h>\n#ifdef __cplusplus\nextern \"C\"\n#endif\nint pkv_absent(void);\n"
                      "int main(void) { return pkv_absent(); }\n")
    assert compile_source(absent, directory / "absent").returncode != 0, "a function that is nowhere can be linked"


def main():
    tree, build, version, cc, cxx, *meson = sys.argv[1:]
    tree = pathlib.Path(tree)
    with tempfile.TemporaryDirectory() as directory:
        directory = pathlib.Path(directory)
        root = directory / "root"
        run(*meson, "install", "-C", build, "--no-rebuild", "--destdir", root)
        libraries = ["pagedkv"] + ["pagedkv-redis"] * any(root.rglob("pagedkv-redis.pc"))
        files, expected = installed_files(root), expected_files(tree, version, libraries)
        assert files == expected, f"missing {sorted(expected - files)}, not expected {sorted(files - expected)}"
        for name in libraries:
            check_library(next(root.rglob(f"lib{name}.so")))
        for compiler, language in (cc, "c"), (cxx, "c++"):
            build_and_run("pagedkv", tree / "bindings/c/minimal.c", root, compiler.split(), language, directory)
        if "pagedkv-redis" in libraries:
            (directory / "redis.c").write_text(REDIS)
            build_and_run("pagedkv-redis", directory / "redis.c", root, cc.split(), "c", directory)


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as error:
        sys.exit(f"{' '.join(error.cmd)} failed:\n{error.stdout}{error.stderr}")
