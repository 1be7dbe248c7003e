"""SGLang's radix cache, called as its scheduler calls it."""

import importlib.machinery
import importlib.util
import sys
import types
from array import array
from unittest import mock

import torch

PAGE = 16

torch.set_num_threads(1)  # The tensors are small.

# What the modules of the cache import and do not use: kernels, models, servers.
UNUSED = (
    "triton",
    "torchcodec",
    "transformers",
    "sglang.kernels",
    "sglang.srt.configs",
    "sglang.srt.constrained",
    "sglang.srt.entrypoints",
    "sglang.srt.layers",
    "sglang.srt.managers",
    "sglang.srt.parser",
)


class Empty(types.ModuleType):
    """Has every name, as an object that does nothing."""

    __path__ = ()

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return mock.MagicMock(name=f"{self.__name__}.{name}")


class StandIns:
    def find_spec(self, name, path=None, target=None):
        if not any(f"{name}.".startswith(f"{unused}.") for unused in UNUSED):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        return Empty(spec.name)

    def exec_module(self, module):
        pass


def import_package():
    """SGLang without what its __init__ imports, which needs the whole engine."""
    package = types.ModuleType("sglang")
    package.__path__ = importlib.util.find_spec("sglang").submodule_search_locations
    sys.modules["sglang"] = package
    sys.meta_path.insert(0, StandIns())


import_package()
from sglang.srt.mem_cache.allocator.paged import PagedTokenToKVPoolAllocator  # noqa: E402
from sglang.srt.mem_cache.base_prefix_cache import (  # noqa: E402
    EvictParams,
    InsertParams,
    MatchPrefixParams,
)
from sglang.srt.mem_cache.cache_init_params import CacheInitParams  # noqa: E402
from sglang.srt.mem_cache.radix_cache import RadixKey  # noqa: E402
from sglang.srt.mem_cache.unified_cache.component_type import ComponentType  # noqa: E402
from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache  # noqa: E402


class Request:
    """A running request: its tokens, and the slots of all of them, in whole pages."""

    def __init__(self, tokens, lock, slots):
        self.tokens, self.lock, self.slots = tokens, lock, slots
        self.of_tree = len(slots)  # The slots of the first tokens are the tree's.


class RustTree:
    """With the tree that SGLang uses by default."""

    core = "rust"

    def __init__(self, blocks):
        self.allocator = PagedTokenToKVPoolAllocator(
            blocks * PAGE, PAGE, torch.bfloat16, "cpu", None, need_sort=False
        )
        params = CacheInitParams(False, None, self.allocator, PAGE)
        params.tree_components, params.tree_core_backend = (ComponentType.FULL,), self.core
        self.tree = UnifiedRadixCache(params)

    @staticmethod
    def tokens(tokens):
        return array("q", tokens.tolist())

    def begin(self, prompt):
        key = RadixKey(prompt, limit=len(prompt) - 1)
        found = self.tree.match_prefix(MatchPrefixParams(key=key))
        lock = self.tree.lock(found.last_device_node)
        slots = self.tree.path_device_indices(found.last_device_node)
        return Request(prompt[:], lock, slots), len(slots)

    def allocate(self, count):
        missing = count - self.allocator.available_size()
        if missing > 0:
            self.tree.evict(EvictParams(num_tokens=missing))
        slots = self.allocator.alloc(count)
        if slots is None:
            raise MemoryError("no free pages")
        return slots

    def cache(self, request):
        """Gives whole pages to the tree, which frees those that it had already."""
        key = RadixKey(request.tokens).page_aligned(PAGE)
        values = request.slots[: len(key)].clone()
        result = self.tree.insert(
            InsertParams(key=key, value=values, prev_prefix_len=request.of_tree)
        )
        node = result.last_device_node
        request.slots[: len(key)] = self.tree.path_device_indices(node)
        lock = self.tree.lock(node)
        self.tree.unlock(request.lock)
        request.lock, request.of_tree = lock, len(key)

    def take_slots(self, request):
        missing = len(request.tokens) - len(request.slots)
        if missing > 0:
            pages = -(-missing // PAGE)
            request.slots = torch.cat((request.slots, self.allocate(pages * PAGE)))

    def compute(self, requests):
        for request in requests:
            self.take_slots(request)
            self.cache(request)

    def extend(self, requests, tokens):
        for request, ids in zip(requests, tokens, strict=True):
            request.tokens += ids
            self.take_slots(request)

    def end(self, request):
        self.cache(request)
        self.allocator.free_segment(request.slots[request.of_tree :], start_pos=request.of_tree)
        self.tree.unlock(request.lock)

    def append(self, requests, tokens):
        """The slots of all requests in one call; the tree gets the tokens at the end."""
        lengths = torch.tensor([len(request.tokens) for request in requests])
        last = torch.stack([request.slots[len(request.tokens) - 1] for request in requests])
        slots = self.allocator.alloc_decode(lengths + 1, lengths + 1, last)
        for request, token, slot in zip(requests, tokens, slots, strict=True):
            request.tokens.append(token)
            if len(request.tokens) > len(request.slots):
                page = slot + torch.arange(PAGE)
                request.slots = torch.cat((request.slots, page))


class PythonTree(RustTree):
    """With the tree in Python."""

    core = "python"
