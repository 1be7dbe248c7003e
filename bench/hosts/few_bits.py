"""What storage types that the library does not have would cost, beside those that it has: the
figures of quality.py, with K and V rounded in PyTorch.

    few_bits.py MODEL_DIRECTORY [--tokens N]

Types of n bits round as int4 does: each 32 dims of a row share a scale of bf16, and numbers are
multiples of it from -(2^(n-1) - 1) to 2^(n-1) - 1. "2 bits, 4 levels" has -1.5, -0.5, 0.5 and 1.5.
q8_0 and q4_0 round as llama.cpp's types of these names; what llama.cpp does besides, to queries and
weights, is left out. A rotation is the library's HADAMARD.
"""

import argparse
import pathlib

import public_model
import torch
import transformers

GROUP = 32
# The first 64 bits of the fraction of pi: 1 is minus.
SIGNS = [1 - 2 * (0x243F6A8885A308D3 >> (63 - d) & 1) for d in range(64)]


def hadamard(dim):
    """The matrix that rows of up to 64 dims are multiplied by, from the right."""
    run = dim & -dim
    block = torch.ones(1, 1)
    while len(block) < run:
        block = torch.cat([torch.cat([block, block], 1), torch.cat([block, -block], 1)])
    blocks = torch.block_diag(*[block / run**0.5] * (dim // run))
    return torch.tensor(SIGNS[:dim], dtype=torch.float32)[:, None] * blocks


def bf16_not_below(x):
    bits = x.view(torch.int32)
    return ((bits + 0xFFFF) >> 16 << 16).view(torch.float32)


def in_groups(rounded):
    def of_rows(rows):
        shape = rows.shape
        return rounded(rows.reshape(*shape[:-1], -1, GROUP)).reshape(shape)

    return of_rows


def symmetric(bits):
    most = 2 ** (bits - 1) - 1

    def rounded(x):
        scale = bf16_not_below(x.abs().amax(-1, keepdim=True) / most).clamp_min(1e-30)
        return (x / scale).round().clamp(-most, most) * scale

    return in_groups(rounded)


def four_levels(x):
    scale = bf16_not_below(x.abs().amax(-1, keepdim=True) / 2).clamp_min(1e-30)
    return ((x / scale).floor().clamp(-2, 1) + 0.5) * scale


def int8(rows):
    scale = (rows.abs().amax(-1, keepdim=True) / 127).clamp_min(1e-30)
    return (rows / scale).round().clamp(-127, 127) * scale


def q8_0(x):
    exact = x.abs().amax(-1, keepdim=True) / 127
    inverse = torch.where(exact > 0, 1 / exact, 0)
    return (x * inverse).round() * exact.half().float()


def q4_0(x):
    largest = x.gather(-1, x.abs().argmax(-1, keepdim=True))
    exact = largest / -8
    inverse = torch.where(exact != 0, 1 / exact, 0)
    return ((x * inverse + 8.5).floor().clamp(0, 15) - 8) * exact.half().float()


ROUNDINGS = {
    "int8": int8,
    "q8_0": in_groups(q8_0),
    "int4": symmetric(4),
    "q4_0": in_groups(q4_0),
    "3 bits": symmetric(3),
    "2 bits": symmetric(2),
    "2 bits, 4 levels": in_groups(four_levels),
}
MIXED = (("int8", "int4"), ("int8", "3 bits"), ("int4", "3 bits"), ("int4", "2 bits, 4 levels"))


class RoundedCache(transformers.DynamicCache):
    """Rounds rows before they are kept; `rotation` is None or a matrix."""

    def __init__(self, k, v, rotation):
        super().__init__()
        self._sides, self._rotation = (k, v), rotation

    def update(self, key_states, value_states, *arguments, **named):
        rows = [key_states, value_states]
        for i, rounded in enumerate(self._sides):
            turned = rows[i] if self._rotation is None else rows[i] @ self._rotation
            turned = rounded(turned)
            rows[i] = turned if self._rotation is None else turned @ self._rotation.T
        return super().update(*rows, *arguments, **named)


@torch.inference_mode()
def log_probabilities(model, ids, cache):
    logits = model(input_ids=ids, past_key_values=cache, use_cache=True).logits
    return torch.log_softmax(logits[0, :-1].float(), -1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--tokens", type=int, default=8000)
    options = parser.parse_args()
    model, text = public_model.load(options.model)
    text = text[: options.tokens]
    config = model.config
    matrix = hadamard(config.hidden_size // config.num_attention_heads)
    kinds = [(name, name) for name in ROUNDINGS] + list(MIXED)
    sums = {(kind, turned): torch.zeros(4).double() for kind in kinds for turned in (False, True)}
    for begin in range(0, len(text), 2000):
        ids = torch.tensor([text[begin : begin + 2000]])
        exact = log_probabilities(model, ids, transformers.DynamicCache())
        for (k, v), turned in sums:
            cache = RoundedCache(ROUNDINGS[k], ROUNDINGS[v], matrix if turned else None)
            found = log_probabilities(model, ids, cache)
            surprise = -found.gather(1, ids[0, 1:, None]).sum()
            divergence = (exact.exp() * (exact - found)).sum()
            equal = (exact.argmax(-1) == found.argmax(-1)).sum()
            sums[(k, v), turned] += torch.tensor([surprise, divergence, equal, len(found)])
    print("| K and V | rotation | perplexity | KL to f32 | first choice as with f32 |")
    print("|---|---|---|---|---|")
    for ((k, v), turned), (surprise, divergence, equal, count) in sums.items():
        name = k if k == v else f"K {k}, V {v}"
        print(
            f"| {name} | {'hadamard' if turned else 'none'} | {torch.exp(surprise / count):.3f} "
            f"| {divergence / count:.2g} | {equal / count:.1%} |"
        )


main()
