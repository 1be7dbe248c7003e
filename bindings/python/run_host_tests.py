"""Installs an engine that the Python package works in, and runs the tests that need it.

usage: run_host_tests.py HOST DIRECTORY LIBRARY [--gtest_output=xml:FILE] [pytest arguments]

The environment variable PAGEDKV_HOSTS names the engines that may be installed, by default
transformers. Where one is not named or cannot be installed, its tests are skipped.
"""

import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SKIPPED = 77
TESTS = {
    "dynamo": ("tests/test_dynamo.py",),
    "transformers": (
        "tests/test_continuous.py",
        "tests/test_serving.py",
        "tests/test_torch_ops.py",
        "tests/test_transformers.py",
    ),
    "vllm": ("tests/test_events.py", "tests/test_vllm.py"),
}


def install(host, directory):
    if host not in os.environ.get("PAGEDKV_HOSTS", "transformers").split():
        print(f"PAGEDKV_HOSTS=... {host} ... lets up to 2 GB be installed for these tests")
        sys.exit(SKIPPED)
    if subprocess.run([ROOT / "tests/install-hosts", directory, host], check=False).returncode:
        print(f"{host} could not be installed (see above): its tests are skipped")
        sys.exit(SKIPPED)
    return directory / host


def main():
    host, directory, library = sys.argv[1], *map(pathlib.Path, sys.argv[2:4])
    environment = install(host, directory.resolve())
    arguments = [
        argument.replace("--gtest_output=xml:", "--junitxml=") for argument in sys.argv[4:]
    ]
    variables = os.environ | {
        "PAGEDKV_LIBRARY": str(library.resolve()),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": str(HERE),
    }
    # With as many threads as tests run at once, most would spin while they wait for others.
    variables["OMP_NUM_THREADS"] = "1"
    python = {"vllm": "vllm-python"}.get(host, "bin/python")
    command = [environment / python, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    # Warnings of the hosts are theirs.
    command += ["-W", "ignore", *TESTS[host], *arguments]
    sys.exit(subprocess.run(command, check=False, cwd=HERE, env=variables).returncode)


if __name__ == "__main__":
    main()
