"""The sources are clean: ruff, its formatter, and mypy in strict mode."""

import pathlib
import sys

import pytest
from helpers import output

ROOT = pathlib.Path(__file__).resolve().parents[1]


@pytest.mark.checks
@pytest.mark.parametrize(
    "command",
    [
        "ruff check --no-cache",
        "ruff format --check --no-cache",
        f"mypy --cache-dir={sys.prefix}/mypy",
    ],
    ids=["ruff", "format", "mypy"],
)
def test_clean(command: str) -> None:
    output(sys.executable, "-m", *command.split(), cwd=ROOT)
