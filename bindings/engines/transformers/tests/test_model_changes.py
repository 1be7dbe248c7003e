"""Whatever changes the keys and values of a model gives it another name: nothing that it computed
before is used afterwards, neither in one engine nor from a store. Needs torch and transformers, and
for some tests peft.
"""

from __future__ import annotations

import copy
import types
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", minversion="5.0")

import pagedkv  # noqa: E402
from helpers import MemoryStore  # noqa: E402
from pagedkv_transformers import PagedCache, UnsupportedModelError  # noqa: E402
from pagedkv_transformers._fingerprint import ModelWatch, model_fingerprint  # noqa: E402
from pagedkv_transformers.serving import Engine, Request  # noqa: E402

from test_transformers import answer, model_of  # noqa: E402

PROMPT = [2 + i * 7 % 90 for i in range(40)]
WHOLE_BLOCKS = 32


def base(model: Any) -> Any:
    """The model inside one of PEFT."""
    return getattr(model, "get_base_model", lambda: model)()


def attention(model: Any) -> Any:
    return base(model).model.layers[1].self_attn


def projection(model: Any) -> Any:
    """A linear layer, also below an adapter."""
    found = attention(model).k_proj
    return getattr(found, "base_layer", found)


def plain() -> Any:
    return model_of("Llama", num_hidden_layers=2)


def with_adapters(**options: Any) -> Any:
    """A model with two adapters, of which "a" is active."""
    peft = pytest.importorskip("peft")
    torch.manual_seed(3)
    config = peft.LoraConfig(
        r=4, target_modules=["k_proj", "v_proj"], init_lora_weights=False, **options
    )
    model = peft.get_peft_model(plain(), config, adapter_name="a")
    model.add_adapter("b", config)
    return model.eval()


class Rounded(torch.nn.Linear):  # type: ignore[name-defined]
    """Quantises its weights when it computes."""

    def forward(self, rows: Any) -> Any:
        return torch.nn.functional.linear(rows, (self.weight * 16).round() / 16)


def quantise(model: Any) -> None:
    rounded = Rounded(*projection(model).weight.shape[::-1], bias=False)
    rounded.weight = projection(model).weight
    attention(model).k_proj = rounded


def override_forward(model: Any) -> None:
    linear = projection(model)
    linear.forward = types.MethodType(lambda self, rows: -type(self).forward(self, rows), linear)


def replace_parameter(model: Any) -> None:
    projection(model).weight = torch.nn.Parameter(projection(model).weight * 1.5)


def load_weights(model: Any) -> None:
    model.load_state_dict(
        {k: v * 1.25 for k, v in model.state_dict().items() if "proj" in k}, False
    )


def assign_data(model: Any) -> None:
    projection(model).weight.data = projection(model).weight.data * 1.5


def train_a_step(model: Any) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    with torch.enable_grad():
        model(torch.tensor([PROMPT]), labels=torch.tensor([PROMPT])).loss.backward()
    optimizer.step()


CHANGES: dict[str, Callable[[Any], object]] = {
    "a weight in place": lambda m: projection(m).weight.requires_grad_(False)[3].mul_(4),
    "all of a weight through .data": lambda m: projection(m).weight.data.mul_(1.5),
    "the .data of a weight": assign_data,
    "another parameter": replace_parameter,
    "loaded weights": load_weights,
    "a step of training": train_a_step,
    "a buffer that is not saved": lambda m: m.model.rotary_emb.inv_freq.mul_(0.5),
    "a scaling of rotary embeddings": lambda m: vars(m.model.rotary_emb).update(
        attention_scaling=1.5
    ),
    "the scale of attention": lambda m: vars(attention(m)).update(scaling=0.5),
    "an epsilon": lambda m: vars(m.model.layers[0].input_layernorm).update(variance_epsilon=0.3),
    "another activation": lambda m: setattr(m.model.layers[0].mlp, "act_fn", torch.nn.ReLU()),
    "quantised weights": quantise,
    "a replaced forward": override_forward,
    "a hook": lambda m: projection(m).register_forward_hook(lambda *a: a[2] * 2),
    "a hook before": lambda m: projection(m).register_forward_pre_hook(lambda _, a: (a[0] * 2,)),
}
OF_ADAPTERS: dict[str, Callable[[Any], object]] = {
    "another adapter": lambda m: m.set_adapter("b"),
    "another scaling": lambda m: attention(m).k_proj.scaling.update(a=0.5),
    "no adapter": lambda m: m.base_model.disable_adapter_layers(),
    "a weight of the adapter": lambda m: attention(m).v_proj.lora_B["a"].weight.data.mul_(2),
    "two adapters": lambda m: m.base_model.set_adapter(["a", "b"]),
    "a merged adapter": lambda m: m.merge_adapter(),
    "another adapter, merged": lambda m: (m.set_adapter("b"), m.merge_adapter()),
    "a deleted adapter": lambda m: (m.set_adapter("b"), m.delete_adapter("a")),
}
BOTH = [(plain, change) for change in CHANGES.values()]
BOTH += [(with_adapters, change) for change in OF_ADAPTERS.values()]
NAMES = [*CHANGES, *OF_ADAPTERS]


def serve(engine: Engine, prompt: list[int] = PROMPT, new: int = 4) -> Request:
    request = engine.add(prompt, max_new_tokens=new, stop_tokens=[])
    engine.run()
    return request


def expected(model: Any, prompt: list[int] = PROMPT, new: int = 4) -> list[int]:
    return answer(model, prompt, new, pad_token_id=0, eos_token_id=None)


@pytest.mark.parametrize(("make", "change"), BOTH, ids=NAMES)
def test_a_change_is_another_model(
    make: Callable[[], Any], change: Callable[[Any], object]
) -> None:
    """In the engine whose model changes, in the middle of a request, and after a restart."""
    model, store = make(), MemoryStore()
    with Engine(model, blocks=32, store=pagedkv.StoreConfig(store)) as engine:
        assert serve(engine).cached_tokens == 0
        before = engine.add(PROMPT, max_new_tokens=6, stop_tokens=[])
        engine.step()
        assert before.cached_tokens == WHOLE_BLOCKS
        name = model_fingerprint(base(model))
        change(model)
        engine.run()
        at = PROMPT + before.answer[:1]
        assert (before.answer[1:], before.cached_tokens) == (expected(model, at, 5), 0)
        engine.cache.prefix_clear()
        after = serve(engine)
        assert (after.answer, after.cached_tokens % WHOLE_BLOCKS) == (expected(model), 0)
        assert serve(engine).cached_tokens == WHOLE_BLOCKS
    assert model_fingerprint(base(model)) != name
    with Engine(model, blocks=32, store=pagedkv.StoreConfig(store)) as engine:
        restarted = serve(engine)
        assert (restarted.answer, restarted.cached_tokens) == (expected(model), 0)


def test_the_forward_of_a_class(monkeypatch: pytest.MonkeyPatch) -> None:
    model = plain()
    kind = type(attention(model))
    with Engine(model, blocks=32) as engine:
        serve(engine)
        name, forward = model_fingerprint(model), kind.forward

        def doubled(self: Any, hidden_states: Any, *args: Any, **kwargs: Any) -> Any:
            return forward(self, hidden_states * 2, *args, **kwargs)

        monkeypatch.setattr(kind, "forward", doubled)
        assert model_fingerprint(model) != name
        request = serve(engine)
        assert (request.answer, request.cached_tokens) == (expected(model), 0)


def test_the_precision_of_operators() -> None:
    model = plain()
    with Engine(model, blocks=64) as engine:
        for cached in (0, WHOLE_BLOCKS):
            assert serve(engine).cached_tokens == cached
            with torch.autocast("cpu", dtype=torch.bfloat16):
                assert serve(engine).cached_tokens == cached


def test_weights_that_are_packed() -> None:
    quantise_all = torch.ao.quantization.quantize_dynamic
    for kind in (torch.qint8, torch.float16):
        model, names = plain(), set()
        for _ in range(2):
            names.add(model_fingerprint(quantise_all(model, {torch.nn.Linear}, dtype=kind)))
            names.add(model_fingerprint(quantise_all(model, {torch.nn.Linear}, dtype=kind)))
            with torch.no_grad():
                projection(model).weight[3, 5] += 0.1
        assert len(names) == 2


def test_an_adapter_finds_its_own_blocks_again() -> None:
    model = with_adapters()
    with Engine(model, blocks=64) as engine:
        for cached in (0, WHOLE_BLOCKS, WHOLE_BLOCKS):
            for adapter in ("a", "b"):
                model.set_adapter(adapter)
                request = serve(engine)
                assert (request.answer, request.cached_tokens) == (expected(model), cached)
            with model.disable_adapter():
                request = serve(engine)
                assert (request.answer, request.cached_tokens) == (expected(model), cached)


def test_restarted_adapters_find_their_own_blocks() -> None:
    store = MemoryStore()
    for cached in (0, WHOLE_BLOCKS):
        for adapter in ("a", "b"):
            model = with_adapters()
            model.set_adapter(adapter)
            with Engine(model, blocks=32, store=pagedkv.StoreConfig(store)) as engine:
                request = serve(engine)
                assert (request.answer, request.cached_tokens) == (expected(model), cached)


def test_a_single_weight_that_nothing_sees() -> None:
    model = plain()
    with Engine(model, blocks=32) as engine:
        serve(engine)
        projection(model).weight.detach().numpy()[1, 1] += 1
        engine.model_changed()
        request = serve(engine)
        assert (request.answer, request.cached_tokens) == (expected(model), 0)


def test_what_a_model_changes_in_its_pass_does_not_count() -> None:
    model, passes = plain(), []
    layer = model.model.layers[0]
    layer.passes = 0

    def counted(module: Any, _args: Any) -> None:
        module.passes += 1
        passes.append(module.passes)

    layer.register_forward_pre_hook(counted)
    with Engine(model, blocks=32) as engine:
        assert [serve(engine).cached_tokens for _ in range(3)] == [0, WHOLE_BLOCKS, WHOLE_BLOCKS]
    assert len(passes) > 3


def test_what_a_model_sets_in_its_first_pass() -> None:
    """It is the first model also after another one."""
    model = plain()
    norm = model.model.layers[0].input_layernorm
    norm.register_forward_pre_hook(lambda module, _: setattr(module, "used", True))
    with Engine(model, blocks=32) as engine:
        for epsilon, cached in ((1e-6, 0), (0.3, 0), (1e-6, WHOLE_BLOCKS)):
            norm.variance_epsilon = epsilon
            assert serve(engine).cached_tokens == cached


def test_what_changes_no_keys_and_values() -> None:
    model = plain()
    watch, name = ModelWatch(model, hashed=False), model_fingerprint(model)
    PagedCache(model)
    model.generation_config.eos_token_id = 7
    model.name_or_path = model.config._name_or_path = "elsewhere"
    model.requires_grad_(False)
    assert watch.look() == b""
    assert model_fingerprint(model) == model_fingerprint(copy.deepcopy(model)) == name
    expected(model)
    assert watch.look() == b""


def test_adapters_of_peft() -> None:
    model = with_adapters()
    for _ in range(2):
        assert expected(model) == answer(
            model, PROMPT, 4, pad_token_id=0, eos_token_id=None, past_key_values=PagedCache(model)
        )
        model.set_adapter("b")


def test_adapters_that_are_not_only_in_modules() -> None:
    peft = pytest.importorskip("peft")
    config = peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3)
    model = peft.get_peft_model(plain(), config)
    sentence = (
        "does not work with PeftModelForCausalLM: its adapter 'default' is of the kind PROMPT_"
    )
    for host in (Engine, PagedCache):
        with pytest.raises(UnsupportedModelError, match=sentence):
            host(model)
