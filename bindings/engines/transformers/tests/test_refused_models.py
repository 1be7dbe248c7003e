"""Models for which pagedkv would give wrong answers are refused by name. test_model_table.py tries
all models; these tests show each kind of error. Needs torch and transformers.
"""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", minversion="5.24")

from pagedkv_transformers import PagedCache, UnsupportedModelError, install  # noqa: E402
from pagedkv_transformers.serving import Engine  # noqa: E402

from model_table import SPECIAL, tiny_model  # noqa: E402
from test_transformers import answer, model_of  # noqa: E402

PROMPT = list(range(3, 33))
MODELS = {
    "jetmoe": "JetMoeForCausalLM: it computes with the keys or values of its cache",
    "diffllama": "DiffLlamaForCausalLM: it computes with the keys or values of its cache",
    "dory": "DoryForCausalLM: it copies layers of its cache",
    "moshi": "MoshiForCausalLM: layer 0 attends to all tokens, where .* a window of 8",
    "mllama": "MllamaForCausalLM: it reads the keys or values of its cache itself",
    "bloom": "BloomForCausalLM: its attention does not go through .* AttentionInterface",
    "falcon": "FalconForCausalLM: its attention does not go through .* AttentionInterface",
    "openai-gpt": "OpenAIGPTLMHeadModel: it takes no cache",
    "deepseek_v3": "DeepseekV3ForCausalLM: layer 0 caches 1 head of 32 and 16 dims",
    "mamba": "MambaForCausalLM: there is no paged cache for layers of linear_attention",
}


def usual(model: Any, **options: Any) -> list[int]:
    return answer(model, PROMPT, 6, pad_token_id=0, **options)


def served(model: Any) -> list[int]:
    with Engine(model, blocks=64, chunk=16) as engine:
        request = engine.add(PROMPT, max_new_tokens=6, stop_tokens=[])
        engine.run()
        return request.answer


def with_paged_cache(model: Any) -> list[int]:
    return usual(model, past_key_values=PagedCache(model))


@pytest.mark.parametrize("taker", [PagedCache, Engine, install])
def test_what_is_no_model_on_the_cpu(taker: Any) -> None:
    """The model is refused before anything is computed."""
    others: list[Any] = ["HuggingFaceTB/SmolLM2-135M", None, torch.nn.Linear(2, 2)]
    for other in others:
        with pytest.raises(TypeError, match="a loaded model is needed, .* not "):
            taker(other)
    elsewhere = model_of("Llama").to("meta")
    with pytest.raises(ValueError, match=r'the model is on meta: call model.to\("cpu"\) first'):
        taker(elsewhere)


@pytest.mark.parametrize("model_type", MODELS)
def test_a_model_is_refused_by_name(model_type: str) -> None:
    """A refused model answers without pagedkv as before."""
    model = tiny_model(model_type)
    expected = usual(model)
    for host in (with_paged_cache, served):
        sentence = f"does not work with {MODELS[model_type]}.*. Use generate\\(\\) with "
        with pytest.raises(UnsupportedModelError, match=sentence):
            host(model)
    assert usual(model) == expected


def test_loops_that_attend_to_new_tokens_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    last = {**SPECIAL["dory"], "recurrent_kv_cache_mode": "last_loop"}
    monkeypatch.setitem(SPECIAL, "dory", last)
    with pytest.raises(UnsupportedModelError, match="DoryForCausalLM: it reads the keys"):
        with_paged_cache(tiny_model("dory"))


@pytest.mark.parametrize(
    ("model_type", "sentence"),
    [
        ("bart", "BartForCausalLM: it takes no position_ids"),
        ("gemma4_unified", "Gemma4UnifiedForConditionalGeneration: it makes masks of its own"),
    ],
)
def test_models_that_cannot_be_packed(model_type: str, sentence: str) -> None:
    model = tiny_model(model_type)
    expected = usual(model)
    refusal = f"Engine does not work with {sentence}"
    with pytest.raises(UnsupportedModelError, match=refusal):
        served(model)
    assert with_paged_cache(model) == expected


# ---- Layers of a Llama, each of which breaks one rule ----


def astray(change: Any) -> Any:
    """A Llama one of whose layers passes something else to its cache or to attention."""
    model = model_of("Llama")
    attention = model.model.layers[2].self_attn
    forward = attention.forward

    def changed(*args: Any, past_key_values: Any = None, cache: Any = None, **kwargs: Any) -> Any:
        return forward(*args, cache=Astray(cache or past_key_values, change), **kwargs)

    attention.forward = changed
    return model


class Astray:
    def __init__(self, cache: Any, change: Any) -> None:
        self.cache, self.change = cache, change

    def update(self, key: Any, value: Any, layer: int, **_: Any) -> Any:
        return self.change(self.cache, key, value, layer)


def twice(cache: Any, key: Any, value: Any, layer: int) -> Any:
    cache.update(key, value, layer)
    return cache.update(key, value, layer)


OTHER_KEYS = "attends to other keys than those of its cache"
CHANGES: dict[str, tuple[Any, str]] = {
    "does not write": (lambda cache, key, value, layer: (key, value), OTHER_KEYS),
    "writes twice": (twice, "layer 2 writes keys twice in one pass"),
    "drops what it wrote": (
        lambda cache, key, value, layer: (cache.update(key, value, layer), (key, value))[1],
        OTHER_KEYS,
    ),
    "keeps its values": (
        lambda cache, key, value, layer: (cache.update(key, value, layer)[0], value),
        "only one is the cache's",
    ),
    "keeps its keys": (
        lambda cache, key, value, layer: (key, cache.update(key, value, layer)[1]),
        "only one is the cache's",
    ),
    "scales its keys": (
        lambda cache, key, value, layer: (cache.update(key, value, layer)[0] * 1, value),
        r"computes with the keys or values of its cache before attention \(mul\)",
    ),
    "scales them where they are": (
        lambda cache, key, value, layer: (cache.update(key, value, layer)[0].mul_(2), value),
        r"before attention \(mul_\)",
    ),
    "writes to a layer that does not exist": (
        lambda cache, key, value, layer: cache.update(key, value, 4),
        "it has a layer 4, where its config says that layers 0 to 3 have keys",
    ),
    "asks for other attention": (
        lambda cache, key, value, layer: cache.update(key[:, :1], value[:, :1], layer),
        "layer 2 caches 1 head of 16 and 16 dims, where its config says 2 of 16",
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_layer_that_goes_astray(change: str) -> None:
    what, sentence = CHANGES[change]
    model = astray(what)
    for host in (with_paged_cache, served):
        with pytest.raises(UnsupportedModelError, match=f"LlamaForCausalLM: .*{sentence}"):
            host(model)
    cache, ids = PagedCache(model), torch.tensor([PROMPT])
    with pytest.raises(UnsupportedModelError):
        model(ids, past_key_values=cache)
    assert cache.get_seq_length() == 0
    cache.cache.validate()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("does not write", r"layers \[2\] wrote no keys to the cache"),
        ("drops what it wrote", r"the keys of layers \[2\] did not reach attention"),
    ],
)
def test_a_layer_goes_astray_with_a_mask_of_the_caller(change: str, sentence: str) -> None:
    """The layer's tensors carry no mark of a cache."""
    model, mask = astray(CHANGES[change][0]), torch.ones(1, 1, len(PROMPT), len(PROMPT)).bool()
    with pytest.raises(UnsupportedModelError, match=sentence):
        model(torch.tensor([PROMPT]), attention_mask=mask, past_key_values=PagedCache(model))


def test_attention_with_what_pagedkv_does_not_know() -> None:
    model, ids = model_of("Llama", attention_dropout=0.5), torch.tensor([PROMPT])
    with pytest.raises(UnsupportedModelError, match="its attention takes position_bias"):
        model(ids, past_key_values=PagedCache(model), position_bias=torch.zeros(1))
    with pytest.raises(NotImplementedError, match="with dropout: call model.eval"):
        model.train()(ids, past_key_values=PagedCache(model))
