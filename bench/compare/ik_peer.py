"""The flash attention of ik_llama.cpp: an older interface of ggml with CPU kernels of its own, in a
wheel for AVX2.
"""

import ctypes
import importlib.util
import pathlib

import ggml_peer
from ggml_peer import Step  # noqa: F401

NAME = "ik_llama.cpp"
PACKAGE = "ik-llama-cpp-python"


def start(threads, library):
    package = importlib.util.find_spec("ik_llama_cpp")
    if package is None:
        raise RuntimeError("it is not installed")
    ggml = ctypes.CDLL(str(pathlib.Path(package.origin).parent / "lib" / "libggml.so"))
    ggml_peer.use(ggml, ggml, threads, types=("f16", "int8", "int4"), streams=False)
