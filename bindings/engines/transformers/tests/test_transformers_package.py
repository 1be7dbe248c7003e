"""The examples run and print what they promise, and objects that own memory cannot be copied. Needs
torch and transformers.
"""

from __future__ import annotations

import pathlib
import sys

import pytest
from helpers import output, owners, refuses_copies

pytest.importorskip("torch")
pytest.importorskip("transformers", minversion="5.0")

import pagedkv_transformers  # noqa: E402

EXAMPLES = pathlib.Path(__file__).resolve().parents[1] / "examples"


def run(name: str, *arguments: str) -> str:
    return output(sys.executable, EXAMPLES / name, *arguments)


def test_questions_are_answered_together() -> None:
    shown = run("serve.py", "--max-tokens", "8", "Why?", "Who?", "What?")
    assert shown.count("of them cached") == 3
    assert " 0 of them cached" in shown
    assert "tokens of prompts were cached" in shown


def test_caches_of_transformers_give_the_same_tokens() -> None:
    pytest.importorskip("transformers", minversion="5.24")
    lines = run("migrate.py").splitlines()
    assert lines == [
        "StaticCache: tokens are those of DynamicCache",
        "PagedCache: tokens are those of DynamicCache",
        "41 tokens in blocks [0 1 2]",
    ]


def test_no_owner_is_copied() -> None:
    found = {kind.__name__: kind for kind in owners(pagedkv_transformers)}
    assert {"Engine", "PagedCache"} <= set(found)
    for kind in found.values():
        refuses_copies(object.__new__(kind))
