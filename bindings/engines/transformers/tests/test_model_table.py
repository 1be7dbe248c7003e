"""Every causal language model of transformers works with pagedkv or is refused by name, and
MODELS.md lists them. Needs torch and transformers.
"""

from __future__ import annotations

import functools
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", minversion="5.20")

from pagedkv_transformers import ForwardPass  # noqa: E402

import model_table  # noqa: E402


@functools.cache
def outcomes() -> list[model_table.Outcome]:
    transformers.logging.set_verbosity_error()
    return [model_table.tried(model_type) for model_type in model_table.TYPES]


def test_no_model_is_wrong_without_a_word() -> None:
    assert [str(outcome) for outcome in outcomes() if outcome.faults] == []
    assert sum(bool(outcome.right) for outcome in outcomes()) > 90


def test_the_list_is_current() -> None:
    listed = model_table.LIST.read_text()
    if f"transformers {model_table.version()}\n" not in listed:
        pytest.skip(f"transformers is {model_table.version()}: the list was NOT compared")
    assert listed == model_table.written(
        outcomes()
    ), "the list is outdated: python tests/model_table.py --write"


def test_a_model_that_is_a_little_wrong_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    attend: Any = ForwardPass.attend
    monkeypatch.setattr(ForwardPass, "attend", lambda *given: attend(*given) * 1.01)
    assert set(model_table.tried("llama").faults) == {"PagedCache", "Engine"}
