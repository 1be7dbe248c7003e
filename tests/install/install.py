"""What `meson install` puts where, and that a program built with nothing but pkg-config's words
runs with it, as C and as C++, and with the static library inside.

usage: install.py TREE BUILD VERSION CC CXX MESON..."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
# What -Dtools=true adds.
TOOLS = {"bin/pkv-generate", "bin/pkv-serve"} | {
    f"share/pagedkv/tiny-shakespeare.{kind}" for kind in ("bin", "tokenizer.bin")
}


def run(*command, **more):
    return subprocess.run(
        [str(part) for part in command], check=True, capture_output=True, text=True, **more
    ).stdout


def installed_files(root):
    """Returns names below their folders, without the prefix and the libdir."""
    names = set()
    for path in root.rglob("*"):
        if path.is_dir() and not path.is_symlink():
            continue
        text = path.relative_to(root).as_posix()
        if "tbb" not in text:  # oneTBB is installed beside the library where it was built with it
            names.add(
                re.sub(r".*/(bin/|include|pkgconfig|cmake|share|lib[^/]*\.(so|a))", r"\1", text)
            )
    return names


def expected_files(tree, version, libraries, static):
    headers = {f"include/pagedkv/{path.name}" for path in (tree / "include/pagedkv").glob("*.h*")}
    if "pagedkv-redis" not in libraries:
        headers.discard("include/pagedkv/redis.h")
    cmake = {"cmake/pagedkv/pagedkvConfig.cmake", "cmake/pagedkv/pagedkvConfigVersion.cmake"}
    archives = {f"lib{name}.a" for name in libraries if static}
    return headers.union(
        cmake,
        {"share/pagedkv/api.json"},
        archives,
        *(
            {f"lib{name}.so", f"lib{name}.so.0", f"lib{name}.so.{version}", f"pkgconfig/{name}.pc"}
            for name in libraries
        ),
    )


def check_library(library):
    dynamic = run("readelf", "--dynamic", "--wide", library)
    assert f"[{library.name}.0]" in re.search(r"SONAME.*", dynamic)[0], dynamic
    if library.name == "libpagedkv.so":
        assert re.search(
            r"FLAGS_1.*NODELETE", dynamic
        ), "worker threads may outlive a dlclose: linked without -z nodelete"
    assert (
        "RUNPATH" not in dynamic and "RPATH" not in dynamic
    ), f"an installed library looks into somebody's folder: {dynamic}"
    needed = set(re.findall(r"NEEDED.*\[([^.\]]+)", dynamic))
    allowed = {
        "libtbb",
        "libsodium",
        "libhiredis",
        "libssl",
        "libcrypto",
        "libstdc++",
        "libm",
        "libgcc_s",
        "libc",
        "ld-linux-x86-64",
        "ld-linux-aarch64",
    }
    assert needed <= allowed, needed


class Installed:
    """Checks what pkg-config says of an installed tree, and programs built with its flags."""

    def __init__(self, root, directory):
        pc = next(root.rglob("pagedkv.pc"))
        self.libraries, self.directory = pc.parent.parent, directory
        self.environment = dict(
            os.environ,
            PKG_CONFIG_PATH=str(pc.parent),
            PKG_CONFIG_SYSROOT_DIR=str(root),
            LD_LIBRARY_PATH=str(self.libraries),
        )

    def flags(self, package, *options):
        return run(
            "pkg-config", "--cflags", "--libs", *options, package, env=self.environment
        ).split()

    def build(self, source, compiler, language, flags):
        program = self.directory / f"program-{len(list(self.directory.iterdir()))}"
        command = [*compiler, "-x", language, source, "-x", "none", "-o", program, *flags]
        return program, subprocess.run(command, capture_output=True, text=True)

    def run(self, package, source, compiler, language):
        program, result = self.build(source, compiler, language, self.flags(package))
        assert result.returncode == 0, f"as {language}: {result.stderr}"
        assert str(self.libraries / f"lib{package}.so.0") in run(
            "ldd", program, env=self.environment
        ), "not the installed library is loaded"
        print(run(program, env=self.environment))

    def run_static(self, package, source, compiler, language):
        """The linker prefers a shared library of the same name; with the file's name it takes the
        archive.
        """
        flags = self.flags(package, "--static")
        flags = [f"-l:lib{flag[2:]}.a" if flag.startswith("-lpagedkv") else flag for flag in flags]
        program, result = self.build(source, compiler, language, flags)
        assert result.returncode == 0, f"static, as {language}: {result.stderr}"
        assert "pagedkv" not in run("ldd", program), "a shared library of ours is needed"
        print(run(program))

    def run_printed(self, readme, source):
        """Runs each block of commands that builds a.c, as it is printed, and the program it made
        last, which finds the library by itself.
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
        assert result.returncode != 0, "a function that is nowhere can be linked"


def main():
    tree, build, version, cc, cxx, *meson = sys.argv[1:]
    tree = pathlib.Path(tree)
    with tempfile.TemporaryDirectory() as directory:
        directory = pathlib.Path(directory)
        root = directory / "root"
        run(*meson, "install", "-C", build, "--no-rebuild", "--destdir", root)
        libraries = ["pagedkv"] + ["pagedkv-redis"] * any(root.rglob("pagedkv-redis.pc"))
        static = any(root.rglob("libpagedkv.a"))
        files, expected = installed_files(root), expected_files(tree, version, libraries, static)
        if any(root.rglob("pkv-generate")):
            expected |= TOOLS
        assert (
            files == expected
        ), f"missing {sorted(expected - files)}, not expected {sorted(files - expected)}"
        for name in libraries:
            check_library(next(root.rglob(f"lib{name}.so")))
        installed, redis = Installed(root, directory), HERE / "redis.c"
        for compiler, language in (cc.split(), "c"), (cxx.split(), "c++"):
            installed.run("pagedkv", tree / "bindings/c/examples/minimal.c", compiler, language)
            installed.refuse_absent(compiler, language)
            if static:
                installed.run_static(
                    "pagedkv", tree / "bindings/c/examples/minimal.c", compiler, language
                )
        installed.run("pagedkv", tree / "bindings/cpp/minimal.cpp", cxx.split(), "c++")
        if static:
            installed.run_printed(
                tree / "src/packaging/README.md", tree / "bindings/c/examples/minimal.c"
            )
        if "pagedkv-redis" in libraries:
            installed.run("pagedkv-redis", redis, cc.split(), "c")
            if static:
                installed.run_static("pagedkv-redis", redis, cc.split(), "c")


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as error:
        sys.exit(f"{' '.join(error.cmd)} failed:\n{error.stdout}{error.stderr}")
