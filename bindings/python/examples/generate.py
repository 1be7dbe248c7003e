"""Generates text with a small Llama model for several sessions at once, with all keys, values and
attention in libpagedkv.

A session whose prompt has the same prefix as an earlier one reuses its blocks, which changes no
token.
"""

from __future__ import annotations

import argparse
import dataclasses
import pathlib

import numpy as np
from llama2 import BEGIN, END, Floats, Llama, Tokenizer

import pagedkv

DATA = pathlib.Path(__file__).resolve().parents[3] / "bench/data"
SPEECH = "First Citizen:\nBefore we proceed any further, hear me speak.\n"
SCENES = ["ROMEO:\n", "JULIET:\n", SPEECH, f"{SPEECH}\nAll:\n", f"{SPEECH}\nSecond Citizen:\n"]


@dataclasses.dataclass
class Text:
    """A session and its tokens. `held` of them are in the cache."""

    session: pagedkv.Session
    tokens: list[int]
    limit: int
    prompt_length: int
    held: int = 0

    @property
    def done(self) -> bool:
        return len(self.tokens) == self.limit or (
            self.tokens[-1] in (BEGIN, END) and len(self.tokens) > self.prompt_length
        )

    @property
    def generated(self) -> list[int]:
        return self.tokens[self.prompt_length :]


class Generator:
    def __init__(self, model: Llama, blocks: int, chunk: int, running: int) -> None:
        self.model, self.chunk, self.running = model, chunk, running
        config = pagedkv.CacheConfig(**model.shape, blocks=blocks, prefix=pagedkv.PrefixConfig())
        self.cache = pagedkv.Cache(config)

    def add(self, prompt: list[int], max_tokens: int) -> Text:
        limit = min(len(prompt) + max_tokens, self.model.context)
        return Text(self.cache.open_session(), prompt, limit, len(prompt))

    def run(self, texts: list[Text]) -> None:
        """Computes steps of the first unfinished texts until all are done. Decoding is greedy."""
        while running := [text for text in texts if not text.done][: self.running]:
            for text in running:
                if text.held == 0:
                    # The last token is not matched, because its output is needed.
                    text.held = text.session.admit(text.tokens[:-1])
            self.step(running)
            for text in texts:
                if text.done:
                    text.session.close()

    def step(self, texts: list[Text]) -> None:
        parts = [text.tokens[text.held : text.held + self.chunk] for text in texts]
        lengths = [len(part) for part in parts]
        with self.cache.begin([text.session for text in texts], lengths) as batch:
            tokens = [token for part in parts for token in part]
            pairs = zip(texts, parts, strict=True)
            positions = [text.held + i for text, part in pairs for i in range(len(part))]

            def attend(layer: int, q: Floats, k: Floats, v: Floats) -> Floats:
                batch.write(layer, k, v)
                out: Floats = batch.attend(layer, q)
                return out

            x = self.model.forward(tokens, positions, attend)
            batch.commit(tokens)
        ends = np.cumsum(lengths) - 1
        best = self.model.logits(x[ends]).argmax(axis=-1)
        for text, part, token in zip(texts, parts, best.tolist(), strict=True):
            text.held += len(part)
            if text.held == len(text.tokens):
                text.tokens.append(token)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add, path = parser.add_argument, pathlib.Path
    add("--model", type=path, default=DATA / "tiny-shakespeare.bin", help="llama2.c checkpoint")
    add("--tokenizer", type=path, help="tokenizer file (default: FILE.tokenizer.bin for FILE.bin)")
    add("--prompt", action="append", help="prompt; may be repeated (default: some scenes)")
    add("--max-tokens", type=int, default=160, help="tokens to generate per session")
    add("--blocks", type=int, default=256, help="cache capacity, in blocks of 16 tokens")
    add("--chunk", type=int, default=32, help="most prompt tokens per step")
    add("--running", type=int, default=3, help="sessions at once; the others wait")
    add("--tokens-out", type=path, help="file for the generated token ids, one session per line")
    options = parser.parse_args()

    model = Llama(options.model)
    file = options.tokenizer or options.model.with_suffix(".tokenizer.bin")
    tokenizer = Tokenizer(file, model.vocabulary)
    generator = Generator(model, options.blocks, options.chunk, options.running)
    with generator.cache:
        prompts = [tokenizer.encode(prompt) for prompt in options.prompt or SCENES]
        texts = [generator.add(prompt, options.max_tokens) for prompt in prompts]
        generator.run(texts)
        for text in texts:
            print(f"{tokenizer.decode(text.tokens)}\n----")
        found = generator.cache.prefix_stats(all_salts=True).matched_tokens
        print(f"{found} tokens were found cached")
    if options.tokens_out:
        lines = [" ".join(map(str, text.generated)) + "\n" for text in texts]
        options.tokens_out.write_text("".join(lines))


if __name__ == "__main__":
    main()
