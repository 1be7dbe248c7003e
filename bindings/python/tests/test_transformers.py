"""pagedkv.transformers gives the tokens of transformers' own caches. Runs where torch and
transformers are installed.
"""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
# PyTorch's wheel for CUDA asks the driver, which need not be there.
torch.cuda.is_current_stream_capturing = lambda: False
transformers = pytest.importorskip("transformers", minversion="5.0")

import pagedkv  # noqa: E402
from pagedkv.transformers import PagedCache  # noqa: E402

SHAPE = {
    "vocab_size": 97,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": None,
}
FAMILIES: dict[str, dict[str, Any]] = {
    "Llama": {},
    "Mistral": {"sliding_window": 12},
    "Qwen2": {},
    "Qwen3": {"head_dim": 32},
    "Gemma2": {"head_dim": 32, "sliding_window": 8},
    "Gemma3Text": {
        "head_dim": 32,
        "sliding_window": 8,
        "layer_types": ["sliding_attention"] * 3 + ["full_attention"],
    },
    "GptOss": {
        "head_dim": 32,
        "sliding_window": 8,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
    },
}
# Three prompts of 21, 16 and 12 tokens, padded on the left.
PADDING = (0, 5, 9)


def model_of(family: str) -> Any:
    """A model of random weights in float32, with the attention that transformers explains."""
    torch.manual_seed(0)
    config = getattr(transformers, f"{family}Config")(**SHAPE, **FAMILIES[family])
    config._attn_implementation = "eager"
    model = transformers.AutoModelForCausalLM.from_config(config).eval().float()
    for module in model.modules():
        if isinstance(getattr(module, "sinks", None), torch.nn.Parameter):
            torch.nn.init.normal_(module.sinks)
    return model


def prompts() -> dict[str, Any]:
    torch.manual_seed(1)
    ids = torch.randint(2, 97, (len(PADDING), 21))
    mask = torch.ones_like(ids)
    for row, padding in enumerate(PADDING):
        mask[row, :padding] = ids[row, :padding] = 0
    return {"input_ids": ids, "attention_mask": mask}


def generate(model: Any, cache: PagedCache | None = None, **options: Any) -> Any:
    options = {"max_new_tokens": 24, "do_sample": False, **prompts(), **options}
    return model.generate(past_key_values=cache, **options)


@pytest.mark.parametrize("family", FAMILIES)
def test_tokens_are_those_of_generate(family: str) -> None:
    model = model_of(family)
    greedy, beams = generate(model), generate(model, num_beams=3)
    assert torch.equal(generate(model, PagedCache(model)), greedy)
    assert torch.equal(generate(model, PagedCache(model), num_beams=3), beams)


def test_a_model_without_the_cache_stays_as_it_was() -> None:
    model = model_of("Llama")
    expected = generate(model)
    PagedCache(model)
    assert torch.equal(generate(model), expected)


def test_a_conversation_goes_on_in_the_same_cache() -> None:
    model = model_of("Qwen2")
    first = prompts()["input_ids"][:1]
    options: dict[str, Any] = {"attention_mask": None, "max_new_tokens": 10}
    cache = PagedCache(model)
    text = paged = first
    for _ in range(3):
        expected = generate(model, input_ids=text, **options)
        answer = generate(model, cache, input_ids=paged, **options)
        assert torch.equal(answer, expected)
        text = paged = torch.cat([answer, first[:, :4]], dim=1)
    assert cache.get_seq_length() == text.shape[1] - 5


def test_crop_and_assisted_generation() -> None:
    model, assistant = model_of("Llama"), model_of("Llama")
    one = {"input_ids": prompts()["input_ids"][:1], "attention_mask": None}
    expected = generate(model, **one)
    assert torch.equal(
        generate(model, PagedCache(model), assistant_model=assistant, **one), expected
    )


def test_quantised_storage_is_close() -> None:
    model = model_of("Llama")
    exact, ids = PagedCache(model), prompts()["input_ids"][:1]
    with torch.no_grad():
        wanted = model(ids, past_key_values=exact).logits
        for dtype, tolerance in ((pagedkv.Dtype.INT8, 0.02), (pagedkv.Dtype.INT4, 0.3)):
            got = model(ids, past_key_values=PagedCache(model, dtype=dtype)).logits
            assert 0 < (got - wanted).abs().max() < tolerance * wanted.abs().max()


def test_beams_share_blocks() -> None:
    model = model_of("Llama")
    cache = PagedCache(model)
    generate(model, cache, num_beams=3)
    assert cache.batch_size == 9
    tables = [session.block_table() for session in cache.sessions[:3]]
    assert len({int(table[0]) for table in tables}) == 1
    cache.cache.validate()
    cache.close()


def test_a_pass_that_fails_leaves_no_trace() -> None:
    model = model_of("Llama")
    cache, ids = PagedCache(model), prompts()["input_ids"][:1]
    with torch.no_grad():
        expected = model(ids, past_key_values=PagedCache(model)).logits
        hook = model.model.layers[2].register_forward_hook(lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            model(ids, past_key_values=cache)
        hook.remove()
        assert torch.equal(model(ids, past_key_values=cache).logits, expected)
    cache.cache.validate()


def test_without_the_cache_softcap_and_sinks_are_refused() -> None:
    for family in ("Gemma2", "GptOss"):
        model = model_of(family)
        PagedCache(model)
        with pytest.raises(NotImplementedError, match="set_attn_implementation"):
            generate(model)


def test_errors_say_what_is_wrong() -> None:
    model = model_of("Llama")
    cache = PagedCache(model)
    generate(model, cache)
    with pytest.raises(ValueError, match="3 sequences, the batch has 1"):
        model(prompts()["input_ids"][:1], past_key_values=cache)
    with pytest.raises(pagedkv.OutOfBlocksError):
        generate(model, PagedCache(model, tokens=16), max_new_tokens=60)
    model.set_attn_implementation("sdpa")
    cache.reset()
    with pytest.raises(RuntimeError, match="was set to 'sdpa'"):
        generate(model, cache)
