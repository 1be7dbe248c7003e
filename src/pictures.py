"""Draws overview, the picture of the README at the top, and the pictures of README.md here: rooms,
block-life, sharing and store. data-path.svg is drawn by hand in the same style.

usage: pictures.py            writes the pictures beside this file
       pictures.py --check    says where one is not what this file draws, or names no file of src"""

import html
import pathlib
import re
import sys

INK, TEXT, LINE, MUTED = "#1b232b", "#33404c", "#44505c", "#66717c"
GREY, BLUE, GREEN, ORANGE, VIOLET, WHITE = (
    "#f3f5f7",
    "#eaf2fb",
    "#edf7ee",
    "#fdf3e4",
    "#f6eefa",
    "#ffffff",
)
FILLED, FRESH = "#d9c5e8", "#f5c98a"
GLYPH, BOLD = 0.56, 0.62  # of the font size, on average, in a wide font


class Picture:
    def __init__(self, name, title, width, height):
        self.name, self.width = name, width
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            'font-family="Helvetica, Arial, sans-serif" font-size="15">',
            f"<title>{html.escape(title)}</title>",
            f'<rect width="{width}" height="{height}" fill="{WHITE}"/>',
            '<defs><marker id="a" viewBox="0 0 10 10" refX="9" refY="5" '
            'markerWidth="8" markerHeight="8" orient="auto-start-reverse">'
            f'<path d="M0 0L10 5L0 10z" fill="{LINE}"/></marker></defs>',
        ]

    def rect(self, x, y, w, h, fill=WHITE, stroke=LINE, r=8):
        edge = f' stroke="{stroke}" stroke-width="1.5"' if stroke else ""
        self.parts.append(
            f'<rect x="{x}" y="{y}" width="{w}" height="{h}" rx="{r}" fill="{fill}"{edge}/>'
        )

    def text(self, x, y, words, size=13.5, fill=TEXT, bold=False, anchor="start"):
        wide = len(words) * size * (BOLD if bold else GLYPH)
        left = x - wide * {"start": 0, "middle": 0.5, "end": 1}[anchor]
        assert left >= 0 and left + wide <= self.width, f"{self.name}: too long: {words}"
        weight = ' font-weight="bold"' if bold else ""
        where = f' text-anchor="{anchor}"' if anchor != "start" else ""
        self.parts.append(
            f'<text x="{x}" y="{y}" font-size="{size}"{weight}{where} fill="{fill}">'
            f"{html.escape(words)}</text>"
        )

    def band(self, x, y, w, h, fill, name):
        self.rect(x, y, w, h, fill, None, 10)
        self.text(x + w - 14, y + 20, name, 12.5, MUTED, True, "end")

    def box(self, x, y, w, h, title, *lines, fill=WHITE):
        """A title and lines, from the top."""
        for words, glyph in [(title, 15 * BOLD), *((line, 13.5 * GLYPH) for line in lines)]:
            assert len(words) * glyph <= w - 14, f"{self.name}: does not fit its box: {words}"
        self.rect(x, y, w, h, fill)
        self.text(x + 14, y + 25, title, 15, INK, True)
        for i, line in enumerate(lines):
            self.text(x + 14, y + 47 + 19 * i, line)

    def arrow(self, *points, dashed=False, both=False):
        path = "M" + "L".join(f"{x} {y}" for x, y in points)
        more = (' marker-start="url(#a)"' if both else "") + (
            ' stroke-dasharray="5 4"' if dashed else ""
        )
        self.parts.append(
            f'<path d="{path}" stroke="{LINE}" stroke-width="1.6" fill="none" '
            f'marker-end="url(#a)"{more}/>'
        )

    def label(self, x, y, *lines, anchor="start"):
        for i, line in enumerate(lines):
            self.text(x, y + 16 * i, line, 12.5, MUTED, False, anchor)

    def svg(self):
        return "\n".join([*self.parts, "</svg>", ""])


def overview():
    p = Picture("overview", "What libpagedkv does for an inference engine", 1180, 430)
    p.band(10, 10, 270, 410, GREY, "your engine")
    p.box(30, 50, 230, 88, "scheduler", "what runs in this step:", "prompts and decode tokens")
    p.box(30, 180, 230, 88, "model, layer by layer", "projections, positions,", "feed-forward")
    p.box(30, 310, 230, 88, "sampler", "the next token", "of each session")

    p.band(390, 10, 540, 410, BLUE, "libpagedkv")
    p.box(
        410,
        50,
        260,
        88,
        "sessions",
        "a block table each; begin takes",
        "blocks for all, or for none",
    )
    p.box(
        410,
        180,
        260,
        88,
        "attention",
        "over the blocks in place, on all",
        "cores, with wide vectors",
    )
    p.box(
        410,
        310,
        260,
        88,
        "prefix index",
        "blocks of ended sessions,",
        "found by their tokens",
    )
    for y, call, both in [(94, "begin", False), (210, "write", False), (244, "attend", True)]:
        p.arrow((260, y), (408, y), both=both)
        p.label(335, y - 6, call, anchor="middle")
    p.arrow((260, 354), (408, 354))
    p.label(335, 348, "commit", anchor="middle")

    p.rect(710, 50, 200, 348, VIOLET, "#7b5a93")
    p.text(810, 75, "blocks of K and V", 13.5, INK, True, "middle")
    owners = ["A", "A, B", "A, B", "B", "A", "C", "C", "index", "index", "", "", ""]
    fills = {"A": FILLED, "B": FRESH, "C": "#bcd9c0", "A, B": "#e7c7b8", "index": "#cfdceb"}
    for i, owner in enumerate(owners):
        x, y = 724 + 59 * (i % 3), 92 + 52 * (i // 3)
        p.rect(x, y, 54, 44, fills.get(owner, WHITE), "#7b5a93", 4)
        p.text(x + 27, y + 27, owner or "free", 12.5, TEXT, False, "middle")
    p.label(
        724,
        320,
        "16 tokens or more a block.",
        "Sessions share common",
        "prefixes; the index keeps",
        "blocks of closed sessions.",
    )
    for y in (94, 224, 354):
        p.arrow((670, y), (708, y), both=y != 94)

    p.band(970, 10, 200, 410, ORANGE, "beyond memory")
    p.box(985, 50, 170, 88, "files", "sessions, saved", "and loaded")
    p.box(985, 310, 170, 88, "a store", "directory, Redis,", "or one of yours")
    for y in (94, 354):
        p.arrow((910, y), (983, y), both=True)
    return p


def rooms():
    p = Picture("rooms", "The rooms of src, and which may include which", 1180, 912)
    p.band(10, 10, 1160, 74, GREY, "outside")
    p.box(70, 24, 560, 48, "your engine, in C or any language that can dlopen")
    p.band(10, 94, 860, 96, BLUE, "src/api")
    p.box(
        70,
        116,
        640,
        62,
        "pool, cache, session, batch, snapshot, attention, prefix, file, ...",
        "one file per noun: handles and leases, struct sizes, statuses, error messages",
    )
    p.arrow((350, 72), (350, 114))
    p.label(362, 88, "include/pagedkv: only C")
    p.band(10, 200, 860, 482, GREEN, "src/engine")
    p.box(70, 218, 190, 62, "step", "batches, victims")
    p.box(295, 218, 180, 62, "file", "sessions in files")
    p.box(510, 218, 200, 62, "store", "blocks outside memory")
    p.box(70, 296, 640, 62, "session", "what a sequence holds; snapshots")
    p.box(70, 374, 640, 62, "cache", "config, metrics, the blocks that a step takes")
    p.box(70, 452, 270, 140, "prefix", "which tokens are in which blocks")
    p.box(440, 452, 270, 62, "attention", "one call, and how it is split")
    p.box(440, 530, 270, 62, "rows", "tensors in the caller's memory")
    p.box(
        70,
        608,
        640,
        62,
        "memory",
        "ids of blocks, layout of bytes, block tables; positions, not tokens",
    )
    p.label(390, 480, "never include", "each other", anchor="middle")
    for x in (165, 385, 610):
        p.arrow((x, 178), (x, 216))
        p.arrow((x, 280), (x, 294))
    p.arrow((510, 249), (477, 249))
    for top in (436, 592):
        p.arrow((205, top), (205, top + 14))
        p.arrow((575, top), (575, top + 14))
    p.arrow((575, 514), (575, 528))
    p.arrow((390, 358), (390, 372))
    p.band(10, 692, 860, 100, ORANGE, "src/kernels")
    p.box(
        70,
        714,
        640,
        66,
        "kernels.h, views.h, tile_layout.h",
        "a table of functions per instruction set, over plain pointers; only here: xsimd",
    )
    p.arrow((350, 668), (350, 712))
    p.band(10, 802, 1160, 100, VIOLET, "src/base")
    p.box(
        70,
        824,
        640,
        66,
        "status, checked, memory, files, os, parallel",
        "the operating system, and the only room with oneTBB; any room may include it",
    )
    p.arrow((350, 780), (350, 822))
    p.label(362, 806, "select.cpp only")
    p.arrow((710, 316), (745, 316), (745, 856), (712, 856))
    p.band(890, 94, 280, 698, GREY, "libpagedkv-redis")
    p.box(
        905,
        222,
        250,
        104,
        "redis",
        "client, connections, pipelines,",
        "slots of a cluster; a library",
        "of its own, with hiredis",
    )
    p.arrow((710, 240), (903, 240), dashed=True)
    p.label(1030, 196, "a pkv_store: five C functions", anchor="middle")
    p.arrow((1030, 326), (1030, 822))
    p.label(1020, 552, "only guarded.h,", "status.h and", "structs.h", anchor="end")
    return p


def block_life():
    p = Picture("block-life", "The life of a block", 1180, 640)
    p.box(30, 60, 220, 70, "free", "no references", fill=GREY)
    p.box(480, 60, 240, 70, "open", "one session writes into it", fill=BLUE)
    p.box(930, 60, 220, 70, "full", "and read-only", fill=GREEN)
    p.arrow((250, 82), (478, 82))
    p.label(364, 72, "begin, reserve, resume, load", anchor="middle")
    p.arrow((480, 112), (252, 112))
    p.label(364, 130, "abort, trim, close, suspend:", "generation + 1", anchor="middle")
    p.arrow((720, 95), (928, 95))
    p.label(824, 85, "commit: it is full", anchor="middle")
    p.arrow((1040, 60), (1040, 30), (140, 30), (140, 58))
    p.label(
        590,
        22,
        "the last reference is released, and the index has none",
        anchor="middle",
    )

    p.box(480, 216, 240, 70, "shared and part-filled", "no session writes into it", fill=BLUE)
    p.arrow((550, 130), (550, 214))
    p.label(540, 166, "fork,", "snapshot", anchor="end")
    p.arrow((650, 216), (650, 132))
    p.label(660, 160, "the others are closed,", "or begin gives the writer", "a copy of its own")

    p.arrow((1110, 130), (1110, 172), (1168, 172), (1168, 95), (1152, 95))
    p.label(1168, 190, "fork, match:", "one more reference", anchor="end")

    p.box(
        910,
        370,
        240,
        88,
        "waits to be written",
        "its session is closed; in",
        "use until the store has it",
        fill=ORANGE,
    )
    p.arrow((1010, 130), (1010, 368))
    p.label(1020, 270, "close, suspend,", "with a store")

    p.box(
        480,
        370,
        240,
        88,
        "cached",
        "only the index holds it;",
        "evictable, unless pinned",
        fill=VIOLET,
    )
    p.arrow((945, 130), (722, 378))
    p.label(766, 312, "close, suspend", anchor="end")
    p.arrow((722, 405), (980, 132))
    p.label(850, 312, "match")
    p.arrow((910, 425), (722, 425))
    p.label(815, 444, "written; or dropped,", "if memory is short", anchor="middle")
    p.arrow((480, 414), (140, 414), (140, 132))
    p.label(300, 404, "evicted: memory is needed", anchor="middle")

    p.box(910, 550, 240, 66, "in a store", "a copy, under its name", fill=WHITE)
    p.arrow((1010, 458), (1010, 548))
    p.label(1020, 508, "put")
    p.arrow((910, 583), (600, 583), (600, 460))
    p.label(760, 573, "prefetch: into a free block, checked", anchor="middle")
    return p


def blocks(p, x, y, row):
    """Blocks as (id, slots filled, held by how many, is it new)."""
    for i, (block, filled, holders, fresh) in enumerate(row):
        left = x + 84 * i
        p.rect(left, y, 74, 60, WHITE, "#7b5a93", 4)
        for slot in range(4):
            p.rect(
                left + 6 + 16 * slot,
                y + 6,
                13,
                18,
                (FRESH if fresh else FILLED) if slot < filled else GREY,
                None,
                1,
            )
        p.text(left + 37, y + 39, str(block), 12.5, "#7b5a93", True, "middle")
        p.text(left + 37, y + 54, f"held by {holders}", 11.5, MUTED, False, "middle")


def session(p, x, name, ids, targets, above):
    """A block table, with arrows to the blocks in the middle."""
    y = 60 if above else 250
    p.text(x, y + 20, name, 15, INK, True)
    for i, (block, target) in enumerate(zip(ids, targets)):
        p.rect(x + 110 + 44 * i, y, 44, 30, WHITE, LINE, 0)
        p.text(x + 132 + 44 * i, y + 20, str(block), 13.5, TEXT, False, "middle")
        p.arrow(
            (x + 132 + 44 * i, y + 30 if above else y),
            (x + 37 + 84 * target, 138 if above else 202),
        )


def sharing():
    p = Picture(
        "sharing", "Two sessions and a fork over one pool of blocks; copy on write", 1180, 400
    )
    for x, name, fill in [
        (10, "1. B is a fork of A: no copies", BLUE),
        (400, "2. B continues: one block is copied", GREEN),
        (790, "3. C has A's prefix: it matches two", ORANGE),
    ]:
        p.rect(x, 10, 380, 380, fill, None, 10)
        p.text(x + 16, 38, name, 15, INK, True)

    x = 26
    blocks(p, x, 140, [(4, 4, 2, False), (7, 4, 2, False), (2, 2, 2, False)])
    session(p, x, "session A", [4, 7, 2], [0, 1, 2], True)
    session(p, x, "session B", [4, 7, 2], [0, 1, 2], False)
    p.label(
        x,
        312,
        "The table is copied, 12 bytes per block. Full blocks",
        "are never written again. Block 2 is part-filled:",
        "the first session to write to it gets a copy.",
    )

    x = 416
    blocks(p, x, 140, [(4, 4, 2, False), (7, 4, 2, False), (2, 2, 1, False), (9, 3, 1, True)])
    session(p, x, "session A", [4, 7, 2], [0, 1, 2], True)
    session(p, x, "session B", [4, 7, 9], [0, 1, 3], False)
    p.arrow((x + 226, 140), (x + 226, 124), (x + 289, 124), (x + 289, 138))
    p.label(x + 297, 124, "copy")
    p.label(
        x,
        312,
        "begin copies it; abort puts block 2 back into B's",
        "table. Attention reads 4 and 7 once for both sessions.",
    )

    x = 806
    blocks(p, x, 140, [(4, 4, 3, False), (7, 4, 3, False), (2, 2, 1, False), (5, 1, 1, True)])
    session(p, x, "session A", [4, 7, 2], [0, 1, 2], True)
    session(p, x, "session C", [4, 7, 5], [0, 1, 3], False)
    p.label(
        x,
        312,
        "B is closed. The prefix index finds 4 and 7 by their",
        "tokens and also holds them. When A and C are closed,",
        "only it does: cached, until memory is needed.",
    )
    return p


def store():
    p = Picture("store", "Memory, queue, the two threads of a store, and the pkv_store", 1180, 470)
    p.band(10, 10, 330, 450, GREY, "your scheduler")
    p.band(350, 10, 330, 450, VIOLET, "memory")
    p.band(690, 10, 250, 450, ORANGE, "the cache's two threads")
    p.band(950, 10, 220, 450, BLUE, "store")
    p.box(30, 50, 290, 70, "session_close, suspend", "return at once")
    p.box(370, 50, 290, 88, "queue", "of closed sessions: blocks", "are in use until written")
    p.arrow((320, 85), (368, 85))
    p.box(705, 50, 220, 88, "writer", "skips stored items,", "puts the rest")
    p.arrow((660, 95), (703, 95))
    p.box(970, 50, 180, 88, "put, probe", "an item per block", "and group")
    p.arrow((925, 95), (968, 95), both=True)
    p.box(
        370,
        196,
        290,
        88,
        "prefix index",
        "unused blocks can be evicted:",
        "they are in the store",
    )
    p.arrow((515, 138), (515, 194))
    p.label(525, 162, "written; or dropped,", "if memory is short")
    p.box(30, 196, 290, 70, "admit, resume", "find what is in memory now")
    p.arrow((368, 231), (322, 231))
    p.box(30, 342, 290, 88, "PKV_HINT_PREFETCH", "when a request is queued;", "returns at once")
    p.box(
        370,
        342,
        290,
        88,
        "up to 64 prompts to read",
        "takes free or evictable blocks,",
        "never those in use",
    )
    p.arrow((320, 386), (368, 386))
    p.box(705, 342, 220, 88, "reader", "gets and checks name,", "tokens and tag")
    p.arrow((660, 386), (703, 386))
    p.box(970, 342, 180, 88, "get, probe, drop", "directory, Redis,", "one of yours")
    p.arrow((925, 386), (968, 386), both=True)
    p.arrow((815, 342), (815, 240), (662, 240))
    p.label(825, 300, "into the index")
    p.label(
        705,
        172,
        "A store that fails is not called",
        "for a while: this costs hits,",
        "but no step waits.",
    )
    return p


def main():
    here = pathlib.Path(__file__).resolve().parent
    wrong = []
    for picture in (overview(), rooms(), block_life(), sharing(), store()):
        path = here / f"{picture.name}.svg"
        if sys.argv[1:] != ["--check"]:
            path.write_text(picture.svg())
        elif not path.exists() or path.read_text() != picture.svg():
            wrong.append(f"{path.name} is not what src/pictures.py draws")
    files = [path.as_posix() for path in here.rglob("*")]
    for path in sorted(here.glob("*.svg")):
        for name in sorted(set(re.findall(r"[\w/]+\.(?:hpp|cpp|h)\b", path.read_text()))):
            if not any(file.endswith(f"/{name}") for file in files):
                wrong.append(f"{path.name} names {name}, which does not exist")
    sys.exit("\n".join(wrong) or 0)


if __name__ == "__main__":
    main()
