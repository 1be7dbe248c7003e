"""Writes small models with random weights, for the kinds of memory that llama.cpp has.

models.py DIRECTORY: writes windows.gguf, hybrid.gguf and recurrent.gguf
"""

import array
import pathlib
import random
import struct
import sys

WORDS, WIDTH, HEAD, LAYERS, CONTEXT = 512, 64, 32, 6, 1024
UINT32, INT32, FLOAT32, STRING, ARRAY = 4, 5, 6, 8, 9
NORMAL, CONTROL, BYTE = 1, 3, 6  # types of tokens


def text(string):
    return struct.pack("<Q", len(string)) + string.encode()


def value(of):
    if isinstance(of, str):
        return struct.pack("<I", STRING) + text(of)
    if isinstance(of, float):
        return struct.pack("<If", FLOAT32, of)
    if isinstance(of, list):
        kind = STRING if isinstance(of[0], str) else FLOAT32 if isinstance(of[0], float) else INT32
        parts = {STRING: text, FLOAT32: struct.Struct("<f").pack, INT32: struct.Struct("<i").pack}
        return struct.pack("<IIQ", ARRAY, kind, len(of)) + b"".join(map(parts[kind], of))
    return struct.pack("<II", UINT32, of)


def vocabulary():
    """The bytes, and words that no text has."""
    first = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": first + [f"<word {i}>" for i in range(len(first), WORDS)],
        "tokenizer.ggml.scores": [0.0] * WORDS,
        "tokenizer.ggml.token_type": [CONTROL] * 3 + [BYTE] * 256 + [NORMAL] * (WORDS - 259),
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
    }


class Model:
    def __init__(self, architecture, **settings):
        self.settings = {
            "general.architecture": architecture,
            "general.name": f"random {architecture}",
        } | vocabulary()
        common = {
            "vocab_size": WORDS,
            "context_length": CONTEXT,
            "embedding_length": WIDTH,
            "block_count": LAYERS,
            "feed_forward_length": 2 * WIDTH,
            "attention.layer_norm_rms_epsilon": 1e-5,
        }
        for key, setting in (common | settings).items():
            self.settings[f"{architecture}.{key}"] = setting
        self.tensors = {}
        self.random = random.Random(architecture)
        self.matrix("token_embd", WIDTH, WORDS)
        self.matrix("output", WIDTH, WORDS)

    def add(self, name, *shape, mean=0.0, spread):
        n = 1
        for size in shape:
            n *= size
        self.tensors[name] = (
            shape,
            array.array("f", (self.random.gauss(mean, spread) for _ in range(n))),
        )

    def matrix(self, name, columns, rows):
        self.add(f"{name}.weight", columns, rows, spread=1.5 / columns**0.5)

    def norm(self, name, size=WIDTH):
        self.add(f"{name}.weight", size, mean=1.0, spread=0.1)

    def attention(self, layer, key_heads=1):
        self.matrix(f"{layer}.attn_q", WIDTH, WIDTH)
        self.matrix(f"{layer}.attn_k", WIDTH, key_heads * HEAD)
        self.matrix(f"{layer}.attn_v", WIDTH, key_heads * HEAD)
        self.matrix(f"{layer}.attn_output", WIDTH, WIDTH)
        self.norm(f"{layer}.attn_q_norm", HEAD)
        self.norm(f"{layer}.attn_k_norm", HEAD)

    def feed_forward(self, layer):
        self.norm(f"{layer}.ffn_norm")
        self.matrix(f"{layer}.ffn_gate", WIDTH, 2 * WIDTH)
        self.matrix(f"{layer}.ffn_up", WIDTH, 2 * WIDTH)
        self.matrix(f"{layer}.ffn_down", 2 * WIDTH, WIDTH)

    def write(self, path):
        out = bytearray(b"GGUF" + struct.pack("<IQQ", 3, len(self.tensors), len(self.settings)))
        for key, setting in self.settings.items():
            out += text(key) + value(setting)
        at = 0
        for name, (shape, elements) in self.tensors.items():
            sizes = struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
            out += text(name) + sizes + struct.pack("<IQ", 0, at)
            at += (4 * len(elements) + 31) // 32 * 32
        for _, elements in self.tensors.values():
            out += bytes(-len(out) % 32)
            out += elements.tobytes()
        path.write_bytes(out)


def attention_settings(key_heads=1):
    return {
        "attention.head_count": WIDTH // HEAD,
        "attention.head_count_kv": key_heads,
        "attention.key_length": HEAD,
        "attention.value_length": HEAD,
        "rope.freq_base": 10000.0,
    }


def windows(window):
    """Gemma 3: every sixth layer sees all tokens, the others a window."""
    model = Model("gemma3", **attention_settings(), **{"attention.sliding_window": window})
    model.norm("output_norm")
    for i in range(LAYERS):
        model.norm(f"blk.{i}.attn_norm")
        model.attention(f"blk.{i}")
        model.norm(f"blk.{i}.post_attention_norm")
        model.feed_forward(f"blk.{i}")
        model.norm(f"blk.{i}.post_ffw_norm")
    return model


def hybrid():
    """LFM2: short convolutions and attention."""
    key_heads = [0, 0, 1, 0, 1, 0]
    model = Model("lfm2", **attention_settings(key_heads), **{"shortconv.l_cache": 3})
    model.norm("token_embd_norm")
    for i, heads in enumerate(key_heads):
        model.norm(f"blk.{i}.attn_norm")
        if heads:
            model.attention(f"blk.{i}", heads)
        else:
            model.add(f"blk.{i}.shortconv.conv.weight", 3, WIDTH, spread=0.5)
            model.matrix(f"blk.{i}.shortconv.in_proj", WIDTH, 3 * WIDTH)
            model.matrix(f"blk.{i}.shortconv.out_proj", WIDTH, WIDTH)
        model.feed_forward(f"blk.{i}")
    return model


def recurrent():
    """Mamba."""
    inner, state, rank, kernel = 2 * WIDTH, 16, 4, 4
    model = Model(
        "mamba",
        **{
            "ssm.conv_kernel": kernel,
            "ssm.inner_size": inner,
            "ssm.state_size": state,
            "ssm.time_step_rank": rank,
        },
    )
    model.norm("output_norm")
    for i in range(LAYERS):
        layer = f"blk.{i}"
        model.norm(f"{layer}.attn_norm")
        model.matrix(f"{layer}.ssm_in", WIDTH, 2 * inner)
        model.add(f"{layer}.ssm_conv1d.weight", kernel, inner, spread=0.5)
        model.add(f"{layer}.ssm_conv1d.bias", inner, spread=0.1)
        model.matrix(f"{layer}.ssm_x", inner, rank + 2 * state)
        model.matrix(f"{layer}.ssm_dt", rank, inner)
        model.add(f"{layer}.ssm_dt.bias", inner, spread=0.5)
        model.add(f"{layer}.ssm_a", state, inner, mean=-1.0, spread=0.2)
        model.add(f"{layer}.ssm_d", inner, mean=1.0, spread=0.1)
        model.matrix(f"{layer}.ssm_out", inner, WIDTH)
    return model


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(exist_ok=True)
    models = {"windows": windows(24), "hybrid": hybrid(), "recurrent": recurrent()}
    for name, model in models.items():
        model.write(folder / f"{name}.gguf")


if __name__ == "__main__":
    main()
