"""Tokens as text, piece by piece."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

_CONTEXT = 6  # tokens before a new one that its text may depend on
_UNFINISHED = "\N{REPLACEMENT CHARACTER}"  # stands for bytes that are not a whole character yet


@dataclasses.dataclass(frozen=True)
class TextStream:
    """A text that is given out piece by piece.

    A text is not the sum of its tokens' texts: some tokenizers drop the first space of what they
    decode, and a character may be several tokens. So some earlier tokens are decoded without and
    with the new tokens, and the piece is the difference, as in vLLM and text-generation-inference.
    """

    tokenizer: Any
    tokens: tuple[int, ...]
    """The last ones."""
    given: int
    """The number of tokens whose text was given out; the others are held back."""

    @classmethod
    def behind(cls, tokenizer: Any, prompt: Sequence[int]) -> TextStream:
        """The text that follows a prompt."""
        tokens = tuple(prompt[-_CONTEXT:])
        return cls(tokenizer, tokens, len(tokens))

    def add(self, token: int, *, last: bool) -> tuple[str, TextStream]:
        """The new piece of text, and the position behind it. An incomplete character is held back;
        with the last token everything is returned."""
        tokens = (*self.tokens, token)
        before, now = self._decode(tokens[: self.given]), self._decode(tokens)
        if now.endswith(_UNFINISHED) and not last:
            return "", dataclasses.replace(self, tokens=tokens)
        kept = tokens[-_CONTEXT:]
        return _added(before, now), TextStream(self.tokenizer, kept, len(kept))

    def _decode(self, tokens: Sequence[int]) -> str:
        text: str = self.tokenizer.decode(list(tokens), skip_special_tokens=True)
        return text


def _added(before: str, now: str) -> str:
    """What follows a text that was given out. Some tokenizers take back spaces in it, such as the
    one in "it '" once an "s" follows."""
    if now.startswith(before):
        return now[len(before) :]
    rest = now
    for character in before.replace(" ", ""):
        rest = rest.lstrip(" ")
        if not rest.startswith(character):
            return now[len(before) :]
        rest = rest[1:]
    return rest
