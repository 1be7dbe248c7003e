"""vLLM on pagedkv gives the tokens of transformers' generate(), and prefixes survive a restart.
Needs vllm (bindings/engines/vllm/setup).
"""

from __future__ import annotations

import json
import os
import pathlib
import random
import shutil
import sys
import types
from typing import Any

import pytest
from helpers import run

pytest.importorskip("vllm")
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
safetensors = pytest.importorskip("safetensors.torch")

SHAPE = {
    "vocab_size": 97,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 256,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
    "tie_word_embeddings": False,
}
FAMILIES: dict[str, dict[str, Any]] = {
    "Llama": {},
    "Mistral": {"sliding_window": 12},
    "Qwen3": {},
    "Gemma2": {"sliding_window": 8, "query_pre_attn_scalar": 32, "tie_word_embeddings": True},
    "Gemma3Text": {
        "sliding_window": 8,
        "query_pre_attn_scalar": 32,
        "layer_types": ["sliding_attention"] * 3 + ["full_attention"],
    },
}
NEW = 24


def prompts(count: int = 16) -> list[list[int]]:
    draw = random.Random(1)
    return [[draw.randrange(3, 97) for _ in range(draw.randrange(5, 90))] for _ in range(count)]


def save_model(family: str, folder: pathlib.Path, seed: int = 0) -> Any:
    """A model of random weights in float32."""
    torch.manual_seed(seed)
    config = getattr(transformers, f"{family}Config")(**{**SHAPE, **FAMILIES[family]})
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    model = model.eval().float()
    for name, weight in model.named_parameters():
        if weight.ndim > 1 and "embed" not in name:
            torch.nn.init.normal_(weight, std=0.2)  # default random weights repeat a token
    model.save_pretrained(folder)
    return model


def generate(model: Any, prompt: list[int]) -> list[int]:
    output = model.generate(
        torch.tensor([prompt]), max_new_tokens=NEW, do_sample=False, eos_token_id=None
    )
    return list(output[0, len(prompt) :].tolist())


def engine(
    folder: pathlib.Path, texts: list[list[int]], hints: Any = None, **options: Any
) -> dict[str, Any]:
    job = {"model": str(folder), "prompts": texts, "new": NEW, "engine": options}
    if hints is not None:
        job["hints"] = hints
    environment = {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_LOGGING_LEVEL": "WARNING",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
        **os.environ,
    }
    given: dict[str, Any] = {"input": json.dumps(job), "timeout": 1800, "env": environment}
    done = run(sys.executable, "-B", pathlib.Path(__file__).with_name("vllm_engine.py"), **given)
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    if not lines:
        raise RuntimeError(done.stdout[-4000:] + done.stderr[-4000:])
    result: dict[str, Any] = json.loads(lines[-1][7:])
    return {**result, "log": done.stdout + done.stderr}


def with_store(folder: pathlib.Path, **more: Any) -> dict[str, Any]:
    return {
        "kv_connector": "PagedKVConnector",
        "kv_connector_module_path": "pagedkv_vllm.connector",
        "kv_role": "kv_both",
        "kv_connector_extra_config": {"directory": str(folder), **more},
    }


def drop(start: int, message: str) -> dict[str, Any]:
    """An envelope of hints."""
    action = {"action_id": "a", "action_type": "kv.drop", "action_version": "1.0"}
    actions = [action | {"payload": {"start": start}}]
    return {"protocol_version": "1.0", "message_id": message, "actions": actions}


@pytest.mark.parametrize("family", FAMILIES)
def test_tokens_are_those_of_generate(family: str, tmp_path: pathlib.Path) -> None:
    model, texts = save_model(family, tmp_path), prompts()
    expected = [generate(model, text) for text in texts]
    assert len({token for tokens in expected for token in tokens}) > 20
    assert engine(tmp_path, texts)["tokens"] == expected


@pytest.mark.parametrize(
    ("dtype", "stored", "least"),
    [
        ("bfloat16", "auto", 12),
        ("float32", "fp8", 12),
        ("float32", "int8_per_token_head", 12),
        ("float32", "int4_per_token_head", 8),  # random weights: the first two are close together
    ],
)
def test_other_types_begin_as_float32_does(
    dtype: str, stored: str, least: int, tmp_path: pathlib.Path
) -> None:
    model, texts = save_model("Llama", tmp_path), prompts()
    expected = [generate(model, text)[0] for text in texts]
    tokens = engine(tmp_path, texts, dtype=dtype, kv_cache_dtype=stored)["tokens"]
    assert sum(a[0] == b for a, b in zip(tokens, expected, strict=True)) >= least


def test_prefixes_survive_a_restart(tmp_path: pathlib.Path) -> None:
    save_model("Llama", tmp_path / "model")
    save_model("Llama", tmp_path / "other", seed=1)
    texts, store = prompts(), with_store(tmp_path / "store")

    def served(model: str, hints: Any = None) -> dict[str, Any]:
        return engine(tmp_path / model, texts, hints, kv_transfer_config=store)

    # Nothing is stored from where hints drop a text; a wrong one affects no request.
    hints: list[Any] = [None] * len(texts)
    hints[1:5] = drop(40, "typed"), drop(16, "typed"), drop(33, "untyped"), {"message_id": "?"}
    ends = [len(texts[0]), 40, 16, 33, *map(len, texts[4:])]
    first, second = served("model", hints), served("model")
    assert first["tokens"] == second["tokens"]
    assert first["cached"] == [0] * len(texts)
    assert "an envelope of hints has a list" in first["log"]
    stored = [min(end // 16, (len(text) - 1) // 16) for text, end in zip(texts, ends, strict=True)]
    assert second["cached"] == [16 * blocks for blocks in stored]
    assert served("other")["cached"] == [0] * len(texts)

    # A corrupt block is a miss, and is written again.
    for file in list((tmp_path / "store").glob("??/*.kv"))[::2]:
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
    third, fourth = served("model"), served("model")
    assert first["tokens"] == third["tokens"] == fourth["tokens"]
    assert "missing or corrupt in the store" in third["log"]


def name_of(folder: pathlib.Path, fingerprint: str = "", **options: Any) -> bytes:
    """The seed of the connector's block names."""
    from pagedkv_vllm.connector import model_digest
    from vllm.engine.arg_utils import EngineArgs

    arguments = {"dtype": "float32", "skip_tokenizer_init": True, "enforce_eager": True, **options}
    config = EngineArgs(model=str(folder), **arguments).create_engine_config()
    group = types.SimpleNamespace(kv_cache_spec="a spec", layer_names=["0", "1"])
    return model_digest(config, types.SimpleNamespace(kv_cache_groups=[group]), fingerprint)


def test_names_stand_for_all_that_keys_and_values_follow_from(tmp_path: pathlib.Path) -> None:
    model = tmp_path / "model"
    save_model("Llama", model)
    own = name_of(model)
    rope = {"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0}
    others = [
        name_of(model, hf_overrides={"rope_parameters": rope}),
        name_of(model, max_model_len=100),
        name_of(model, dtype="bfloat16"),
        name_of(model, kv_cache_dtype="fp8"),
        name_of(model, load_format="dummy"),
        name_of(model, fingerprint="mine"),
    ]
    # Options that change no keys, another folder, and files that do not affect the weights.
    assert name_of(model, max_num_seqs=3, seed=7) == own
    shutil.copytree(model, tmp_path / "copy")
    (tmp_path / "copy/README.md").write_text("the same model")
    assert name_of(tmp_path / "copy") == own
    # The last layer is fine-tuned.
    file = tmp_path / "copy/model.safetensors"
    weights = safetensors.load_file(file)
    weights["model.layers.3.self_attn.k_proj.weight"][5, 5] += 1
    safetensors.save_file(weights, file, {"format": "pt"})
    others.append(name_of(tmp_path / "copy"))
    assert len({own, *others}) == 1 + len(others)
    assert name_of(tmp_path / "copy", fingerprint="mine") == name_of(
        model, fingerprint="mine"
    ), "a fingerprint replaces the hash of the weights"
    file.unlink()
    with pytest.raises(ValueError, match='the weights of .* are unknown: give a "fingerprint"'):
        name_of(tmp_path / "copy")


def test_wrong_options_are_told(tmp_path: pathlib.Path) -> None:
    save_model("Llama", tmp_path)
    with pytest.raises(
        RuntimeError, match="PagedKVConnector has the options directory, redis.*not colour"
    ):
        engine(tmp_path, prompts(1), kv_transfer_config=with_store(tmp_path / "store", colour=1))
    with pytest.raises(RuntimeError, match='"directory" or "redis", one of the two'):
        engine(tmp_path, prompts(1), kv_transfer_config=with_store(tmp_path / "store", redis="x"))
