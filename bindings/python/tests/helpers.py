"""Shared by several tests: programs and their ports, threads, a store, small caches, and reference
attention.
"""

from __future__ import annotations

import contextlib
import copy
import importlib
import inspect
import pickle
import pkgutil
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

import pagedkv

ON_WINDOWS = sys.platform == "win32"
needs_fork = pytest.mark.skipif(ON_WINDOWS, reason="Windows has no fork()")


def run(*command: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """Runs a program and captures its output."""
    words = [str(word) for word in command]
    return subprocess.run(words, capture_output=True, text=True, check=False, **options)


def output(*command: object, **options: Any) -> str:
    """Runs a program that must succeed. Returns its output."""
    done = run(*command, **options)
    assert done.returncode == 0, f"{command}\n{done.stdout[-6000:]}{done.stderr[-6000:]}"
    return done.stdout


def free_port() -> int:
    """A port below those that the OS gives to other programs while the server starts."""
    while True:
        port = random.randrange(20000, 32000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=30)


def listens(port: int) -> bool:
    with contextlib.suppress(OSError), connect(port):
        return True
    return False


def until(condition: Callable[[], bool], seconds: float = 60) -> None:
    """Waits for something that must happen."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it does not happen"
        time.sleep(0.05)


def together(works: Sequence[Callable[[], object]]) -> None:
    """Runs each function in its own thread, all at once; none may raise."""
    start, failures = threading.Barrier(len(works)), list[BaseException]()

    def run(work: Callable[[], object]) -> None:
        try:
            start.wait()
            work()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures


def owners(package: Any) -> Iterator[type[Any]]:
    """Every class of a package that can be closed or has a finaliser. Modules that need what is not
    installed are left out.
    """
    modules = [package.__name__]
    modules += [found.name for found in pkgutil.walk_packages(package.__path__, f"{modules[0]}.")]
    for name in modules:
        with contextlib.suppress(ImportError):
            module = importlib.import_module(name)
            for _, kind in inspect.getmembers(module, inspect.isclass):
                closed = callable(getattr(kind, "close", None)) or hasattr(kind, "__del__")
                if kind.__module__ == module.__name__ and closed:
                    yield kind


def refuses_copies(owner: Any) -> None:
    for made in (copy.copy, copy.deepcopy, pickle.dumps):
        if made is copy.deepcopy and hasattr(owner, "__deepcopy__"):
            continue
        with pytest.raises(TypeError, match=f"^{type(owner).__name__} objects cannot be copied"):
            made(owner)


class MemoryStore(pagedkv.Store):
    """A store in memory that can fail on demand."""

    def __init__(self) -> None:
        self.values: dict[bytes, bytes] = {}
        self.problem: Exception | None = None
        self.closed = 0

    def there(self) -> dict[bytes, bytes]:
        if self.problem is not None:
            raise self.problem
        return self.values

    def put(self, items: Sequence[tuple[bytes, bytes]]) -> Iterable[bytes] | None:
        self.there().update(items)
        return None

    def get(self, keys: Sequence[bytes]) -> Sequence[bytes | None]:
        return [self.there().get(key) for key in keys]

    def touch(self, keys: Sequence[bytes]) -> Sequence[int]:
        return [len(self.there().get(key, b"")) for key in keys]

    def remove(self, keys: Sequence[bytes]) -> None:
        for key in keys:
            self.there().pop(key, None)

    def close(self) -> None:
        self.closed += 1


class SlowStore(MemoryStore):
    """Does not answer until `answer` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.answer = threading.Event(), threading.Event()

    def get(self, keys: Sequence[bytes]) -> Sequence[bytes | None]:
        self.asked.set()
        assert self.answer.wait(60)
        return super().get(keys)


class LossyStore(MemoryStore):
    """Loses blocks between look-up and read, or returns them corrupt, in turn."""

    def __init__(self) -> None:
        super().__init__()
        self.loses: set[int] = set()  # of all blocks that are read, in order
        self.reads = 0

    def get(self, keys: Sequence[bytes]) -> Sequence[bytes | None]:
        found: list[bytes | None] = []
        for key in keys:
            value = self.values.get(key)
            if self.reads in self.loses:
                value = None if self.reads % 2 else bytes(value or b"")[:-1] + b"?"
                self.values.pop(key, None)
            found.append(value)
            self.reads += 1
        return found


def small(**changed: Any) -> pagedkv.CacheConfig:
    """The config of a small cache."""
    shape = {"layers": 1, "query_heads": 2, "kv_heads": 1, "key_dim": 16, "blocks": 16}
    return pagedkv.CacheConfig(**shape | changed)


@contextlib.contextmanager
def written_step(
    config: pagedkv.CacheConfig, k: Any, v: Any, committed: int
) -> Iterator[pagedkv.Batch]:
    """A step of one session whose rows are written; `k` and `v` also have the committed rows before
    them."""
    with pagedkv.Cache(config) as cache, cache.open_session() as session:
        with cache.begin([session], [committed]) as before:
            before.write(0, k[:committed], v[:committed])
            before.commit()
        with cache.begin([session], [len(k) - committed]) as batch:
            batch.write(0, k[committed:], v[committed:])
            yield batch


def attention(q: Any, k: Any, v: Any, seen: Any) -> Any:
    """Plain attention of rows of q over all of k and v, all [rows][heads][dim]; `seen` marks what a
    row and a head see.
    """
    keys, values = (np.repeat(x.astype(np.float64), q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = np.einsum("ihd,thd->iht", q, keys) / np.sqrt(q.shape[2])
    weights = np.exp(np.where(seen, scores, -np.inf))
    return np.einsum("iht,thd->ihd", weights / weights.sum(axis=2, keepdims=True), values)
