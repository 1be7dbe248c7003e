"""Measures the bookkeeping of one peer, in a process of its own.

usage: jobs.py PEER trace REQUESTS BLOCKS THREADS | PEER match | PEER append | PEER memory

The jobs are those of pagedkv_peer.cpp, which says what they are.
"""

import importlib
import json
import os
import pathlib
import sys
import threading
import time

import numpy as np

BLOCK = 16
PREPARED = 256  # Requests whose tokens are made before they are served.
TOGETHER = 8  # Requests that are served at once.
LONG = 32768

PEERS = {
    "pagedkv": ("pagedkv_peer", "Lists"),
    "pagedkv-arrays": ("pagedkv_peer", "Arrays"),
    "vllm": ("vllm_peer", "Manager"),
    "sglang": ("sglang_peer", "RustTree"),
    "sglang-python": ("sglang_peer", "PythonTree"),
}


def segment(number, length):
    """The tokens of a segment: those that trace.cpp computes (splitmix64)."""
    increment = np.uint64(0x9E3779B97F4A7C15)
    start = np.uint64((number * int(increment) + int(increment)) % 2**64)
    x = np.arange(length, dtype=np.uint64) + start
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((x ^ (x >> np.uint64(31))) >> np.uint64(33)).astype(np.int32)


def read(line):
    """The prompt and the answer of one request."""
    numbers = list(map(int, line.split()))
    parts = [segment(*pair) for pair in zip(numbers[::2], numbers[1::2], strict=True)]
    return np.concatenate(parts[:-1]), parts[-1]


def keep(peer, prompt):
    """Leaves a prompt in the cache."""
    request, _ = peer.begin(prompt)
    peer.compute([request])
    peer.end(request)


def serve(peer, texts):
    """Returns how many tokens of the prompts were cached."""
    begun = [peer.begin(prompt) for prompt, _ in texts]
    requests = [request for request, _ in begun]
    peer.compute(requests)
    peer.extend(requests, [answer for _, answer in texts])
    for request in requests:
        peer.end(request)
    return sum(matched for _, matched in begun)


def trace(make, path, blocks, threads):
    peer = make(int(blocks))
    lines = pathlib.Path(path).read_text().splitlines()
    seconds, asked, hits = 0.0, 0, [0] * int(threads)
    for first in range(0, len(lines), PREPARED):
        texts = [read(line) for line in lines[first : first + PREPARED]]
        asked += sum(len(prompt) for prompt, _ in texts)
        ready = [(peer.tokens(prompt), peer.tokens(answer)) for prompt, answer in texts]
        waiting = [ready[i : i + TOGETHER] for i in range(0, len(ready), TOGETHER)][::-1]

        def work(number, waiting=waiting):
            while waiting:
                try:
                    some = waiting.pop()
                except IndexError:  # another thread has taken the last
                    break
                hits[number] += serve(peer, some)

        others = [threading.Thread(target=work, args=(i,)) for i in range(1, len(hits))]
        begin = time.perf_counter()
        for other in others:
            other.start()
        work(0)
        for other in others:
            other.join()
        seconds += time.perf_counter() - begin
    return {"seconds": seconds, "requests": len(lines), "hits": sum(hits) / asked}


def match(make):
    count, turns = 100, 3
    peer = make((count + 1) * (LONG // BLOCK + 1))
    prompts = []
    for number in range(count):
        text = segment(number, LONG)
        keep(peer, peer.tokens(text))
        prompts.append(peer.tokens(np.append(text, np.int32(1))))
    fastest = float("inf")
    for _ in range(turns):
        begin = time.perf_counter()
        for prompt in prompts:
            request, matched = peer.begin(prompt)
            assert matched == LONG, matched
            peer.compute([request])
            peer.end(request)
        fastest = min(fastest, time.perf_counter() - begin)
    return {"us": fastest * 1e6 / count}


def append(make):
    sequences, blocks, turns = 256, 20, 3
    peer = make(sequences * (blocks + 2) * (turns + 1))
    fastest = float("inf")
    for turn in range(turns):
        requests = []
        for i in range(sequences):
            prompt = peer.tokens(segment(turn * sequences + i, BLOCK))
            request, _ = peer.begin(prompt)
            peer.compute([request])
            requests.append(request)
        tokens = peer.tokens(segment(turn, sequences))
        begin = time.perf_counter()
        for _ in range(blocks * BLOCK):
            peer.append(requests, tokens)
        fastest = min(fastest, time.perf_counter() - begin)
        for request in requests:
            peer.end(request)
    return {"us": fastest * 1e6 / (sequences * blocks)}


def resident_bytes():
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE")


def memory(make):
    blocks, length = 1 << 20, 2048
    before = resident_bytes()
    peer = make(blocks)
    for number in range(blocks * BLOCK // length):
        keep(peer, peer.tokens(segment(number, length)))
    return {"bytes": (resident_bytes() - before) / blocks}


def main():
    name, job, *arguments = sys.argv[1:]
    module, kind = PEERS[name]
    make = getattr(importlib.import_module(module), kind)
    jobs = {"trace": trace, "match": match, "append": append, "memory": memory}
    print(json.dumps(jobs[job](make, *arguments)))


if __name__ == "__main__":
    main()
