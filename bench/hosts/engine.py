"""Shared by the programs of the engines, which read requests from standard input, a line of JSON
each, and answer on standard output.

A program makes an Engine with

    generate(prompts, new)    the token ids of the answers, `new` for each prompt, whatever they
    say, and the time.perf_counter() of each token: two lists of lists reset()
    forgets what is kept of earlier prompts

and gives it to serve(). {"prompts": ..., "new": ...} is answered by {"tokens", "start", "times",
"attention"}, {"reset": true} by {}; every answer has the peak of memory in "mebibytes".
"""

import argparse
import json
import os
import pathlib
import resource
import sys
import time


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("way")
    parser.add_argument("--model", type=pathlib.Path, required=True)
    parser.add_argument("--dtype", choices=["f32", "bf16"], required=True)
    parser.add_argument("--threads", type=int, required=True)
    return parser.parse_args()


class Stopwatch:
    """Adds up the time of functions."""

    def __init__(self):
        self.seconds = 0.0

    def around(self, function):
        def timed(*args, **kwargs):
            start = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                self.seconds += time.perf_counter() - start

        return timed


class Engine:
    """`watch` measures attention and the storing of K and V, if an engine lets us."""

    def __init__(self, watched=True):
        self.watch = Stopwatch() if watched else None

    def reset(self):
        pass

    def attention_seconds(self):
        """The seconds so far, or None if they are not measured."""
        return self.watch and self.watch.seconds


def _answer(engine, request):
    if request.get("reset"):
        engine.reset()
        return {}
    before, start = engine.attention_seconds(), time.perf_counter()
    tokens, times = engine.generate(request["prompts"], request["new"])
    after = engine.attention_seconds()
    return {
        "tokens": tokens,
        "start": start,
        "times": times,
        "attention": None if before is None else after - before,
    }


def serve(make):
    """make() returns the engine. The engine's own output goes to standard error."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def send(answer):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps(answer | {"mebibytes": peak}), file=answers, flush=True)

    engine = make()
    send({})
    for line in sys.stdin:
        send(_answer(engine, json.loads(line)))
