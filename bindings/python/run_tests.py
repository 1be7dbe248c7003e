"""Installs what the tests need into a virtual environment, and runs them.

usage: run_tests.py [--checks] ENVIRONMENT LIBRARY [--gtest_output=xml:FILE] [pytest arguments]

With --checks it runs only the tests that are marked as checks: linters, the wheel and pictures,
whose packages are three times as large as those of all other tests. Without it, it runs the others.
meson asks for the results of single cases by --gtest_output.
"""

import hashlib
import os
import pathlib
import subprocess
import sys
import venv

HERE = pathlib.Path(__file__).resolve().parent
REQUIREMENTS = HERE / "tests/requirements.txt"
OF_CHECKS = HERE / "tests/requirements-checks.txt"


def install(environment, requirements):
    """Installs each list of requirements once; a mark file records which list is installed."""
    lists = b"".join(file.read_bytes() for file in requirements)
    wanted = hashlib.sha256(lists + sys.version.encode()).hexdigest()
    mark, python = environment / "installed", environment / "bin/python"
    if mark.exists() and mark.read_text() == wanted:
        return python
    venv.create(environment, clear=True, with_pip=True)
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command += ["--no-compile"]  # Python compiles modules when it imports them
    command += [word for file in requirements for word in ("-r", str(file))]
    if subprocess.run(command, check=False).returncode != 0:
        sys.exit(
            "the tests of the Python binding need packages of the Python package index: pip could "
            "not install them (see above)"
        )
    mark.write_text(wanted)
    return python


def main():
    words = sys.argv[1:]
    checks = words[0] == "--checks"
    if checks:
        words.pop(0)
    environment, library = (pathlib.Path(word).resolve() for word in words[:2])
    arguments = []
    for word in words[2:]:
        option, _, path = word.replace("--gtest_output=xml:", "--junitxml=").partition("=")
        results = option == "--junitxml"
        arguments.append(f"{option}={pathlib.Path(path).resolve()}" if results else word)
    python = install(environment, [REQUIREMENTS, OF_CHECKS] if checks else [REQUIREMENTS])
    cache = f"cache_dir={environment / 'pytest'}"
    variables = os.environ | {
        "PAGEDKV_LIBRARY": str(library),
        "PYTHONPATH": str(HERE),
        # Otherwise a hundred processes would compile the package again, or write into the source
        # tree.
        "PYTHONPYCACHEPREFIX": str(environment / "bytecode"),
        "HYPOTHESIS_STORAGE_DIRECTORY": str(environment / "hypothesis"),
        # NumPy's threads would spin for half of the time of all tests while they wait for each
        # other.
        "OPENBLAS_NUM_THREADS": "1",
    }
    variables.pop("PYTHONDONTWRITEBYTECODE", None)
    marked = "checks" if checks else "not checks"
    command = [str(python), "-m", "pytest", "-q", "-m", marked, "-o", cache, *arguments]
    sys.exit(subprocess.run(command, check=False, cwd=HERE, env=variables).returncode)


if __name__ == "__main__":
    main()
