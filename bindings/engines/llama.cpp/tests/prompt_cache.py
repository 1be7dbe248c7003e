"""PromptCache in llama-cpp-python: what it recalls is what a Llama without a cache computes.

usage: prompt_cache.py MODEL write|read DIRECTORY, in this order: write kills itself, and read
recalls what it left; or
       prompt_cache.py MODEL ends -: with windows or recurrent layers, and without words
"""

import gc
import logging
import os
import signal
import sys
import weakref

import llama_cpp

import pagedkv_llama

MODEL, TASK, DIRECTORY = sys.argv[1:]
KEY = b"sixteen or more secret bytes"
SYSTEM = "The quick brown fox jumps over the lazy dog, and then runs back home. " * 8
QUESTIONS = [SYSTEM + end for end in ("The capital of France is", "One, two, three, four,")]
OTHER = "Another text, which takes the place of what the context has."


class Refusal(logging.Handler):
    """A warning says what went wrong in the cache."""

    def emit(self, record):
        self.seen = record.getMessage()


class Llama(llama_cpp.Llama):
    def __init__(self, **more):
        super().__init__(MODEL, n_ctx=1024, n_threads=1, n_threads_batch=1, verbose=False, **more)
        self.computed = 0

    def eval(self, tokens):
        self.computed += len(tokens)
        super().eval(tokens)

    def ask(self, prompt, **more):
        """The answer, and how many tokens were computed for it."""
        before = self.computed
        answer = self(prompt, max_tokens=6, temperature=0, **more)["choices"][0]["text"]
        return answer, self.computed - before


def cached(llama, **more):
    cache = pagedkv_llama.PromptCache(llama, 64 << 20, **more)
    llama.set_cache(cache)
    return cache


def length(llama, prompt):
    return len(llama.tokenize(prompt.encode()))


def test_recalls(expected):
    llama = Llama()
    cache = cached(llama)
    shared = length(llama, SYSTEM) // 32 * 32
    assert llama.ask(QUESTIONS[0]) == expected[0]
    llama.ask(OTHER)
    answer, computed = llama.ask(QUESTIONS[1])
    assert (answer, computed) == (expected[1][0], expected[1][1] - cache.stats().found_tokens)
    assert cache.stats().found_tokens >= shared
    # What the context has itself is not recalled.
    answer, computed = llama.ask(QUESTIONS[1])
    assert (answer, computed) == (expected[1][0], 6)
    assert cache.stats().found_tokens < 2 * shared
    assert 0 < cache.cache_size <= cache.stats().memory_bytes <= 64 << 20
    tokens = llama.tokenize(QUESTIONS[0].encode())
    assert tokens in cache
    assert llama.tokenize(OTHER.encode()) not in cache
    assert cache.pin(tokens, 3600) == len(tokens) // 32 * 32
    cache.close()
    assert cache.closed
    assert llama.ask(QUESTIONS[1])[0] == expected[1][0]


def test_tenants(expected):
    llama = Llama()
    salts = [b"a", b"b", b"a"]
    cache = cached(llama, salt=lambda: salts[len(computed)])
    computed = []
    for _ in salts:
        answer, n = llama.ask(QUESTIONS[0])
        assert answer == expected[0][0]
        computed.append(n)
    # Even what the context has is not for another tenant.
    assert computed[:2] == [expected[0][1]] * 2
    assert computed[2] < 40
    assert cache.stats().found_tokens > 0


def test_interrupted_stream(expected):
    llama = Llama()
    cached(llama)
    stream = llama(QUESTIONS[0], max_tokens=6, temperature=0, stream=True)
    next(stream), next(stream)
    stream.close()
    llama.ask(OTHER)
    answer, computed = llama.ask(QUESTIONS[0])
    assert answer == expected[0][0]
    assert computed < 40


def test_copies():
    """llama-cpp-python copies the context only if it is asked to."""
    llama, copies = Llama(), []
    cached(llama)
    original = llama_cpp.llama_cpp.llama_state_get_data
    llama_cpp.llama_cpp.llama_state_get_data = lambda *all: copies.append(1) or original(*all)
    try:
        llama.ask(OTHER)
        assert copies == []
        state = llama.save_state()
        assert copies == [1]
        assert state.llama_state_size > 100_000
        llama.reset()
        llama.load_state(state)
        llama.set_cache(llama_cpp.LlamaRAMCache())
        llama.ask(OTHER)
        assert copies == [1, 1]
    finally:
        llama_cpp.llama_cpp.llama_state_get_data = original


def test_logits_of_prompts(expected):
    llama = Llama(logits_all=True)
    cache = cached(llama)
    tasks = [(QUESTIONS[0], True), (OTHER, False), (QUESTIONS[0], False), (QUESTIONS[0], True)]
    texts = [
        llama(prompt, max_tokens=6, temperature=0, echo=echo, logprobs=1 if echo else None)
        for prompt, echo in tasks
    ]
    assert texts[2]["choices"][0]["text"] == expected[0][0]
    assert cache.stats().found_tokens > 0
    first, last = (texts[i]["choices"][0]["logprobs"] for i in (0, 3))
    assert first["tokens"] == last["tokens"]
    for a, b in zip(first["token_logprobs"][1:], last["token_logprobs"][1:], strict=True):
        assert abs(a - b) < 0.05


def test_ends_with_the_llama():
    llama = Llama()
    cache = cached(llama)
    llama.close()
    assert cache.closed
    other = Llama()
    gone = weakref.ref(cached(other))
    other.set_cache(None)
    gc.collect()
    assert gone() is None
    assert other.ask(OTHER)[0]


def test_errors():
    llama = Llama()
    wrong = [{"key": KEY}, "store"], [{"block_size": 7}, "block_size"]
    waits = ([{"wait_ms": ms}, f"wait_ms is {ms}"] for ms in (0, -1, 1 << 32))
    for more, words in (*wrong, *waits):
        try:
            cached(llama, **more)
        except ValueError as error:
            assert words in str(error), error
        else:
            raise AssertionError(more)


def test_ends():
    """Prompts are known up to a multiple of a block, also if the context cannot be cut."""
    system = [7 * i % 500 for i in range(100)]
    prompts = [system[:80] + [i] * 10 for i in (1, 2)] + [system[:40], system + [3] * 40]
    prompts.append(prompts[0])

    def answer(llama, prompt):
        before = llama.computed
        if llama.cache:
            llama.cache[prompt]
        else:
            llama.reset()
        tokens = [token for token, _ in zip(llama.generate(prompt, temp=0), range(6), strict=False)]
        if llama.cache:
            llama.cache[prompt + tokens] = None
        return tokens, llama.computed - before

    plain, llama = Llama(), Llama()
    cache = cached(llama)
    assert cache.stats().end_bytes > 0
    computed = []
    for prompt in prompts:
        expected, _ = answer(plain, prompt)
        found, n = answer(llama, prompt)
        assert found == expected, (found, expected)
        computed.append(n - 6)
    # The second one is known up to the end of a block only if a prompt ended there.
    assert computed == [90, 90 - 64, 40, 140 - 64, 90 - 64]
    print(f"PromptCache computed {computed} of {[len(prompt) for prompt in prompts]} tokens")


def write(expected):
    test_recalls(expected)
    test_tenants(expected)
    test_interrupted_stream(expected)
    test_copies()
    test_logits_of_prompts(expected)
    test_ends_with_the_llama()
    test_errors()
    llama = Llama()
    cache = cached(llama, directory=DIRECTORY, key=KEY, salt=b"user")
    assert llama.ask(QUESTIONS[0]) == expected[0]
    assert cache.flush() == 0
    os.kill(os.getpid(), signal.SIGKILL)


def read(expected):
    for key, salt, known in ((KEY, b"other", 0), (KEY, b"user", 1), (KEY[::-1], b"user", 0)):
        llama = Llama()
        cache = cached(llama, directory=DIRECTORY, key=key, salt=salt)
        answer, computed = llama.ask(QUESTIONS[1])
        assert answer == expected[1][0]
        found = cache.stats().found_tokens
        assert computed == expected[1][1] - found
        assert found >= length(llama, SYSTEM) // 32 * 32 if known else found == 0
    print("PromptCache recalls what a killed process remembered")


refusal = Refusal()
logging.getLogger("pagedkv_llama").addHandler(refusal)
if TASK == "ends":
    test_ends()
else:
    plain = Llama()
    answers = [plain.ask(OTHER) and plain.ask(question) for question in QUESTIONS]
    {"write": write, "read": read}[TASK](answers)
assert not hasattr(refusal, "seen"), refusal.seen
