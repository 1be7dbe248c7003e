"""Writes scenarios.json: the steps of scenarios.py with the expected results of attention. They are
computed in float64 from the definitions in README.md and include/pagedkv/attention.h. Nothing here
calls the library.

usage: reference.py            updates scenarios.json
       reference.py --check    prints a diff if it is outdated
"""

import json
import pathlib
import sys

import numpy as np
import scenarios

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "api"))
from describe import renew_or_check  # noqa: E402  (found through the line above)

K, V, Q = 0, 1, 2
GOLDEN = 0x9E3779B97F4A7C15
MASK = 2**64 - 1
WIDTH = 130  # of lines in scenarios.json


# ---- Tokens and rows


def mix(x):
    """The finaliser of splitmix64, for integers or arrays of uint64."""
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def tokens_of(spans):
    return [
        mix((seed << 32) + i) % 2**20
        for seed, first, count in spans
        for i in range(first, first + count)
    ]


def histories(tokens):
    found, h = [], 0
    for token in tokens:
        h = mix((h + GOLDEN * (token + 1)) & MASK)
        found.append(h)
    return found


def rows(tokens, kind, layer, heads, dim):
    """[len(tokens)][heads][dim]; float32 holds the values exactly."""
    index = np.array(
        [
            [((layer * 4 + kind) * 64 + head) * 1024 + d for d in range(dim)]
            for head in range(heads)
        ],
        dtype=object,
    )
    seeds = np.array(histories(tokens), dtype=object).reshape(-1, 1, 1)
    bits = mix((seeds + GOLDEN * (index + 1)) & MASK) >> 40
    return (bits.astype(np.float64) / 2**23 - 1) * (4 if kind == Q else 1)


def stored(values, dtype):
    """Rows after the rounding of the stored type."""
    if dtype == "PKV_F16":
        return values.astype(np.float16).astype(np.float64)
    if dtype == "PKV_BF16":
        bits = values.astype(np.float32).view(np.uint32)
        return (
            ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000)
            .astype(np.uint32)
            .view(np.float32)
            .astype(np.float64)
        )
    if dtype == "PKV_INT8":
        scale = np.abs(values).max(axis=-1, keepdims=True) / 127
        return np.rint(values / scale) * scale
    return values


# ---- Attention


def group_of(config, layer):
    for group in config["groups"]:
        if layer in group.get("layer_indices", range(group["layers"])):
            found = {"window": 0, "sink_tokens": 0, "dtype": "PKV_F32"} | group
            found.setdefault("value_dim", found["key_dim"])
            found.setdefault("value_dtype", found["dtype"])
            return found
    raise ValueError(f"no layer {layer}")


def layers_of(config):
    return sum(group["layers"] for group in config["groups"])


def seen(position, length, group, params):
    """The positions that a query sees."""
    window = params.get("window", group["window"])
    sinks = params.get("sink_tokens", group["sink_tokens"])
    j = np.arange(length)
    both_sides = bool(params.get("bidirectional"))
    visible = (j <= position) | both_sides
    distance = np.abs(position - j) if both_sides else position - j
    return visible & ((distance < window) | (j < sinks)) if window else visible


def attend(text, new, layer, group, params):
    """Outputs [new][query_heads][value_dim] of the last `new` tokens of a text."""
    k = stored(rows(text, K, layer, group["kv_heads"], group["key_dim"]), group["dtype"])
    v = stored(rows(text, V, layer, group["kv_heads"], group["value_dim"]), group["value_dtype"])
    q = rows(text, Q, layer, group["query_heads"], group["key_dim"])
    scale = params.get("scale", 1 / np.sqrt(group["key_dim"]))
    out = np.empty((new, group["query_heads"], group["value_dim"]))
    for row in range(new):
        position = len(text) - new + row
        visible = seen(position, len(text), group, params)
        for head in range(group["query_heads"]):
            kv_head = head * group["kv_heads"] // group["query_heads"]
            scores = scale * (k[:, kv_head] @ q[position, head])
            if cap := params.get("softcap"):
                scores = cap * np.tanh(scores / cap)
            if slopes := params.get("alibi_slopes"):
                scores = scores + slopes[head] * (np.arange(len(text)) - position)
            weights = np.where(visible, np.exp(scores), 0.0)
            total = weights.sum() + (
                np.exp(params["sink_logits"][head]) if "sink_logits" in params else 0.0
            )
            out[row, head] = weights @ v[:, kv_head] / total
    return out


# ---- Scenarios


def rounded(value):
    return round(float(value), 7)


def outputs(config, texts, step):
    """[row of the step, layer, query head, dim, value]: for each session its last row in every
    head, and its first row in one head.
    """
    found, first = [], 0
    params = step.get("params", {})
    for entry in step["sessions"]:
        new = tokens_of(entry["tokens"])
        text = texts[entry["session"]] + new
        for layer in range(layers_of(config) if new else 0):
            group = group_of(config, layer)
            out = attend(text, len(new), layer, group, params)
            picked = [(len(new) - 1, head) for head in range(group["query_heads"])]
            picked += [(0, layer % group["query_heads"])] if len(new) > 1 else []
            for row, head in picked:
                dim = (head * 7 + layer * 3 + first) % group["value_dim"]
                found.append([first + row, layer, head, dim, rounded(out[row, head, dim])])
        first += len(new)
    return found


def read(config, text, step):
    """["k" or "v", position, KV head, dim, value] of the first and the last row read."""
    layer = step["layer"]
    group = group_of(config, layer)
    found = []
    for name, kind, dim, dtype in (
        ("k", K, group["key_dim"], group["dtype"]),
        ("v", V, group["value_dim"], group["value_dtype"]),
    ):
        values = stored(rows(text, kind, layer, group["kv_heads"], dim), dtype)
        for position in sorted({step["first"], step["first"] + step["count"] - 1}):
            head, d = position % group["kv_heads"], position % dim
            found.append([name, position, head, d, rounded(values[position, head, d])])
    return found


def play(scenario):
    """The scenario with its outputs. They depend only on the texts of the sessions."""
    config, texts = scenario["config"], {}
    keeps_bytes = config.get("storage") != "PKV_STORAGE_EXTERNAL"
    steps = []
    for step in scenario["steps"]:
        step, session = dict(step), step.get("session")
        if step.get("status", "PKV_OK") == "PKV_OK":
            what = step["do"]
            if what == "open":
                texts[session] = []
            elif what in ("fork", "snapshot"):
                texts[step["into"]] = texts[session]
            elif what == "fork_snapshot":
                texts[step["into"]] = texts[step["snapshot"]]
            elif what == "trim":
                texts[session] = texts[session][: step["length"]]
            elif what == "resume":
                texts[session] = texts[session][: step["length"]]
            elif what == "admit":
                texts[session] = tokens_of(step["tokens"])[: step["matched"]]
            elif what == "read":
                step["values"] = read(config, texts[session], step)
            elif what == "step":
                if keeps_bytes:
                    step["out"] = outputs(config, texts, step)
                if step.get("end") != "abort":
                    for entry in step["sessions"]:
                        texts[entry["session"]] = texts[entry["session"]] + tokens_of(
                            entry["tokens"]
                        )
        steps.append(step)
    stored_types = {
        group.get(key) for group in config["groups"] for key in ("dtype", "value_dtype")
    }
    return {**scenario, "tolerance": 6e-3 if "PKV_INT8" in stored_types else 2e-4, "steps": steps}


def pretty(value, indent=0):
    """JSON with whatever fits on one line on one line, and short parts side by side."""
    line = json.dumps(value, ensure_ascii=False)
    if len(line) + indent <= WIDTH or not value or not isinstance(value, dict | list):
        return line
    opening, closing, parts = "[", "]", [pretty(item, indent + 1) for item in value]
    if isinstance(value, dict):
        opening, closing = "{", "}"
        parts = [f'"{key}": {pretty(item, indent + 1)}' for key, item in value.items()]
    lines = []
    for part in parts:
        if lines and "\n" not in lines[-1] + part and indent + len(lines[-1] + part) + 4 <= WIDTH:
            lines[-1] += ", " + part
        else:
            lines.append(part)
    inner = "\n" + " " * (indent + 1)
    return opening + inner + ("," + inner).join(lines) + closing


def main():
    if sys.argv[1:] not in ([], ["--check"]):
        sys.exit("usage: reference.py [--check]")
    document = {
        "about": "Written by bindings/scenarios/reference.py; see README.md there.",
        "format": 2,
        "scenarios": [play(scenario) for scenario in scenarios.SCENARIOS],
    }
    if not renew_or_check(HERE / "scenarios.json", pretty(document) + "\n", bool(sys.argv[1:])):
        sys.exit("scenarios.json is outdated: python3 " "bindings/scenarios/reference.py renews it")


if __name__ == "__main__":
    main()
