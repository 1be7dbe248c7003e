"""Runs every peer in a process of its own, so that thread pools do not disturb each other, a crash
ends only one peer, and memory is freed.
"""

import importlib
import importlib.metadata
import multiprocessing
import time

import numpy as np
from shapes import TOLERANCE

ENGINES = ("openvino", "onnxruntime", "torch", "vllm", "ggml", "ik")
WRONG = "wrong output"
fork = multiprocessing.get_context("fork")


def _deviation(got, expected):
    if got.shape != expected.shape:
        raise ValueError(f"{WRONG}: shape {got.shape} instead of {expected.shape}")
    worst = np.abs(got - expected).max() / np.abs(expected).max()
    return float("inf") if np.isnan(worst) else float(worst)


class _Peer:
    """The answers of the process: a method for each request."""

    def __init__(self, module, shape, rows, threads, library):
        self.module, self.shape, self.rows = importlib.import_module(module), shape, rows
        self.module.start(threads, library)
        self.step = None

    def prepare(self, dtype):
        """Deviation and rough seconds of each variant."""
        self.drop()
        self.step = self.module.Step(self.shape, dtype, self.rows)
        deviation, seconds = 0.0, {}
        for variant, call in self.step.calls().items():
            call()
            deviation = max(deviation, _deviation(self.step.output(), self.rows.expected))
            seconds[variant] = self.time(variant, 1, warm=False)
        if not deviation <= TOLERANCE[dtype]:
            raise ValueError(f"{WRONG}: deviation {deviation:.2g}, allowed {TOLERANCE[dtype]:.2g}")
        return deviation, seconds

    def time(self, variant, count, warm):
        """The mean seconds of `count` calls; with `warm`, after one call that is not counted."""
        call = self.step.calls()[variant]
        if warm:
            call()
        begin = time.perf_counter()
        for _ in range(count):
            call()
        return (time.perf_counter() - begin) / count

    def drop(self):
        if self.step is not None:
            self.step.close()
        self.step = None


def _reason(error):
    """The first line of a message that does not name an engine's source files."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    useful = [line for line in lines if not line.startswith(("Exception from", "Check '"))]
    return [*useful, *lines, type(error).__name__][0][:200]


def _serve(connection, *args):
    peer = None
    try:
        peer = _Peer(*args)
        connection.send((True, None))
    except Exception as error:
        connection.send((False, f"does not start: {_reason(error)}"))
        return
    while request := connection.recv():
        try:
            connection.send((True, getattr(peer, request[0])(*request[1:])))
        except Exception as error:
            connection.send((False, _reason(error)))


class Failed(Exception):
    """The peer cannot do what was asked; the message is its reason."""


class Worker:
    def __init__(self, module, *args):
        self.connection, theirs = fork.Pipe()
        self.process = fork.Process(target=_serve, args=(theirs, module, *args), daemon=True)
        self.process.start()
        theirs.close()
        self._answer()

    def __call__(self, *request):
        try:
            self.connection.send(request)
        except OSError:
            pass  # The process ended; _answer() reports it.
        return self._answer()

    def _answer(self):
        try:
            good, answer = self.connection.recv()
        except (EOFError, ConnectionError):
            self.process.join()
            raise Failed(f"the process ended with status {self.process.exitcode}") from None
        if not good:
            raise Failed(answer)
        return answer

    def close(self):
        self.process.kill()
        self.process.join()


def in_own_process(function, *args):
    """Returns the result of the function, which runs in a process that ends afterwards."""
    with fork.Pool(1) as pool:
        return pool.apply(function, args)


def modules(engines):
    return ["pkv", *(f"{engine}_peer" for engine in ENGINES if engine in engines)]


def name(module):
    return importlib.import_module(module).NAME


def version(module, library):
    """The installed version, or "" if it is missing."""
    peer = importlib.import_module(module)
    if peer.PACKAGE is None:
        return peer.version(library)
    try:
        return importlib.metadata.version(peer.PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        return ""
