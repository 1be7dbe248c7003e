"""Checks which files `meson install` installs, and builds and runs programs in C and C++ with only
the flags of pkg-config, with the shared library and with the static one.

usage: install.py TREE BUILD VERSION CC CXX MESON..."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
# Libraries that an installed library may need.
NEEDED = set("libtbb libsodium libhiredis libssl libcrypto libstdc++ libm libgcc_s libc".split())
NEEDED |= {"ld-linux-x86-64", "ld-linux-aarch64"}
# The files that -Dtools=true adds.
TOOLS = {"bin/pkv-generate", "bin/pkv-serve"} | {
    f"share/pagedkv/tiny-shakespeare.{kind}" for kind in ("bin", "tokenizer.bin")
}
# The libraries of which there is no static one, and the files that -Dllama=true adds besides.
SHARED = {"pagedkv-llama"}
LLAMA = {"include/pagedkv-llama.h", "libggml-pagedkv.so"}


def run(*command, **more):
    return subprocess.run(
        [str(part) for part in command], check=True, capture_output=True, text=True, **more
    ).stdout


def run_main(main):
    """Runs main(). If a command fails, the program ends with its output."""
    try:
        main()
    except subprocess.CalledProcessError as error:
        sys.exit(f"{' '.join(map(str, error.cmd))} failed:\n{error.stdout}{error.stderr}")


def install(meson, build, root):
    """Installs a build below root; returns the folder of its libraries and its prefix."""
    run(*meson, "install", "-C", build, "--no-rebuild", "--destdir", root)
    libraries = next(root.rglob("pkgconfig/pagedkv.pc")).parent.parent
    prefix = next(path for path in libraries.parents if (path / "include/pagedkv").is_dir())
    return libraries, prefix


def installed_files(root):
    """Returns the names of all files, without the prefix and the folder of the libraries."""
    names = set()
    for path in root.rglob("*"):
        if path.is_dir() and not path.is_symlink():
            continue
        text = path.relative_to(root).as_posix()
        if "tbb" not in text:  # oneTBB is installed, too, if it was built with the library
            pattern = r".*?/(bin/|include/|pkgconfig/|cmake/|share/|lib[^/]*\.(so|a))"
            names.add(re.sub(pattern, r"\1", text))
    return names


def expected_files(tree, version, libraries, static):
    headers = {f"include/pagedkv/{path.name}" for path in (tree / "include/pagedkv").glob("*.h*")}
    if "pagedkv-redis" not in libraries:
        headers.discard("include/pagedkv/redis.h")
    names = {"cmake/pagedkv/pagedkvConfig.cmake", "cmake/pagedkv/pagedkvConfigVersion.cmake"}
    names |= {"share/pagedkv/api.json", "share/doc/pagedkv/README.md"}
    guide = {path.relative_to(tree / "include") for path in (tree / "include/guide").rglob("*.*")}
    names |= {f"share/doc/pagedkv/{page}" for page in guide if page.name != "machines.py"}
    names |= {"share/doc/pagedkv/guide/FORMAT.md"}
    for name in libraries:
        names |= {f"lib{name}.so{end}" for end in ("", ".1", f".{version}")}
        names.add(f"pkgconfig/{name}.pc")
        if static and name not in SHARED:
            names.add(f"lib{name}.a")
    return headers | names


def check_pages(root):
    """Each page that a header names is installed, too."""
    pages = [path.as_posix() for path in root.rglob("*.md")]
    for header in root.rglob("include/pagedkv/*.h*"):
        for page in re.findall(r"[\w./-]+\.md\b", header.read_text()):
            found = any(f"/{path}".endswith(f"/{page}") for path in pages)
            assert found, f"{header.name} names {page}, which is not installed"


def check_library(library):
    dynamic = run("readelf", "--dynamic", "--wide", library)
    assert f"[{library.name}.1]" in re.search(r"SONAME.*", dynamic)[0], dynamic
    if library.name == "libpagedkv.so":
        nodelete = re.search(r"FLAGS_1.*NODELETE", dynamic)
        assert nodelete, "worker threads may outlive a dlclose: linked without -z nodelete"
    assert not re.search("RUNPATH|RPATH", dynamic), f"an installed library has a path: {dynamic}"
    needed = set(re.findall(r"NEEDED.*\[([^.\]]+)", dynamic))
    assert needed <= NEEDED, needed


def environment(root, libraries):
    """Variables with which pkg-config and the loader find an installed tree."""
    return os.environ | {
        "PKG_CONFIG_PATH": str(libraries / "pkgconfig"),
        "PKG_CONFIG_SYSROOT_DIR": str(root),
        "LD_LIBRARY_PATH": str(libraries),
    }


class Installed:
    """Checks pkg-config's flags for an installed tree, and programs built with them."""

    def __init__(self, root, libraries, directory):
        self.libraries, self.directory = libraries, directory
        self.environment = environment(root, libraries)

    def flags(self, package, *options):
        words = ("pkg-config", "--cflags", "--libs", *options, package)
        return run(*words, env=self.environment).split()

    def build(self, source, compiler, language, flags):
        program = self.directory / f"program-{len(list(self.directory.iterdir()))}"
        command = [*compiler, "-x", language, source, "-x", "none", "-o", program, *flags]
        return program, subprocess.run(command, capture_output=True, text=True)

    def run(self, package, source, compiler, language):
        program, result = self.build(source, compiler, language, self.flags(package))
        assert result.returncode == 0, f"as {language}: {result.stderr}"
        loaded = run("ldd", program, env=self.environment)
        assert str(self.libraries / f"lib{package}.so.1") in loaded, "another library is loaded"
        print(run(program, env=self.environment))

    def run_static(self, package, source, compiler, language):
        """The linker prefers a shared library, so the flags name the file of the archive."""
        flags = self.flags(package, "--static")
        flags = [f"-l:lib{flag[2:]}.a" if flag.startswith("-lpagedkv") else flag for flag in flags]
        program, result = self.build(source, compiler, language, flags)
        assert result.returncode == 0, f"static, as {language}: {result.stderr}"
        assert "pagedkv" not in run("ldd", program), "a shared library of ours is needed"
        print(run(program))

    def run_printed(self, readme, source):
        """Runs each block of commands that builds a.c, as it is printed, then the program, which
        must find the library.
        """
        folder = self.directory / "printed"
        folder.mkdir()
        shutil.copy(source, folder / "a.c")
        environment = {k: v for k, v in self.environment.items() if k != "LD_LIBRARY_PATH"}
        blocks = re.findall(r"^```sh\n(cc a\.c.*?)^```$", readme.read_text(), re.M | re.S)
        assert len(blocks) >= 2, f"{len(blocks)} blocks build a.c"
        for block in blocks:
            result = subprocess.run(
                ["bash", "-e"], input=block + "./a.out\n", cwd=folder, env=environment, text=True
            )
            assert result.returncode == 0, block
        print(f"{len(blocks)} blocks of {readme.name}")

    def refuse_absent(self, compiler, language):
        absent = self.directory / "absent.c"
        absent.write_text(
            "#include <pagedkv/pagedkv.h>\n"
            '#ifdef __cplusplus\nextern "C"\n#endif\nint pkv_absent(void);\n'
            "int main(void) { return pkv_absent(); }\n"
        )
        _, result = self.build(absent, compiler, language, self.flags("pagedkv"))
        assert result.returncode != 0, "a function that does not exist can be linked"


def main():
    tree, build, version, cc, cxx, *meson = sys.argv[1:]
    tree = pathlib.Path(tree)
    with tempfile.TemporaryDirectory() as directory:
        directory = pathlib.Path(directory)
        root = directory / "root"
        folder, _ = install(meson, build, root)
        names = ("pagedkv", "pagedkv-redis", "pagedkv-llama")
        libraries = [name for name in names if any(root.rglob(f"{name}.pc"))]
        static = any(root.rglob("libpagedkv.a"))
        files, expected = installed_files(root), expected_files(tree, version, libraries, static)
        if any(root.rglob("pkv-generate")):
            expected |= TOOLS
        if "pagedkv-llama" in libraries:
            expected |= LLAMA
        missing, more = sorted(expected - files), sorted(files - expected)
        assert not missing and not more, f"missing {missing}, not expected {more}"
        check_pages(root)
        for name in libraries:
            check_library(next(root.rglob(f"lib{name}.so")))
        installed, redis = Installed(root, folder, directory), HERE / "redis.c"
        minimal = tree / "bindings/c/examples/minimal.c"
        for compiler, language in (cc.split(), "c"), (cxx.split(), "c++"):
            installed.run("pagedkv", minimal, compiler, language)
            installed.refuse_absent(compiler, language)
            if static:
                installed.run_static("pagedkv", minimal, compiler, language)
        installed.run("pagedkv", tree / "bindings/cpp/minimal.cpp", cxx.split(), "c++")
        if static:
            installed.run_printed(tree / "src/packaging/README.md", minimal)
        if "pagedkv-redis" in libraries:
            installed.run("pagedkv-redis", redis, cc.split(), "c")
            if static:
                installed.run_static("pagedkv-redis", redis, cc.split(), "c")
        if "pagedkv-llama" in libraries:
            installed.run("pagedkv-llama", HERE / "llama.c", cc.split(), "c")


if __name__ == "__main__":
    run_main(main)
