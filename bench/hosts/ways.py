"""The ways to run the model, and the rates of a run."""

import sys
from typing import NamedTuple


class Way(NamedTuple):
    """A way to run the model: a program of a host, and its first argument. `own` names the way that
    has the same host and its own attention, with which ours is compared."""

    name: str
    host: str
    program: str | None
    argument: str
    own: str | None = None


_TRANSFORMERS = "transformers", "transformers_engine.py"
WAYS = (
    Way("transformers", *_TRANSFORMERS, "generate"),
    Way("transformers + pagedkv", *_TRANSFORMERS, "generate-pagedkv", "transformers"),
    Way("transformers batch", *_TRANSFORMERS, "batch"),
    Way("pagedkv Engine", "transformers", "serving_engine.py", "-", "transformers batch"),
    Way("vLLM", "vllm", "vllm_engine.py", "own"),
    Way("vLLM + pagedkv", "vllm", "vllm_engine.py", "pagedkv", "vLLM"),
    Way("llama.cpp", "llama", "llama_engine.py", "unified"),
    Way("llama.cpp, a cache each", "llama", "llama_engine.py", "apart"),
    Way("candle", "candle", None, "basic"),
    Way("candle + pagedkv", "candle", None, "paged", "candle"),
)


def rates(run):
    """(prompt tokens per second, answer tokens per second)"""
    return tuple(
        run[f"{part}_tokens"] / run[f"{part}_seconds"] if run[f"{part}_seconds"] > 0 else 0.0
        for part in ("prompt", "answer")
    )


if __name__ == "__main__":
    # Prints the hosts of the ways whose name contains one of the words of the first argument.
    words = sys.argv[1].split(",")
    print(*{way.host: None for way in WAYS if any(word in way.name for word in words)})
