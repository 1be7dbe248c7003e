"""Measures the quality of storage types that the library does not have, beside its own: the figures
of quality.py, with K and V rounded in PyTorch.

Types of n bits round as int4 does: each 32 dims of a row share a scale of bf16, and numbers are
multiples of it from -(2^(n-1) - 1) to 2^(n-1) - 1. "2 bits, 4 levels" has -1.5, -0.5, 0.5 and 1.5.
q8_0 and q4_0 round like llama.cpp's types of these names; llama.cpp's changes to queries and
weights are left out. A rotation is the library's HADAMARD.
"""

import public_model
import torch
import transformers

GROUP = 32
# The first 64 bits of the fraction of pi; 1 means minus.
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


def main():
    options = public_model.arguments(__doc__, tokens=8000)
    model, text = public_model.load(options.model)
    matrix = hadamard(model.config.hidden_size // model.config.num_attention_heads)
    cases = [("f32", "none", lambda tokens: transformers.DynamicCache())]
    for k, v in [(name, name) for name in ROUNDINGS] + list(MIXED):
        for rotation, turn in (("none", None), ("hadamard", matrix)):
            name = k if k == v else f"K {k}, V {v}"
            sides = ROUNDINGS[k], ROUNDINGS[v]
            cases.append((name, rotation, lambda _, s=sides, t=turn: RoundedCache(*s, t)))
    public_model.print_costs(options, model, text, cases)


main()
