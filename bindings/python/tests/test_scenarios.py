"""The scenarios that all bindings share."""

import copy
import pathlib
import re
import sys
from typing import Any

import pytest
import scenarios
from helpers import output

ALL = scenarios.load()


@pytest.mark.parametrize("scenario", ALL, ids=[scenario["name"] for scenario in ALL])
def test_scenario(scenario: dict[str, Any], tmp_path: pathlib.Path) -> None:
    scenarios.play(scenario, tmp_path)


@pytest.mark.parametrize(
    ("number", "change", "message"),
    [
        (3, {"length": 1}, r"'prefill', step 3 \(length a\): length: expected 1, got 0"),
        (3, {"status": "PKV_BUSY"}, r"step 3 .*status: expected PKV_BUSY, got PKV_OK"),
        (4, {"status": "PKV_BUSY"}, r"step 4 .*status: expected PKV_BUSY, got PKV_OK"),
        (
            4,
            {"out": [[39, 0, 0, 0, 0.5]]},
            r"step 4 .*output of row 39, layer 0, head 0, dim 0: expected 0.5, got -0.01\d+, which",
        ),
        (7, {"count": 2}, r"step 7 .*entries: expected 2, got 3"),
        (
            8,
            {"values": [["v", 8, 0, 0, 2.0]]},
            r"step 8 .*v of position 8, head 0, dim 0: expected 2.0",
        ),
        (
            9,
            {"fields": {"free_blocks": 9}},
            r"step 9 .*expected {'free_blocks': 9}, got {'free_blocks': 5}",
        ),
    ],
)
def test_a_wrong_expectation_is_found(
    number: int, change: dict[str, Any], message: str, tmp_path: pathlib.Path
) -> None:
    scenario = copy.deepcopy(ALL[0])
    scenario["steps"][number - 1].update(change)
    with pytest.raises(AssertionError, match=message):
        scenarios.play(scenario, tmp_path)


def test_the_file_is_what_the_reference_gives() -> None:
    output(sys.executable, "-B", scenarios.FILE.parent / "reference.py", "--check")


def test_every_kind_of_step_is_documented() -> None:
    page = (scenarios.FILE.parent / "README.md").read_text()
    documented = set(re.findall(r"^\| `(\w+)` \|", page, re.M))
    assert documented >= {step["do"] for scenario in ALL for step in scenario["steps"]}
