"""Checks that a CMake project finds an installed tree that was moved, that its programs run, and
that missing versions and components are refused.

usage: cmake.py TREE BUILD MESON..."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

from install import HERE, install, run, run_main


def configure(prefix, tree, directory, wanted):
    command = ["cmake", "-S", HERE / "cmake", "-B", directory]
    command += [f"-DCMAKE_PREFIX_PATH={prefix}", f"-DWANTED={wanted}"]
    command += [f"-DMINIMAL={tree / 'bindings/c/examples/minimal.c'}"]
    command += [f"-DREDIS={HERE / 'redis.c'}"]
    return subprocess.run(command, capture_output=True, text=True)


def check_programs(directory, libraries):
    names = ("shared", "static", "redis")
    programs = {name: directory / name for name in names if (directory / name).exists()}
    files = {"shared": "libpagedkv.so", "static": "libpagedkv.a", "redis": "libpagedkv-redis.so"}
    expected = {name for name, file in files.items() if (libraries / file).exists()}
    assert programs.keys() == expected, f"built {sorted(programs)}, not {sorted(expected)}"
    for name, program in programs.items():
        linked = [line for line in run("ldd", program).splitlines() if "pagedkv" in line]
        assert len(linked) == {"shared": 1, "static": 0, "redis": 2}[name], f"{name}: {linked}"
        assert all(str(libraries) in line for line in linked), f"{name}: {linked}"
        print(name, run(program), end="")


def main():
    tree, build, *meson = sys.argv[1:]
    if not shutil.which("cmake"):
        print("SKIPPED: cmake is missing: bash tests/install-deps test")
        sys.exit(77)
    os.environ.pop("LD_LIBRARY_PATH", None)  # meson's, to the library that is not installed
    with tempfile.TemporaryDirectory() as directory:
        directory = pathlib.Path(directory)
        libraries, prefix = install(meson, build, directory / "root")
        libraries = (directory / "moved") / libraries.relative_to(prefix)
        prefix = prefix.rename(directory / "moved")

        found = configure(prefix, pathlib.Path(tree), directory / "build", "1.0")
        assert found.returncode == 0, found.stdout + found.stderr
        run("cmake", "--build", directory / "build")
        check_programs(directory / "build", libraries)
        for number, (wanted, complaint) in enumerate(
            [
                ("1.1", "compatible"),
                ("2.0", "compatible"),
                ("1.0;COMPONENTS;tape", "no component tape"),
            ]
        ):
            refused = configure(prefix, pathlib.Path(tree), directory / f"refused-{number}", wanted)
            output = f"{wanted}: {refused.stdout}{refused.stderr}"
            assert refused.returncode != 0 and complaint in refused.stderr, output


if __name__ == "__main__":
    run_main(main)
