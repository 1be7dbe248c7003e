"""One process computes prompts, another one decodes. Keys and values are sent through a socket
while later layers are still being computed.

usage: prefill_decode.py [both]                     starts both, and compares with one process
       prefill_decode.py prefill --listen HOST:PORT
       prefill_decode.py decode --connect HOST:PORT
       prefill_decode.py alone

The process that decodes asks for a prompt, begins a step of its own cache for the missing tokens,
writes each layer as it arrives, and commits. If the other end dies, it aborts the step and computes
the rest itself; the tokens are the same.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import multiprocessing
import pathlib
import queue
import socket
import tempfile
import threading
import time
from typing import Any

import numpy as np
from handover import (
    ROWS,
    Channel,
    HandoverError,
    Kind,
    Rows,
    Shape,
    pack_prompt,
    parse_address,
    unpack_prompt,
)
from llama2 import Floats, Llama

import pagedkv

DATA = pathlib.Path(__file__).resolve().parents[3] / "bench/data"
Options = argparse.Namespace


def random_checkpoint(path: pathlib.Path, layers: int, dim: int, context: int) -> None:
    """Random weights in the format of llama2.c: for measurements."""
    hidden, heads, kv_heads, vocabulary = 3 * dim, dim // 64, max(dim // 128, 1), 512
    sizes = [vocabulary * dim, layers * dim]
    sizes += [layers * dim * width for width in (dim, kv_heads * 64, kv_heads * 64, dim)]
    sizes += [layers * dim, *[layers * dim * hidden] * 3, dim, context * 64]
    with path.open("wb") as file:
        np.array([dim, hidden, layers, heads, kv_heads, vocabulary, context], np.int32).tofile(file)
        draw = np.random.default_rng(1)
        for size in sizes:
            (draw.standard_normal(size, np.float32) * np.float32(dim**-0.5)).tofile(file)


class Engine:
    """A model and its cache: both processes have one."""

    def __init__(self, options: Options) -> None:
        self.model, self.chunk = Llama(options.model), options.chunk
        given: dict[str, Any] = {"dtype": options.dtype, "blocks": options.blocks, "threads": 1}
        config = pagedkv.CacheConfig(**self.model.shape, **given, prefix=pagedkv.PrefixConfig())
        self.cache = pagedkv.Cache(config)
        self.lock = threading.Lock()  # for the model's own computing; batches may run at once
        # Rows are sent in the stored type if rows can have it, else in the type in which they are
        # computed. Both ends then store the same bits.
        self.row_type = np.dtype(np.float16 if options.dtype == "f16" else np.float32)
        weights = np.fromfile(options.model, np.int32)
        fingerprint = int(pagedkv.prefix_hash_blocks(weights, 256)[-1])
        dims = self.model.layers, self.model.kv_heads, self.model.head_dim
        self.shape = Shape(*dims, self.row_type.itemsize, fingerprint)

    def step(self, parts: list[tuple[pagedkv.Session, list[int]]], sender: Any = None) -> list[int]:
        """Computes tokens of several sessions; returns the best next token of each."""
        tokens = [token for _, part in parts for token in part]
        first = [len(session) for session, _ in parts]
        positions = [first[i] + j for i, (_, part) in enumerate(parts) for j in range(len(part))]
        with self.cache.begin([s for s, _ in parts], [len(part) for _, part in parts]) as batch:

            def attend(layer: int, q: Floats, k: Floats, v: Floats) -> Floats:
                batch.write(layer, k, v)
                if sender is not None:
                    sender.layer(positions[0], layer, k, v)
                out: Floats = batch.attend(layer, q)
                return out

            x = self.model.forward(tokens, positions, attend)
            batch.commit(tokens)
        ends = np.cumsum([len(part) for _, part in parts]) - 1
        best: list[int] = self.model.logits(x[ends]).argmax(axis=-1).tolist()
        return best


class RowSender:
    """Sends rows of a request: a few layers per frame as they are computed, or all at the end.

    While the model computes, nobody else can, so no frame is waited for then.
    """

    def __init__(self, channel: Channel, request: int, first: int, engine: Engine, group: int):
        self.channel, self.request, self.first, self.engine = channel, request, first, engine
        self.group = group  # layers of a frame; 0: all frames at the end
        self._frames: list[tuple[Any, ...]] = []
        self._pending: list[Any] = []

    def layer(self, position: int, layer: int, k: Floats, v: Floats) -> None:
        skip = max(self.first - position, 0)  # rows that the other end has
        if skip >= len(k):
            return
        rows = [np.ascontiguousarray(a[skip:], self.engine.row_type) for a in (k, v)]
        if rows[0] is k or rows[1] is v:
            rows = [row.copy() for row in rows]
        self._pending += rows
        layers = len(self._pending) // 2
        if layers == self.group or layer + 1 == self.engine.shape.layers:
            head = ROWS.pack(
                self.request, len(rows[0]), position + skip, layer + 1 - layers, layers
            )
            self._frames.append((head, *self._pending))
            self._pending = []
            while self.group and self._frames and self.channel.has_room:
                self.channel.send(Kind.ROWS, *self._frames.pop(0))

    def end_chunk(self) -> None:
        """Sends what had to wait, so that it does not grow with the prompt."""
        if self.group:
            self.flush()

    def flush(self) -> None:
        while self._frames:
            self.channel.send(Kind.ROWS, *self._frames.pop(0))


def compute_prompt(
    engine: Engine, session: pagedkv.Session, prompt: list[int], sender: RowSender | None = None
) -> int:
    """Computes the prompt in chunks, from where the session ends. Returns the first token after
    it."""
    best = 0
    while len(session) < len(prompt):
        part = prompt[len(session) : len(session) + engine.chunk]
        with engine.lock:
            best = engine.step([(session, part)], sender)[0]
        if sender is not None:
            sender.end_chunk()
    return best


def send_cached(engine: Engine, session: pagedkv.Session, sender: RowSender) -> None:
    """Sends rows that this side did not need to compute."""
    first, end, model = sender.first, len(session), engine.model
    if first < end:
        for layer in range(model.layers):
            shape = (end - first, model.kv_heads, model.head_dim)
            k, v = np.empty(shape, np.float32), np.empty(shape, np.float32)
            session.read(layer, first, end - first, k, v)
            sender.layer(first, layer, k, v)
            sender.end_chunk()


def serve_one(engine: Engine, connection: socket.socket, options: Options) -> None:
    """Computes the prompts that one connection asks for."""
    channel = None
    try:
        channel = Channel(connection, engine.shape, options.timeout)
        while True:
            kind, body = channel.receive()
            if kind != Kind.PROMPT:
                raise HandoverError(f"a prompt was expected, this is {kind.name}")
            request, prompt, cached = unpack_prompt(
                body, engine.model.vocabulary, engine.model.context
            )
            sender = RowSender(channel, request, cached, engine, options.group)
            with engine.cache.open_session() as session:
                if engine.cache.config.dtype in (pagedkv.Dtype.F32, pagedkv.Dtype.F16):
                    session.admit(prompt[:-1])  # quantised rows cannot be read back exactly
                send_cached(engine, session, sender)
                first_token = compute_prompt(engine, session, prompt, sender)
            sender.flush()
            channel.send(Kind.TOKEN, np.array([request, first_token], np.int32))
    except (HandoverError, pagedkv.PagedKVError) as error:
        print(f"prefill: a connection ends: {error}", flush=True)
        if channel is not None:
            with contextlib.suppress(HandoverError):
                channel.send(Kind.REFUSED, str(error).encode())
    finally:
        if channel is not None:
            channel.close()
        connection.close()


def serve(options: Options, ready: Any = None) -> None:
    engine = Engine(options)
    with socket.create_server(parse_address(options.listen)) as server:
        print(f"prefill: listens at {options.listen}", flush=True)
        if ready is not None:
            ready.put(server.getsockname()[1])
        while True:
            connection, _ = server.accept()
            threading.Thread(
                target=serve_one, args=(engine, connection, options), daemon=True
            ).start()


@dataclasses.dataclass
class Text:
    """A request and the times of its tokens."""

    prompt: list[int]
    session: pagedkv.Session
    asked: float = 0.0
    tokens: list[int] = dataclasses.field(default_factory=list)
    times: list[float] = dataclasses.field(default_factory=list)

    def take(self, token: int) -> None:
        self.tokens.append(token)
        self.times.append(time.perf_counter())


class Receiver(threading.Thread):
    """Writes received rows to the decoding process's cache, in parallel with its steps."""

    def __init__(self, engine: Engine, channel: Channel, ready: queue.Queue[tuple[Text, int]]):
        super().__init__(daemon=True)
        self.engine, self.channel, self.ready = engine, channel, ready
        self.texts: dict[int, Text] = {}
        self.error: Exception | None = None

    def ask(self, request: int, text: Text) -> None:
        cached = text.session.admit(text.prompt[:-1])
        self.texts[request] = text  # last, because rows may come at any time
        try:
            self.channel.send(Kind.PROMPT, pack_prompt(request, text.prompt, cached))
        except HandoverError as error:
            self.error = error

    def run(self) -> None:
        batch: pagedkv.Batch | None = None
        try:
            while True:
                kind, body = self.channel.receive()
                if kind == Kind.ROWS:
                    batch = self._write(batch, Rows.unpack(body, self.engine.shape))
                elif kind == Kind.TOKEN and len(body) == 8 and batch is None:
                    request, token = np.frombuffer(body, np.int32).tolist()
                    text = self.texts.get(request)
                    if text is None or len(text.session) != len(text.prompt):
                        raise HandoverError(f"request {request} ends before its rows came")
                    if not 0 <= token < self.engine.model.vocabulary:
                        raise HandoverError(f"token {token} of {self.engine.model.vocabulary}")
                    self.ready.put((self.texts.pop(request), token))
                elif kind == Kind.REFUSED:
                    said = body[:400].decode("ascii", errors="replace")
                    shown = "".join(one if one.isprintable() else "?" for one in said)
                    raise HandoverError(f"the other end refuses: {shown}")
                else:
                    raise HandoverError(f"{kind.name} of {len(body)} bytes does not belong here")
        except (HandoverError, pagedkv.PagedKVError) as error:
            if batch is not None:
                batch.abort()  # as if these rows had never arrived
            self.error = error

    def _write(self, batch: pagedkv.Batch | None, rows: Rows) -> pagedkv.Batch | None:
        """The rows of a chunk arrive layer by layer, beginning with the first."""
        text = self.texts.get(rows.request)
        if text is None:
            raise HandoverError(f"rows of request {rows.request}, which does not exist")
        end = rows.first + rows.count
        if rows.first_layer == 0 and batch is None:
            if rows.first != len(text.session) or end > len(text.prompt):
                place = f"after {len(text.session)} of {len(text.prompt)}"
                raise HandoverError(f"rows {rows.first} to {end - 1} {place}")
            batch = self.engine.cache.begin([text.session], [rows.count])
            self._next = (rows.request, rows.first, rows.count, 0)
        if batch is None or self._next != (rows.request, rows.first, rows.count, rows.first_layer):
            raise HandoverError(f"layer {rows.first_layer} is not the one that comes next")
        for index in range(rows.layers):
            k, v = rows.layer(index, self.engine.shape, self.engine.row_type)
            batch.write(rows.first_layer + index, k, v)
        following = rows.first_layer + rows.layers
        self._next = (rows.request, rows.first, rows.count, following)
        if following < self.engine.shape.layers:
            return batch
        batch.commit(text.prompt[rows.first : end])
        return None


def decode(engine: Engine, prompts: list[list[int]], options: Options) -> list[Text]:
    """Decodes all texts at once. Prompts are computed elsewhere, or between the steps."""
    ready: queue.Queue[tuple[Text, int]] = queue.Queue()
    waiting = [Text(prompt, engine.cache.open_session()) for prompt in prompts]
    texts, running = list(waiting), list[Text]()
    receiver: Receiver | None = None
    begun = time.perf_counter()
    if options.connect:
        address = parse_address(options.connect)
        try:
            connection = socket.create_connection(address, timeout=options.timeout)
            channel = Channel(connection, engine.shape, options.timeout)
            receiver = Receiver(engine, channel, ready)
            receiver.start()
        except (HandoverError, OSError) as error:
            print(f"decode: continues alone: {error}", flush=True)
    asked = 0
    while any(len(text.tokens) < options.tokens for text in texts):
        # A request arrives every `every` seconds; without another process it waits for its turn.
        while asked < len(texts) and time.perf_counter() - begun >= asked * options.every:
            texts[asked].asked = time.perf_counter()
            if receiver:
                receiver.ask(asked, texts[asked])
                waiting.remove(texts[asked])
            asked += 1
        if receiver and receiver.error and not receiver.is_alive():
            print(f"decode: continues alone: {receiver.error}", flush=True)
            waiting = list(receiver.texts.values()) + waiting
            receiver = None
        late = [text for text in waiting if text.asked and not receiver][:1]
        with contextlib.suppress(queue.Empty):
            while True:
                text, token = ready.get(timeout=0 if running or late else 0.002)
                text.take(token)
                running.append(text)
        parts = [(text.session, [text.tokens[-1]]) for text in running]
        for text in late:
            if len(text.session) == 0:
                text.session.admit(text.prompt[:-1])
            # If all rows arrived but no token, the last row is computed again.
            done = min(len(text.session), len(text.prompt) - 1)
            text.session.trim(done)
            parts.append((text.session, text.prompt[done : done + engine.chunk]))
        if not parts:
            continue
        best = engine.step(parts)
        for text, token in zip(running, best, strict=False):
            text.take(token)
        for text in late:
            if len(text.session) == len(text.prompt):
                waiting.remove(text)
                text.take(best[-1])
                running.append(text)
        for text in [text for text in running if len(text.tokens) >= options.tokens]:
            running.remove(text)
            text.session.close()
    return texts


def figures(name: str, texts: list[Text]) -> dict[str, Any]:
    first = [text.times[0] - text.asked for text in texts]
    gaps = [b - a for text in texts for a, b in zip(text.times, text.times[1:], strict=False)]
    total = max(text.times[-1] for text in texts) - min(text.asked for text in texts)
    shown = {
        "first_token_ms": 1000 * float(np.mean(first)),
        "longest_gap_ms": 1000 * max(gaps, default=0.0),
        "total_s": total,
    }
    print(
        f"{name:>24}: first token after {shown['first_token_ms']:7.1f} ms on average, longest wait "
        f"for a later one {shown['longest_gap_ms']:6.1f} ms, all after {total:.2f} s",
        flush=True,
    )
    return {"name": name, **shown, "tokens": [text.tokens for text in texts]}


def prompts_of(options: Options, model: Llama) -> list[list[int]]:
    draw, length = np.random.default_rng(7), min(options.length, model.context - options.tokens)
    return [draw.integers(3, model.vocabulary, length).tolist() for _ in range(options.requests)]


def run(options: Options, name: str) -> dict[str, Any]:
    engine = Engine(options)
    with engine.cache:
        return figures(name, decode(engine, prompts_of(options, engine.model), options))


def both(options: Options) -> list[dict[str, Any]]:
    """Runs one process, then two: rows sent at the end, and by layers."""
    options.connect = None
    results = [run(options, "one process")]
    for name, group in (("two, at the end", 0), ("two, by layers", options.group)):
        context = multiprocessing.get_context("spawn")
        ready = context.Queue()
        there = argparse.Namespace(**vars(options) | {"listen": "127.0.0.1:0", "group": group})
        server = context.Process(target=serve, args=(there, ready), daemon=True)
        server.start()
        options.connect = f"127.0.0.1:{ready.get(timeout=60)}"
        results.append(run(options, name))
        server.terminate()
        server.join()
    same = all(result["tokens"] == results[0]["tokens"] for result in results)
    print(f"The tokens are {'the same' if same else 'NOT the same'}.")
    return results


def parse(arguments: list[str] | None = None) -> Options:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    weights = DATA / "tiny-shakespeare.bin"
    add("role", nargs="?", choices=["both", "prefill", "decode", "alone"], default="both")
    add("--listen", default="127.0.0.1:7079", help="address on which prefill listens")
    add("--connect", help="address of the prefill process")
    add("--model", type=pathlib.Path, default=weights, help="llama2.c checkpoint")
    add("--random", metavar="LAYERS,DIM,CONTEXT", help="use random weights instead")
    add("--dtype", choices=["f32", "f16", "int8"], default="f32", help="stored type")
    add("--group", type=int, default=1, help="layers per frame; 0: all at the end")
    add("--chunk", type=int, default=64, help="most prompt tokens per step")
    add("--blocks", type=int, default=512, help="cache capacity, in blocks of 16 tokens")
    add("--requests", type=int, default=8, help="number of requests")
    add("--every", type=float, default=0.0, metavar="S", help="seconds between requests")
    add("--length", type=int, default=160, help="tokens of a prompt")
    add("--tokens", type=int, default=32, help="tokens to generate per request")
    add("--timeout", type=float, default=60.0, help="seconds until the other end counts as dead")
    add("--json", type=pathlib.Path, help="output file for timings and tokens")
    return parser.parse_args(arguments)


def main() -> None:
    options = parse()
    with tempfile.TemporaryDirectory() as folder:
        if options.random:
            options.model = pathlib.Path(folder) / "random.bin"
            random_checkpoint(options.model, *map(int, options.random.split(",")))
        if options.role == "prefill":
            serve(options)
        elif options.role == "both":
            results = both(options)
        else:
            if options.role == "alone":
                options.connect = None
            elif not options.connect:
                raise SystemExit("decode needs --connect HOST:PORT")
            results = [run(options, options.role)]
        if options.json:
            options.json.write_text(json.dumps(results))


if __name__ == "__main__":
    main()
