"""The examples of README.md, one after the other."""

import pathlib
import re
from typing import Any

README = pathlib.Path(__file__).resolve().parents[1] / "README.md"


def test_examples() -> None:
    examples = re.findall(r"^```python\n(.*?)^```", README.read_text(), re.M | re.S)
    assert len(examples) >= 4
    names: dict[str, Any] = {}
    for number, example in enumerate(examples, 1):
        exec(compile(example, f"example {number} of README.md", "exec"), names)
