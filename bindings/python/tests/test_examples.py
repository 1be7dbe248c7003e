"""The other examples run and print what they promise."""

from __future__ import annotations

import importlib.util
import json
import pathlib
import sys

import pytest
from helpers import output, small

EXAMPLES = pathlib.Path(__file__).resolve().parents[1] / "examples"


def run(name: str, *arguments: str) -> str:
    return output(sys.executable, EXAMPLES / name, *arguments)


def needs(packages: str, what: str) -> pytest.MarkDecorator:
    missing = any(importlib.util.find_spec(name) is None for name in packages.split())
    return pytest.mark.skipif(missing, reason=f"{packages} is not installed: {what}")


needs_torch = needs("torch", "its operators were NOT called, its tensors NOT passed")
needs_sockets = needs("zmq msgspec", "NO requests were routed")


def test_a_hybrid_model_gives_the_same_text() -> None:
    assert "the same text with the library and without it" in run("hybrid.py")


@needs_torch
def test_operators_of_pytorch_give_the_same_tokens() -> None:
    assert "80 of 80 tokens are the same" in run("torch_ops.py")


@needs_torch
def test_an_engine_over_tensors_of_pytorch_gives_the_same_tokens() -> None:
    lines = run("torch_engine.py")
    assert "144 of 144 tokens are the same" in lines
    assert "blocks came back from the directory" in lines


@needs_torch
def test_tensors_of_pytorch_go_in_and_out() -> None:
    import torch

    import pagedkv

    with pagedkv.Cache(small()) as cache:
        session = cache.open_session()
        rows = torch.arange(48).reshape(3, 1, 16).to(torch.bfloat16)
        with cache.begin([session], [3]) as batch:
            batch.write(0, rows, rows)
            out = torch.zeros(3, 2, 16, dtype=torch.bfloat16)
            batch.attend(0, torch.zeros(3, 2, 16), out)
            assert out[:, 0, 0].tolist() == [0, 8, 16]
            with pytest.raises(BufferError, match="grad"):
                batch.write(0, torch.ones(3, 1, 16, requires_grad=True), rows)
            batch.commit([1, 2, 3])
        k = torch.empty(3, 1, 16)
        session.read(0, 0, 3, k, torch.empty(3, 1, 16))
        assert torch.equal(k, rows.float())


@needs_sockets
def test_requests_go_where_their_prefix_is() -> None:
    shown = run("router.py", "--requests", "200", "--blocks", "400")
    hits = {line.split(":")[0].strip(): float(line.split()[2 if "turn" in line else 2].rstrip("%"))
            for line in shown.splitlines() if "cached" in line}  # fmt: skip
    assert hits["by prefix"] > hits["in turn"] + 3, shown


@needs_sockets
def test_the_router_reads_a_recorded_trace(tmp_path: pathlib.Path) -> None:
    """A trace in Mooncake's format. Equal hash ids are equal text; in turn, each request goes to a
    worker that has not seen it."""
    trace = tmp_path / "conversation_trace.jsonl"
    lines = [
        {"timestamp": 900 * i, "input_length": 1100, "output_length": 5, "hash_ids": [0, i % 2]}
        for i in range(4)
    ]
    trace.write_text("".join(json.dumps(line) + "\n" for line in lines))
    shown = run("router.py", str(trace), "--speed", "4")
    assert shown.startswith("4 requests, 4 workers")
    assert "in turn:   0.0% of 4,400 tokens cached" in shown
