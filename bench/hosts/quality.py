"""Measures what storing keys and values in fewer bits costs: perplexity, divergence and the first
choice of a real model on text that it did not write, by the types of K and V and with and without a
rotation. The text is that of this project's guide. Everything but K and V is computed in float32.
"""

import functools

import public_model
from pagedkv import Dtype, Rotation
from pagedkv_transformers import PagedCache

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


def main():
    options = public_model.arguments(__doc__, tokens=8000)
    model, text = public_model.load(options.model)

    def make_cache(tokens, **how):
        return PagedCache(model, tokens=tokens, **how)

    cases = [
        (
            name,
            rotation.name.lower(),
            functools.partial(make_cache, dtype=k, value_dtype=v, rotation=rotation),
        )
        for name, k, v in KINDS
        for rotation in (Rotation.NONE, Rotation.HADAMARD)
    ]
    public_model.print_costs(options, model, text, cases)


main()
