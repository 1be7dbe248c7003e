"""The text demo gives the tokens that the model gives in float64, and those of the C program,
however the work is divided.
"""

from __future__ import annotations

import json
import os
import pathlib
import sys

import pytest
from helpers import output

ROOT = pathlib.Path(__file__).resolve().parents[1]
DATA = ROOT.parents[1] / "bench/data"
PROMPTS = [
    "ROMEO:\n",
    "ROMEO:\nBut soft, what light through yonder window breaks?\n",
    "KING HENRY:\nNow ",
    "Zoë — naïve",
]


def generate(tmp_path: pathlib.Path, *options: str) -> tuple[list[list[int]], str]:
    """The tokens and the text."""
    out, program = tmp_path / "tokens", ROOT / "examples/generate.py"
    text = output(sys.executable, program, "--tokens-out", out, *options)
    return tokens_in(out), text


def tokens_in(file: pathlib.Path) -> list[list[int]]:
    return [[int(token) for token in line.split()] for line in file.read_text().splitlines()]


def all_prompts() -> list[str]:
    return [word for prompt in PROMPTS for word in ("--prompt", prompt)]


def test_the_expected_tokens(tmp_path: pathlib.Path) -> None:
    expected = json.loads((DATA / "tiny-shakespeare.expected.json").read_text())
    tokens, text = generate(tmp_path, "--prompt", expected["prompt"], "--max-tokens", "160")
    assert tokens == [expected["tokens"][-160:]]
    assert text.startswith("ROMEO:\nWhat will ")


def test_the_scenes_share_a_beginning(tmp_path: pathlib.Path) -> None:
    _, text = generate(tmp_path, "--max-tokens", "10", "--running", "1")
    assert "\n128 tokens were found cached" in text  # 64 of the speech, twice


def test_the_same_tokens_as_in_c_however_the_work_is_cut_up(tmp_path: pathlib.Path) -> None:
    program = os.environ.get("PAGEDKV_GENERATE")
    if not program:
        pytest.skip("PAGEDKV_GENERATE does not name pkv-generate: nothing to compare with")
    c_tokens = tmp_path / "c"
    output(program, "--quiet", "--max-tokens", 60, "--tokens-out", c_tokens, *all_prompts())
    expected = tokens_in(c_tokens)
    assert [len(line) for line in expected] == [60] * len(PROMPTS)
    for options in (["--chunk", "32"], ["--chunk", "5", "--running", "4"]):
        tokens, _ = generate(tmp_path, "--max-tokens", "60", *options, *all_prompts())
        assert tokens == expected, options
