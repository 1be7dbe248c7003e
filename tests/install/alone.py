"""Checks that `ninja` builds only the libraries if tests, bindings and benchmarks are off, so that
installing is quick, and that a build without oneTBB does not make CMake link oneTBB.

usage: alone.py TREE MESON..."""

import json
import pathlib
import sys
import tempfile

from install import run, run_main


def targets(tree, build, meson, *options):
    """Returns the folders of the targets that `ninja` builds by default."""
    run(*meson, "setup", build, tree, "--wrap-mode=nodownload", *options)
    found = json.loads(run(*meson, "introspect", "--targets", build))
    return {
        target["name"]: target["defined_in"].removeprefix(f"{tree}/").split("/")[0]
        for target in found
        if target["build_by_default"] and target["type"] != "run"
    }


def main():
    tree, *meson = sys.argv[1:]
    with tempfile.TemporaryDirectory() as directory:
        off = ("-Dtests=false", "-Dbindings=false", "-Dbenchmarks=disabled", "-Dtbb=disabled")
        built = targets(tree, directory, meson, *off)
        config = pathlib.Path(directory, "src/packaging/pagedkvConfig.cmake").read_text()
    assert "pagedkv" in built, built
    others = [name for name, folder in built.items() if folder != "src"]
    assert not others, f"also built: {', '.join(others)}"
    assert "libpagedkv.a" in config and "-ltbb" not in config, config
    print(f"{len(built)} targets, all below src")


if __name__ == "__main__":
    run_main(main)
