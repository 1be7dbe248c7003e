"""A port for a server of a test."""

from __future__ import annotations

import contextlib
import random
import socket


def free_port() -> int:
    """A port below those that the system gives to others while the server starts."""
    while True:
        port = random.randrange(20000, 32000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
