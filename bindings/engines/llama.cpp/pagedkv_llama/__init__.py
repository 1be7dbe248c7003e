"""Two things for llama.cpp in this process. Its attention, computed with libpagedkv:

    import llama_cpp  # or another module with llama.cpp in it
    import pagedkv_llama

    pagedkv_llama.load()  # before the first context

A program that reads GGML_BACKEND_PATH, such as llama-server, needs only the path:

    GGML_BACKEND_PATH=$(python3 -m pagedkv_llama) llama-server -m MODEL.gguf

And a prompt cache for llama-cpp-python, which needs no load():

    llama.set_cache(pagedkv_llama.PromptCache(llama, max_bytes=4 << 30, directory="prompts"))
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import pathlib
import subprocess
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .prompt_cache import PromptCache, Stats

__all__ = ["PromptCache", "Stats", "computed", "find", "find_prompt_cache", "load"]

NAME, OF_PROMPT_CACHE = "libggml-pagedkv.so", "libpagedkv-llama.so.1"


def __getattr__(name: str) -> Any:
    """The attention needs neither llama-cpp-python nor pagedkv."""
    if name not in ("PromptCache", "Stats"):
        raise AttributeError(f"module {__name__} has no attribute {name}")
    from . import prompt_cache

    return getattr(prompt_cache, name)


def find() -> str:
    """The plug-in's path: $PAGEDKV_LLAMA_LIBRARY; else the file in the package pagedkv; else where
    libpagedkv was installed."""
    return _find(f"pagedkv/{NAME}", "PAGEDKV_LLAMA_LIBRARY")


def find_prompt_cache() -> str:
    """The same of the prompt cache, which $PAGEDKV_LLAMA_CACHE_LIBRARY may name."""
    return _find(OF_PROMPT_CACHE, "PAGEDKV_LLAMA_CACHE_LIBRARY")


def load() -> None:
    """Loads the plug-in into the llama.cpp of this process, unless it is there already. Contexts
    that exist are not changed. Raises ImportError if there is no llama.cpp or more than one, or if
    the plug-in does not know its version."""
    library = _llama()
    load_backend = library.ggml_backend_load
    load_backend.argtypes, load_backend.restype = [ctypes.c_char_p], ctypes.c_void_p
    if _registration(library) is None and load_backend(os.fsencode(find())) is None:
        raise ImportError("llama.cpp did not load the plug-in, and said why")


def computed() -> int:
    """The operations that the plug-in has computed in this process: one for each layer of each
    batch."""
    library = _llama()
    registration = _registration(library)
    if registration is None:
        return 0
    get = library.ggml_backend_reg_get_proc_address
    get.argtypes, get.restype = [ctypes.c_void_p, ctypes.c_char_p], ctypes.c_void_p
    return int(ctypes.CFUNCTYPE(ctypes.c_uint64)(get(registration, b"pagedkv_computed"))())


def _find(file: str, variable: str) -> str:
    if named := os.environ.get(variable):
        return named
    paths = []
    if (package := importlib.util.find_spec("pagedkv")) and package.origin:
        paths.append(pathlib.Path(package.origin).with_name(pathlib.Path(file).name))
    if folder := _folder_of_libraries():
        paths.append(pathlib.Path(folder, file))
    for path in paths:
        if path.exists():
            return str(path)
    raise ImportError(
        f"there is no {pathlib.Path(file).name}: name it with {variable}, or install it. "
        f"Tried: {', '.join(map(str, paths)) or 'nothing'}"
    )


def _llama() -> ctypes.CDLL:
    found = {
        ctypes.cast(library.ggml_backend_load, ctypes.c_void_p).value: library
        for library in _loaded_libraries()
        if hasattr(library, "ggml_backend_load")
    }
    if not found:
        raise ImportError("import a module with llama.cpp before you use pagedkv_llama")
    if len(found) > 1:
        raise ImportError(f"this process has llama.cpp {len(found)} times")
    return found.popitem()[1]


def _registration(library: ctypes.CDLL) -> int | None:
    by_name = library.ggml_backend_reg_by_name
    by_name.argtypes, by_name.restype = [ctypes.c_char_p], ctypes.c_void_p
    found: int | None = by_name(b"pagedkv")
    return found


def _folder_of_libraries() -> str:
    command = ["pkg-config", "--variable=libdir", "pagedkv"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return ""


def _loaded_libraries() -> Iterator[ctypes.CDLL]:
    lines = pathlib.Path("/proc/self/maps").read_text(errors="surrogateescape").splitlines()
    paths = dict.fromkeys(line.split(maxsplit=5)[5] for line in lines if ".so" in line)
    for path in paths:
        try:
            yield ctypes.CDLL(path, mode=os.RTLD_NOLOAD)
        except OSError:
            continue  # it is not a library, or was removed
