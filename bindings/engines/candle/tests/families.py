"""Writes the tokens that transformers gives for the small models of families.rs, for that test:

  PAGEDKV_TINY_FOLDER=DIR cargo test --test families transformers
  python -B tests/families.py DIR > tests/families.json

with transformers, torch, gguf and accelerate. The first command writes the models."""

import json
import sys

import torch
from transformers import AutoConfig, AutoModelForCausalLM

FAMILIES = ["llama", "qwen2", "qwen3", "gemma3"]
TOKENS = 40


class Random:
    """That of tiny/mod.rs."""

    def __init__(self, seed):
        self.state = seed

    def next(self):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self.state >> 40) / 2**23 - 1


def prompt(seed, length):
    random = Random(seed + 100)
    return [int((random.next() + 1) * 128) for _ in range(length)]


def prompts():
    shared = prompt(5, 70)
    return [
        *(prompt(seed, length) for seed, length in [(1, 1), (2, 17), (3, 50), (4, 64)]),
        shared + prompt(6, 9),
        shared + prompt(7, 20),
    ]


def main():
    answers = {}
    for family in FAMILIES:
        name = f"{family}-F32.gguf"
        config = AutoConfig.from_pretrained(sys.argv[1], gguf_file=name)
        if family == "qwen3":
            config.head_dim = 32  # transformers takes that of the published models
        model = AutoModelForCausalLM.from_pretrained(
            sys.argv[1],
            gguf_file=name,
            config=config,
            dtype=torch.float32,
            attn_implementation="eager",
        )
        model.generation_config.eos_token_id = None
        answers[family] = [
            model.generate(
                torch.tensor([ids]), max_new_tokens=TOKENS, do_sample=False, pad_token_id=0
            )[0, len(ids) :].tolist()
            for ids in prompts()
        ]
    rows = [f'"{family}": {json.dumps(answers[family])}' for family in FAMILIES]
    print("{" + ",\n".join(rows) + "}")


main()
