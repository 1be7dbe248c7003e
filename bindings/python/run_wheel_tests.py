"""Installs a wheel into a fresh environment, and runs the tests of the package with it, in a folder
that has nothing of the clone but the tests.

usage: run_wheel_tests.py WHEEL [pytest arguments]
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
# The files that the tests read: the description of the interface, the scenarios, and this folder's
# README.
READ = ("api", "scenarios", "python/tests", "python/examples", "python/README.md")
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
NEEDED = ("hypothesis", "ml_dtypes", "pytest")


def copy_tests(folder):
    """Copies what the tests read to the same places below the folder."""
    for name in READ:
        source, target = HERE.parent / name, folder / name
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
    with tempfile.TemporaryDirectory() as directory:
        folder = pathlib.Path(directory)
        copy_tests(folder)
        subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
        python = folder / "venv/bin/python"
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, pathlib.Path(wheel).resolve(), *NEEDED], check=True)
        redis = next(folder.glob("venv/lib/python*/site-packages/pagedkv/libpagedkv-redis.so.1"))
        environment["PAGEDKV_REDIS_LIBRARY"] = str(redis)
        command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error"]
        command += [f"tests/{name}" for name in TESTS]
        done = subprocess.run([*command, *arguments], cwd=folder / "python", env=environment)
    sys.exit(done.returncode)


if __name__ == "__main__":
    main()
