"""The Engine with a store: what it finds after a restart, how long it waits, and that another
model finds nothing. Needs torch and transformers.
"""

from __future__ import annotations

import contextlib
import copy
import pathlib
from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", minversion="5.0")

import pagedkv  # noqa: E402
from helpers import LossyStore, MemoryStore, SlowStore  # noqa: E402
from pagedkv_transformers._fingerprint import model_fingerprint  # noqa: E402
from pagedkv_transformers.serving import Engine, Request  # noqa: E402

from test_transformers import FAMILIES, model_of  # noqa: E402

PROMPT = [2 + i * 7 % 90 for i in range(200)]
WHOLE_BLOCKS = 192
OTHER = [96] * 10  # less than a block


def serve(model: Any, store: Any, **options: Any) -> Request:
    with Engine(model, blocks=64, store=store) as engine:
        request = engine.add(PROMPT, max_new_tokens=6, **options)
        engine.run()
    return request


@pytest.fixture
def held() -> SlowStore:
    """A store that has the prompt, computed by the model that `model_of("Llama")` makes."""
    store = SlowStore()
    serve(model_of("Llama"), pagedkv.StoreConfig(store))
    return store


@contextlib.contextmanager
def engine_with(held: SlowStore, *, seconds_per_token: float) -> Iterator[Engine]:
    with Engine(model_of("Llama"), blocks=64, store=pagedkv.StoreConfig(held)) as engine:
        engine._scheduler._prompt_rows, engine._scheduler._prompt_seconds = 1, seconds_per_token
        try:
            yield engine
        finally:
            held.answer.set()  # closing a cache waits for its store


def test_a_restart_finds_what_was_computed(tmp_path: pathlib.Path) -> None:
    store = pagedkv.StoreConfig(pagedkv.DirectoryStore(tmp_path))
    first, again = (serve(model_of("Llama"), store) for _ in range(2))
    assert (first.cached_tokens, again.cached_tokens) == (0, WHOLE_BLOCKS)
    assert first.answer == again.answer


def test_a_store_that_loses_blocks_gets_no_wrong_ones() -> None:
    """Each block in turn is lost between look-up and read."""
    model, longer = model_of("Llama"), PROMPT + PROMPT[3:40]
    expected, store = serve(model, None).answer, LossyStore()
    with Engine(model, blocks=64) as engine:
        request = engine.add(longer, max_new_tokens=6)
        engine.run()
    for lost in range(WHOLE_BLOCKS // 16):
        store.values.clear()
        serve(model, pagedkv.StoreConfig(store))
        store.loses = {store.reads + lost}
        with Engine(model, blocks=64, store=pagedkv.StoreConfig(store)) as engine:
            again = engine.add(longer, max_new_tokens=6)
            engine.run()
            assert again.answer == request.answer
            # A store is asked from the end of a text to its beginning.
            assert again.cached_tokens == WHOLE_BLOCKS - 16 * (1 + lost)
        for _ in range(2):
            restarted = serve(model, pagedkv.StoreConfig(store))
            assert (restarted.answer, restarted.cached_tokens) == (expected, WHOLE_BLOCKS)


def test_others_go_on_while_the_store_is_read(held: SlowStore) -> None:
    expected = serve(model_of("Llama"), None).answer
    with engine_with(held, seconds_per_token=1000) as engine:
        late = engine.add(PROMPT, max_new_tokens=6)
        early = engine.add(OTHER, max_new_tokens=10)
        while early.finish is None:
            engine.step()
        assert late.answer == []
        held.answer.set()
        engine.run()
    assert (late.cached_tokens, late.answer) == (WHOLE_BLOCKS, expected)


@pytest.mark.parametrize("others", [0, 1])
def test_no_request_waits_longer_than_it_would_compute(held: SlowStore, others: int) -> None:
    expected = serve(model_of("Llama"), None).answer
    with engine_with(held, seconds_per_token=1e-4) as engine:
        late = engine.add(PROMPT, max_new_tokens=6)
        for _ in range(others):
            engine.add(OTHER, max_new_tokens=10)
        engine.run()
        assert (late.cached_tokens, late.answer) == (0, expected)


def test_the_store_is_read_again_after_a_preemption(tmp_path: pathlib.Path) -> None:
    model = model_of("Llama")
    with Engine(model, blocks=64, store=pagedkv.StoreConfig(MemoryStore())) as engine:
        request = engine.add(PROMPT, max_new_tokens=20)
        for _ in range(5):
            engine.step()
        assert engine._scheduler._preempt([request.session.handle])
        engine.cache.flush_store(timeout_ms=60000)
        engine.cache.prefix_clear()
        engine.run()
        assert engine.stats.computed_tokens < 2 * len(PROMPT)
        assert engine.cache.store_stats().read_items > 0
    assert request.answer[:6] == serve(model, None).answer


# ---- The model's fingerprint ----


@pytest.mark.parametrize("family", FAMILIES)
def test_another_weight_is_another_model(family: str) -> None:
    model = model_of(family)
    names = {model_fingerprint(model), model_fingerprint(model, "more")}
    assert model_fingerprint(copy.deepcopy(model)) in names
    tensors = model.state_dict().values()
    for at, tensor in enumerate(tensors):
        flat = tensor.view(-1)  # tied tensors come twice
        one = flat[at * 31 % len(flat)]
        one.copy_(torch.nextafter(one, one + 1))
        names.add(model_fingerprint(model))
    assert len(names) == 2 + len(tensors)


@pytest.mark.parametrize(
    "changed", [{"rms_norm_eps": 1e-5}, {"rope_theta": 20000.0}, {"attention_bias": True}, {}]
)
def test_another_config_is_another_model(changed: dict[str, Any]) -> None:
    assert (
        model_fingerprint(model_of("Llama", **changed)) == model_fingerprint(model_of("Llama"))
    ) is (not changed)


def test_a_store_keeps_models_apart() -> None:
    store, model = MemoryStore(), model_of("Llama")
    serve(model, pagedkv.StoreConfig(store))
    tuned = copy.deepcopy(model)
    with torch.no_grad():
        tuned.model.layers[-1].mlp.down_proj.weight[3, 5] += 0.5
    assert serve(tuned, pagedkv.StoreConfig(store)).cached_tokens == 0
    assert serve(model, pagedkv.StoreConfig(store)).cached_tokens == WHOLE_BLOCKS
    named = pagedkv.StoreConfig(store, fingerprint=b"both")
    serve(model, named)
    assert serve(tuned, named).cached_tokens == WHOLE_BLOCKS, "the caller's fingerprint is used"


def test_a_store_is_configured() -> None:
    with pytest.raises(TypeError, match="store: a StoreConfig is needed, not 'kv'"):
        Engine(model_of("Llama"), store="kv")  # type: ignore[arg-type]


def test_weights_that_are_not_there_have_no_name() -> None:
    config = transformers.LlamaConfig(num_hidden_layers=1, hidden_size=64, vocab_size=97)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    with pytest.raises(ValueError, match="give the StoreConfig a fingerprint"):
        model_fingerprint(model)
