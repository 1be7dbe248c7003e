"""An engine: many requests at once over one transformers model, in blocks of one pagedkv cache.

    from pagedkv_transformers.serving import Engine

    with Engine(model, tokenizer) as engine:
        for event in engine.stream("A KV cache is", max_new_tokens=40):
            print(event.text, end="")

Every step is one forward pass over packed rows: the next token of each decoding request, and chunks
of prompts (continuous batching). A prompt with the same prefix as an earlier one reuses its blocks
and computes the rest. If blocks run out, some requests are preempted and continue later. The engine
has no server; all calls must come from one thread.

Works with most models that PagedCache works with, and refuses others by name. Needs torch and
transformers 5.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import time
import weakref
from collections.abc import Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeAlias

import torch
from pagedkv import Batch, Cache, Dtype, PrefixConfig, Rotation, StoreConfig
from pagedkv.hints import Hint
from pagedkv.support import Uncopied, counted, integer, unsigned
from pagedkv.weights import digest
from transformers import LogitsProcessorList, PreTrainedModel, TopKLogitsWarper, TopPLogitsWarper

from ._fingerprint import ModelWatch
from ._longrope import LongRope
from ._model_layers import cache_config, loaded_model, top_blocks_by_layer
from ._model_pass import PackedCache, cache_argument, check_rows, text_config
from ._model_rows import ForwardPass
from ._scheduler import Event, Finish, Part, Request, RequestFailedError, Sampling, Scheduler
from ._text import TextStream

if TYPE_CHECKING:
    from pagedkv.events import EventPublisher

__all__ = [
    "Engine",
    "EngineStats",
    "Event",
    "Finish",
    "Hint",
    "Request",
    "RequestFailedError",
    "Sampling",
]

Prompt: TypeAlias = str | Sequence[SupportsIndex] | Mapping[str, Any] | torch.Tensor

_SHARED, _TOLD, _GREEDY = PrefixConfig(), PrefixConfig(max_events=1 << 16), Sampling()


@dataclasses.dataclass
class EngineStats:
    """Sums over all steps so far."""

    steps: int = 0
    seconds: float = 0.0
    """In steps."""
    finished: int = 0
    prompt_tokens: int = 0
    """Prompt tokens of the requests that were begun."""
    cached_tokens: int = 0
    """Those of them that were found in the prefix index."""
    computed_tokens: int = 0
    """Rows of forward passes: prompts, answers, and tokens computed again after preemption."""
    generated_tokens: int = 0
    preemptions: int = 0
    time_to_first_token: float = 0.0
    """The mean, in seconds."""


class Engine(Uncopied):
    """Generates text for many requests at once.

    `blocks` (or `memory_bytes`, by default 1 GiB) is the memory for keys and values; `dtype` and
    `value_dtype` are their stored types, and `rotation` is applied before they are stored. `prefix`
    and `store` say what is kept of finished requests, and where. A store without a fingerprint gets
    one of the model's config and weights. While the store is read for a request, the request waits
    at most as long as computing would take; others continue. A step takes up to `chunk` tokens of
    prompts, and up to `max_running` requests run at once. With `top_blocks`, a step without prompts
    reads only this many chosen blocks for each KV head in layers without a window, besides the
    first one and the last two. With `memory_directory` keys and values are in a file there, which
    takes its disk space at once; the OS keeps as much of it in memory as fits.

    `max_length` limits the tokens of a request and its answer together; the default is the model's
    max_position_embeddings. A model with LongRoPE needs it: up to the model's original length all
    requests use the short factors, else all use the long ones.

    If the model is changed, by another adapter or new weights for example, the next step continues
    all requests with the new one and computes their texts again. Nothing that one model computed is
    used with another one.

    A `publisher` (pagedkv.events) publishes which prefixes are cached here, under `rank` if several
    engines share it. If you also give a `prefix`, it needs `max_events`. Close the publisher after
    the engine.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: Any = None,
        *,
        blocks: int = 0,
        memory_bytes: int = 0,
        block_size: int = 16,
        dtype: Dtype | None = None,
        value_dtype: Dtype | None = None,
        rotation: Rotation | str = Rotation.NONE,
        top_blocks: int = 0,
        prefix: PrefixConfig | None = _SHARED,
        store: StoreConfig | None = None,
        threads: int = 0,
        chunk: int = 512,
        max_running: int = 256,
        max_length: int | None = None,
        memory_directory: str | os.PathLike[str] | None = None,
        publisher: EventPublisher | None = None,
        rank: int = 0,
    ) -> None:
        chunk, max_running = integer(chunk, "chunk"), integer(max_running, "max_running")
        if chunk < 1 or max_running < 1:
            raise ValueError(f"chunk and max_running are {chunk} and {max_running}, not 1 or more")
        top_blocks = unsigned(top_blocks, 32, "top_blocks")
        if tokenizer is not None and not hasattr(tokenizer, "backend_tokenizer"):
            raise TypeError(f"a tokenizer of the tokenizers library is needed, not {tokenizer!r}")
        model = loaded_model(model)
        text, weight = text_config(model), next(model.parameters())
        check_rows(weight)
        rope = LongRope(model)
        self._max_length = _max_length(text, rope, max_length)
        runner = _Runner(model, top_blocks, rope, self._max_length)
        if store is not None and not isinstance(store, StoreConfig):
            raise TypeError(f"store: a StoreConfig is needed, not {store!r}")
        named = store is not None and store.fingerprint is None
        self._watch = ModelWatch(model, hashed=named)
        if store is not None and named:
            factors = f"long factors: {self._max_length > rope.switch > 0}"
            name = digest([self._watch.name, factors.encode()])
            store = dataclasses.replace(store, fingerprint=name)
        config = cache_config(
            text,
            weight.dtype,
            dtype,
            value_dtype,
            rotation,
            blocks=blocks,
            memory_bytes=memory_bytes if memory_bytes or blocks else 1 << 30,
            block_size=block_size,
            prefix=_TOLD if publisher is not None and prefix is _SHARED else prefix,
            store=store,
            threads=threads,
            memory_directory=memory_directory,
        )
        self.cache = Cache(config)
        try:
            self._told = None if publisher is None else publisher.follow(self.cache, rank)
        except BaseException:
            self.cache.close()
            raise
        self._runner = runner
        self._scheduler = Scheduler(self.cache, chunk, max_running)
        self._tokenizer = tokenizer
        self._vocabulary = text.vocab_size
        self._stop_tokens = _stop_tokens(model)
        self._numbers = itertools.count()
        self._stats = EngineStats()
        self._ttft_sum, self._ttft_count = 0.0, 0

    def close(self) -> None:
        """Cancels all requests and frees all memory."""
        for request in self._scheduler.requests:
            self._cancel(request)
        if self._told is not None:
            self._told.close()
        self.cache.close()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- Requests ----

    def add(
        self,
        prompt: Prompt,
        *,
        max_new_tokens: SupportsIndex = 128,
        stop_tokens: Sequence[SupportsIndex] | None = None,
        sampling: Sampling = _GREEDY,
        priority: int = 0,
        salt: bytes | None = None,
        hints: Sequence[Hint] = (),
    ) -> Request:
        """Adds a text or token ids to be continued, also as a tokenizer returns them. A text that
        begins with the tokenizer's first special token, as those of chat templates do, gets no
        second one. `stop_tokens` end the answer, by default those
        of the model's generation config. Requests of a higher priority begin earlier and are
        preempted later. Only requests of the same salt share prefixes. `hints` are about what the
        request leaves in the prefix index: see `pagedkv.hints`. Pins begin when it ends."""
        tokens, new = self._token_ids(prompt), integer(max_new_tokens, "max_new_tokens")
        limit = len(tokens) + new
        if new < 1 or limit > self._max_length:
            raise ValueError(
                f"the prompt has {counted(len(tokens), 'token')} and max_new_tokens is {new}: that "
                f"must be 1 or more, and both together at most {self._max_length} (max_length)"
            )
        self._scheduler.check_fits(limit)
        request = Request(
            number=next(self._numbers),
            tokens=tokens,
            prompt_length=len(tokens),
            limit=limit,
            stop_tokens=self._stop_tokens
            if stop_tokens is None
            else frozenset(integer(token, "stop_tokens") for token in stop_tokens),
            sampling=sampling,
            priority=priority,
            salt=salt,
            hints=tuple(hints),
        )
        if self._tokenizer is not None:
            request._text = TextStream.behind(self._tokenizer, tokens)
        self._scheduler.add(request)
        self._tell(request)
        return request

    def cancel(self, request: Request) -> None:
        """Ends a request; what it computed stays in the prefix index."""
        if request.finish is None:
            self._cancel(request)

    def stream(self, prompt: Prompt, **options: Any) -> Generator[Event, None, None]:
        """Adds a request (options as for `add`) and yields its tokens as they are computed. Other
        requests continue meanwhile; several streams may be read in turn. Closing a stream early
        cancels its request."""
        return self.events(self.add(prompt, **options))

    def events(self, request: Request) -> Generator[Event, None, None]:
        """Like stream(), for a request that was added: yields its tokens from the first on. After
        the last token of a failed request it raises a RequestFailedError."""
        events = self._events(request)
        # A generator that never ran does not end by itself. The collector may call this in a step.
        weakref.finalize(events, _drop, request).atexit = False
        return events

    def _events(self, request: Request) -> Generator[Event, None, None]:
        try:
            for at in itertools.count():
                while at == len(request._events) and request.finish is None:
                    self.step()
                if at == len(request._events):
                    break
                yield request._events[at]
        finally:
            self.cancel(request)
        if request.finish is Finish.FAILED:
            raise RequestFailedError(f"request {request.number} failed: {request.error}")

    def run(self) -> None:
        """Steps until every request is done. A request that cannot continue is FAILED and says
        why."""
        while self._scheduler.requests:
            self.step()

    # ---- A step ----

    def step(self) -> list[Event]:
        """Runs one forward pass. Returns the new tokens, and none if every request is done. An
        error of one request only ends that request (Finish.FAILED). An exception of the model, or
        Ctrl-C, is raised, and the next step starts where this one did."""
        start = time.perf_counter()
        begun = self._scheduler.begin(self._watch.look())
        if begun is None:
            return []
        batch, parts = begun
        with batch:
            logits = self._runner.forward(batch, parts)
            self._watch.accept()
            answering = [part.request for part in parts if part.wants_logits]
            answers = [*zip(answering, _answers(answering, logits), strict=True)]
            batch.commit(list(itertools.chain.from_iterable(part.tokens for part in parts)))
        events = []
        for request, answer in answers:
            if isinstance(answer, Event):
                request._take(answer)
                events.append(answer)
            else:
                self._scheduler.fail(request, answer)
        self._scheduler.end(parts)
        self._count(parts, events, time.perf_counter() - start)
        for request in answering:
            if request.finish is not None:
                self._tell(request)
        if self._told is not None:
            self._told.poll()
        return events

    def model_changed(self) -> None:
        """Says that single weights were changed through `.data` or NumPy. Other changes of the
        model are seen without this."""
        self._watch.read_again()

    @property
    def stats(self) -> EngineStats:
        scheduler, mean = self._scheduler, self._ttft_sum / max(self._ttft_count, 1)
        return dataclasses.replace(
            self._stats,
            finished=scheduler.finished,
            preemptions=scheduler.preemptions,
            prompt_tokens=scheduler.prompt_tokens,
            cached_tokens=scheduler.cached_tokens,
            time_to_first_token=mean,
        )

    # ---- Internal ----

    def _token_ids(self, prompt: Prompt) -> list[int]:
        if isinstance(prompt, str):
            if self._tokenizer is None:
                raise ValueError("a prompt of text needs an engine with a tokenizer")
            first = self._tokenizer.bos_token
            begins = bool(first) and prompt.startswith(first)
            prompt = self._tokenizer(prompt, add_special_tokens=not begins)
        tokens = [integer(token, "prompt") for token in _one_prompt(prompt)]
        if not tokens:
            raise ValueError("the prompt is empty: at least one token is needed")
        if unknown := [token for token in tokens if not 0 <= token < self._vocabulary]:
            raise ValueError(
                f"the prompt has the token {unknown[0]}, and those of the model are 0 to "
                f"{self._vocabulary - 1}"
            )
        return tokens

    def _count(self, parts: Sequence[Part], events: Sequence[Event], seconds: float) -> None:
        stats = self._stats
        stats.steps += 1
        stats.seconds += seconds
        stats.computed_tokens += sum(len(part.tokens) for part in parts)
        stats.generated_tokens += len(events)
        first = [event.request for event in events if len(event.request._events) == 1]
        self._ttft_sum += sum(request.time_to_first_token or 0.0 for request in first)
        self._ttft_count += len(first)

    def _tell(self, request: Request) -> None:
        """Publishes the token ids of what is cached."""
        if self._told is not None:
            self._told.add_text(request.tokens, self._scheduler.salt_of(request))

    def _cancel(self, request: Request) -> None:
        request.finish = Finish.CANCELLED
        self._scheduler.remove(request)
        self._tell(request)


def _one_prompt(given: Any) -> list[Any]:
    """Token ids as a list. Tokenizers return them with a mask, and as a batch if they return
    tensors."""
    ids = given["input_ids"] if isinstance(given, Mapping) else given
    ids = ids.tolist() if hasattr(ids, "tolist") else list(ids)
    if not isinstance(ids, list):
        raise ValueError(f"the prompt is {ids!r}, and a list of token ids is needed")
    if ids and isinstance(ids[0], list | tuple):
        if len(ids) != 1:
            raise ValueError(f"the prompt is a batch of {len(ids)}: add one prompt at a time")
        ids = list(ids[0])
    if isinstance(given, Mapping) and 0 in torch.as_tensor(given.get("attention_mask", 1)):
        raise ValueError("the prompt has padding, which its attention_mask hides: add it without")
    return ids


def _drop(request: Request) -> None:
    request._dropped = True


# ---- The runner: the model over packed rows ----


class _Runner:
    def __init__(
        self, model: PreTrainedModel, top_blocks: int, rope: LongRope, max_length: int
    ) -> None:
        self._model, self._top_blocks = model, top_blocks
        self._rope, self._max_length = rope, max_length
        self._cache, self._cache_name = PackedCache(model), cache_argument(model)

    @torch.inference_mode()
    def forward(self, batch: Batch, parts: Sequence[Part]) -> torch.Tensor:
        """Computes the rows of all parts; returns logits [parts that want them][vocabulary]."""
        tokens = itertools.chain.from_iterable(part.tokens for part in parts)
        positions = [torch.arange(p.position, p.position + len(p.tokens)) for p in parts]
        ends = itertools.accumulate(len(part.tokens) for part in parts)
        rows = [end - 1 for end, part in zip(ends, parts, strict=True) if part.wants_logits]
        top_blocks = self._top_blocks if all(len(part.tokens) == 1 for part in parts) else 0
        by_layer = top_blocks_by_layer(self._cache.windows, top_blocks)
        self._cache.pack(ForwardPass(batch, packed=True, top_blocks=by_layer))
        with self._rope.fixed(self._max_length):
            logits: torch.Tensor = self._model(
                input_ids=torch.tensor([list(tokens)]),
                position_ids=torch.cat(positions)[None],
                # Without a mask some models ask for the cache's length.
                attention_mask=torch.ones(1, batch.rows),
                use_cache=True,
                logits_to_keep=torch.tensor(rows, dtype=torch.long),
                **{self._cache_name: self._cache},
            ).logits
        return logits[0]


# ---- Sampling ----


def _answers(requests: Sequence[Request], logits: torch.Tensor) -> list[Event | Exception]:
    """The next token of each request, or the reason why it has none."""
    if not requests:
        return []
    answers: list[Event | Exception] = []
    likeliest, unusable = logits.argmax(-1).tolist(), logits.isnan().any(-1).tolist()
    for request, row, token, bad in zip(requests, logits, likeliest, unusable, strict=True):
        try:
            if bad:
                raise ValueError(f"the model's logits of position {len(request.tokens)} are NaN")
            drawn = _draw(request, row) if request.sampling.temperature > 0 else token
            answers.append(_event(request, drawn))
        except Exception as error:
            answers.append(error)
    return answers


def _event(request: Request, token: int) -> Event:
    finish, text = None, ""
    if token in request.stop_tokens:
        finish = Finish.STOP
    elif len(request.tokens) + 1 == request.limit:
        finish = Finish.LENGTH
    stream = request._events[-1]._text if request._events else request._text
    if stream is not None:
        text, stream = stream.add(token, last=finish is not None)
    return Event(request, token, text, finish, _text=stream)


def _draw(request: Request, logits: torch.Tensor) -> int:
    sampling, warpers = request.sampling, LogitsProcessorList()
    if sampling.top_k:
        warpers.append(TopKLogitsWarper(sampling.top_k))
    if sampling.top_p < 1:
        warpers.append(TopPLogitsWarper(sampling.top_p))
    # With the largest logit at 0, no temperature is too small.
    scores = (logits - logits.max()).double() / sampling.temperature
    scores = warpers(torch.tensor([request.tokens]), scores[None])
    # Each position has its own generator, so a repeated step draws the same token.
    seed = (sampling.seed + len(request.tokens) * 0x9E3779B97F4A7C15) % (1 << 64)
    generator = torch.Generator().manual_seed(seed)
    return int(torch.multinomial(scores.softmax(-1), 1, generator=generator))


def _max_length(config: Any, rope: LongRope, asked: int | None) -> int:
    most: int = getattr(config, "max_position_embeddings", 1 << 31)
    if asked is None:
        if rope.switch:
            raise ValueError(
                f"{config.model_type} has LongRoPE: give max_length, up to {rope.switch} tokens to "
                f"rotate all requests by its short factors, up to {most} for its long ones"
            )
        return most
    asked = integer(asked, "max_length")
    if not 1 <= asked <= most:
        raise ValueError(f"max_length is {asked}; it must be 1 to the model's {most}")
    return asked


def _stop_tokens(model: PreTrainedModel) -> frozenset[int]:
    config = getattr(model, "generation_config", None)
    found = getattr(config, "eos_token_id", None)
    if found is None:
        return frozenset()
    return frozenset(found) if isinstance(found, list | tuple) else frozenset([found])
