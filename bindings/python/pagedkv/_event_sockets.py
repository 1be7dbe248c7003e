"""The two ends of a stream of numbered batches. The publisher sends them; the subscriber gets each
batch once and in order, or a message to forget all that it knows.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import warnings
from collections import deque
from socket import socketpair
from typing import Any, Protocol

try:
    import zmq
except ImportError as error:  # pragma: no cover
    raise ImportError("pagedkv.events needs msgspec and pyzmq: pip install pagedkv[events]") from (
        error
    )

from ._event_wire import AllBlocksCleared, EventBatch, EventForm, decode_batch, encode_batch
from ._handle import Closable, Uncopied, unsigned
from .errors import CorruptError, MisuseError, SystemCallError, misuse
from .generated.raw import Status

END = b"\xff" * 8  # the number that ends a replay
LONGEST_TOPIC = 255
LINGER_MS = 1000  # how long the last batches are kept for slow readers
LONGEST_REQUEST = 1024  # bytes of a message to a publisher: a topic, or a number
_REPLAYS_A_ROUND = 16
_NUMBERS_A_MS = 1 << 16  # a publisher's numbers begin at its start by this clock
_FASTEST = _NUMBERS_A_MS // 4  # no engine sends as many batches: it was started again


class _Followed(Protocol):
    def encoded_snapshot(self) -> bytes: ...


def _open(
    context: zmq.Context[zmq.Socket[bytes]], kind: int, high_water_mark: int, linger_ms: int
) -> zmq.Socket[bytes]:
    socket = context.socket(kind)
    socket.set_hwm(high_water_mark)
    # Set before bind and connect: if the peer closes a connection at the moment of a later change,
    # the connection would keep its messages, and context.term() would wait forever.
    socket.setsockopt(zmq.LINGER, linger_ms)
    return socket


def _set_up(socket: zmq.Socket[bytes], bind: bool, endpoint: str, what: str) -> str:
    try:
        _check_port(endpoint)
        if bind:
            socket.bind(endpoint)
            return socket.getsockopt_string(zmq.LAST_ENDPOINT)
        socket.connect(endpoint)
        return endpoint
    except (zmq.ZMQError, TypeError, UnicodeError) as error:
        socket.close()
        sentence = f"{what}: cannot {'bind' if bind else 'connect to'} {endpoint!r}: {error}"
        code = getattr(error, "errno", None)
        if code in (zmq.EINVAL, zmq.EPROTONOSUPPORT, None):
            raise misuse(sentence) from None
        raise SystemCallError(Status.IO, sentence, code) from None


def _check_port(endpoint: str) -> None:
    """Refuses ports above 65535: ZeroMQ would drop their upper bits."""
    port = str(endpoint).rpartition(":")[2]
    if str(endpoint).startswith("tcp://") and port.isdigit() and int(port) > 65535:
        raise zmq.ZMQError(zmq.EINVAL, f"port {port} of 65535")


def _topic(topic: str) -> bytes:
    encoded = topic.encode()
    if len(encoded) > LONGEST_TOPIC:
        raise misuse(f"topic has {len(encoded)} bytes; at most {LONGEST_TOPIC} are allowed")
    return encoded


class Sender(Uncopied):
    """Numbers batches, keeps the last ones, and sends them in its own thread. The thread does not
    refer to the publisher, so a forgotten publisher can be collected.
    """

    def __init__(
        self,
        endpoint: str,
        replay_endpoint: str | None,
        topic: str,
        medium: str | None,
        form: EventForm,
        replay_batches: int,
        high_water_mark: int,
        heartbeat_ms: int,
    ) -> None:
        self.medium, self.form = medium, form
        self._heartbeat_ms = unsigned(heartbeat_ms, 31, "heartbeat_ms")
        self.owner = os.getpid()
        self.stopped = False
        self.followed: list[Any] = []
        self._topic = _topic(topic)
        replay_batches = unsigned(replay_batches, 31, "replay_batches")
        if replay_batches == 0:
            raise misuse("replay_batches is 0; it must be 1 or more")
        self._kept: deque[tuple[int, bytes]] = deque(maxlen=replay_batches)
        self._lock = threading.RLock()  # the collector may call stop() in a thread that holds it
        self._ended = False
        self._first = self._next = int(time.time() * 1000) * _NUMBERS_A_MS
        self._sent = self._next
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._replay: zmq.Socket[bytes] | None = None
        self.replay_endpoint: str | None = None
        try:
            self._events = _open(
                self._context, zmq.PUB, unsigned(high_water_mark, 31, "high_water_mark"), LINGER_MS
            )
            # Strangers can connect. A longer message ends their connection before it takes memory.
            self._events.setsockopt(zmq.MAXMSGSIZE, LONGEST_REQUEST)
            self.endpoint = _set_up(self._events, True, endpoint, "endpoint")
            if replay_endpoint is not None:
                # A whole replay fits. A reader that asks for more without reading loses messages.
                self._replay = _open(self._context, zmq.ROUTER, replay_batches + 64, LINGER_MS)
                self._replay.setsockopt(zmq.MAXMSGSIZE, LONGEST_REQUEST)
                self.replay_endpoint = _set_up(
                    self._replay, True, replay_endpoint, "replay_endpoint"
                )
        except BaseException:
            self._context.destroy(linger=0)
            raise
        # Not a pipe: on Windows only sockets can be waited for.
        self._wake_read, self._wake_write = socketpair()
        self._wake_read.setblocking(False)
        self._wake_write.setblocking(False)
        self._thread = threading.Thread(target=self._run, name="pagedkv-events", daemon=True)
        self._thread.start()

    @property
    def batches(self) -> int:
        return self._next - self._first

    def check_usable(self) -> None:
        if self.owner != os.getpid():
            raise MisuseError(
                Status.WRONG_PROCESS,
                f"this EventPublisher belongs to process {self.owner}, which forked",
            )
        if self.stopped:
            raise MisuseError(Status.STALE_HANDLE, "this EventPublisher is closed")

    def send(self, payload: bytes) -> None:
        """Never waits. If the thread is too slow for a batch, subscribers see a gap and ask for a
        replay."""
        with self._lock:
            self._kept.append((self._next, payload))
            self._next += 1
        self._wake()

    def stop(self, wait: bool = True) -> None:
        """The collector may call this in any thread, then without waiting."""
        self.stopped = True
        self._wake()
        if wait:
            self._thread.join(5)

    def _wake(self) -> None:
        with self._lock, contextlib.suppress(BlockingIOError):  # full: the thread is awake
            if not self._ended:
                self._wake_write.send(b"x")

    def _run(self) -> None:
        poller = zmq.Poller()
        wake = self._wake_read.fileno()
        poller.register(wake, zmq.POLLIN)
        if self._replay is not None:
            poller.register(self._replay, zmq.POLLIN)
        try:
            while True:
                ending = self.stopped
                self._send_new()
                if ending:
                    break
                ready = dict(poller.poll(self._heartbeat_ms or None))
                if not ready:
                    self.send(encode_batch([], None, self.form))
                if wake in ready:
                    self._wake_read.recv(4096)
                if self._replay is not None and self._replay in ready:
                    self._answer(self._replay)
        finally:
            self.stopped = True
            self.followed = []
            self._events.close()
            if self._replay is not None:
                self._replay.close()
            self._context.term()
            with self._lock:
                self._ended = True
                self._wake_read.close()
                self._wake_write.close()

    def _send_new(self) -> None:
        while True:
            with self._lock:
                behind = self._next - self._sent
                if behind == 0:
                    return
                number, payload = self._kept[max(len(self._kept) - behind, 0)]
            self._events.send_multipart((self._topic, number.to_bytes(8, "big"), payload))
            self._sent = number + 1

    def _answer(self, socket: zmq.Socket[bytes]) -> None:
        for _ in range(_REPLAYS_A_ROUND):
            try:
                frames = socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            if len(frames) != 3 or frames[1] or len(frames[2]) != 8:
                continue  # not a subscriber's request: no answer
            self._replay_from(socket, frames[0], int.from_bytes(frames[2], "big"))

    def _replay_from(self, socket: zmq.Socket[bytes], client: bytes, first: int) -> None:
        with self._lock:
            following, batches = self._next, list(self._kept)
        if first < following - len(batches) or first == 0:
            # All that is cached now, under the number of the last batch. Later batches may repeat a
            # part of it; applied in order, they give the same result.
            states = [followed.encoded_snapshot() for followed in self.followed]
            batches = list(enumerate(states, following - len(states)))
        for number, payload in batches:
            if number >= first:
                socket.send_multipart((client, b"", number.to_bytes(8, "big"), payload))
        socket.send_multipart((client, b"", END, b""))


class EventSubscriber(Closable):
    """Receives the events of an engine (vLLM's or this library's), each batch once and in order.

    It asks `replay_endpoint` for lost batches. If there is no endpoint, or no answer within
    `replay_timeout_ms`, a batch with AllBlocksCleared replaces the lost ones, because a router's
    knowledge of this engine may now be wrong. The same happens after a restart of the engine. A
    wrong route costs a miss, never a wrong answer: engines check their own cache.

    A subscriber that starts late asks for all that is cached. Only one thread at a time may use it.
    Close it when done.
    """

    def __init__(
        self,
        endpoint: str,
        replay_endpoint: str | None = None,
        *,
        topic: str = "",
        replay_timeout_ms: int = 2000,
        high_water_mark: int = 100_000,
    ) -> None:
        self.endpoint = endpoint
        self._replay_endpoint = replay_endpoint
        self._patience = unsigned(replay_timeout_ms, 31, "replay_timeout_ms") / 1000
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._replay: zmq.Socket[bytes] | None = None
        self._ready: deque[EventBatch] = deque()
        high_water_mark = unsigned(high_water_mark, 31, "high_water_mark")
        self._held: deque[tuple[int, bytes]] = deque(maxlen=max(high_water_mark, 1))
        self._expected: int | None = None
        self._newest: int | None = None  # the last number published; numbers only rise
        self._wanted: int | None = None  # the first number of the replay in progress
        self._deadline = 0.0
        self.lost_batches = 0
        """The number of batches that neither arrived nor were replayed. Those of an engine that
        ended are not known, and do not count."""
        self.bad_messages = 0
        """The number of messages that did not follow the protocol."""
        self._heard = self._given = time.monotonic()
        try:
            self._events = _open(self._context, zmq.SUB, high_water_mark, 0)
            self._events.setsockopt(zmq.SUBSCRIBE, _topic(topic))
            _set_up(self._events, False, endpoint, "endpoint")
            if replay_endpoint is not None:
                self._ask(0)
        except BaseException:
            self._context.destroy(linger=0)
            raise
        self._owner = os.getpid()
        self._closed = False

    def receive(self, timeout_ms: int = 0) -> list[EventBatch]:
        """Returns the batches that have arrived or arrive within the timeout; [] if there are
        none."""
        if self._owner != os.getpid():
            raise MisuseError(
                Status.WRONG_PROCESS, f"this EventSubscriber belongs to {self._owner}"
            )
        if self._closed:
            raise MisuseError(Status.STALE_HANDLE, "this EventSubscriber is closed")
        end = time.monotonic() + unsigned(timeout_ms, 31, "timeout_ms") / 1000
        while True:
            self._receive_all()
            if self._wanted is not None and time.monotonic() >= self._deadline:
                self._give_up()
            left = end - time.monotonic()
            if self._ready or left <= 0:
                break
            self._wait(left)
        batches = list(self._ready)
        self._ready.clear()
        return batches

    @property
    def silent_seconds(self) -> float:
        """The time since the last message. An EventPublisher sends one at least every
        `heartbeat_ms`; if it is silent for several times that long, it has ended or cannot be
        reached.
        """
        return time.monotonic() - self._heard

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            if self._owner == os.getpid():
                self._events.close()
                if self._replay is not None:
                    self._replay.close()
                self._context.term()

    def _shown(self) -> str:
        return f"{self.endpoint}, {self.lost_batches} batch{'es' * (self.lost_batches != 1)} lost"

    def __del__(self) -> None:
        if not self._closed and self._owner == os.getpid():
            self.close()
            warnings.warn("EventSubscriber was never closed", ResourceWarning, stacklevel=2)

    def _wait(self, seconds: float) -> None:
        poller = zmq.Poller()
        poller.register(self._events, zmq.POLLIN)
        if self._replay is not None:
            poller.register(self._replay, zmq.POLLIN)
        if self._wanted is not None:
            seconds = min(seconds, max(self._deadline - time.monotonic(), 0))
        poller.poll(int(seconds * 1000) + 1)

    def _receive_all(self) -> None:
        while self._replay is not None:
            try:
                frames = self._replay.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                break
            self._heard = time.monotonic()
            self._take_replayed(frames)
        while True:
            try:
                frames = self._events.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            self._heard = time.monotonic()
            if len(frames) != 3 or len(frames[1]) != 8:
                self.bad_messages += 1
                continue
            number = int.from_bytes(frames[1], "big")
            if self._newest is not None and number <= self._newest:
                self._clear()  # the engine was started again, and its numbers too
                self._expected = self._wanted = None
                self._held.clear()
            self._newest = number
            if self._wanted is not None:
                self._held.append((number, frames[2]))
            else:
                self._take(number, frames[2])

    def _take(self, number: int, payload: bytes) -> None:
        """Handles a batch that was just published; a replay may have brought it already."""
        if self._expected is not None and number < self._expected:
            return
        if number == self._expected or (self._expected is None and self._replay_endpoint is None):
            self._give(number, payload)
        elif self._replay_endpoint is None:
            self._lose(number)
            self._give(number, payload)
        else:
            self._held.append((number, payload))
            self._ask(self._expected or 0)

    def _ask(self, first: int) -> None:
        """Opens a new socket, so that answers to an earlier request are dropped."""
        assert self._replay_endpoint is not None
        if self._replay is not None:
            self._replay.close()
        self._replay = _open(self._context, zmq.DEALER, 0, 0)
        _set_up(self._replay, False, self._replay_endpoint, "replay_endpoint")
        self._replay.send_multipart((b"", first.to_bytes(8, "big")))
        self._wanted, self._deadline = first, time.monotonic() + self._patience

    def _take_replayed(self, frames: list[bytes]) -> None:
        if self._wanted is None:
            return
        if len(frames) != 3 or len(frames[1]) != 8:
            self.bad_messages += 1
        elif frames[1] == END:
            self._end_replay()
        else:
            number = int.from_bytes(frames[1], "big")
            if self._expected is not None and number > self._expected:
                self._lose(number)
            if self._expected is None or number >= self._expected:
                self._give(number, frames[2])

    def _end_replay(self) -> None:
        self._wanted = None
        held, self._held = self._held, deque(maxlen=self._held.maxlen)
        for number, payload in held:
            if self._wanted is not None:
                self._held.append((number, payload))
            elif self._expected is None or number == self._expected:
                self._give(number, payload)
            elif number > self._expected:
                self._take(number, payload)

    def _give_up(self) -> None:
        """No answer: continues with the batches that arrived meanwhile."""
        if self._held:
            self._lose(self._held[0][0])
        self._end_replay()

    def _lose(self, number: int) -> None:
        if self._expected is not None:
            lost = max(number - self._expected, 0)
            passed_ms = int(1000 * (time.monotonic() - self._given)) + 1
            if lost < passed_ms * _FASTEST:
                self.lost_batches += lost
            self._clear()
        self._expected = number

    def _give(self, number: int, payload: bytes) -> None:
        self._expected, self._given = number + 1, time.monotonic()
        try:
            batch = decode_batch(payload)
            if batch.events:  # a heartbeat has none
                self._ready.append(batch)
        except CorruptError:
            self.bad_messages += 1
            self._clear()

    def _clear(self) -> None:
        self._ready.append(EventBatch(time.time(), [AllBlocksCleared()]))
