"""Masks in a PagedCache: the caller's, of padding in several turns, and of images. Needs torch and
transformers.
"""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", minversion="5.20")

from pagedkv_transformers import PagedCache  # noqa: E402

from test_transformers import SHAPE, generate, model_of  # noqa: E402

PAST, NEW = 20, 6
WINDOWS = {"Llama": PAST + NEW, "Mistral": 12, "Gemma3Text": 8}


def tree(window: int) -> Any:
    """[1][1][new][all]: new tokens see their ancestors, and the past within the window."""
    mask = torch.ones(1, 1, NEW, PAST + NEW, dtype=torch.bool)
    for row, ancestors in enumerate(([], [0], [0], [0, 1], [0, 1], [0, 2])):
        mask[0, 0, row, : PAST + row - window + 1] = False
        mask[0, 0, row, PAST:] = False
        mask[0, 0, row, [PAST + i for i in (*ancestors, row)]] = True
    return mask


def logits(model: Any, cache: Any, mask: Any) -> Any:
    torch.manual_seed(4)
    ids = torch.randint(2, 97, (1, PAST + NEW))
    positions = torch.tensor([[0, 1, 1, 2, 2, 2]]) + PAST
    with torch.no_grad():
        model(ids[:, :PAST], past_key_values=cache)
        new = {"attention_mask": mask, "position_ids": positions, "past_key_values": cache}
        return model(ids[:, PAST:], **new).logits


@pytest.mark.parametrize("family", WINDOWS)
def test_a_mask_of_the_caller(family: str) -> None:
    """A bool mask, and one that is added to scores."""
    model, mask = model_of(family), tree(WINDOWS[family])
    added = torch.where(mask, 0.0, torch.finfo(torch.float32).min)
    expected = logits(model, transformers.DynamicCache(), added)
    for given in (mask, added, torch.where(mask, 0.0, -torch.inf)):
        assert torch.allclose(logits(model, PagedCache(model), given), expected, atol=1e-5)


@pytest.mark.parametrize("family", ["Mistral", "Gemma3Text"])
def test_a_mask_that_shows_what_is_outside_of_the_window(family: str) -> None:
    model, window, n = model_of(family), WINDOWS[family], PAST + NEW
    sentence = rf"outside of the window of {window} of layer 0: hide"
    with pytest.raises(ValueError, match=sentence):
        logits(model, PagedCache(model), tree(window + 1))
    ahead = torch.ones(1, 1, n, n, dtype=torch.bool).tril().triu(1 - window)
    ahead[..., 0, window] = True
    with pytest.raises(ValueError, match=sentence), torch.no_grad():
        model(torch.full((1, n), 5), past_key_values=PagedCache(model), attention_mask=ahead)


def test_masks_that_are_refused() -> None:
    model, mask = model_of("Llama"), tree(PAST + NEW)
    bias = torch.zeros(mask.shape).masked_fill(mask, 0.5)
    wrong: list[tuple[Any, type[Exception], str]] = [
        (mask.repeat(1, 4, 1, 1), NotImplementedError, "mask with 4 heads: one for all"),
        (bias, NotImplementedError, "does more than to show and to hide"),
        (mask[..., :-1], ValueError, r"\[1, 1, 6, 25\]: \[batch\]\[1\]\[6\]\[26\] is needed"),
        (mask[:, :, :4], ValueError, r"\[1, 1, 4, 26\]"),
    ]
    for given, error, sentence in wrong:
        with pytest.raises(error, match=sentence):
            logits(model, PagedCache(model), given)


@pytest.mark.parametrize("family", WINDOWS)
def test_two_padded_turns(family: str) -> None:
    model = model_of(family)
    torch.manual_seed(5)
    turns = []
    for length, padding in ((20, (0, 7, 3)), (9, (4, 0, 2))):
        mask = torch.ones(3, length, dtype=torch.long)
        for row, hidden in enumerate(padding):
            mask[row, :hidden] = 0
        turns.append((torch.randint(2, 97, (3, length)) * mask, mask))

    def answers(cache: Any) -> Any:
        (first, mask), (second, second_mask) = turns
        ids = generate(model, cache, input_ids=first, attention_mask=mask, max_new_tokens=8)
        ids = torch.cat([ids, second], 1)
        mask = torch.cat([mask, torch.ones(3, 8, dtype=torch.long), second_mask], 1)
        return generate(model, cache, input_ids=ids, attention_mask=mask, max_new_tokens=8)

    expected = answers(transformers.DynamicCache(config=model.config))
    assert torch.equal(answers(PagedCache(model, tokens=80)), expected)


def test_images_see_all_of_themselves() -> None:
    """Gemma 3: in layers with a window and in others."""
    text = {
        **SHAPE,
        "head_dim": 32,
        "sliding_window": 8,
        "layer_types": ["sliding_attention"] * 3 + ["full_attention"],
        "initializer_range": 0.2,
    }
    vision = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1}
    vision |= {"num_attention_heads": 2, "image_size": 28, "patch_size": 14}
    config = transformers.Gemma3Config(
        text_config=text, vision_config=vision, mm_tokens_per_image=4, image_token_index=96
    )
    config._attn_implementation = "eager"
    torch.manual_seed(6)
    model = transformers.Gemma3ForConditionalGeneration(config).eval().float()
    ids = torch.randint(3, 96, (2, 22))
    ids[:, 9:13] = 96
    inputs = {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "token_type_ids": (ids == 96).long(),
        "pixel_values": torch.rand(2, 3, 28, 28),
    }
    options = {"max_new_tokens": 6, "do_sample": False}
    with torch.no_grad():
        expected, tokens = model(**inputs).logits, model.generate(**inputs, **options)
        causal = model(**{**inputs, "token_type_ids": torch.zeros_like(ids)}).logits
        assert not torch.allclose(causal, expected, atol=1e-2), "the mask of images hides nothing"
        got = model(**inputs, past_key_values=PagedCache(model)).logits
    assert torch.allclose(got, expected, atol=1e-5)
    paged = model.generate(**inputs, **options, past_key_values=PagedCache(model))
    assert torch.equal(paged, tokens)
