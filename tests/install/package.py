"""Builds packages that include/guide/install.md and the READMEs of the bindings install, and runs
the first step of those pages with them in an empty Debian 12 (bare.py). It needs root, a network,
and the packages that `tests/install-deps everything` installs; without them it exits with 77 and
prints the reason.

usage: package.py wheel|sdist|deb|crates DIRECTORY

Packages go to DIRECTORY/NAME, and stay there with their build, like the empty system in DIRECTORY,
for the next time. Compilers optimise little, to save time; all other tests use -O3.
"""

import dataclasses
import os
import pathlib
import platform
import shutil
import signal
import subprocess
import sys
import tempfile

import bare

SYSTEM = "bookworm"
SKIPPED = 77
LITTLE = "-O1"  # with -O0, GCC does not compile kernels


@dataclasses.dataclass(frozen=True)
class Package:
    """How packages are built, with {} for their directory, and which blocks are for them."""

    commands: tuple[str, ...]
    blocks: tuple[str, ...]
    needs: str  # a mode of install-deps
    tool: str = "bash"
    directory: str = "."  # of the packages, below {}
    of_this_system: bool = False  # they run on the release that they were built on
    environment: dict[str, str] = dataclasses.field(default_factory=dict)


PACKAGES = {
    "wheel": Package(
        ("bash src/packaging/wheel {}",), ("python",), "python", environment={"CXXFLAGS": LITTLE}
    ),
    "sdist": Package(("bash src/packaging/sdist {}",), ("python-source",), needs="python"),
    "deb": Package(
        ("bash src/packaging/deb {}", "bash bindings/go/package {}"),
        ("c-debian", "go"),
        needs="deb",
        of_this_system=True,
        environment={
            "DEB_CXXFLAGS_APPEND": f"{LITTLE} -g0",
            "DEB_BUILD_OPTIONS": "noautodbgsym",
        },
    ),
    "crates": Package(
        ("bash bindings/rust/package {}",), ("rust",), "build", tool="cargo", directory="crates"
    ),
}


def skip(reason):
    print(f"SKIPPED: {reason}")
    sys.exit(SKIPPED)


def succeeds(*command):
    done = subprocess.run(command, cwd=bare.TREE, capture_output=True, text=True)
    return done.returncode == 0


def find_obstacle(package):
    """The reason why this machine cannot build and try it, or None."""
    if reason := bare.what_is_missing():
        return reason
    if package.of_this_system:
        release = platform.freedesktop_os_release().get("VERSION_CODENAME")
        if release != SYSTEM:
            return f"packages for Debian 12 are built on Debian 12, and this is {release}"
    missing = subprocess.run(
        ["bash", "tests/install-deps", "--missing", package.needs],
        cwd=bare.TREE,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    missing += [] if shutil.which(package.tool) else [package.tool]
    if missing:
        return f"there is no {' '.join(missing)} here: bash tests/install-deps everything"
    return None


def is_online():
    """Returns whether the archive of Debian and the Python package index answer."""
    with tempfile.TemporaryDirectory() as directory:
        archive = ("bash", "src/packaging/archive", "amd64", directory, "apt-get", "update")
        python = f"{directory}/venv/bin/python"
        download = ("pip", "download", "--quiet", "--no-deps", f"--dest={directory}")
        return (
            succeeds(*archive, "--error-on=any")
            and succeeds("python3", "-m", "venv", f"{directory}/venv")
            and succeeds(python, "-m", *download, "pyproject-metadata>=0.8")
        )


def end(failures):
    """Skips a failure without a network, which says nothing about the package."""
    if failures and not is_online():
        skip(f"the archive of Debian or the Python package index cannot be reached: {failures[0]}")
    sys.exit("\n".join(failures) or 0)


def build(package, directory):
    """Returns the command that failed, in a list."""
    for line in package.commands:
        command = [word.format(directory) for word in line.split()]
        print("==", *command, flush=True)
        environment = os.environ | package.environment
        if subprocess.run(command, cwd=bare.TREE, env=environment).returncode:
            return [f"{' '.join(command)} failed"]
    return []


def take_steps(package, directory, kept):
    """Returns the blocks that failed in an empty system."""
    archive = bare.bootstrap(SYSTEM, kept)
    if not archive:
        skip("there is no empty system (see above)")
    commands, results = bare.blocks(), []
    for name in package.blocks:
        print(f"== {name}:\n{commands[name]}", flush=True)
        row = bare.run(SYSTEM, archive, name, commands[name], directory, {"CXXFLAGS": LITTLE})
        print("{block}: {result}, {minutes} minutes".format(**row), flush=True)
        results.append(row)
    return [f"{row['block']}: {row['result']}" for row in results if row["result"] != "decode step"]


def main():
    name, kept = sys.argv[1], pathlib.Path(sys.argv[2]).resolve()
    package = PACKAGES[name]
    # If the program is terminated, it still removes its empty system.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    if reason := find_obstacle(package):
        skip(reason)
    directory = kept / name
    directory.mkdir(parents=True, exist_ok=True)
    end(build(package, directory) or take_steps(package, directory / package.directory, kept))


main()
