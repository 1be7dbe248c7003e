"""The Engine gives the tokens of generate(), whatever else it computes at the same time. Needs
torch and transformers.
"""

from __future__ import annotations

import itertools
import pathlib
import re
import sys
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", minversion="5.0")

import pagedkv  # noqa: E402
from pagedkv_transformers.serving import Engine, Finish, Hint, Request, Sampling  # noqa: E402

from test_transformers import FAMILIES, answer, model_of  # noqa: E402

NEW = 12
SHARED = 40


def prompts() -> list[list[int]]:
    """16 prompts of 5 to 60 tokens. Every second one has the same prefix."""
    torch.manual_seed(3)
    common = torch.randint(2, 97, (SHARED,)).tolist()
    return [(common if i % 2 else []) + torch.randint(2, 97, (5 + i,)).tolist() for i in range(16)]


def generated(model: Any, new: int = NEW) -> list[list[int]]:
    """The answers of generate() to each prompt alone."""
    return [prompt + answer(model, prompt, new) for prompt in prompts()]


def serve(engine: Engine, new: int = NEW, **options: Any) -> list[Request]:
    requests = [engine.add(prompt, max_new_tokens=new, **options) for prompt in prompts()]
    engine.run()
    engine.cache.validate()
    return requests


def tokens_of(requests: list[Request]) -> list[list[int]]:
    return [request.tokens for request in requests]


@pytest.mark.parametrize("family", FAMILIES)
def test_tokens_are_those_of_generate(family: str) -> None:
    model = model_of(family)
    expected = generated(model)
    with Engine(model, chunk=32) as engine:
        assert tokens_of(serve(engine)) == expected
        assert tokens_of(serve(engine)) == expected  # with all prompts in the prefix index
        assert engine.stats.finished == 32
        assert engine.cache.stats().sessions == 0


@pytest.mark.parametrize("family", ["Llama", "Gemma3Text"])
def test_answers_read_chosen_blocks(family: str) -> None:
    model, prompt = model_of(family), [5 + i % 90 for i in range(120)]
    answers, reserved = [], []
    for top_blocks in (0, 100, 1):
        with Engine(model, top_blocks=top_blocks, chunk=50) as engine:
            requests = [engine.add(prompt[i:], max_new_tokens=NEW) for i in range(3)]
            engine.run()
            answers.append(tokens_of(requests))
            reserved.append(engine.cache.stats().mapped_bytes)
    assert answers[0] == answers[1]  # the prompt has fewer than 100 blocks
    assert reserved[0] == reserved[1] < reserved[2]  # bounds were made
    with pytest.raises(pagedkv.MisuseError, match="top_blocks: -1"):
        Engine(model, top_blocks=-1)


def test_keys_and_values_in_a_file(tmp_path: pathlib.Path) -> None:
    model = model_of("Llama")
    with Engine(model, memory_bytes=1 << 22, memory_directory=tmp_path) as engine:
        assert str(tmp_path) in pathlib.Path("/proc/self/maps").read_text()
        assert tokens_of(serve(engine)) == generated(model)
    with pytest.raises(pagedkv.SystemCallError, match="nowhere"):
        Engine(model, memory_directory=tmp_path / "nowhere")


def test_a_shared_beginning_is_computed_once() -> None:
    model = model_of("Llama")
    with Engine(model) as engine:
        requests = serve(engine)
        shared = [request.cached_tokens for request in requests[1::2]]
        assert shared[0] == 0
        assert min(shared[1:]) >= SHARED // 16 * 16
        assert engine.stats.cached_tokens == sum(request.cached_tokens for request in requests)
        again = engine.add(prompts()[1], max_new_tokens=1, salt=b"another tenant")
        engine.run()
        assert again.cached_tokens == 0


def test_prompts_in_chunks() -> None:
    model = model_of("Qwen3")
    for chunk in (1, 7):
        with Engine(model, chunk=chunk) as engine:
            assert tokens_of(serve(engine)) == generated(model)


@pytest.mark.parametrize("prefix", [None, pagedkv.PrefixConfig()])
@pytest.mark.parametrize("family", ["Llama", "Gemma3Text"])
def test_few_blocks_preempt(family: str, prefix: pagedkv.PrefixConfig | None) -> None:
    model = model_of(family)
    with Engine(model, blocks=12, chunk=16, prefix=prefix) as engine:
        requests = serve(engine, new=40)
        assert tokens_of(requests) == generated(model, new=40)
        assert engine.stats.preemptions == sum(request.preemptions for request in requests) > 0


def test_preempted_ones_come_back_from_a_store(tmp_path: pathlib.Path) -> None:
    model = model_of("Llama")
    store = pagedkv.StoreConfig(pagedkv.DirectoryStore(tmp_path))
    with Engine(model, blocks=12, store=store) as engine:
        assert tokens_of(serve(engine)) == generated(model)
        engine.cache.flush_store(timeout_ms=60000)
    with Engine(model, store=store) as engine:
        requests = serve(engine)
        assert tokens_of(requests) == generated(model)
        assert min(request.cached_tokens for request in requests[11::2]) >= SHARED // 16 * 16


def test_higher_priorities_begin_earlier_and_stay() -> None:
    model = model_of("Llama")
    with Engine(model, blocks=10, max_running=4) as engine:
        low = [engine.add(prompt, max_new_tokens=NEW) for prompt in prompts()]
        high = engine.add(prompts()[2], max_new_tokens=NEW, priority=1)
        engine.run()
        first = [request.first_token for request in low if request.first_token is not None]
        assert high.last_token is not None
        assert high.last_token <= sorted(first)[8]
        assert high.preemptions == 0
        assert high.tokens == low[2].tokens


def test_streams_take_turns_and_end() -> None:
    model = model_of("Llama")
    expected = generated(model)
    with Engine(model) as engine:
        streams = [engine.stream(prompt, max_new_tokens=NEW) for prompt in prompts()[:3]]
        got = list(zip(*streams, strict=True))
        assert [[event.token for event in events] for events in zip(*got, strict=True)] == [
            tokens[-NEW:] for tokens in expected[:3]
        ]
        assert [event.finish for event in got[-1]] == [Finish.LENGTH] * 3
        stream = engine.stream(prompts()[0], max_new_tokens=NEW)
        request = next(stream).request
        stream.close()
        assert request.finish is Finish.CANCELLED
        assert engine.step() == []
        stop = expected[0][-NEW:][4]
        request = engine.add(prompts()[0], max_new_tokens=NEW, stop_tokens=[stop])
        engine.run()
        assert request.finish is Finish.STOP
        assert request.answer == expected[0][-NEW:][: expected[0][-NEW:].index(stop) + 1]


def test_cancelled_requests_give_back_their_blocks() -> None:
    model = model_of("Llama")
    with Engine(model, max_running=2, prefix=None) as engine:
        requests = [engine.add(prompt) for prompt in prompts()]
        engine.step()
        for request in requests:
            engine.cancel(request)
        assert engine.cache.pool_stats().held_blocks == 0
        assert engine.step() == []
        engine.cancel(requests[0])


def test_hints_say_what_a_request_leaves() -> None:
    prompt = prompts()[15]
    drop = Hint("drop", first=32)
    with Engine(model_of("Llama")) as engine:
        high = Hint("set_retention", retention="high")
        engine.add(prompt, max_new_tokens=NEW, hints=[drop, high])
        engine.run()
        assert engine.cache.prefix_probe(prompt) == 32
        wrong = engine.add(prompt, max_new_tokens=NEW, hints=[Hint("keep")])
        engine.run()
        assert wrong.finish is Finish.FAILED
        assert "action" in wrong.error


def test_a_request_can_pin_its_text() -> None:
    pinned, others = prompts()[15], prompts()[:15]
    for hints, kept in (((), 0), ((Hint("pin", end=32),), 32)):
        with Engine(model_of("Llama"), blocks=8, max_running=1) as engine:
            engine.add(pinned, max_new_tokens=3, hints=hints)
            engine.run()
            assert engine.cache.prefix_probe(pinned) == 48
            for prompt in others[::2]:
                engine.add([96, *prompt], max_new_tokens=40)
            engine.run()
            assert engine.cache.prefix_probe(pinned) == kept


def test_a_stream_that_was_never_read_computes_nothing() -> None:
    with Engine(model_of("Llama")) as engine:
        stream = engine.stream(prompts()[0], max_new_tokens=NEW)
        request = engine._scheduler.requests[0]
        del stream
        engine.run()
        assert request.finish is Finish.CANCELLED
        assert engine.stats.computed_tokens == 0
        kept = engine.stream(prompts()[1], max_new_tokens=NEW)
        engine.run()
        assert len(list(kept)) == NEW


def interrupted_at(line: int, call: Any) -> bool:
    """Raises a KeyboardInterrupt at a line of this package. False: the call has fewer lines."""
    lines = 0

    def trace(frame: Any, event: str, _argument: Any) -> Any:
        nonlocal lines
        if "/pagedkv/" not in frame.f_code.co_filename:
            return None
        if event == "line":
            lines += 1
            if lines == line + 1:
                raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(None)
    return False


def test_ctrl_c_while_a_request_is_cancelled() -> None:
    """At each line of cancel() and what it calls."""
    with Engine(model_of("Llama", num_hidden_layers=1)) as engine:
        for line in itertools.count():
            requests = [engine.add(prompt, max_new_tokens=3) for prompt in prompts()[:2]]
            engine.step()
            interrupted = interrupted_at(line, lambda last=requests[1]: engine.cancel(last))
            for _ in range(8):
                engine.step()
            assert engine._scheduler.requests == [], line
            assert len(requests[0].answer) == 3
            assert engine.cache.stats().sessions == 0
            if not interrupted:
                break
    assert line > 20


class ChatTokenizer:
    """The token ids are the bytes of the text; it begins with a token of its own."""

    backend_tokenizer, bos_token = None, "<s>"

    def __call__(self, text: str, add_special_tokens: bool = True) -> Any:
        begins = text.startswith("<s>")
        ids = [*text.encode()[3 * begins :]]
        return {"input_ids": [1] * (begins + add_special_tokens) + ids}

    def decode(self, ids: list[int], **_options: Any) -> str:
        return bytes(ids).decode(errors="replace")


def test_prompts_as_tokenizers_return_them() -> None:
    ids, model = [1, 65, 66, 67], model_of("Llama")
    given: list[Any] = ["ABC", "<s>ABC", torch.tensor(ids), torch.tensor([ids]), [ids]]
    masked = {"input_ids": torch.tensor([ids]), "attention_mask": torch.ones(1, 4)}
    encoded = transformers.BatchEncoding(masked)
    given += [encoded, {"input_ids": ids}, torch.tensor([ids]).numpy(), tuple(ids)]
    with Engine(model, ChatTokenizer()) as engine:
        for prompt in given:
            assert engine.add(prompt).tokens == ids
        for wrong, sentence in (
            (torch.tensor([ids, ids]), "the prompt is a batch of 2: add one prompt at a time"),
            (torch.tensor(3), "the prompt is 3, and a list of token ids is needed"),
            ({**masked, "attention_mask": [[0, 1, 1, 1]]}, "the prompt has padding, which"),
            (torch.zeros(1, 0), "the prompt is empty"),
        ):
            with pytest.raises(ValueError, match=sentence):
                engine.add(wrong)


def test_sampling_draws_the_same_with_the_same_seed() -> None:
    model = model_of("Llama")
    with Engine(model) as engine:
        options: dict[str, Any] = {"temperature": 0.8, "top_k": 20, "top_p": 0.9}
        one, same, other = (
            engine.add(prompts()[3], sampling=Sampling(**options, seed=seed), max_new_tokens=30)
            for seed in (1, 1, 2)
        )
        engine.run()
        assert one.tokens == same.tokens != other.tokens
        narrow = engine.add(
            prompts()[3], sampling=Sampling(temperature=2.0, top_k=1), max_new_tokens=NEW
        )
        engine.run()
        assert narrow.tokens == generated(model)[3]


def test_a_pass_that_fails_can_be_repeated() -> None:
    model = model_of("Llama")
    with Engine(model) as engine:
        request = engine.add(prompts()[0], max_new_tokens=NEW)
        engine.step()
        hook = model.model.layers[2].register_forward_hook(lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            engine.step()
        hook.remove()
        engine.run()
        assert request.tokens == generated(model)[0]


def test_errors_say_what_is_wrong() -> None:
    model = model_of("Llama")
    with Engine(model, blocks=8) as engine:
        wrong: list[tuple[Any, dict[str, Any], str]] = [
            ([], {}, "the prompt is empty: at least one token is needed"),
            ([1, 97, 99], {}, "the prompt has the token 97, and those of the model are 0 to 96"),
            ([1], {"max_new_tokens": 256}, "has 1 token and .* 256: that must be 1 or more"),
            ([1] * 200, {"max_new_tokens": 57}, "200 tokens.*57.*256"),
            ([1], {"max_new_tokens": 0}, "max_new_tokens is 0"),
            ([1] * 120, {"max_new_tokens": 20}, "140 tokens.*9 blocks of 16.*has 8: .* blocks=9"),
            ("text", {}, "tokenizer"),
        ]
        for prompt, options, sentence in wrong:
            with pytest.raises(ValueError, match=sentence):
                engine.add(prompt, **options)
        assert engine.step() == []
    with pytest.raises(ValueError, match="top_p"):
        Sampling(top_p=1.5)
    with pytest.raises(ValueError, match="chunk"):
        Engine(model, chunk=0)
    with pytest.raises(TypeError, match="tokenizer"):
        Engine(model, "no tokenizer")


@pytest.mark.parametrize("family", ["Llama", "Gemma3Text"])
def test_too_little_memory_says_how_much_is_enough(family: str) -> None:
    model, prompt = model_of(family), list(range(3, 60))
    with (
        Engine(model, memory_bytes=1 << 16) as engine,
        pytest.raises(ValueError, match="need .* blocks of 16, and the cache has ") as caught,
    ):
        engine.add(prompt, max_new_tokens=NEW)
    found = re.search(r"make the Engine with memory_bytes=(\d+) or more$", str(caught.value))
    assert found is not None
    with Engine(model, memory_bytes=int(found[1])) as engine:
        request = engine.add(prompt, max_new_tokens=NEW)
        engine.run()
        assert len(request.answer) == NEW
    with (
        Engine(model, memory_bytes=int(found[1]) - 1) as engine,
        pytest.raises(ValueError, match=f"memory_bytes={found[1]} or more"),
    ):
        engine.add(prompt, max_new_tokens=NEW)


def test_routers_know_what_is_cached() -> None:
    pytest.importorskip("msgspec", reason="msgspec: NO events of an engine were published")
    pytest.importorskip("zmq", reason="pyzmq: NO events of an engine were published")
    from pagedkv.events import AllBlocksCleared, BlockStored, EventPublisher, EventSubscriber

    free = "tcp://127.0.0.1:*"
    with EventPublisher(free, replay_endpoint=free) as publisher:
        with pytest.raises(pagedkv.MisuseError, match="PrefixConfig"):
            Engine(model_of("Llama"), publisher=publisher, prefix=pagedkv.PrefixConfig())
        with (
            EventSubscriber(publisher.endpoint, publisher.replay_endpoint) as source,
            Engine(model_of("Llama"), publisher=publisher, rank=1) as engine,
        ):
            requests = serve(engine, salt=b"tenant")
            cancelled = engine.add(prompts()[0] + [1] * 40, salt=b"tenant")
            engine.step()
            engine.cancel(cancelled)
            engine.run()
            expected: set[int] = set()
            known: dict[Any, None] = {}
            for request in [*requests, cancelled]:
                hashes = pagedkv.prefix_hash_blocks(request.tokens, 16, b"tenant")
                cached = engine.cache.prefix_probe(request.tokens, b"tenant") // 16
                expected.update(hashes[:cached].tolist())
            assert len(expected) > 20
            engine.add([1, 2, 3], max_new_tokens=1)
            engine.run()  # publishes what the cancelled request left
            while set(known) != expected:
                received = source.receive(10_000)
                assert received, len(known)
                for batch in received:
                    if not batch.events:
                        continue
                    assert batch.data_parallel_rank == 1
                    for event in batch.events:
                        if isinstance(event, AllBlocksCleared):
                            known.clear()
                        elif isinstance(event, BlockStored):
                            known.update(dict.fromkeys(event.block_hashes))
            engine.close()
            while not any(AllBlocksCleared() in b.events for b in source.receive(10_000)):
                pass
