"""Finds and opens libpagedkv, once."""

from __future__ import annotations

import ctypes
import functools
import os
import pathlib
import subprocess
import sys

from . import _waiting
from .errors import OutOfBlocksError, PagedKVError, error_of
from .generated.raw import VERSION, ErrorDetails, Functions


class LibraryNotFoundError(ImportError):
    """libpagedkv was not found, or this package cannot use it."""


def file_name(library: str, system: str = sys.platform) -> str:
    """The name of a library's file, with the major version that this package needs."""
    if system == "win32":
        return f"{library}.dll"
    major = VERSION.split(".")[0]
    return f"lib{library}.{major}.dylib" if system == "darwin" else f"lib{library}.so.{major}"


NAME = file_name("pagedkv")


class Library(Functions):
    """The opened library: its functions without `pkv_`. Use them for what the classes of this
    package do not offer. `check` turns their statuses into exceptions."""

    def __init__(self, path: str, file: ctypes.CDLL) -> None:
        super().__init__(file)
        self.path = path

    def __repr__(self) -> str:
        return f"<libpagedkv {self.version_text()}: {self.path}>"

    def version_text(self) -> str:
        return _text(self.version())

    def check(self, status: int) -> None:
        if status:
            raise self._last_error(status)

    def _last_error(self, status: int) -> PagedKVError:
        error = error_of(status, self.last_error().decode(errors="replace"))
        details = ErrorDetails.from_address(self.last_error_details())
        error.group = None if details.group == 2**32 - 1 else details.group
        error.index = None if details.index == 2**64 - 1 else details.index
        error.system_error = details.system_error or None
        if isinstance(error, OutOfBlocksError):
            error.blocks_short = details.blocks_short
        return error


def _beside_package() -> str | None:
    """Finds the library in a wheel that contains it. Opens the other libraries of the wheel
    (oneTBB) first, so that the linker does not search for libraries of the same soname
    elsewhere."""
    folder = pathlib.Path(__file__).parent
    if not (folder / NAME).exists():
        return None
    for other in sorted(folder.glob("lib*.so.*")):
        if not other.name.startswith("libpagedkv"):
            ctypes.CDLL(str(other), mode=ctypes.RTLD_GLOBAL)
    return str(folder / NAME)


def _of_pkg_config() -> str | None:
    try:
        found = subprocess.run(
            ["pkg-config", "--variable=libdir", "pagedkv"],
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:
        return None
    path = pathlib.Path(found.stdout.strip() or "/nowhere", NAME)
    return str(path) if path.exists() else None


def _open_first() -> tuple[str, ctypes.CDLL]:
    named = os.environ.get("PAGEDKV_LIBRARY")
    candidates = (
        [named] if named else [path for path in (_beside_package(), NAME, _of_pkg_config()) if path]
    )
    problems = []
    for path in candidates:
        try:
            # Windows looks for a name in PATH, too, if Python lets it.
            return path, ctypes.CDLL(path, winmode=0 if path == NAME else None)
        except OSError as error:
            problems.append(str(error))
    raise LibraryNotFoundError(
        "cannot open libpagedkv: name it with PAGEDKV_LIBRARY, or install it (meson install, "
        "ldconfig). Tried: " + "; ".join(problems)
    )


def _text(version: int) -> str:
    return f"{version // 1000000}.{version // 1000 % 1000}.{version % 1000}"


def _check_version(path: str, text: str) -> None:
    """A later minor version has all that this one has."""
    found, needed = ([int(part) for part in version.split(".")[:2]] for version in (text, VERSION))
    if found[0] != needed[0] or found[1] < needed[1]:
        raise LibraryNotFoundError(
            f"{path} is libpagedkv {text}; this package needs {needed[0]}.{needed[1]} or a later "
            f"{needed[0]}.x"
        )


def library() -> Library:
    """The library: $PAGEDKV_LIBRARY; else the one in this package; else where the dynamic linker or
    pkg-config finds it.

    Objects that could not be closed when they were collected are closed first, if they can be now.
    """
    found = opened()
    if _waiting.waiting:
        _waiting.close_waiting()
    return found


@functools.cache
def opened() -> Library:
    """The library, without closing waiting objects first. It is for code between a call and reading
    its error sentence, and for code that runs during garbage collection."""
    path, file = _open_first()
    try:
        file.pkv_version.restype = ctypes.c_uint32
        _check_version(path, _text(file.pkv_version()))
        return Library(path, file)
    except AttributeError as error:
        raise LibraryNotFoundError(
            f"{path} is not libpagedkv {VERSION} or later: {error}"
        ) from None
