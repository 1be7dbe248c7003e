"""Measures llama-server's own prompt cache with the conversations of prompts.cpp.

usage: talks.py LLAMA_SERVER MODEL DIRECTORY THREADS

They take turns in one slot: each one is left for a short text, so that the server keeps a copy of
it, and is continued later. DIRECTORY/N has the states of conversations of N tokens. Prints what
prompts.cpp prints: N, how many there are, the milliseconds to leave one, to come back to it and to
leave it again, of the fastest one, and the MiB that each one adds to the server.
"""

import os
import pathlib
import struct
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "tests"))
import slots

PAGE = os.sysconf("SC_PAGE_SIZE")
OTHERS = list(range(100, 108))  # the short text


def tokens_of(file):
    """A saved state begins with two numbers and its tokens, which llama-server packs."""
    with file.open("rb") as state:
        count = struct.unpack("<8xI", state.read(12))[0]
        return list(struct.unpack(f"<{count}i", state.read(4 * count)))[3:-1]


def ask(url, prompt):
    """Milliseconds until the answer of one token."""
    begin = time.perf_counter()
    slots.ask(url, prompt, n_predict=1)
    return 1000 * (time.perf_counter() - begin)


def resident_mib(process):
    pages = int(pathlib.Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * PAGE / 2**20


def measure(program, model, directory, threads):
    files = sorted(directory.iterdir())
    n = int(directory.name)
    options = ["-np", "1", "-c", str(n + 512), "-t", threads, "-tb", threads, "-fa", "on"]
    options += ["--cache-ram", "8192", "--slot-save-path", f"{directory}/", "--no-ui"]
    with slots.serving(program, model, None, *options) as (url, _, server):
        first, back, again, used = [], [], [], []
        for file in files:
            with slots.post(url + "/slots/0?action=restore", filename=file.name) as answer:
                answer.read()
            used.append(resident_mib(server.pid))
            first.append(ask(url, OTHERS))
        used.append(resident_mib(server.pid))
        for file in files:
            back.append(ask(url, [*tokens_of(file), 5]))
            again.append(ask(url, OTHERS))
    fastest = " ".join(f"{min(times):.0f}" for times in (first, back, again))
    print(f"llama-server {n} {len(files)} {fastest} {(used[-1] - used[0]) / len(files):.0f}")


if __name__ == "__main__":
    program, model, directory, threads = sys.argv[1:]
    for folder in sorted(pathlib.Path(directory).iterdir(), key=lambda folder: int(folder.name)):
        measure(program, model, folder, threads)
