"""The digest of weights depends on every byte, whatever their shapes."""

from __future__ import annotations

import json
import pathlib

import numpy as np
import pytest

from pagedkv.weights import PIECE, contents_digest, weights_files

HIDDEN, VOCABULARY, LAYERS, KV, INNER = 576, 49152, 30, 192, 1536  # of SmolLM2-135M
OF_A_LAYER = {
    "input_layernorm": (HIDDEN,),
    "self_attn.q_proj": (HIDDEN, HIDDEN),
    "self_attn.k_proj": (KV, HIDDEN),
    "self_attn.v_proj": (KV, HIDDEN),
    "self_attn.o_proj": (HIDDEN, HIDDEN),
    "post_attention_layernorm": (HIDDEN,),
    "mlp.gate_proj": (INNER, HIDDEN),
    "mlp.up_proj": (INNER, HIDDEN),
    "mlp.down_proj": (HIDDEN, INNER),
}


def shapes(layers: int = LAYERS) -> dict[str, tuple[int, ...]]:
    """Tensors by name, in the order in which save_pretrained() writes them."""
    found: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (VOCABULARY, HIDDEN)}
    for layer in range(layers):
        for name, shape in OF_A_LAYER.items():
            found[f"model.layers.{layer}.{name}.weight"] = shape
    return found | {"model.norm.weight": (HIDDEN,)}


def save_empty(file: pathlib.Path, tensors: dict[str, tuple[int, ...]]) -> dict[str, int]:
    """Writes a sparse safetensors file of bfloat16 zeros. Returns the offset of each tensor."""
    header: dict[str, object] = {}
    end = 0
    for name, shape in tensors.items():
        begin, end = end, end + 2 * int(np.prod(shape))
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    with file.open("wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        f.truncate(8 + len(text) + end)
    begins: dict[str, int] = {
        name: 8 + len(text) + entry["data_offsets"][0]  # type: ignore[index]
        for name, entry in header.items()
    }
    return begins


def change(file: pathlib.Path, at: int) -> None:
    with file.open("r+b") as f:
        f.seek(at)
        byte = f.read(1)[0]
        f.seek(at)
        f.write(bytes([byte ^ 1]))


def digest_of(folder: pathlib.Path) -> bytes:
    return contents_digest((file.name, file) for file in weights_files(folder))


def test_a_model_whose_later_layers_were_tuned_is_another_one(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "model.safetensors"
    begins, found = save_empty(file, shapes()), [digest_of(tmp_path)]
    for layer in (20, 29):
        for name in OF_A_LAYER:
            change(file, begins[f"model.layers.{layer}.{name}.weight"] + 1000)
        found.append(digest_of(tmp_path))
    change(file, begins["model.embed_tokens.weight"] + 2 * HIDDEN * 40000)  # one token's row
    found.append(digest_of(tmp_path))
    assert len(set(found)) == len(found)


def test_every_tensor_counts(tmp_path: pathlib.Path) -> None:
    file, tensors = tmp_path / "model.safetensors", shapes(layers=2)
    tensors = {name: tuple(size // 48 for size in shape) for name, shape in tensors.items()}
    begins, found = save_empty(file, tensors), set()
    for begin in begins.values():
        change(file, begin)
        found.add(digest_of(tmp_path))
        change(file, begin)
    found.add(digest_of(tmp_path))
    assert len(found) == len(tensors) + 1


@pytest.mark.parametrize("size", [PIECE - 1, PIECE, 2 * PIECE + 1])
def test_every_piece_counts_to_its_last_byte(size: int) -> None:
    weights = np.zeros(size, np.uint8)
    others = [contents_digest([("bias", weights)]), contents_digest([("weights", weights[:-1])])]
    found = {contents_digest([("weights", weights)]), *others}
    places = {0, min(PIECE, size) - 1, size - 1}
    for at in places:
        weights[at] = 1
        found.add(contents_digest([("weights", weights)]))
        weights[at] = 0
    assert len(found) == len(places) + 3


def test_a_file_and_memory_with_the_same_bytes_are_the_same(tmp_path: pathlib.Path) -> None:
    file, weights = tmp_path / "weights", np.random.default_rng(1).bytes(PIECE + 7)
    file.write_bytes(weights)
    memory = np.frombuffer(weights, np.uint8)
    assert contents_digest([("w", file)]) == contents_digest([("w", memory)])


def test_files_that_say_nothing_of_keys_and_values_do_not_count(tmp_path: pathlib.Path) -> None:
    assert weights_files(tmp_path) == []
    (tmp_path / "modeling.py").write_text("")
    assert weights_files(tmp_path) == [], "no weights"
    for name in ("a.safetensors", "model.safetensors.index.json", "hf_quant_config.json"):
        (tmp_path / name).write_text("")
    before = weights_files(tmp_path)
    assert [file.name for file in before] == sorted(
        ("a.safetensors", "hf_quant_config.json", "model.safetensors.index.json", "modeling.py")
    )
    for name in ("README.md", "tokenizer.json", "generation_config.json", "chat_template.jinja"):
        (tmp_path / name).write_text("")
    assert weights_files(tmp_path) == before
    assert weights_files(tmp_path / "a.safetensors") == [tmp_path / "a.safetensors"]
