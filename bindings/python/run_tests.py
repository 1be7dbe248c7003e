"""Installs what the tests need into a virtual environment, and runs them.

usage: run_tests.py [--checks|--windows|--engine=NAME] ENVIRONMENT LIBRARY
                    [--gtest_output=xml:FILE] [pytest arguments]

With --checks it runs only the tests that are marked as checks: linters, the wheel and pictures,
whose packages are three times as large as those of all other tests. Without it, it runs the others.
With --windows, LIBRARY is a DLL, and the tests run in Wine, with a Python that windows.py installs.
With --engine, it runs those tests of ../engines/NAME that do without the engine.
meson asks for the results of single cases by --gtest_output.
"""

import fcntl
import hashlib
import os
import pathlib
import subprocess
import sys
import venv

import windows

HERE = pathlib.Path(__file__).resolve().parent
REQUIREMENTS = HERE / "tests/requirements.txt"
OF_CHECKS = HERE / "tests/requirements-checks.txt"
# Each takes most of a minute in Wine, where Python needs seconds to start and sockets to close.
SLOW_IN_WINE = (
    "tests/test_events.py::test_a_crowd_is_killed_as_it_closes",
    "tests/test_examples.py",
    "tests/test_prefill_decode.py",
)


def create(environment, packages):
    """Makes a virtual environment with these packages."""
    venv.create(environment, clear=True, with_pip=True)
    command = [environment / "bin/python", "-m", "pip", "install", "--quiet"]
    # Python compiles modules when it imports them.
    command += ["--disable-pip-version-check", "--no-compile", *packages]
    return subprocess.run(command, check=False).returncode == 0


def install(environment, requirements, create):
    """Calls create() once for each list of requirements; a mark file records which list is
    installed. Others that need the same environment wait."""
    lists = b"".join(file.read_bytes() for file in requirements)
    wanted = hashlib.sha256(lists + sys.version.encode()).hexdigest()
    mark = environment / "installed"
    environment.parent.mkdir(parents=True, exist_ok=True)
    with environment.with_name(f"{environment.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if mark.exists() and mark.read_text() == wanted:
            return
        if not create(environment, [word for file in requirements for word in ("-r", str(file))]):
            sys.exit(
                "the tests of the Python binding need packages of the Python package index: pip "
                "could not install them (see above)"
            )
        mark.write_text(wanted)


def generate():
    """Makes the files of the package that the repository does not keep."""
    subprocess.run([sys.executable, "-B", HERE / "generate_raw.py"], check=True)


def main():
    generate()
    words, mode, engine = sys.argv[1:], None, ""
    if words[0].startswith("--"):
        mode, _, engine = words.pop(0).partition("=")
    environment, library = (pathlib.Path(word).resolve() for word in words[:2])
    path = windows.path if mode == "--windows" else str
    arguments = []
    for word in words[2:]:
        option, _, value = word.replace("--gtest_output=xml:", "--junitxml=").partition("=")
        results = option == "--junitxml"
        arguments.append(f"{option}={path(pathlib.Path(value).resolve())}" if results else word)
    if mode == "--windows":
        if absent := windows.missing():
            print(f"SKIPPED: {absent}")
            sys.exit(77)
        install(environment, [REQUIREMENTS], windows.create)
        python, run = windows.python(environment), windows.run
        arguments += [f"--deselect={name}" for name in SLOW_IN_WINE]
    else:
        install(environment, [REQUIREMENTS] + [OF_CHECKS] * (mode == "--checks"), create)
        python, run = [environment / "bin/python"], subprocess.run
    cache = f"cache_dir={path(environment / 'pytest')}"
    variables = os.environ | {
        "PAGEDKV_LIBRARY": path(library),
        "PYTHONPATH": path(HERE),
        # Otherwise a hundred processes would compile the package again, or write into the source
        # tree.
        "PYTHONPYCACHEPREFIX": path(environment / "bytecode"),
        # NumPy's threads would spin for half of the time of all tests while they wait for each
        # other.
        "OPENBLAS_NUM_THREADS": "1",
    }
    folder = HERE
    if mode == "--engine":
        folder = HERE.parent / "engines" / engine
        variables["PYTHONPATH"] = os.pathsep.join(map(str, (folder, HERE, HERE / "tests")))
    variables.pop("PYTHONDONTWRITEBYTECODE", None)
    marked = "checks" if mode == "--checks" else "not checks"
    command = [*python, "-m", "pytest", "-q", "-m", marked, "-o", cache, *arguments]
    sys.exit(run(command, cwd=folder, env=variables).returncode)


if __name__ == "__main__":
    main()
