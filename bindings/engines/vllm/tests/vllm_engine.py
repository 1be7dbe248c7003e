"""Runs one vLLM engine in its own process with pagedkv's attention, for test_vllm.py. Reads
{"model", "prompts", "new", "engine", "hints"} as JSON, prints {"tokens", "cached", "stats"}. The
hints of each prompt are in kv_transfer_params or, if their message_id is "typed", in kv_hints.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import pagedkv_vllm


def run(job: dict[str, Any]) -> dict[str, Any]:
    pagedkv_vllm.install()
    import msgspec
    from vllm import LLM, SamplingParams
    from vllm.v1.kv_hints import KvHintsEnvelope

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
    hints = job.get("hints", [None] * len(job["prompts"]))
    add = engine.llm_engine.add_request

    def add_request(request_id: str, *arguments: Any, **more: Any) -> str:
        """LLM.generate has no argument for hints."""
        given = hints[int(request_id)]
        typed = given is not None and given["message_id"] == "typed"
        more["kv_hints"] = msgspec.convert(given, KvHintsEnvelope) if typed else None
        return str(add(request_id, *arguments, **more))

    engine.llm_engine.add_request = add_request
    greedy = {"temperature": 0, "max_tokens": job["new"], "ignore_eos": True, "detokenize": False}
    params = [
        SamplingParams(**greedy, extra_args={"kv_transfer_params": {"kv_hints": given}})
        for given in hints
    ]
    prompts = [{"prompt_token_ids": prompt} for prompt in job["prompts"]]
    outputs = engine.generate(prompts, params, use_tqdm=False)
    return {
        "tokens": [list(output.outputs[0].token_ids) for output in outputs],
        "cached": [output.num_cached_tokens for output in outputs],
    }


if __name__ == "__main__":
    result = run(json.load(sys.stdin))
    print("\nRESULT " + json.dumps(result))
