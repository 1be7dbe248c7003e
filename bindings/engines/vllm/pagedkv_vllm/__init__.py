"""pagedkv for vLLM on CPUs: its attention, and a store behind its prefix cache.

    VLLM_PLUGINS=pagedkv vllm serve ...

vLLM then attends by libpagedkv, in its own blocks (backend.py). The store is a KV connector, which
`--kv-transfer-config` turns on (connector.py). include/guide/vllm.md explains both.
"""

from __future__ import annotations

import multiprocessing
import os

__version__ = "0.1.0"

BACKEND = "pagedkv_vllm.backend.PagedKVBackend"


def register() -> None:
    """vLLM calls this when it starts, in each of its processes. If no plugins are named, vLLM loads
    all that are installed; it then keeps its own attention, and a server's engine logs that.
    """
    if "pagedkv" in os.environ.get("VLLM_PLUGINS", "").split(","):
        install()
    elif multiprocessing.current_process().name.startswith("EngineCore"):
        from vllm.logger import init_logger

        init_logger("vllm.pagedkv").warning(
            "vLLM's own attention runs, though pagedkv is installed: VLLM_PLUGINS=pagedkv chooses "
            "pagedkv's"
        )


def install() -> None:
    """Makes vLLM attend by pagedkv in this process. Call it before an engine is made."""
    from vllm.v1.attention.backends.registry import AttentionBackendEnum, register_backend

    register_backend(AttentionBackendEnum.CPU_ATTN, BACKEND)
