"""The server of llama-cpp-python with PromptCache, and with its own arguments:

    python3 -m pagedkv_llama.server --model MODEL.gguf --cache true --cache_size 4294967296

--cache_type disk also keeps texts in the directory $PAGEDKV_LLAMA_DIRECTORY, which is
.cache/pagedkv_llama by default. The hexadecimal bytes of $PAGEDKV_LLAMA_KEY encrypt them there. A
request's cache_salt or prompt_cache_key is its salt: see pagedkv.hints.read_cache_fields.
"""

from __future__ import annotations

import contextvars
import functools
import json
import os
from collections.abc import Awaitable, Callable
from typing import Any

import llama_cpp.server.__main__ as server
from llama_cpp.server.model import LlamaProxy
from pagedkv.hints import read_cache_fields

from .prompt_cache import PromptCache

_salt = contextvars.ContextVar("salt", default=b"")


def load(settings: Any, original: Callable[[Any], Any]) -> Any:
    """Loads a model as the server does, and gives it the cache."""
    llama = original(settings.model_copy(update={"cache": False}))
    if settings.cache:
        directory, key = None, None
        if settings.cache_type == "disk":
            directory = os.environ.get("PAGEDKV_LLAMA_DIRECTORY", ".cache/pagedkv_llama")
            os.makedirs(directory, exist_ok=True)
            key = bytes.fromhex(os.environ.get("PAGEDKV_LLAMA_KEY", "")) or None
        cache = PromptCache(
            llama, settings.cache_size, directory=directory, key=key, salt=_salt.get
        )
        llama.set_cache(cache)
    return llama


class Salts:
    """The layer of the application that reads the salt of each request."""

    def __init__(self, application: Any) -> None:
        self.application = application

    async def __call__(self, scope: Any, receive: Callable[[], Awaitable[Any]], send: Any) -> Any:
        if scope["type"] != "http" or scope["method"] != "POST":
            return await self.application(scope, receive, send)
        messages = [await receive()]
        while messages[-1].get("more_body"):
            messages.append(await receive())
        _salt.set(salt_of(b"".join(message.get("body", b"") for message in messages)))

        async def replay() -> Any:
            return messages.pop(0) if messages else await receive()

        return await self.application(scope, replay, send)


def salt_of(body: bytes) -> bytes:
    """What is no request, the server refuses."""
    try:
        return read_cache_fields(json.loads(body)).salt
    except (ValueError, TypeError):
        return b""


def create_app(*arguments: Any, original: Callable[..., Any], **named: Any) -> Any:
    application = original(*arguments, **named)
    application.add_middleware(Salts)
    return application


if __name__ == "__main__":
    load_model = functools.partial(load, original=LlamaProxy.load_llama_from_model_settings)
    LlamaProxy.load_llama_from_model_settings = staticmethod(load_model)
    server.create_app = functools.partial(create_app, original=server.create_app)
    server.main()
