"""vLLM's KVCacheManager, called as its scheduler calls it."""

import torch
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.request import Request

BLOCK = 16
LONGEST = 1 << 20


class Manager:
    """With the hash that vLLM uses by default."""

    def __init__(self, blocks):
        spec = FullAttentionSpec(
            block_size=BLOCK, num_kv_heads=1, head_size=8, dtype=torch.bfloat16
        )
        # One block is vLLM's own.
        config = KVCacheConfig(blocks + 1, [], [KVCacheGroupSpec(["layer"], spec)])
        self.manager = KVCacheManager(
            config, LONGEST, scheduler_block_size=BLOCK, hash_block_size=BLOCK
        )
        init_none_hash(sha256)
        self.hasher = get_request_block_hasher(BLOCK, sha256)
        self.sampling = SamplingParams(max_tokens=LONGEST)
        self.made = 0

    @staticmethod
    def tokens(array):
        return array.tolist()

    def begin(self, prompt):
        self.made += 1
        request = Request(str(self.made), prompt, self.sampling, None, block_hasher=self.hasher)
        blocks, matched, _ = self.manager.get_computed_blocks(request)
        return (request, blocks, matched), matched

    def allocate(self, request, count, *found):
        if self.manager.allocate_slots(request, count, *found) is None:
            raise MemoryError("no free blocks")
        request.num_computed_tokens = request.num_tokens

    def compute(self, requests):
        for request, blocks, matched in requests:
            self.allocate(request, request.num_tokens - matched, matched, blocks)

    def extend(self, requests, tokens):
        for (request, *_), ids in zip(requests, tokens, strict=True):
            request.append_output_token_ids(ids)
            self.allocate(request, len(ids))

    def append(self, requests, tokens):
        for (request, *_), token in zip(requests, tokens, strict=True):
            request.append_output_token_ids(token)
            self.allocate(request, 1)

    def end(self, request):
        self.manager.free(request[0])
