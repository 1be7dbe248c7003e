"""Installs a wheel into a fresh environment, and runs the tests of the package with it, in a folder
that has nothing of the clone but the tests. A wheel for Windows runs in Wine, with a Python that
windows.py installs.

usage: run_wheel_tests.py WHEEL [pytest arguments]
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import windows

TREE = pathlib.Path(__file__).resolve().parents[2]
# The files that the tests read: the interface and its description, the scenarios, and this folder's
# README and settings.
READ = (
    "include/pagedkv",
    "bindings/api",
    "bindings/scenarios",
    "bindings/python/tests",
    "bindings/python/examples",
    "bindings/python/README.md",
    "bindings/python/pyproject.toml",
)
TESTS = (
    "test_arrays.py",
    "test_collectors.py",
    "test_fields.py",
    "test_files.py",
    "test_objects.py",
    "test_readme.py",
    "test_redis.py",
    "test_scenarios.py",
    "test_store.py",
    "test_threads.py",
)
NEEDED = ("ml_dtypes", "pytest")


def copy_tests(folder):
    """Copies what the tests read to the same places below the folder."""
    for name in READ:
        source, target = TREE / name, folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target)


def main():
    wheel, *arguments = sys.argv[1:]
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("PAGEDKV") and name not in ("LD_LIBRARY_PATH", "PYTHONPATH")
    }
    # The server of Wine may still write when the tests have ended.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        folder = pathlib.Path(directory)
        copy_tests(folder)
        packages = [pathlib.Path(wheel).resolve(), *NEEDED]
        if wheel.endswith("win_amd64.whl"):
            if absent := windows.missing():
                print(f"SKIPPED: {absent}")
                sys.exit(77)
            if not windows.create(folder / "windows", packages):
                sys.exit("the packages for Windows could not be installed (see above)")
            environment["WINEPREFIX"] = str(folder / "wine")
            python, run = windows.python(folder / "windows"), windows.run
        else:
            subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
            python, run = [folder / "venv/bin/python"], subprocess.run
            pip = [*python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            pip += ["--constraint", TREE / "bindings/python/tests/requirements.txt"]
            subprocess.run([*pip, *packages], check=True)
            name = "venv/lib/python*/site-packages/pagedkv/libpagedkv-redis.so.1"
            environment["PAGEDKV_REDIS_LIBRARY"] = str(next(folder.glob(name)))
        command = [*python, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        command += [f"tests/{name}" for name in TESTS]
        done = run([*command, *arguments], cwd=folder / "bindings/python", env=environment)
    sys.exit(done.returncode)


if __name__ == "__main__":
    main()
