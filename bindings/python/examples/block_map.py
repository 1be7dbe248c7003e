"""Draws two pictures of a cache: who holds which block while sessions come, fork and go, and how
fast decode steps read memory.

usage: block_map.py [FOLDER]      writes block-map.png and bandwidth.png; needs matplotlib

It is written to be read from top to bottom, like a notebook.
"""

# %% A small cache, and sessions whose rows do not matter
from __future__ import annotations

import pathlib
import sys
import time

import matplotlib as mpl
import numpy as np

import pagedkv

mpl.use("Agg")
import matplotlib.pyplot as plt

folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".")
BLOCKS = 48
config = pagedkv.CacheConfig(
    layers=1, query_heads=1, kv_heads=1, key_dim=16, blocks=BLOCKS, prefix=pagedkv.PrefixConfig()
)
cache = pagedkv.Cache(config)
sessions: dict[str, pagedkv.Session] = {}
FREE, CACHED, SHARED = 0, 1, 2
pictures: list[tuple[str, list[int]]] = []
filled: set[int] = set()


def extend(name: str, n: int, first: int) -> None:
    """n more tokens, whose ids are first, first + 1, ..."""
    rows = np.zeros((n, 1, 16), np.float32)
    with cache.begin([sessions[name]], [n]) as batch:
        batch.write(0, rows, rows)
        batch.commit(range(first, first + n))


def take_picture(title: str) -> None:
    """Of each block: free, cached, shared, or whose it is (3 and on, in the order of names)."""
    owners = [FREE] * BLOCKS
    held = {
        name: [int(block) for block in session.block_table()]
        for name, session in sessions.items()
        if not session.closed
    }
    for name, blocks in held.items():
        for block in blocks:
            owners[block] = SHARED if owners[block] else 3 + sorted(sessions).index(name)
    # What was full once and is held by no session is kept by the prefix index.
    for block in filled:
        owners[block] = owners[block] or CACHED
    for name, blocks in held.items():
        filled.update(blocks[: sessions[name].length // config.block_size])
    assert sum(owner != FREE for owner in owners) == cache.stats().used_blocks
    pictures.append((title, owners))


# %% What happens to them
sessions["a"] = cache.open_session()
extend("a", 150, 0)
take_picture("a: a prompt of 150 tokens")
sessions["b"] = sessions["a"].fork()
extend("b", 60, 500)
take_picture("b: a fork of a, 60 more")
sessions["c"] = cache.open_session()
extend("c", 200, 1000)
take_picture("c: a prompt of 200")
sessions["c"].trim(90)
take_picture("c is trimmed to 90 tokens")
sessions["c"].close()
take_picture("c ends, what it filled stays cached")
sessions["d"] = cache.open_session()
matched = sessions["d"].match_prefix(range(1000, 1070))
extend("d", 30, 1000 + matched)
take_picture("d begins as c did and takes them")

# %% The map: a row per moment, a column per block
names = ["free", "cached", "shared", *sorted(sessions)]
colours = ["#f2f2f2", "#c9b458", "#555555", "#4477aa", "#66aa55", "#aa4466", "#8855aa"][
    : len(names)
]
figure, axes = plt.subplots(figsize=(10, 3.2))
axes.imshow(
    [owners for _, owners in pictures],
    cmap=mpl.colors.ListedColormap(colours),
    vmin=0,
    vmax=len(names) - 1,
    aspect="auto",
)
axes.set_xticks(np.arange(-0.5, BLOCKS), minor=True)
axes.set_yticks(np.arange(-0.5, len(pictures)), minor=True)
axes.grid(which="minor", color="white", linewidth=1.5)
axes.tick_params(which="minor", length=0)
axes.set_yticks(range(len(pictures)), [title for title, _ in pictures])
axes.set_xlabel("block")
handles = [
    mpl.patches.Patch(color=colour, label=name) for colour, name in zip(colours, names, strict=True)
]
axes.legend(
    handles=handles, ncols=len(names), loc="lower center", bbox_to_anchor=(0.5, 1.0), frameon=False
)
figure.tight_layout()
figure.savefig(folder / "block-map.png", dpi=120)
cache.close()


# %% How fast decode steps read K and V
def bandwidth(dtype: pagedkv.Dtype, tokens: int) -> float:
    """Returns the GB/s of 4 sessions with `tokens` tokens each: the best of some steps."""
    shape = pagedkv.CacheConfig(
        layers=1, query_heads=8, kv_heads=8, key_dim=128, dtype=dtype, blocks=4 * (tokens // 16 + 1)
    )
    with pagedkv.Cache(shape) as measured:
        rows = np.ones((tokens, 8, 128), np.float32)
        readers = [measured.open_session() for _ in range(4)]
        for reader in readers:
            reader.append(0, rows, rows, tokens)
        new = np.ones((4, 8, 128), np.float32)
        with measured.begin(readers, [1] * 4) as batch:
            batch.write(0, new, new)
            out = np.empty_like(new)
            times = []
            for _ in range(12):
                start = time.perf_counter()
                batch.attend(0, new, out)
                times.append(time.perf_counter() - start)
    return 4 * tokens * shape.plan().bytes_per_token / min(times) / 1e9


lengths = [256, 512, 1024, 2048, 4096, 8192]
figure, axes = plt.subplots(figsize=(6, 3.6))
for dtype in (pagedkv.Dtype.F32, pagedkv.Dtype.BF16, pagedkv.Dtype.INT8):
    axes.plot(
        lengths,
        [bandwidth(dtype, length) for length in lengths],
        marker="o",
        label=dtype.name.lower(),
    )
axes.set_xscale("log", base=2)
axes.set_xticks(lengths, [str(length) for length in lengths])
axes.set_ylim(bottom=0)
axes.set_xlabel("tokens per session (4 sessions, 8 heads of 128 dims)")
axes.set_ylabel("K and V read, GB/s")
axes.grid(alpha=0.3)
axes.legend(title="stored as", frameon=False)
figure.tight_layout()
figure.savefig(folder / "bandwidth.png", dpi=120)
print(f"wrote {folder / 'block-map.png'} and {folder / 'bandwidth.png'}")
