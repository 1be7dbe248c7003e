"""Installs what the tests need into a virtual environment of their own, and runs them.

usage: run_tests.py ENVIRONMENT LIBRARY [--gtest_output=xml:FILE] [pytest arguments]

The option is meson's way to ask for results case by case.
"""

import hashlib
import os
import pathlib
import subprocess
import sys
import venv

HERE = pathlib.Path(__file__).resolve().parent
REQUIREMENTS = HERE / "tests/requirements.txt"


def install(environment):
    """Once per list of requirements: the mark tells which one is there."""
    wanted = hashlib.sha256(REQUIREMENTS.read_bytes() + sys.version.encode()).hexdigest()
    mark, python = environment / "installed", environment / "bin/python"
    if mark.exists() and mark.read_text() == wanted:
        return python
    venv.create(environment, clear=True, with_pip=True)
    command = [
        str(python),
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "-r",
        str(REQUIREMENTS),
    ]
    if subprocess.run(command, check=False).returncode != 0:
        sys.exit(
            "the tests of the Python binding need packages of the Python package index: pip could "
            "not install them (see above)"
        )
    mark.write_text(wanted)
    return python


def main():
    environment, library = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
    arguments = [
        argument.replace("--gtest_output=xml:", "--junitxml=") for argument in sys.argv[3:]
    ]
    results = [
        pathlib.Path(argument.split("=", 1)[1]).resolve()
        for argument in arguments
        if argument.startswith("--junitxml=")
    ]
    arguments = [
        f"--junitxml={results[0]}" if argument.startswith("--junitxml=") else argument
        for argument in arguments
    ]
    python = install(environment)
    cache = f"cache_dir={environment / 'pytest'}"
    variables = os.environ | {
        "PAGEDKV_LIBRARY": str(library),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": str(HERE),
    }
    variables["HYPOTHESIS_STORAGE_DIRECTORY"] = str(environment / "hypothesis")
    command = [str(python), "-m", "pytest", "-q", "-o", cache, *arguments]
    sys.exit(subprocess.run(command, check=False, cwd=HERE, env=variables).returncode)


if __name__ == "__main__":
    main()
