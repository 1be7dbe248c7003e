"""The step of bench/peers, which calls the C interface by itself, agrees with its reference."""

import os
import pathlib
import sys

import numpy as np
import pytest

sys.path.append(str(pathlib.Path(__file__).parents[3] / "bench" / "compare"))
pkv = pytest.importorskip("pkv")
from shapes import ELEMENT_BYTES, TOLERANCE, Rows, Shape  # noqa: E402

HEADS = {"query_heads": 4, "kv_heads": 2, "dim": 64}
SHAPES = Shape("decode", (33, 50), **HEADS), Shape("prompt", (50,), new=20, **HEADS)


@pytest.mark.parametrize("dtype", ELEMENT_BYTES)
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_step(shape, dtype):
    pkv.start(1, os.environ["PAGEDKV_LIBRARY"])
    rows = Rows(shape)
    step = pkv.Step(shape, dtype, rows)
    for call in step.calls().values():
        call()
        deviation = np.abs(step.output() - rows.expected).max() / np.abs(rows.expected).max()
        assert deviation <= TOLERANCE[dtype]
    step.close()
