"""Runs one vLLM engine in its own process with pagedkv's attention, for test_vllm.py. Reads
{"model", "prompts", "new", "engine"} as JSON, prints {"tokens", "cached", "stats"}.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import pagedkv.vllm


def run(job: dict[str, Any]) -> dict[str, Any]:
    pagedkv.vllm.install()
    from vllm import LLM, SamplingParams

    options = {
        "dtype": "float32",
        "block_size": 16,
        "enforce_eager": True,
        "skip_tokenizer_init": True,
        "max_model_len": 256,
        "max_num_batched_tokens": 64,  # prompts are cut, so that steps mix prompts and answers
        "max_num_seqs": 8,
        **job.get("engine", {}),
    }
    engine = LLM(model=job["model"], **options)
    outputs = engine.generate(
        [{"prompt_token_ids": prompt} for prompt in job["prompts"]],
        SamplingParams(temperature=0, max_tokens=job["new"], ignore_eos=True, detokenize=False),
        use_tqdm=False,
    )
    return {
        "tokens": [list(output.outputs[0].token_ids) for output in outputs],
        "cached": [output.num_cached_tokens for output in outputs],
    }


if __name__ == "__main__":
    result = run(json.load(sys.stdin))
    print("\nRESULT " + json.dumps(result))
