"""A small model of transformers with its own caches and with a PagedCache: generation, a removed
end, several continuations of one prompt. Weights are random, and the tokens are the same.
"""

from __future__ import annotations

import copy

import torch
from pagedkv_transformers import PagedCache
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM, StaticCache
from transformers.cache_utils import Cache

NEW_TOKENS, MAX_TOKENS = 12, 64
PROMPT = torch.arange(1, 31)[None]

torch.manual_seed(0)
config = LlamaConfig(
    hidden_size=64,
    intermediate_size=96,
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=2,
    vocab_size=200,
    max_position_embeddings=MAX_TOKENS,
    bos_token_id=None,
    eos_token_id=None,
)
model = LlamaForCausalLM(config).eval()


def generate(cache: Cache, ids: torch.Tensor = PROMPT) -> list[list[int]]:
    output = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        cache=cache,
        max_new_tokens=NEW_TOKENS,
        do_sample=False,
        pad_token_id=0,
    )
    tokens: list[list[int]] = output.tolist()
    return tokens


def removed_end(cache: Cache) -> list[list[int]]:
    """Generates, takes back the last ten tokens, and continues differently."""
    first = torch.tensor(generate(cache))
    cache.crop(-10)
    ids = torch.cat([first[:, : int(cache.get_seq_length())], torch.tensor([[7, 8, 9]])], dim=1)
    return generate(cache, ids)


def continuations(cache: Cache) -> list[list[list[int]]]:
    """Two endings of one prompt, which is computed once."""
    with torch.no_grad():
        model(PROMPT, cache=cache)
    endings = ([11, 12, 13], [21, 22])
    return [
        generate(copy.deepcopy(cache), torch.cat([PROMPT, torch.tensor([ending])], dim=1))
        for ending in endings
    ]


def main() -> None:
    def dynamic() -> Cache:
        return DynamicCache(config=config)

    def static() -> Cache:
        return StaticCache(config=config, max_cache_len=MAX_TOKENS)

    def paged() -> Cache:
        return PagedCache(model, tokens=2 * MAX_TOKENS)  # with room for copies

    made = [generate(dynamic()), removed_end(dynamic()), continuations(dynamic())]
    for name, cache in (("StaticCache", static), ("PagedCache", paged)):
        same = [generate(cache()), removed_end(cache()), continuations(cache())] == made
        print(f"{name}: tokens {'are' if same else 'are NOT'} those of DynamicCache")

    cache = PagedCache(model)
    generate(cache)
    print(f"{cache.get_seq_length()} tokens in blocks {cache.sessions[0].block_table(0)}")


main()
