"""The requests of an Engine, and a scheduler that knows sessions and blocks but no model."""

from __future__ import annotations

import dataclasses
import enum
import math
import time

import numpy as np
import numpy.typing as npt
from pagedkv import (
    Batch,
    BatchTooLargeError,
    Cache,
    HintAction,
    MisuseError,
    OutOfBlocksError,
    Session,
    SessionInfo,
    Status,
)
from pagedkv.hints import Hint
from pagedkv.support import counted, enum_number, unsigned
from pagedkv.weights import digest

from ._text import TextStream

_OF_CACHED = frozenset([HintAction.PIN, HintAction.STORE, HintAction.DEMOTE])


@dataclasses.dataclass(frozen=True)
class Sampling:
    """How the next token is chosen: the most likely one (temperature 0), or at random. The same
    seed gives the same tokens."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        temperature, top_p = float(self.temperature), float(self.top_p)
        if not 0 <= temperature < math.inf or not 0 < top_p <= 1:
            raise ValueError(
                "a temperature of 0 or more and a top_p above 0 and up to 1 are needed, "
                f"not {temperature} and {top_p}"
            )
        # Converted to Python's types, because other libraries accept no others.
        object.__setattr__(self, "temperature", temperature)
        object.__setattr__(self, "top_p", top_p)
        object.__setattr__(self, "top_k", unsigned(self.top_k, 32, "top_k"))
        object.__setattr__(self, "seed", unsigned(self.seed, 64, "seed"))


class Finish(enum.Enum):
    """Why a request ended."""

    STOP = "stop"
    LENGTH = "length"
    CANCELLED = "cancelled"
    FAILED = "failed"


class RequestFailedError(RuntimeError):
    """The request ended without its answer; the other requests continue."""


@dataclasses.dataclass(frozen=True)
class Event:
    """A new token of a request. With a tokenizer, `text` is the text that it adds, "" while the
    token is a part of a character. The last token has `finish`. `time` is by
    time.perf_counter()."""

    request: Request
    token: int
    text: str
    finish: Finish | None
    time: float = dataclasses.field(default_factory=time.perf_counter)
    _text: TextStream | None = dataclasses.field(default=None, repr=False)


class _State(enum.Enum):
    WAITING = 0
    RUNNING = 1
    DONE = 2


@dataclasses.dataclass(eq=False)
class Request:
    """A prompt and its answer so far, made by Engine.add."""

    number: int
    tokens: list[int]
    prompt_length: int
    limit: int
    stop_tokens: frozenset[int]
    sampling: Sampling
    priority: int
    salt: bytes | None
    hints: tuple[Hint, ...] = ()
    finish: Finish | None = None
    error: str = ""
    """Why it FAILED."""
    preemptions: int = 0
    cached_tokens: int = 0
    """Tokens of the prompt that need not be computed, because the prefix index had them."""
    arrival: float = dataclasses.field(default_factory=time.perf_counter)

    _prompt: npt.NDArray[np.int32] = dataclasses.field(init=False, repr=False)
    _state: _State = _State.WAITING
    _session: Session | None = None
    _held: int = 0  # tokens whose keys and values are in the session
    # When it stops waiting for the store, by time.monotonic(). 0: it does not wait; None: not known
    # yet.
    _read_until: float | None = None
    _text: TextStream | None = None  # before the answer
    _dropped: bool = False  # nobody can read its stream any more
    _events: list[Event] = dataclasses.field(default_factory=list, repr=False)

    def __post_init__(self) -> None:
        self._prompt = np.array(self.tokens, np.int32)

    def _take(self, event: Event) -> None:
        """Takes a token. One assignment decides whether it was taken; the rest follows from it."""
        self._events.append(event)
        self._follow_events()

    def _follow_events(self) -> None:
        self.tokens += [event.token for event in self._events[len(self.answer) :]]
        if self._events and self.finish is None:
            self.finish = self._events[-1].finish

    @property
    def session(self) -> Session:
        """The session that holds its tokens, from its first step to its end."""
        if self._session is None:
            raise RuntimeError(f"request {self.number} is {self._state.name} and has no session")
        return self._session

    @property
    def answer(self) -> list[int]:
        """The tokens generated so far, a stop token included."""
        return self.tokens[self.prompt_length :]

    @property
    def text(self) -> str:
        """The answer as text."""
        return "".join(event.text for event in self._events)

    @property
    def first_token(self) -> float | None:
        """When it was added, by time.perf_counter()."""
        return self._events[0].time if self._events else None

    @property
    def last_token(self) -> float | None:
        return self._events[-1].time if self._events else None

    @property
    def time_to_first_token(self) -> float | None:
        return None if self.first_token is None else self.first_token - self.arrival

    @property
    def tokens_per_second(self) -> float | None:
        """The rate of the answer after its first token."""
        count = len(self.tokens) - self.prompt_length - 1
        if count < 1 or self.first_token is None or self.last_token is None:
            return None
        return count / (self.last_token - self.first_token)


@dataclasses.dataclass(frozen=True)
class Part:
    """The rows of one request in a step."""

    request: Request
    session: Session
    tokens: list[int]
    position: int
    wants_logits: bool


class Scheduler:
    def __init__(self, cache: Cache, chunk: int, max_running: int) -> None:
        self._cache, self._chunk, self._max_running = cache, chunk, max_running
        self._block_size = cache.info().block_size
        plan = cache.config.sizes()
        self._groups, self._blocks = plan.group_count, plan.blocks // plan.group_count
        self._block_bytes = plan.bytes_per_block  # in all groups
        windows = [group.window for group in cache.config.layer_groups()]
        self._window = 0 if 0 in windows else max(windows)
        # Requests that are not done: higher priorities first, then in order of arrival.
        self.requests: list[Request] = []
        self.preemptions = self.prompt_tokens = self.cached_tokens = self.finished = 0
        self._batch: Batch | None = None
        self._ended_well = True  # the last step
        self._model = b""  # the name of the model; b"" for the first one
        self._began = 0.0
        # Of steps with prompts; a guess until there was one.
        self._prompt_rows, self._prompt_seconds = 100, 1.0

    def check_fits(self, tokens: int) -> None:
        """Refuses a request that could not even run alone."""
        held = min(tokens, self._window + self._chunk) if self._window else tokens
        needed = self._blocks_of(held)
        if needed > self._blocks:
            by_blocks = self._cache.config.memory_bytes == 0
            enough = (
                f"blocks={needed}" if by_blocks else f"memory_bytes={needed * self._block_bytes}"
            )
            raise ValueError(
                f"{counted(tokens, 'token')} with the answer need {needed} blocks of "
                f"{self._block_size}, and the cache has {self._blocks}: make the Engine with "
                f"{enough} or more"
            )

    def add(self, request: Request) -> None:
        # This refuses what no session can have.
        self._cache.open_session(priority=request.priority, salt=request.salt).close()
        self.requests = sorted([*self.requests, request], key=lambda r: (-r.priority, r.number))

    def remove(self, request: Request) -> None:
        if request._session is not None:
            request._session.close_if_open()
            if request.finish is not Finish.FAILED:
                self._hint_at_end(request)
        if request._state is not _State.DONE:
            self.finished += request.finish is not Finish.CANCELLED
        request._session, request._state = None, _State.DONE
        self.requests = [other for other in self.requests if other is not request]

    def _hint_at_end(self, request: Request) -> None:
        """Gives the hints that are about cached blocks; there were none when the request began."""
        for hint in request.hints:
            if enum_number(hint.action, HintAction, "action") in _OF_CACHED:
                text, salt = request.tokens[:-1], self.salt_of(request)
                self._cache.hint(tokens=text, salt=salt, **hint._asdict())

    def fail(self, request: Request, error: Exception) -> None:
        """Ends a request that cannot continue."""
        request.error = f"{type(error).__name__}: {error}"
        request.finish = Finish.FAILED
        self.remove(request)

    def salt_of(self, request: Request) -> bytes | None:
        """The salt of what the model now computes for a request."""
        if not self._model:
            return request.salt
        return digest([self._model, *([] if request.salt is None else [request.salt])])

    def begin(self, model: bytes) -> tuple[Batch, list[Part]] | None:
        """Plans a step and takes its blocks. None: there is nothing to do."""
        if not self._ended_well:
            self._recover()
        self._remove_ended()
        if model != self._model:
            self._compute_again(model)
        self._ended_well = False
        self._admit()
        while not self._running() and self._wait_for_store():
            self._admit()
        while parts := self._plan():
            sessions = [part.session for part in parts]
            counts = [len(part.tokens) for part in parts]
            try:
                self._batch = self._cache.begin(sessions, counts)
                self._began = time.monotonic()
                return self._batch, parts
            except (OutOfBlocksError, BatchTooLargeError) as error:
                alone = len(self._running()) == 1  # a request that waits for itself never runs
                if alone or not self._preempt(self._cache.choose_victims(sessions, counts)):
                    self.fail(parts[-1].request, error)
        self._ended_well = True
        return None

    def end(self, parts: list[Part]) -> None:
        """Records a step that was committed, and the tokens that it gave."""
        if any(len(part.tokens) > 1 for part in parts):
            self._prompt_seconds += time.monotonic() - self._began
            self._prompt_rows += sum(len(part.tokens) for part in parts)
        for part in parts:
            part.request._held += len(part.tokens)
            if part.request.finish is not None:
                self.remove(part.request)
        self._batch, self._ended_well = None, True

    def _recover(self) -> None:
        """Recovers from an exception, such as Ctrl-C, between any two lines of a step. The
        library's sessions and the existing events show how far the step got."""
        if self._batch is not None:
            self._batch.close_if_open()
            self._batch = None
        for request in self.requests:
            request._follow_events()
            if request.finish is not None:
                self.remove(request)
            elif (session := request._session) is not None:
                info = _info(session)
                lost = info is None or info.length >= len(request.tokens)
                if lost:  # its last token was not taken and is computed again
                    session.close_if_open()
                    request._session = None
                waits = lost or info is None or info.suspended
                request._state = _State.WAITING if waits else _State.RUNNING
                request._held = 0 if waits or info is None else info.length

    def _remove_ended(self) -> None:
        """Removes requests whose stream was dropped, or whose removal an exception ended."""
        for request in self.requests:
            if request._dropped and request.finish is None:
                request.finish = Finish.CANCELLED
            if request.finish is not None:
                self.remove(request)

    def _compute_again(self, model: bytes) -> None:
        """Continues with another model, which shares no blocks with the last one."""
        for request in self.requests:
            if request._session is not None:
                request._session.close_if_open()
            request._session, request._state = None, _State.WAITING
            request._held, request._read_until = 0, None
        self._model = model

    # ---- Admission ----

    def _admit(self) -> None:
        """Starts waiting requests in their order. A request that finds no room holds up those
        behind it, so that none starves. A request also waits while another one computes its prefix,
        to share it, and while its text is read from the store."""
        running = self._running()
        for request in self.requests:
            if len(running) == self._max_running:
                return
            if request._state is not _State.WAITING or self._shares_later(request, running):
                continue
            if running and not self._has_room(request, running):
                return
            try:
                if self._reads(request):
                    continue
                self._start(request)
            except Exception as error:
                if running and isinstance(error, OutOfBlocksError):
                    return
                self.fail(request, error)
            else:
                running.append(request)

    def _start(self, request: Request) -> None:
        """Opens the session of a request and takes over what is cached of its text, or ends a
        suspension."""
        if request._session is None:
            salt = self.salt_of(request)
            session = self._cache.open_session(priority=request.priority, salt=salt)
            request._session = session
            for hint in request.hints:
                session.hint(**hint._asdict())
            # Not the last token, whose output is needed.
            request._held = request.cached_tokens = session.admit(request.tokens[:-1])
            self.prompt_tokens += request.prompt_length
            self.cached_tokens += request.cached_tokens
        else:
            request._held = request._session.resume().length
        request._state, request._read_until = _State.RUNNING, None

    def _reads(self, request: Request) -> bool:
        """Whether a request that could begin still waits for its read from the store. It waits at
        most as long as computing would take."""
        if self._cache.config.store is None:
            return False
        text, salt, now = request.tokens[:-1], self.salt_of(request), time.monotonic()
        if request._read_until is None:
            cached = self._cache.wait_for_prefetch(text, salt, timeout_ms=0)
            missing = len(text) - len(text) % self._block_size - cached
            request._read_until = now + missing * self._prompt_seconds / self._prompt_rows
            if missing > 0:
                self._cache.hint("prefetch", text, salt)
            else:
                request._read_until = 0.0
        if request._read_until == 0 or not self._cache.is_prefetching(text, salt):
            return False
        if now >= request._read_until:
            self._cache.cancel_prefetch(text, salt)
            return False
        return True

    def _wait_for_store(self) -> bool:
        """Waits a while for the first request that waits for the store. False: there is none."""
        for request in self.requests:
            if request._state is _State.WAITING and request._read_until:
                text, salt = request.tokens[:-1], self.salt_of(request)
                left = max(request._read_until - time.monotonic(), 0.0)
                self._cache.wait_for_prefetch(text, salt, timeout_ms=min(int(left * 1000) + 1, 50))
                return True
        return False

    def _shares_later(self, request: Request, running: list[Request]) -> bool:
        """Whether a running request will compute a block that this one needs, too."""
        if request._session is not None or self._cache.config.prefix is None:
            return False
        size = self._block_size
        for other in running:
            if other._held >= other.prompt_length or other.salt != request.salt:
                continue
            if _common(request._prompt, other._prompt) // size > other._held // size:
                return True
        return False

    def _has_room(self, candidate: Request, running: list[Request]) -> bool:
        """Whether the cache has room for the request beside the blocks that running requests still
        need for their known tokens and their next one. How much of its text is cached is not known
        yet."""
        needed = self._blocks_of(len(candidate.tokens) + 1)
        for request in running:
            needed += self._blocks_of(len(request.tokens) + 1) - self._blocks_of(request._held)
        free = self._cache.pool_stats().free_blocks + self._cache.stats().evictable_blocks
        return needed * self._groups <= free

    # ---- A step ----

    def _plan(self) -> list[Part]:
        """The next token of each request that decodes, and up to `chunk` prompt tokens of requests
        in prefill, first come first served."""
        parts, chunk = [], self._chunk
        for request in self._running():
            held, pending = request._held, len(request.tokens) - request._held
            count = pending if pending == 1 else min(pending, chunk)
            chunk -= count if pending > 1 else 0
            if count > 0:
                tokens = request.tokens[held : held + count]
                parts.append(Part(request, request.session, tokens, held, count == pending))
        return parts

    def _preempt(self, handles: list[int]) -> bool:
        """Suspends the sessions that libpagedkv chose: the lowest priority first, and among equal
        ones the latest. False: none of them belongs to a request."""
        chosen = [request for request in self._running() if request.session.handle in handles]
        for request in chosen:
            request.session.suspend()
            request._state, request._held = _State.WAITING, 0
            request.preemptions += 1
        self.preemptions += len(chosen)
        return bool(chosen)

    def _running(self) -> list[Request]:
        return [request for request in self.requests if request._state is _State.RUNNING]

    def _blocks_of(self, tokens: int) -> int:
        return -(-tokens // self._block_size)


def _info(session: Session) -> SessionInfo | None:
    """The session, or None if it is closed, even if an exception came before the object recorded
    that."""
    try:
        return None if session.closed else session.info()
    except MisuseError as error:
        if error.status != Status.STALE_HANDLE:
            raise
        return None


def _common(a: npt.NDArray[np.int32], b: npt.NDArray[np.int32]) -> int:
    """The length of the longest common beginning."""
    n = min(len(a), len(b))
    unequal = np.flatnonzero(a[:n] != b[:n])
    return int(unequal[0]) if len(unequal) else n
