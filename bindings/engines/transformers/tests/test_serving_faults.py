"""A failed request of the Engine does not affect the others, whatever fails where. Needs torch
and transformers.
"""

from __future__ import annotations

import contextlib
import itertools
import pathlib
import sys
from types import FrameType
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", minversion="5.0")

import numpy as np  # noqa: E402
import pagedkv  # noqa: E402
import pagedkv_transformers  # noqa: E402
from helpers import MemoryStore  # noqa: E402
from pagedkv_transformers import _scheduler, serving  # noqa: E402
from pagedkv_transformers._text import TextStream  # noqa: E402
from pagedkv_transformers.serving import Engine, Finish, Request, Sampling  # noqa: E402
from tokenizers import Tokenizer, decoders, models, normalizers  # noqa: E402

from test_transformers import model_of  # noqa: E402

PACKAGES = tuple(
    str(pathlib.Path(str(package.__file__)).parent) for package in (pagedkv, pagedkv_transformers)
)
SAMPLED = Sampling(temperature=0.8, seed=7)
PROMPTS = [[5, 9, 60], list(range(10, 50)), [3, 4]]


def add_three(engine: Engine) -> list[Request]:
    """A request that samples, one with a prompt of several chunks, and one that ends early."""
    return [
        engine.add(PROMPTS[0], max_new_tokens=9, sampling=SAMPLED),
        engine.add(PROMPTS[1], max_new_tokens=9),
        engine.add(PROMPTS[2], max_new_tokens=3),
    ]


def tokens_of(requests: list[Request]) -> list[list[int]]:
    return [request.tokens for request in requests]


def expected(model: Any, blocks: int) -> list[list[int]]:
    with Engine(model, blocks=blocks, chunk=16) as engine:
        requests = add_three(engine)
        engine.run()
        return tokens_of(requests)


class InjectedError(BaseException):
    """Like Ctrl-C: nothing may catch it."""


class Injection:
    """Raises at the n-th call from this package's code, or at the n-th entry of one of its
    functions."""

    def __init__(self, n: int) -> None:
        self.left = n

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        if event.endswith("call") and frame.f_code.co_filename.startswith(PACKAGES):
            self.left -= 1
            if self.left == 0:
                raise InjectedError

    def __enter__(self) -> Injection:
        sys.setprofile(self)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)


@pytest.mark.parametrize(
    ("step", "blocks", "stored"),
    [*itertools.product([0, 2, 4], [64, 5], [False]), (0, 64, True), (2, 5, True)],
)
def test_an_exception_at_any_call_of_a_step_loses_nothing(
    step: int, blocks: int, stored: bool
) -> None:
    """With 5 blocks, steps preempt."""
    model = model_of("Llama", num_hidden_layers=1)
    wanted = expected(model, blocks)
    store = pagedkv.StoreConfig(MemoryStore()) if stored else None
    n, stride = 1, 5
    with Engine(model, blocks=blocks, chunk=16, store=store) as engine:
        while True:
            engine.cache.prefix_clear(all_salts=True)
            requests = add_three(engine)
            for _ in range(step):
                engine.step()
            injection = Injection(n)
            with contextlib.suppress(InjectedError), injection:
                engine.step()
            engine.run()
            assert tokens_of(requests) == wanted, n
            assert [len(request._events) for request in requests] == [9, 9, 3], n
            engine.cache.validate()
            assert engine.cache.stats().sessions == 0, n
            if injection.left > 0:  # the step has no more calls
                break
            n += stride
    assert n > 80


@pytest.mark.parametrize(
    ("module", "name"), [(serving, "_draw"), (serving, "_event"), (_scheduler.Scheduler, "_start")]
)
def test_what_fails_for_one_request_ends_that_one(
    monkeypatch: pytest.MonkeyPatch, module: Any, name: str
) -> None:
    model = model_of("Llama")
    wanted = expected(model, 64)
    original = getattr(module, name)

    def failing(*arguments: Any) -> Any:
        if any(isinstance(each, Request) and each.number == 0 for each in arguments):
            raise OSError("the moon is full")
        return original(*arguments)

    monkeypatch.setattr(module, name, failing)
    with Engine(model, blocks=64, chunk=16) as engine:
        requests = add_three(engine)
        engine.run()
        assert tokens_of(requests)[1:] == wanted[1:]
        assert requests[0].finish is Finish.FAILED
        assert requests[0].error == "OSError: the moon is full"
        with pytest.raises(serving.RequestFailedError, match="request 0 failed: .*moon"):
            list(engine.events(requests[0]))
        assert engine.stats.finished == 3
        assert engine.cache.stats().sessions == 0


def test_a_request_that_finds_no_blocks_ends_and_the_next_one_finds_some() -> None:
    model = model_of("Llama")
    with Engine(model, blocks=5, chunk=16) as engine:
        with engine.cache.open_session() as other:
            other.reserve(4 * 16)
            for prompt in (PROMPTS[1], PROMPTS[0]):
                engine.add(prompt, max_new_tokens=9, sampling=SAMPLED)
            large, small = engine._scheduler.requests
            engine.run()
            assert large.finish is Finish.FAILED
            assert "OutOfBlocksError" in large.error
            assert (small.finish, len(small.answer)) == (Finish.LENGTH, 9)
        again = engine.add(PROMPTS[1], max_new_tokens=9)
        engine.run()
        assert again.tokens == expected(model, 64)[1]


@pytest.mark.parametrize("sampling", [Sampling(), SAMPLED])
def test_logits_that_are_nan_end_their_request(sampling: Sampling) -> None:
    model = model_of("Llama")
    wanted = expected(model, 64)
    with torch.no_grad():
        model.model.embed_tokens.weight[96] = float("nan")
    with Engine(model, blocks=64, chunk=16) as engine:
        broken = engine.add([2, 96], sampling=sampling)
        requests = [engine.add(PROMPTS[0], max_new_tokens=9, sampling=SAMPLED)]
        engine.run()
        assert broken.finish is Finish.FAILED
        assert "logits of position 2 are NaN" in broken.error
        assert requests[0].tokens == wanted[0]


def test_types_of_numbers() -> None:
    """Numbers as JSON, NumPy and C give them."""
    model = model_of("Llama")
    with Engine(model, blocks=64) as engine:

        def tokens(**options: Any) -> list[int]:
            request = engine.add([5], max_new_tokens=6, sampling=Sampling(**options))
            engine.run()
            assert request.finish is Finish.LENGTH, request.error
            return request.answer

        greedy = tokens()
        assert tokens(temperature=1) == tokens(temperature=1.0) == tokens(temperature=np.float32(1))
        assert tokens(temperature=1e-10) == tokens(temperature=1e-40) == greedy
        assert tokens(temperature=5e-324) == greedy
        assert tokens(temperature=0.7, top_p=1e-9) == greedy
        five = tokens(temperature=0.7, top_k=5)
        assert tokens(temperature=np.float64(0.7), top_k=np.int64(5)) == five
        tokens(temperature=0.7, seed=2**64 - 1)
        assert engine.add([np.int32(5)], max_new_tokens=np.int64(1)).tokens == [5]
        engine.run()
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"top_k": 5.0}, "top_k.*5.0"),
        ({"temperature": float("nan")}, "not nan"),
        ({"temperature": float("inf")}, "not inf"),
        ({"temperature": -1}, "not -1.0"),
        ({"seed": -1}, "seed: -1"),
        ({"seed": 2**64}, "seed: 18446744073709551616"),
    ]
    for options, sentence in wrong:
        with pytest.raises(ValueError, match=sentence):
            Sampling(**options)


def test_what_no_session_can_have_is_refused_when_it_is_given() -> None:
    with Engine(model_of("Llama"), blocks=64) as engine:
        wrong: list[tuple[dict[str, Any], str]] = [
            ({"salt": b"x" * 257}, "257"),
            ({"priority": 2**40}, "priority: 1099511627776"),
            ({"max_new_tokens": 1.5}, "max_new_tokens.*1.5"),
            ({"stop_tokens": [2.5]}, "stop_tokens.*2.5"),
        ]
        for options, sentence in wrong:
            with pytest.raises((ValueError, pagedkv.UnavailableError), match=sentence):
                engine.add([5], **options)
        with pytest.raises(ValueError, match=r"prompt.*5\.5"):
            engine.add([5.5])
        assert engine.step() == []


# ---- Text ----


def tokenizer_of(*words: str, strips: bool) -> tuple[Any, dict[str, int]]:
    """A tokenizer of bytes and some words, like those of Llama 2, Mistral and Gemma. With `strips`
    it drops the first space of decoded text."""
    vocabulary = {"<unk>": 0, "<s>": 1, "</s>": 2}
    vocabulary |= {f"<0x{byte:02X}>": 3 + byte for byte in range(256)}
    for word in words:
        vocabulary[word] = len(vocabulary)
    tokenizer = Tokenizer(
        models.BPE(vocab=vocabulary, merges=[], unk_token="<unk>", byte_fallback=True)
    )
    steps: list[Any] = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    if strips:
        tokenizer.normalizer = normalizers.Sequence(
            [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
        )
        steps.append(decoders.Strip(" ", 1, 0))
    tokenizer.decoder = decoders.Sequence(steps)
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="<unk>", bos_token="<s>", eos_token="</s>"
    )
    return fast, vocabulary


def text_of(tokenizer: Any, prompt: list[int], answer: list[int]) -> list[str]:
    """The pieces of text that a request returns for an answer."""
    stream, pieces = TextStream.behind(tokenizer, prompt), []
    for i, token in enumerate(answer):
        piece, stream = stream.add(token, last=i + 1 == len(answer))
        pieces.append(piece)
    return pieces


@pytest.mark.parametrize("strips", [True, False])
def test_text_has_its_spaces_and_its_end(strips: bool) -> None:
    tokenizer, ids = tokenizer_of("▁The", "▁sky", "▁is", "▁blue", ".", "▁", strips=strips)
    first, second = (ids[f"<0x{byte:02X}>"] for byte in "é".encode())

    def pieces(prompt: list[str], *answer: str | int) -> list[str]:
        tokens = [ids[each] if isinstance(each, str) else each for each in answer]
        return text_of(tokenizer, [ids[word] for word in prompt], tokens)

    assert pieces(["▁The", "▁sky"], "▁is", "▁blue", ".") == [" is", " blue", "."]
    assert pieces(["▁The"], ".", first, second, ".") == [".", "", "é", "."]
    assert pieces(["▁The"], ".", first) == [".", "�"]
    assert pieces(["▁The"], "▁", ".") == [" ", "."]
    assert pieces(["<s>"], "▁The", "▁sky") == ["The" if strips else " The", " sky"]
    assert pieces(["▁The"], 2, "▁sky") == ["", " sky"]  # no text of </s>


def test_text_whose_spaces_are_cleaned_up() -> None:
    words = ["[UNK]", "it", "'", "s", "##n", "n", "t", ".", "do", "no"]
    vocabulary = {word: i for i, word in enumerate(words)}
    tokenizer = Tokenizer(models.WordPiece(vocab=vocabulary, unk_token="[UNK]"))
    tokenizer.decoder = decoders.WordPiece(cleanup=True)
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="[UNK]", clean_up_tokenization_spaces=True
    )

    def pieces(*answer: str) -> list[str]:
        return text_of(fast, [vocabulary["it"]], [vocabulary[word] for word in answer])

    assert fast.decode([vocabulary[word] for word in ("it", "'", "s", ".")]) == "it's."
    assert pieces("'", "s", ".") == [" '", "s", "."]
    assert "".join(pieces("do", "n", "'", "t", ".")).replace(" ", "") == "don't."
    assert pieces("no", ".", "it") == [" no", ".", " it"]


def test_text_that_does_not_grow_with_its_tokens() -> None:
    """A lone byte after a newline turns both into a replacement character."""
    tokenizer, ids = tokenizer_of("▁hello", "»", "a", strips=False)
    answer = [ids["<0x0A>"], ids["<0xF0>"], ids["»"], ids["a"]]
    assert text_of(tokenizer, [ids["▁hello"]], answer) == ["\n", "", "�»", "a"]
