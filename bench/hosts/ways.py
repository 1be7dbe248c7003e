"""The ways to run the model, and what is told of a run."""


class Way:
    """A way to run the model: a program of a host, and its first argument. `own`: the name of the
    way that has the same host and its own attention, which ours is compared with."""

    def __init__(self, name, host, program, argument, own=None):
        self.name, self.host, self.program = name, host, program
        self.argument, self.own = argument, own


WAYS = (
    Way("transformers", "transformers", "transformers_engine.py", "generate"),
    Way(
        "transformers + pagedkv",
        "transformers",
        "transformers_engine.py",
        "generate-pagedkv",
        "transformers",
    ),
    Way("transformers batch", "transformers", "transformers_engine.py", "batch"),
    Way(
        "transformers batch + pagedkv",
        "transformers",
        "transformers_engine.py",
        "batch-pagedkv",
        "transformers batch",
    ),
    Way("pagedkv.serving", "transformers", "serving_engine.py", "-", "transformers batch"),
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
