"""The sources are clean: ruff, its formatter, and mypy in strict mode."""

import pathlib
import subprocess
import sys

import pytest

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
    result = subprocess.run(
        [sys.executable, "-m", *command.split()],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
