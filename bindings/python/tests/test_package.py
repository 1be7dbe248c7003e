"""Compares the package with the description of the C interface, and tests how it finds the library
and what its wheel contains.
"""

from __future__ import annotations

import ctypes
import dataclasses
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import zipfile

import helpers
import pytest

import pagedkv
from pagedkv.generated import raw as _raw

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT.parent / "api"))
import describe  # noqa: E402  (found through the line above)

API = describe.describe()
STRUCTS = {struct["name"]: struct for struct in API["structs"]}


def camel(name: str) -> str:
    parts = name.removeprefix("pkv_").split("_")
    return "".join(part.capitalize() for part in parts).replace("Kv", "KV")


@pytest.mark.parametrize("name", sorted(STRUCTS))
def test_structs_lie_in_memory_as_in_c(name: str) -> None:
    made = getattr(_raw, camel(name))
    assert ctypes.sizeof(made) == STRUCTS[name]["size"]
    fields = {field["name"]: (field["offset"], field["size"]) for field in STRUCTS[name]["fields"]}
    places = {field: getattr(made, field) for field, _ in made._fields_}
    assert fields == {field: (place.offset, place.size) for field, place in places.items()}


def test_every_function_is_used() -> None:
    source = "".join(path.read_text() for path in (ROOT / "pagedkv").glob("*.py"))
    names = [function["name"].removeprefix("pkv_") for function in API["functions"]]
    called = r"(library\(\)|opened)\.(pkv_)?"
    unused = [name for name in names if not re.search(rf"{called}{name}\b", source)]
    ends = "cache_destroy session_close snapshot_close batch_abort pool_destroy compute_destroy"
    in_strings = set(ends.split())
    # Versions are compared as text; statuses and instruction sets are enums; the package compares
    # only some errors.
    not_here = {"version", "status_name", "last_error", "last_error_details", "isa_name"}
    assert set(unused) - in_strings == not_here


def test_engines_use_what_is_published() -> None:
    """No engine is in the package, and packages for engines import no module with an underscore."""
    engines = ("transformers", "vllm")
    own = [path.read_text() for path in (ROOT / "pagedkv").rglob("*.py")]
    assert not re.findall(rf"^ *(?:from|import) (?:{'|'.join(engines)})\b", "".join(own), re.M)
    sources = [path for name in engines for path in ROOT.parent.glob(f"engines/{name}/pagedkv_*/*")]
    private = r"^ *(?:from pagedkv\.\S*\b_|from pagedkv import .*\b_|import pagedkv\..*\b_).*"
    for path in sources:
        if path.suffix == ".py":
            assert not re.findall(private, path.read_text(), re.M), path


def test_the_default_of_blocks_is_the_librarys() -> None:
    described = pagedkv.CacheConfig(layers=1, query_heads=1, kv_heads=1, key_dim=16, blocks=1)
    with pagedkv.Cache(dataclasses.replace(described, block_size=0)) as cache:
        assert cache.info().block_size == described.block_size


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PAGEDKV")}
    kept["PYTHONPATH"] = str(ROOT)
    return helpers.run(sys.executable, "-c", code, cwd="/", env=kept | environment)


def test_a_library_that_is_none_is_a_clear_sentence(tmp_path: pathlib.Path) -> None:
    ask = "import pagedkv; pagedkv.library_version()"
    result = run(ask, PAGEDKV_LIBRARY=str(tmp_path / "gone.so"))
    sentence = "LibraryNotFoundError: cannot open libpagedkv: name it with PAGEDKV_LIBRARY"
    assert re.search(rf"{sentence}.*gone\.so", result.stderr)
    other = "kernel32.dll" if helpers.ON_WINDOWS else "libm.so.6"
    assert f"{other} is not libpagedkv" in run(ask, PAGEDKV_LIBRARY=other).stderr


@pytest.mark.parametrize(
    ("system", "name"),
    [("linux", "libpagedkv.so.1"), ("darwin", "libpagedkv.1.dylib"), ("win32", "pagedkv.dll")],
)
def test_names_of_the_library(system: str, name: str) -> None:
    from pagedkv._library import file_name

    assert file_name("pagedkv", system) == name


@pytest.mark.parametrize(
    ("version", "good"),
    [("1.0.0", True), ("1.0.7", True), ("1.1.0", True), ("0.9.9", False), ("2.0.0", False)],
)
def test_versions(version: str, good: bool) -> None:
    from pagedkv._library import LibraryNotFoundError, _check_version

    assert _raw.VERSION == "1.0.0", "a new version: update this list"
    if good:
        _check_version("lib", version)
    else:
        sentence = rf"lib is libpagedkv {version}; this package needs 1\.0 or a later 1\.x$"
        with pytest.raises(LibraryNotFoundError, match=sentence):
            _check_version("lib", version)


@pytest.mark.checks
@pytest.mark.skipif(
    "PAGEDKV_LIBRARY" not in os.environ,
    reason="PAGEDKV_LIBRARY names no library to put into a wheel",
)
def test_a_wheel_with_the_library(tmp_path: pathlib.Path) -> None:
    """Builds a wheel with PAGEDKV_BUNDLE, and uses it where no other library is found."""
    library = pathlib.Path(os.environ["PAGEDKV_LIBRARY"]).resolve()
    source = shutil.copytree(
        ROOT, tmp_path / "source", ignore=shutil.ignore_patterns("__pycache__", ".*")
    )
    options = "-m pip wheel --no-deps --no-build-isolation -q -w".split()
    for bundle, tag in (
        ("", "py3-none-any"),
        (str(library), f"py3-none-linux_{platform.machine()}"),
    ):
        bundled = os.environ | {"PAGEDKV_BUNDLE": bundle}
        helpers.output(sys.executable, *options, tmp_path, source, env=bundled)
        file = tmp_path / f"pagedkv-{pagedkv.__version__}-{tag}.whl"
        assert file.exists(), sorted(tmp_path.iterdir())
    with zipfile.ZipFile(file) as wheel:
        assert {"pagedkv/py.typed", "pagedkv/libpagedkv.so.1"} <= set(wheel.namelist())
        wheel.extractall(tmp_path / "installed")
    result = run(
        "import pagedkv; print(pagedkv.library().path, pagedkv.library_version())",
        PYTHONPATH=str(tmp_path / "installed"),
    )
    assert result.stdout.split() == [
        str(tmp_path / "installed/pagedkv/libpagedkv.so.1"),
        pagedkv.library_version(),
    ], result.stderr
