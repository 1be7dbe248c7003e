"""Sends keys and values of prompts from the process that computes them to the one that decodes: a
stream of frames on a socket.

A frame is a head (magic, version, kind, size of the body) and a body. The receiver checks all of it
before it allocates memory, because the other end may be a stranger, another version or another
model. Nothing is encrypted, and anyone who can connect can ask for prompts to be computed, so use
it only in a network that you trust, or in a tunnel.
"""

from __future__ import annotations

import dataclasses
import enum
import os
import queue
import socket
import struct
import threading
from typing import Any, ClassVar

import numpy as np

HEAD = struct.Struct("<4sHHQ")
MAGIC, VERSION = b"pkvH", 1
PROMPT = struct.Struct("<IIQQ")  # request, tokens, tokens that the asking cache has, reserved
ROWS = struct.Struct("<IIQII")  # request, rows, first position, first layer, layers
LONGEST_FRAME = 1 << 30
LONGEST_TEXT = 1 << 20
QUEUE_FRAMES = 4  # a slow link delays computing, so memory stays bounded


class Kind(enum.IntEnum):
    HELLO = 1  # the Shape of the sender's rows
    PROMPT = 2  # to the process that computes
    ROWS = 3  # of some layers of some positions: all keys of a layer, then its values
    TOKEN = 4  # the first token after the prompt; all rows were sent
    REFUSED = 5  # a sentence


class HandoverError(Exception):
    """The stream is broken or malformed and has ended."""


@dataclasses.dataclass(frozen=True)
class Shape:
    """Both ends must have the same shape, or rows would be misread."""

    layers: int
    kv_heads: int
    key_dim: int
    row_bytes: int  # bytes of an element of a row on the wire
    fingerprint: int  # a hash of the model's weights

    FORMAT: ClassVar[struct.Struct] = struct.Struct("<IIIIQ")

    def pack(self) -> bytes:
        return self.FORMAT.pack(*dataclasses.astuple(self))

    @property
    def layer_bytes(self) -> int:
        """The bytes of keys and values of one position in one layer."""
        return 2 * self.kv_heads * self.key_dim * self.row_bytes


class Channel:
    """Frames on a connected socket. The first frame in each direction is a HELLO."""

    def __init__(self, connection: socket.socket, shape: Shape, patience: float) -> None:
        """The stream ends if the other end does not read for `patience` seconds."""
        if os.name == "posix":
            seconds, rest = divmod(patience, 1)
            wait = struct.pack("@ll", int(seconds), int(1e6 * rest))
        else:
            wait = struct.pack("@L", int(1000 * patience))
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, wait)
        self.connection, self.shape = connection, shape
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._waiting: queue.Queue[list[Any] | None] = queue.Queue(QUEUE_FRAMES)
        self._failed: OSError | None = None
        self._thread = threading.Thread(target=self._send_waiting, daemon=True)
        self._thread.start()
        self.send(Kind.HELLO, shape.pack())
        kind, body = self.receive()
        if kind != Kind.HELLO or len(body) != Shape.FORMAT.size:
            raise HandoverError(f"the first frame is not HELLO but {kind.name}")
        other = Shape(*Shape.FORMAT.unpack(body))
        if other != shape:
            raise HandoverError(f"the other end has {other}, this one {shape}")

    def send(self, kind: Kind, *parts: Any) -> None:
        """Queues a frame; waits while QUEUE_FRAMES of them are queued. The arrays of its parts must
        not change any more.
        """
        if self._failed is not None:
            raise HandoverError(f"cannot send: {self._failed}") from self._failed
        size = sum(memoryview(part).nbytes for part in parts)
        self._waiting.put([HEAD.pack(MAGIC, VERSION, kind, size), *parts])

    @property
    def has_room(self) -> bool:
        """Whether send() would not wait."""
        return not self._waiting.full()

    def _send_waiting(self) -> None:
        while (parts := self._waiting.get()) is not None:
            try:
                for part in parts if self._failed is None else ():
                    self.connection.sendall(memoryview(part).cast("B"))
            except OSError as error:  # the next send raises it
                self._failed = error

    def receive(self) -> tuple[Kind, bytearray]:
        magic, version, kind, size = HEAD.unpack(self._read(HEAD.size))
        if magic != MAGIC or version != VERSION:
            raise HandoverError(f"not a frame of version {VERSION}: {magic!r}, {version}")
        if kind not in Kind._value2member_map_ or size > LONGEST_FRAME:
            raise HandoverError(f"a frame of kind {kind} and {size} bytes")
        return Kind(kind), self._read(size)

    def _read(self, size: int) -> bytearray:
        """Memory grows with the bytes that arrived, not with the size that the head claims."""
        data = bytearray()
        while len(data) < size:
            try:
                part = self.connection.recv(min(size - len(data), 1 << 20))
            except OSError as error:
                raise HandoverError(f"the stream broke off: {error}") from error
            if not part:
                raise HandoverError(f"the stream ended {size - len(data)} bytes too early")
            data += part
        return data

    def close(self) -> None:
        """Closes the stream after the queued frames are sent."""
        self._waiting.put(None)
        self._thread.join(10)
        self.connection.close()


def pack_prompt(request: int, tokens: list[int], cached: int) -> bytes:
    return PROMPT.pack(request, len(tokens), cached, 0) + np.array(tokens, np.int32).tobytes()


def unpack_prompt(body: bytearray, vocabulary: int, context: int) -> tuple[int, list[int], int]:
    if len(body) < PROMPT.size:
        raise HandoverError(f"a prompt of {len(body)} bytes")
    request, count, cached, _ = PROMPT.unpack_from(body)
    if not 0 < count <= context or len(body) != PROMPT.size + 4 * count or cached >= count:
        raise HandoverError(
            f"a prompt of {count} tokens in {len(body)} bytes, {cached} of them cached: "
            f"it must have 1 to {context}"
        )
    tokens = np.frombuffer(body, np.int32, count, PROMPT.size)
    if tokens.min() < 0 or tokens.max() >= vocabulary:
        raise HandoverError(f"tokens from {tokens.min()} to {tokens.max()} of {vocabulary}")
    return request, tokens.tolist(), cached


@dataclasses.dataclass
class Rows:
    """Rows of `count` positions from `first` on, in `layers` layers from `first_layer` on."""

    request: int
    count: int
    first: int
    first_layer: int
    layers: int
    data: memoryview

    @classmethod
    def unpack(cls, body: bytearray, shape: Shape) -> Rows:
        if len(body) < ROWS.size:
            raise HandoverError(f"rows in {len(body)} bytes")
        request, count, first, first_layer, layers = ROWS.unpack_from(body)
        size = len(body) - ROWS.size
        if (
            not 0 < count <= LONGEST_TEXT
            or not 0 < layers <= shape.layers - min(first_layer, shape.layers)
            or size != count * layers * shape.layer_bytes
        ):
            raise HandoverError(
                f"{count} rows of {layers} layers from {first_layer} on, in {size} bytes"
            )
        return cls(request, count, first, first_layer, layers, memoryview(body)[ROWS.size :])

    def layer(self, index: int, shape: Shape, dtype: Any) -> tuple[Any, Any]:
        """Keys and values [rows][heads][dim] of the layer first_layer + index."""
        size = self.count * shape.layer_bytes
        rows = np.frombuffer(self.data[index * size : (index + 1) * size], dtype)
        k, v = rows.reshape(2, self.count, shape.kv_heads, shape.key_dim)
        return k, v


def parse_address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"{text} is not HOST:PORT")
    return host, int(port)
