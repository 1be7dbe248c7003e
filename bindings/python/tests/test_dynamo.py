"""Dynamo's own router index reads the events of a publisher and learns what the cache has. Needs
ai-dynamo-runtime (tests/install-hosts). Runs in a network namespace of its own, because the index
listens on all addresses.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import pathlib
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from typing import Any

import helpers
import pytest
from helpers import run

HERE = pathlib.Path(__file__)
PORT = 8090


def in_a_namespace(*command: str) -> subprocess.CompletedProcess[str]:
    return run("unshare", "--user", "--map-root-user", "--net", *command, timeout=120)


@pytest.mark.parametrize("form", ["map", "array"])
def test_dynamo_knows_what_is_cached(form: str) -> None:
    pytest.importorskip("dynamo", reason="ai-dynamo-runtime: its index read NO events")
    tried = in_a_namespace("ip", "link", "set", "lo", "up")
    if tried.returncode:
        pytest.skip(f"no network namespace can be made here: {tried.stderr.strip()}")
    done = in_a_namespace(sys.executable, str(HERE), form)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    assert "the index knows" in done.stdout


def ask(path: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{PORT}{path}", data, {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=10) as response:
        answer = response.read()
        return json.loads(answer) if answer else None


def until(done: Callable[[], bool]) -> None:
    """Waits, also while the index does not listen yet."""

    def holds() -> bool:
        with contextlib.suppress(OSError):
            return done()
        return False

    helpers.until(holds, 20)


def play(form: Any) -> None:
    from test_events import compute, ids_only, tell

    from pagedkv.events import EventPublisher

    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    ends = "tcp://127.0.0.1:5557", "tcp://127.0.0.1:5558"
    command = [sys.executable, "-m", "dynamo.indexer", "--port", str(PORT), "--block-size", "16"]
    with subprocess.Popen(command, stdout=sys.stderr) as index, ids_only() as cache:
        publisher = EventPublisher(ends[0], replay_endpoint=ends[1], form=form, heartbeat_ms=50)
        try:
            until(lambda: ask("/health") is None)
            text, other = list(range(100)), list(range(1000, 1080))

            def cached(tokens: list[int]) -> int:
                found = ask("/query", {"token_ids": tokens, "model_name": "default"})
                return int(next(iter(found["scores"].get("1", {"0": 0}).values()), 0))

            followed = publisher.follow(cache)
            tell(cache, followed, text)  # before the index subscribes, so it gets this by a replay
            worker = {
                "instance_id": 1, "endpoint": ends[0], "replay_endpoint": ends[1],
                "model_name": "default", "block_size": 16,
            }  # fmt: skip
            ask("/register", worker)
            until(lambda: cached(text) == 96)
            tell(cache, followed, other)
            until(lambda: cached(other) == 80)
            assert cached([*text[:48], *other]) == 48
            cache.prefix_clear()
            followed.poll()
            until(lambda: cached(text) == cached(other) == 0)
            compute(cache, other)
            followed.poll()
            until(lambda: cached(other) == 80)
            publisher.close()
            # Restarted at the same addresses, with another text in its cache.
            publisher = EventPublisher(ends[0], replay_endpoint=ends[1], form=form, heartbeat_ms=50)
            with ids_only() as again:
                followed = publisher.follow(again)
                tell(again, followed, text)
                until(lambda: cached(text) == 96 and cached(other) == 0)
            print("the index knows", form)
        finally:
            publisher.close()
            index.terminate()


if __name__ == "__main__":
    assert importlib.util.find_spec("dynamo")
    play(sys.argv[1])
