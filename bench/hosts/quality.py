"""What storing keys and values in fewer bits costs: perplexity, divergence and the first choice of
a real model on text that it did not write, by the types of K and V and with and without a rotation.

    quality.py MODEL_DIRECTORY [--tokens N]

The text is that of this project's guide. Everything but K and V is computed in float32.
"""

import argparse
import pathlib

import public_model
import torch
from pagedkv import Dtype, Rotation
from pagedkv.transformers import PagedCache

KINDS = (
    ("f32", Dtype.F32, None),
    ("bf16", Dtype.BF16, None),
    ("f16", Dtype.F16, None),
    ("int8", Dtype.INT8, None),
    ("fp8_e4m3", Dtype.FP8_E4M3, None),
    ("fp8_e5m2", Dtype.FP8_E5M2, None),
    ("K int8, V int4", Dtype.INT8, Dtype.INT4),
    ("int4", Dtype.INT4, None),
)
ROTATIONS = (Rotation.NONE, Rotation.HADAMARD)


@torch.inference_mode()
def log_probabilities(model, ids, dtype, value_dtype, rotation):
    cache = PagedCache(
        model, tokens=ids.shape[1], dtype=dtype, value_dtype=value_dtype, rotation=rotation
    )
    try:
        logits = model(input_ids=ids, past_key_values=cache, use_cache=True).logits
    finally:
        cache.close()
    return torch.log_softmax(logits[0, :-1].float(), -1)


def compare(model, texts):
    """{(kind, rotation): sums of -log p of the text, divergences, equal first choices, tokens}"""
    cases = [(*kind, rotation) for kind in KINDS for rotation in ROTATIONS]
    sums = {(name, rotation): torch.zeros(4, dtype=torch.float64) for name, _, _, rotation in cases}
    for ids in texts:
        exact = None
        for name, dtype, value_dtype, rotation in cases:
            found = log_probabilities(model, ids, dtype, value_dtype, rotation)
            exact = found if exact is None else exact
            surprise = -found.gather(1, ids[0, 1:, None]).sum()
            divergence = (exact.exp() * (exact - found)).sum()
            equal = (exact.argmax(-1) == found.argmax(-1)).sum()
            sums[name, rotation] += torch.tensor([surprise, divergence, equal, len(found)])
    return sums


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--tokens", type=int, default=8000)
    options = parser.parse_args()
    model, text = public_model.load(options.model)
    text = text[: options.tokens]
    texts = [torch.tensor([text[i : i + 2000]]) for i in range(0, len(text), 2000)]
    print("| K and V | rotation | perplexity | KL to f32 | first choice as with f32 |")
    print("|---|---|---|---|---|")
    for (name, rotation), (surprise, divergence, equal, count) in compare(model, texts).items():
        perplexity = torch.exp(surprise / count)
        print(
            f"| {name} | {rotation.name.lower()} | {perplexity:.3f} "
            f"| {max(0.0, divergence / count):.2g} | {equal / count:.1%} |",
            flush=True,
        )


main()
