"""Installs a host, an engine that the Python package works in, and runs the tests that need it.

usage: run_host_tests.py HOST DIRECTORY LIBRARY [--gtest_output=xml:FILE] [pytest arguments]

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

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SKIPPED = 77
TESTS = {
    "dynamo": "dynamo",
    "transformers": "copies examples longrope masks model_changes model_table "
    "padded_batch refused_models serving serving_faults serving_store torch_integers torch_ops "
    "transformers transformers_guide",
    "vllm": "copies events padded_batch vllm vllm_guide",
    "mooncake": "mooncake",
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
    command += ["-m", "not checks"]
    if host == "mooncake":
        leave_the_network()
    # The hosts' own warnings are ignored.
    tests = [f"tests/test_{name}.py" for name in TESTS[host].split()]
    command += ["-W", "ignore", *tests, *arguments]
    sys.exit(subprocess.run(command, check=False, cwd=HERE, env=variables).returncode)


if __name__ == "__main__":
    main()
