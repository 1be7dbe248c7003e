"""The tables and the picture of machines.md: bytes of keys and values, and the time to fetch or to
compute them.

usage: machines.py            writes the tables into machines.md, and machines.svg
       machines.py --check    says what there differs from what this file computes
"""

import dataclasses
import math
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent


@dataclasses.dataclass(frozen=True)
class Model:
    """Numbers of its config.json; parameters are those that a token uses, in units of 10^9."""

    name: str
    parameters: float
    layers: int
    query_heads: int
    kv_heads: int
    key_dim: int
    value_dim: int
    stored_dims: int = 0  # of a token in a layer, where these are not its keys and values (MLA)

    @property
    def token_bytes(self):
        dims = self.stored_dims or self.kv_heads * (self.key_dim + self.value_dim)
        return 2 * self.layers * dims  # bf16

    def operations(self, tokens):
        """Two for each weight and token of a prompt, and those of causal attention."""
        pairs = tokens * (tokens + 1) / 2
        attention = 2 * self.layers * self.query_heads * (self.key_dim + self.value_dim) * pairs
        return 2e9 * self.parameters * tokens + attention


MODELS = (
    Model("SmolLM2 135M", 0.135, 30, 9, 3, 64, 64),
    Model("Llama 3.1 8B", 8.03, 32, 32, 8, 128, 128),
    Model("Llama 3.1 70B", 70.6, 80, 64, 8, 128, 128),
    Model("Qwen3 235B A22B", 22, 94, 64, 4, 128, 128),
    Model("DeepSeek-V3 (MLA)", 37, 61, 128, 128, 192, 128, stored_dims=576),
)
LINKS = (1, 10, 25, 100, 400)  # Gbit/s
PROCESSORS = (("2 cores", 0.3e12), ("a CPU server", 4e12), ("a GPU", 400e12))
PREFIX = 8192
MEMORY = 256 * 2**30  # that a machine lends
TRAFFIC = 20_000  # tokens of prefixes that a machine needs per second


def fetch_seconds(model, tokens, gigabits):
    return model.token_bytes * tokens * 8 / (gigabits * 1e9)


def compute_seconds(model, tokens, speed):
    return model.operations(tokens) / speed


def breakeven(model, tokens, speed):
    """The link over which fetching takes as long as computing, in Gbit/s."""
    return model.token_bytes * tokens * 8 / compute_seconds(model, tokens, speed) / 1e9


def shown(number):
    """Two digits, or all that stand before the point."""
    digits = 0 if number >= 10 else 1 if number >= 1 else 2 if number >= 0.1 else 3
    return f"{number:,.{digits}f}"


def counted(number):
    """A number in millions or billions."""
    return f"{number / 1e9:.1f} G" if number >= 1e9 else f"{number / 1e6:.1f} M"


def table(*rows):
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])


def bytes_table():
    head = ("model", "layers", "stored dims per layer", "KiB per token", "GiB per 32k tokens")
    rows = [
        (
            model.name,
            str(model.layers),
            f"{model.token_bytes // model.layers // 2:,}",
            shown(model.token_bytes / 1024),
            shown(model.token_bytes * 32768 / 2**30),
        )
        for model in MODELS
    ]
    return table(head, *rows)


def breakeven_table():
    head = ("model", *(f"{name}, {n:,}" for name, _ in PROCESSORS for n in (1024, 32768)))
    rows = [
        (
            model.name,
            *(shown(breakeven(model, n, speed)) for _, speed in PROCESSORS for n in (1024, 32768)),
        )
        for model in MODELS
    ]
    return table(head, *rows)


def machines_table():
    head = ("model", *(f"tokens in {n:,}" for n in (1, 10, 1000)), "10: Gbit/s", "1,000: Gbit/s")
    rows = []
    for model in MODELS:
        tokens = [counted(n * MEMORY / model.token_bytes) for n in (1, 10, 1000)]
        wanted = TRAFFIC * model.token_bytes * 8 / 1e9
        network = [shown(wanted * (n - 1) / n) for n in (10, 1000)]
        rows.append((model.name, *tokens, *network))
    return table(head, *rows)


TABLES = {
    "bytes": bytes_table,
    "breakeven": breakeven_table,
    "machines": machines_table,
}


def page():
    text = (HERE / "machines.md").read_text()
    for name, make in TABLES.items():
        mark = f"<!-- computed by machines.py: {name} -->\n"
        text, count = re.subn(re.escape(mark) + r"\n(\|.*\n)*", f"{mark}\n{make()}\n", text)
        assert count == 1, f"machines.md has {count} marks of {name}"
    return text


def picture():
    """A bar from the time over the fastest link to that over the slowest, and a mark for each
    processor, on a scale of powers of ten.
    """
    left, width, row, top = 190, 560, 46, 64
    low, high = -3, 5
    height = top + row * len(MODELS) + 80

    def x(seconds):
        return left + width * (math.log10(seconds) - low) / (high - low)

    colours = ("#b4482f", "#c98a1b", "#2f7d4f")
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 800 {height}" '
        'font-family="Helvetica, Arial, sans-serif" font-size="13">',
        f"<title>Time to fetch and to compute {PREFIX:,} tokens</title>",
        f'<rect width="800" height="{height}" fill="#ffffff"/>',
        '<text x="12" y="24" font-size="16" fill="#1b232b">'
        f"Seconds to fetch or to compute a prefix of {PREFIX:,} tokens (bf16)</text>",
    ]
    for power in range(low, high + 1):
        at, label = x(10**power), f"{10**power:g}"
        parts.append(
            f'<path d="M{at:.1f} {top - 16}V{height - 76}" stroke="#dfe4e8"/>'
            f'<text x="{at:.1f}" y="{height - 60}" text-anchor="middle" fill="#66717c">'
            f"{label}</text>"
        )
    for number, model in enumerate(MODELS):
        y = top + row * number
        fastest, slowest = (x(fetch_seconds(model, PREFIX, link)) for link in (400, 1))
        parts.append(f'<text x="12" y="{y + 14}" fill="#33404c">{model.name}</text>')
        parts.append(
            f'<rect x="{fastest:.1f}" y="{y}" width="{slowest - fastest:.1f}" height="18" rx="4" '
            'fill="#cfe0f3" stroke="#44505c"/>'
        )
        for link in LINKS[1:-1]:
            at = x(fetch_seconds(model, PREFIX, link))
            parts.append(f'<path d="M{at:.1f} {y}v18" stroke="#44505c"/>')
        for colour, (_, speed) in zip(colours, PROCESSORS, strict=True):
            at = x(compute_seconds(model, PREFIX, speed))
            parts.append(f'<circle cx="{at:.1f}" cy="{y + 9}" r="6" fill="{colour}"/>')
    legend = [("#cfe0f3", "fetch: 400, 100, 25, 10 and 1 Gbit/s, from left to right", 12, 24)]
    for number, (name, _) in enumerate(PROCESSORS):
        legend.append((colours[number], f"compute on {name}", 12 + 200 * number, 46))
    for colour, words, at, above in legend:
        y = height - above
        parts.append(f'<rect x="{at}" y="{y}" width="12" height="12" fill="{colour}"/>')
        parts.append(f'<text x="{at + 17}" y="{y + 11}" fill="#33404c">{words}</text>')
    return "\n".join([*parts, "</svg>", ""])


def main():
    made = {"machines.md": page(), "machines.svg": picture()}
    wrong = []
    for name, text in made.items():
        path = HERE / name
        if sys.argv[1:] == ["--check"]:
            if not path.exists() or path.read_text() != text:
                wrong.append(f"{name} is not what machines.py computes")
        else:
            path.write_text(text)
    sys.exit("\n".join(wrong) or 0)


if __name__ == "__main__":
    main()
