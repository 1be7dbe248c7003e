"""With tests, bindings and benchmarks off, `ninja` builds the libraries and nothing else: who only
installs them waits for nothing that is not installed. What is built without oneTBB does not tell
CMake to link it.

usage: alone.py TREE MESON..."""

import json
import pathlib
import subprocess
import sys
import tempfile

from install import run


def targets(tree, build, meson, *options):
    """Returns the folders of what `ninja` builds of itself."""
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
        built = targets(
            tree,
            directory,
            meson,
            "-Dtests=false",
            "-Dbindings=false",
            "-Dbenchmarks=disabled",
            "-Dtbb=disabled",
        )
        config = pathlib.Path(directory, "src/packaging/pagedkvConfig.cmake").read_text()
    assert "pagedkv" in built, built
    others = [name for name, folder in built.items() if folder != "src"]
    assert not others, f"also built: {', '.join(others)}"
    assert "libpagedkv.a" in config and "-ltbb" not in config, config
    print(f"{len(built)} targets, all below src")


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as error:
        sys.exit(f"{' '.join(map(str, error.cmd))} failed:\n{error.stdout}{error.stderr}")
