"""Installs a host, an engine or a service that pagedkv works in, and runs the tests in Python that
need it.

usage: run_tests.py HOST DIRECTORY LIBRARY [--gtest_output=xml:FILE] [pytest arguments]

The environment variable PAGEDKV_HOSTS names the hosts that may be installed, by default
transformers and mooncake. The tests of a host that is not named or cannot be installed are skipped.
"""

import ctypes
import fcntl
import os
import pathlib
import socket
import struct
import subprocess
import sys

BINDINGS = pathlib.Path(__file__).resolve().parents[1]
ROOT = BINDINGS.parent
SKIPPED = 77
OF_PYTHON, OF_TRANSFORMERS = "python/tests/test_", "engines/transformers/tests"
TESTS = {
    "dynamo": [f"{OF_PYTHON}dynamo.py"],
    "mooncake": [f"{OF_PYTHON}mooncake.py"],
    # Also what the binding does with PyTorch, with vLLM's events, and PyTorch without CUDA.
    "transformers": [
        OF_TRANSFORMERS,
        *(f"{OF_PYTHON}{name}.py" for name in ("examples", "torch_integers", "torch_ops")),
    ],
    "vllm": [
        "engines/vllm/tests",
        f"{OF_PYTHON}events.py",
        f"{OF_TRANSFORMERS}/test_padded_batch.py",
    ],
}
SIZES = {"dynamo": "0.3 GB", "mooncake": "270 MB", "vllm": "3 GB"}


def install(host, directory):
    if host not in os.environ.get("PAGEDKV_HOSTS", "transformers mooncake").split():
        size = SIZES.get(host, "2 GB")
        print(f"PAGEDKV_HOSTS=... {host} ... lets {size} be installed for these tests")
        sys.exit(SKIPPED)
    if subprocess.run([ROOT / "tests/install-hosts", directory, host], check=False).returncode:
        print(f"{host} could not be installed (see above): its tests are skipped")
        sys.exit(SKIPPED)
    return directory / host


def leave_the_network():
    """Moves this process to a network of its own that has only a loopback device, because clients
    of Mooncake listen on all addresses. If the OS does not allow it, they listen on the machine's.
    """
    new_user, new_network = 0x10000000, 0x40000000
    libc = ctypes.CDLL(None)
    if libc.unshare(new_network) != 0 and libc.unshare(new_user | new_network) != 0:
        return
    get_flags, set_flags, up = 0x8913, 0x8914, 1
    request = struct.pack("16sH14x", b"lo", 0)
    with socket.socket() as any_socket:
        flags = struct.unpack("16sH14x", fcntl.ioctl(any_socket, get_flags, request))[1]
        fcntl.ioctl(any_socket, set_flags, struct.pack("16sH14x", b"lo", flags | up))


def main():
    host, directory, library = sys.argv[1], *map(pathlib.Path, sys.argv[2:4])
    environment = install(host, directory.resolve())
    subprocess.run([sys.executable, "-B", BINDINGS / "python/generate_raw.py"], check=True)
    arguments = [
        argument.replace("--gtest_output=xml:", "--junitxml=") for argument in sys.argv[4:]
    ]
    variables = os.environ | {
        "PAGEDKV_LIBRARY": str(library.resolve()),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": os.pathsep.join(
            str(BINDINGS / name) for name in ("python", "python/tests", f"engines/{host}")
        ),
    }
    # With as many threads as tests run at once, most would spin while they wait for others.
    variables["OMP_NUM_THREADS"] = "1"
    python = {"vllm": "vllm-python"}.get(host, "bin/python")
    command = [environment / python, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    command += ["-c", "python/pyproject.toml", "-m", "not checks"]
    if host == "mooncake":
        leave_the_network()
    # The hosts' own warnings are ignored.
    command += ["-W", "ignore", *TESTS[host], *arguments]
    sys.exit(subprocess.run(command, check=False, cwd=BINDINGS, env=variables).returncode)


if __name__ == "__main__":
    main()
