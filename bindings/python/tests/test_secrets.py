"""No config and no error sentence shows a key or a password."""

from __future__ import annotations

import base64
import dataclasses
import importlib
import inspect
import logging
import pkgutil
import pprint
import reprlib
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import pagedkv

MARK = "NOBODY-SEES-THIS"
FORMS = (
    MARK,
    MARK.encode().hex(),
    str(list(MARK.encode()))[1:-1],
    base64.b64encode(MARK.encode()).decode()[:16],
)

# Texts, bytes and paths that may be shown.
PUBLIC = {
    "CacheConfig": {"memory_directory"},
    "DirectoryStore": {"path"},
    "MooncakeStore": set(
        "master local_hostname metadata_server protocol rdma_devices key_prefix".split()
    ),
    "RedisStore": set(
        "user key_prefix tls_ca_file tls_ca_directory tls_certificate_file tls_key_file "
        "tls_server_name".split()
    ),
    "StoreConfig": {"fingerprint"},
}
OTHERS: dict[str, dict[str, Any]] = {
    "DirectoryStore": {"path": "/d"},
    "LayerGroup": {"layers": 1},
    "StoreConfig": {"store": pagedkv.DirectoryStore("/d")},
}

# The last error is raised without libpagedkv-redis.
REFUSALS = (pagedkv.PagedKVError, TypeError, AttributeError, pagedkv.LibraryNotFoundError)


def configs() -> Iterator[type[Any]]:
    """All dataclasses that a caller makes: those with their own repr."""
    for found in pkgutil.iter_modules(pagedkv.__path__, "pagedkv."):
        if found.name.rpartition(".")[2] in ("config", "store", "mooncake", "attention"):
            module = importlib.import_module(found.name)
            for _, kind in inspect.getmembers(module, inspect.isclass):
                if kind.__module__ == found.name and dataclasses.is_dataclass(kind):
                    yield kind


def shown(config: Any) -> str:
    """Every way to print an object without naming a field."""
    ways: list[Callable[[Any], str]] = [
        repr,
        str,
        format,
        ascii,
        pprint.pformat,
        reprlib.repr,
        "{0} {0!r} {0!s} {0!a}".format,
        lambda value: "%s %r %a" % (value, value, value),  # noqa: UP031
        lambda value: logging.LogRecord("", 0, "", 0, "%s", (value,), None).getMessage(),
        lambda value: repr(ValueError(value)),
    ]
    return "\n".join(way(value) for way in ways for value in (config, [config], {"a": config}))


def test_all_configs_are_found() -> None:
    names = {kind.__name__ for kind in configs()}
    assert names >= PUBLIC.keys() | {"LayerGroup", "PrefixConfig", "AttentionParams"}


@pytest.mark.parametrize("kind", configs(), ids=lambda kind: kind.__name__)
def test_no_config_shows_a_secret(kind: type[Any]) -> None:
    """A new field of text or bytes must be hidden or listed above."""
    for field in dataclasses.fields(kind):
        values: list[Any] = []
        if "bytes" in str(field.type):
            values.append(MARK.encode())
        if field.type == "str" or str(field.type).startswith("str |"):
            values.append(MARK)
        for value in values:
            config = kind(**{**OTHERS.get(kind.__name__, {}), field.name: value})
            text = shown(config)
            if field.name not in PUBLIC.get(kind.__name__, ()):
                assert not any(form in text for form in FORMS), field.name
            else:
                assert MARK in text, field.name


def wrong_secrets() -> list[Callable[[], Any]]:
    """Calls that fail because of their secret."""
    model: dict[str, Any] = {"layers": 1, "query_heads": 2, "kv_heads": 1, "key_dim": 16}

    def cache(store: Any, **options: Any) -> Any:
        config = pagedkv.StoreConfig(store, **options)
        return pagedkv.Cache(
            pagedkv.CacheConfig(**model, blocks=8, prefix=pagedkv.PrefixConfig(), store=config)
        )

    def redis(**options: Any) -> Any:
        return lambda: cache(pagedkv.RedisStore(**{"servers": "127.0.0.1:1", **options}))

    def file(key: Any) -> Any:
        return lambda: pagedkv.file_info(b"no file", secret_key=key)

    directory = pagedkv.DirectoryStore("/proc/none")
    texts = (MARK, MARK + "\0", MARK + "\udc80", MARK.encode(), [MARK])
    keys = (MARK, MARK.encode()[:15], MARK.encode() * 5, [MARK])
    return [
        *(redis(password=text) for text in texts),
        *(redis(servers=f"redis://:{text}@127.0.0.1:1") for text in texts[:3]),
        *(redis(servers=text) for text in (f"redis://:{MARK}@", f"redis://:{MARK}@a b:1", [MARK])),
        *(lambda key=key: cache(directory, secret_key=key) for key in keys),
        *(file(key) for key in keys),
    ]


def test_no_error_shows_a_secret() -> None:
    for call in wrong_secrets():
        with pytest.raises(REFUSALS) as raised:
            call()
        error = raised.value
        text = "".join(traceback.format_exception(error, chain=True))
        text += f"{error} {error!r} {vars(error)}"
        assert not any(form in text for form in FORMS), text
