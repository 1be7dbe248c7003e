"""pagedkv for vLLM on processors: its attention, and a store behind its prefix cache.

    VLLM_PLUGINS=pagedkv vllm serve ...

vLLM then attends by libpagedkv, in its own blocks (backend.py). The store is a KV connector, which
is asked for by `--kv-transfer-config` (connector.py). include/guide/vllm.md has both.
"""

from __future__ import annotations

import os

BACKEND = "pagedkv.vllm.backend.PagedKVBackend"


def register() -> None:
    """What vLLM calls as it starts, in each of its processes. Where no plugins are named vLLM loads
    all that are installed: it then keeps its own attention.
    """
    if "pagedkv" in os.environ.get("VLLM_PLUGINS", "").split(","):
        install()


def install() -> None:
    """Makes vLLM attend by pagedkv in this process. Call it before an engine is made."""
    from vllm.v1.attention.backends.registry import AttentionBackendEnum, register_backend

    register_backend(AttentionBackendEnum.CPU_ATTN, BACKEND)
