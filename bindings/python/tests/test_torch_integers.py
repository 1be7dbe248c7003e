"""The operators of pagedkv.torch take the same numbers in each type, as test_integers.py tests it
for all else: each integer argument in each type of NumPy and PyTorch at its limits, in tensors that
end at a protected page. Needs torch. PKV_ROUNDS=2 tries more.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import test_integers as integers  # noqa: E402
from helpers import output  # noqa: E402

import pagedkv.torch as paged  # noqa: E402

LENGTHS, QUERIES = [40, 20], [3, 2]
SLOTS = [*range(40), *range(64, 84)]


def tensor(values: Any, dtype: Any = np.int64) -> Any:
    return torch.from_numpy(integers.guarded(np.array(values, dtype)))


def filled(slots: Any = None) -> Any:
    """A cache of two sequences, in 8 blocks of 16 tokens."""
    keys, values = (tensor(np.zeros((8, 16, 1, 16)), np.float32) for _ in range(2))
    rows = np.random.default_rng(1).standard_normal((len(SLOTS), 1, 16), np.float32)
    paged.write_slots(keys, values, tensor(rows, np.float32), tensor(rows, np.float32), slots)
    return keys, values


def written(slots: Any) -> Any:
    return [part.numpy() for part in filled(slots)]


def attended(**changed: Any) -> Any:
    out = tensor(np.full((6, 2, 16), -1.0), np.float32)
    lists = {
        "block_tables": tensor([[0, 1, 2], [4, 5, 0]]),
        "query_lengths": tensor(QUERIES),
        "kv_lengths": tensor(LENGTHS),
    }
    query = tensor(np.random.default_rng(2).standard_normal((6, 2, 16)), np.float32)
    paged.attention(query, *filled(tensor(SLOTS)), **lists | changed, out=out)
    return out.numpy()


def made(**changed: Any) -> Any:
    sizes = {"blocks": 1, "block_size": 16, "kv_heads": 1, "head_dim": 16} | changed
    try:
        return [list(part.shape) for part in paged.new_cache(**sizes)]
    except RuntimeError as error:
        return f"PyTorch has no memory: {error}"


SCALARS: dict[str, tuple[Callable[[Any], Any], int]] = {
    "window": (lambda v: attended(window=v), 5),
    "sink_tokens": (lambda v: attended(window=5, sink_tokens=v), 2),
    "blocks": (lambda v: made(blocks=v), 3),
    "block_size": (lambda v: made(block_size=v), 32),
    "kv_heads": (lambda v: made(kv_heads=v), 2),
    "head_dim": (lambda v: made(head_dim=v), 32),
    "value_dim": (lambda v: made(value_dim=v), 32),
}
LISTS: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "slots": (written, SLOTS),
    "block_tables": (lambda v: attended(block_tables=v), [[0, 1, 2], [4, 5, 0]]),
    "query_lengths": (lambda v: attended(query_lengths=v), QUERIES),
    "kv_lengths": (lambda v: attended(kv_lengths=v), LENGTHS),
    "query_starts": (lambda v: attended(query_starts=v), [0, 4]),
    "query_positions": (lambda v: attended(query_positions=v), [37, 38, 39, 18, 19]),
}


def play() -> None:
    warnings.simplefilter("ignore")
    for name, (call, good) in SCALARS.items():
        print(name, flush=True)
        assert integers.outcome(call, good)[0] == "result", integers.outcome(call, good)
        for value in sorted({good, 0, 1, -1}.union(*map(integers.limits, integers.TYPES))):
            expected = integers.outcome(call, value)
            for given in integers.scalars_of(value):
                found = integers.outcome(call, given)
                assert found == expected, (name, type(given), given, found, expected)
        for no_number in (1.0, np.float32(1), "1", [1], np.array([1, 2]), torch.tensor([1, 2])):
            kind = integers.outcome(call, no_number)[0]
            assert kind == "MisuseError", (name, no_number, kind)
    for name, (call, good) in LISTS.items():
        print(name, flush=True)
        for values in integers.different(good):
            results = []
            for dtype in integers.holders(np.array(values, object).ravel().tolist()):
                if not hasattr(torch, dtype.name):
                    continue
                found = integers.outcome(call, tensor(values, dtype))
                if dtype in (np.int32, np.int64):
                    results.append(found)
                else:  # documented to be refused
                    assert found[0] == "MisuseError", (name, dtype, values, found)
            assert all(found == results[0] for found in results), (name, values, results)
            assert values != good or results[0][0] == "result", results
        for wrong in (np.array(good, np.float32), np.array(good) > 0, np.array([good])):
            found = integers.outcome(call, torch.from_numpy(wrong))
            assert found[0] == "MisuseError", (name, wrong, found)


def test_the_type_of_a_number_does_not_matter() -> None:
    output(sys.executable, __file__)


if __name__ == "__main__":
    play()
