"""pagedkv: the KV cache and the attention of an inference engine, by libpagedkv. See README.md of
bindings/python.
"""

from ._arrays import Rows, TokenIds
from ._block_io import BlockIO
from ._cache_base import LayerShape, PrefixEvents, prefix_hash_blocks
from ._enums import DtypeLike
from ._library import LibraryNotFoundError, library
from ._python_store import Store
from .attention import (
    AdditiveMask,
    AttentionOutputs,
    AttentionParams,
    BitMask,
    BoolMask,
    ChosenBlocks,
    TreeMask,
    attention_merge,
    kv_attend,
)
from .batch import Batch, KVIndices, StateBlocks
from .cache import Cache
from .compute import Compute
from .config import CacheConfig, LayerGroup, PrefixConfig
from .errors import (
    BatchTooLargeError,
    CorruptError,
    InternalError,
    MisuseError,
    OutOfBlocksError,
    PagedKVError,
    SystemCallError,
    UnavailableError,
)
from .files import file_info, load, save
from .generated import enums, records
from .generated.enums import *  # noqa: F403
from .generated.raw import (
    ALL_GROUPS,
    NO_BLOCK_ID,
    NO_SINK_TOKENS,
    NO_SLOT,
    RETURN_NEVER,
    UNKNOWN_TOKEN,
    VERSION,
)
from .generated.records import *  # noqa: F403
from .kv import KVView, kv_read, kv_read_slots, kv_write, kv_write_slots
from .mooncake import MooncakeStore
from .pool import Pool
from .session import Resumed, Session, Snapshot
from .states import SessionStates
from .store import DirectoryStore, RedisStore, StoreConfig

__version__ = VERSION


def library_version() -> str:
    """The version of the opened library."""
    return library().version_text()


__all__ = [
    "ALL_GROUPS",
    "NO_BLOCK_ID",
    "NO_SINK_TOKENS",
    "NO_SLOT",
    "RETURN_NEVER",
    "UNKNOWN_TOKEN",
    "AdditiveMask",
    "AttentionOutputs",
    "AttentionParams",
    "Batch",
    "BatchTooLargeError",
    "BitMask",
    "BlockIO",
    "BoolMask",
    "Cache",
    "CacheConfig",
    "ChosenBlocks",
    "Compute",
    "CorruptError",
    "DirectoryStore",
    "DtypeLike",
    "InternalError",
    "KVIndices",
    "KVView",
    "LayerGroup",
    "LayerShape",
    "LibraryNotFoundError",
    "MisuseError",
    "MooncakeStore",
    "OutOfBlocksError",
    "PagedKVError",
    "Pool",
    "PrefixConfig",
    "PrefixEvents",
    "RedisStore",
    "Resumed",
    "Rows",
    "Session",
    "SessionStates",
    "Snapshot",
    "StateBlocks",
    "Store",
    "StoreConfig",
    "SystemCallError",
    "TokenIds",
    "TreeMask",
    "UnavailableError",
    "attention_merge",
    "file_info",
    "kv_attend",
    "kv_read",
    "kv_read_slots",
    "kv_write",
    "kv_write_slots",
    "library",
    "library_version",
    "load",
    "prefix_hash_blocks",
    "save",
]  # fmt: skip
__all__ += enums.__all__ + records.__all__
