"""Models with LongRoPE. transformers chooses the factors by the longest text of a forward pass, but
here a pass has pieces of many texts. Needs torch and transformers.
"""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", minversion="5.0")

import pagedkv  # noqa: E402
from helpers import MemoryStore  # noqa: E402
from pagedkv_transformers import PagedCache  # noqa: E402
from pagedkv_transformers.serving import Engine  # noqa: E402

from test_transformers import SHAPE, answer  # noqa: E402

SWITCH, MOST, NEW = 64, 256, 8
LONG, SHORT = [2.0 + 1.5 * i for i in range(8)], [1.0 + 0.02 * i for i in range(8)]
# Together in passes, in chunks: below, across and beyond the switch.
LENGTHS = (20, 70, 60, 150, 40)


def model_of(family: str, always_long: bool = False) -> Any:
    torch.manual_seed(0)
    rope: dict[str, Any] = {
        "rope_type": "longrope",
        "rope_theta": 10000.0,
        "factor": MOST / SWITCH,
        "original_max_position_embeddings": SWITCH,
        "short_factor": SHORT,
        "long_factor": LONG,
        **({"short_mscale": 1.1, "long_mscale": 1.3} if family == "Phimoe" else {}),
    }
    if always_long:  # transformers uses PhiMoE's short factors with another scale
        name = "mscale" if family == "Phimoe" else "factor"
        rope[f"short_{name}"] = rope[f"long_{name}"]
    config = getattr(transformers, f"{family}Config")(
        **{**SHAPE, "num_hidden_layers": 2, "initializer_range": 0.2},
        original_max_position_embeddings=SWITCH,
        sliding_window=None,
        rope_parameters=rope,
    )
    config._attn_implementation = "eager"
    return transformers.AutoModelForCausalLM.from_config(config).eval().float()


def prompts() -> list[list[int]]:
    torch.manual_seed(3)
    return [torch.randint(2, 97, (length,)).tolist() for length in LENGTHS]


@pytest.mark.parametrize("family", ["Phi3", "Phimoe"])
@pytest.mark.parametrize("length", [SWITCH, MOST])
def test_all_requests_are_rotated_alike(family: str, length: int) -> None:
    model = model_of(family)
    texts = [prompt for prompt in prompts() if len(prompt) + NEW <= length]
    # transformers rotates short texts by the long factors if both lists are the long one.
    same = model if length == SWITCH else model_of(family, always_long=True)
    expected = [answer(model if len(text) > SWITCH else same, text, NEW) for text in texts]
    before = answer(model, texts[0], NEW)
    with Engine(model, blocks=64, max_length=length, chunk=32) as engine:
        requests = [engine.add(text, max_new_tokens=NEW) for text in texts]
        engine.run()
        assert [request.answer for request in requests] == expected
        with pytest.raises(ValueError, match=f"both together at most {length}"):
            engine.add(texts[0], max_new_tokens=length)
    assert answer(model, texts[0], NEW) == before, "the model is as it was"


@pytest.mark.parametrize("length", [30, 60, 70])
def test_generate_computes_again_what_grows_over_the_switch(length: int) -> None:
    model, prompt = model_of("Phi3"), prompts()[3][:length]
    paged = answer(model, prompt, NEW, past_key_values=PagedCache(model, tokens=MOST))
    assert paged == answer(model, prompt, NEW)


def test_the_choice_is_asked_for() -> None:
    with pytest.raises(ValueError, match=f"phi3 has LongRoPE: give max_length, up to {SWITCH}"):
        Engine(model_of("Phi3"))
    for length in (0, -1, MOST + 1):
        with pytest.raises(
            ValueError, match=f"max_length is {length}; it must be 1 to the model's {MOST}"
        ):
            Engine(model_of("Phi3"), max_length=length)


def test_a_store_keeps_the_factors_apart() -> None:
    store, found = pagedkv.StoreConfig(MemoryStore()), []
    text = prompts()[2][:40]
    for length in (SWITCH, MOST, SWITCH):
        with Engine(model_of("Phi3"), blocks=64, max_length=length, store=store) as engine:
            request = engine.add(text, max_new_tokens=NEW)
            engine.run()
            found.append(request.cached_tokens)
    assert found == [0, 0, 32]
