"""The sources of the package and of the engines on it are clean: ruff, its formatter, and mypy in
strict mode.
"""

import pathlib
import sys

import pytest
from helpers import output

ROOT = pathlib.Path(__file__).resolve().parents[1]
PACKAGES = [ROOT, *(file.parent for file in ROOT.parent.glob("engines/*/pyproject.toml"))]


@pytest.mark.checks
@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
@pytest.mark.parametrize(
    "command",
    [
        "ruff check --no-cache",
        "ruff format --check --no-cache",
        f"mypy --cache-dir={sys.prefix}/mypy",
    ],
    ids=["ruff", "format", "mypy"],
)
def test_clean(command: str, package: pathlib.Path) -> None:
    output(sys.executable, "-m", *command.split(), cwd=package)
