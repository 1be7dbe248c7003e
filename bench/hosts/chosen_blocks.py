"""Measures what reading only chosen blocks costs a real model. The text is that of this project's
guide, which the model did not write. Everything is computed in float32.

First the model reads the text in one pass in which tiles of 64 tokens choose, and predicts its last
tokens. Then it reads the text with full attention, and predicts the next tokens one by one, with
attention over some of the blocks. The last table is of the attention of each layer and head in
these passes, by the way of choosing blocks: the share of the attention mass that the blocks have,
and the error of the output. Each way chooses the same number of blocks; the library's way is named
so, the others are in NumPy and PyTorch.
"""

import math
import sys
import time

import numpy as np
import pagedkv_transformers as host
import public_model
import torch
from pagedkv import NO_BLOCK_ID, AttentionOutputs, AttentionParams, ChosenBlocks

BLOCK_SIZES = (16, 32, 64)
PARTS = (16, 8, 4)
EVERY = 16  # the last table takes every 16th token: NumPy is slow
TILE = 64  # tokens of a prompt that choose together
PREDICTED = 1024  # the tokens of a prompt whose predictions are compared


def top_blocks(length, block_size, part):
    """The number of blocks to choose so that 1/part of them is read, including the first and last
    two."""
    return max(1, length // block_size // part - 3)


def logits_of(model, cache, ids):
    """Log-probabilities after each token of ids, with a pass for each."""
    rows = [
        model(input_ids=ids[:, i : i + 1], past_key_values=cache).logits for i in range(len(ids[0]))
    ]
    return torch.log_softmax(torch.cat(rows, 1)[0].float(), -1)


class Selections:
    """Ways of choosing blocks for the query of one token, by layer and KV head."""

    def __init__(self, session, layers, block_size):
        self.size, self.blocks = block_size, session.length // block_size
        self.keys = [session.read(layer)[0] for layer in range(layers)]
        tokens = self.blocks * block_size
        cut = [
            keys[:tokens].reshape(self.blocks, block_size, *keys.shape[1:]) for keys in self.keys
        ]
        self.low = [keys.min(1) for keys in cut]
        self.high = [keys.max(1) for keys in cut]
        self.mean = [keys.mean(1) for keys in cut]

    def scores(self, layer, q, scale):
        """{way: [kv_heads][blocks]}"""
        heads = self.low[layer].shape[1]
        q = q.reshape(heads, -1, q.shape[-1]) * scale  # [kv_heads][group][dim]
        bounds = np.maximum(
            np.einsum("hgd,bhd->hgbd", q, self.low[layer]),
            np.einsum("hgd,bhd->hgbd", q, self.high[layer]),
        ).sum(-1)
        raw = np.einsum("hgd,thd->hgt", q, self.keys[layer])
        weights = np.exp(raw - raw.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        mass = weights[..., : self.blocks * self.size].reshape(*weights.shape[:2], self.blocks, -1)
        return {
            "the highest of the query heads' bounds": bounds.max(1),
            "the sum of their bounds": bounds.sum(1),
            "the sum of their scores of the mean key": np.einsum(
                "hgd,bhd->hb", q, self.mean[layer]
            ),
            "at random": np.random.default_rng(layer).random(bounds.shape[::2]),
            "their true mass (which is unknown before)": mass.sum(-1).sum(1),
        }


class Measured(host.ForwardPass):
    """A pass that also attends to the blocks of each selection, if there is one."""

    selections, tops, sums = None, {}, {}

    def attend(self, layer, query, variant):
        if self.selections is None:
            return super().attend(layer, query, variant)
        q = query[0].transpose(0, 1).contiguous().numpy()
        all_lse = np.empty(q.shape[:2], np.float32)
        params, outputs = AttentionParams(scale=variant.scale), AttentionOutputs(lse=all_lse)
        all_out = self.batch.attend(layer, q, params=params, outputs=outputs)

        def measure(part, name, **blocks):
            lse, chosen = np.empty_like(all_lse), ChosenBlocks(**blocks)
            params = AttentionParams(scale=variant.scale, chosen_blocks=chosen)
            out = self.batch.attend(layer, q, params=params, outputs=AttentionOutputs(lse=lse))
            error = np.linalg.norm(out - all_out, axis=-1) / np.linalg.norm(all_out, axis=-1)
            found = np.exp(lse - all_lse).mean(), error.mean()
            self.sums.setdefault((part, name), []).append(found)

        scores = self.selections.scores(layer, q[0], variant.scale)
        for part, top in self.tops.items():
            measure(part, "the library", top_blocks=top)
            for name, of_blocks in scores.items():
                best = np.argsort(-of_blocks[:, 1:-1], axis=-1)[:, :top] + 1
                lists = np.sort(best, axis=-1).astype(np.uint32)[None]
                measure(part, name, lists=lists)
        return super().attend(layer, query, variant)


class TiledPass(host.ForwardPass):
    """A pass over a prompt in which tiles read `top` blocks, besides the first one, the last one
    and their own: those that the library chooses, those of their true mass, or the last ones. None
    as the `way` reads all.
    """

    way, top, last, shares = None, 0, 1, []

    def attend(self, layer, query, variant):
        if self.way is None:
            return super().attend(layer, query, variant)
        q = query[0].transpose(0, 1).contiguous()
        cache = self.batch.cache
        blocks = {"top_blocks": self.top}
        if self.way != "the library":
            blocks = {"lists": self._lists(layer, q * variant.scale, cache.config.block_size)}
        chosen = ChosenBlocks(tokens_per_choice=TILE, last_blocks=self.last, **blocks)
        lse = [np.empty(q.shape[:2], np.float32) for _ in range(2)]
        params = [AttentionParams(scale=variant.scale, chosen_blocks=way) for way in (None, chosen)]
        outs = [
            self.batch.attend(layer, q.numpy(), params=one, outputs=AttentionOutputs(lse=to))
            for one, to in zip(params, lse)
        ]
        self.attended.add(layer)
        self.shares.append(np.exp(lse[1] - lse[0])[-PREDICTED:].mean())
        return torch.from_numpy(outs[1])[None]

    def write(self, layer, key, value):
        self.keys = key[0]
        super().write(layer, key, value)

    def _lists(self, layer, q, block_size):
        """[tiles][kv_heads][top]"""
        tiles, (kv_heads, tokens, _) = math.ceil(len(q) / TILE), self.keys.shape
        lists = np.full((tiles, kv_heads, self.top), NO_BLOCK_ID, np.uint32)
        for tile in range(tiles):
            end = min((tile + 1) * TILE, tokens)
            last = tile * TILE // block_size - self.last  # the candidates are blocks 1 to last - 1
            count = min(self.top, last - 1)
            if count <= 0:
                continue
            if self.way == "the last blocks":
                lists[tile, :, :count] = np.arange(last - count, last)
                continue
            rows = q[tile * TILE : end].unflatten(1, (kv_heads, -1)).permute(1, 2, 0, 3)
            raw = rows.flatten(1, 2) @ self.keys[:, :end].mT
            ahead = torch.ones(end - tile * TILE, end).triu(tile * TILE + 1).bool()
            raw.unflatten(1, (-1, len(ahead))).masked_fill_(ahead, -torch.inf)
            weights = raw.sub_(raw.amax(-1, keepdim=True)).exp_()
            mass = (weights / weights.sum(-1, keepdim=True)).sum(1)[:, block_size:]
            mass = mass[:, : (last - 1) * block_size]
            best = mass.reshape(kv_heads, -1, block_size).sum(-1).topk(count).indices + 1
            lists[tile, :, :count] = best.sort().values.numpy()
        return lists


def measure_prompts(model, block_size, ids, targets):
    """Prints rows of the first table, for passes that read a part of what full attention reads."""
    exact = None
    host.ForwardPass = TiledPass
    ways = ("the library", "true mass (not known in advance)", "the last blocks")
    for part, way in ((1, None), *((part, way) for part in PARTS for way in ways)):
        # All tiles but the first ones read as many blocks.
        share = 1 - math.sqrt(1 - 1 / part)
        fixed = 2 + TILE // block_size
        TiledPass.top = max(1, int(share * ids.shape[1] / block_size) - fixed)
        TiledPass.way, TiledPass.shares = way, []
        cache = host.PagedCache(model, tokens=ids.shape[1], block_size=block_size)
        logits = model(input_ids=ids, past_key_values=cache, logits_to_keep=PREDICTED).logits
        cache.close()
        found = torch.log_softmax(logits[0].float(), -1)
        exact = found if exact is None else exact
        row = public_model.cells(public_model.deviations(exact, found, targets[-PREDICTED:]))
        mass = f"{np.mean(TiledPass.shares or 1):.1%}"
        name = "all" if part == 1 else f"1/{part}"
        print(f"| {block_size} | {name} | {way or '-'} | {mass} | {row} |", flush=True)


def measure_quality(model, cache, ids, targets):
    exact = None
    for part in (1, *PARTS):
        cache.top_blocks = 0 if part == 1 else top_blocks(cache.length, cache.block_size, part)
        begin = time.perf_counter()
        found = logits_of(model, cache, ids)
        seconds = time.perf_counter() - begin
        cache.crop(-ids.shape[1])
        exact = found if exact is None else exact
        name = "all" if part == 1 else f"1/{part}"
        row = public_model.cells(public_model.deviations(exact, found, targets))
        milliseconds = seconds / len(targets) * 1e3
        print(f"| {cache.block_size} | {name} | {row} | {milliseconds:.1f} |", flush=True)
    cache.top_blocks = 0


def measure_attention(model, cache, ids):
    """The lines of the second table."""
    Measured.tops = {part: top_blocks(cache.length, cache.block_size, part) for part in PARTS}
    Measured.sums = {}
    for i in range(ids.shape[1]):
        if i % EVERY == 0:
            Measured.selections = Selections(
                cache.sessions[0], len(cache.windows), cache.block_size
            )
        model(input_ids=ids[:, i : i + 1], past_key_values=cache)
        Measured.selections = None
    return [
        f"| {cache.block_size} | 1/{part} | {name} | {mass:.1%} | {error:.1%} |"
        for (part, name), (mass, error) in (
            (key, np.mean(sums, 0)) for key, sums in sorted(Measured.sums.items())
        )
    ]


def main():
    options = public_model.arguments(__doc__, prompt=7680, tokens=256, block_size=0)
    model, text = public_model.load(options.model)
    text = torch.tensor([text])
    end = options.prompt + options.tokens
    if text.shape[1] <= end:
        sys.exit(f"the text has {text.shape[1]} tokens, {end + 1} are needed")
    ids, targets = text[:, options.prompt : end], text[0, options.prompt + 1 : end + 1]
    sizes = [options.block_size] if options.block_size else BLOCK_SIZES

    print(
        "| blocks of | read | chosen by | mass | perplexity | KL to all | first choice as in all |"
    )
    print("|---|---|---|---|---|---|---|")
    for block_size in sizes:
        measure_prompts(model, block_size, text[:, :end], text[0, 1 : end + 1])

    host.ForwardPass = Measured
    lines = [
        "| blocks of | read | chosen by | mass | error of the output |",
        "|---|---|---|---|---|",
    ]
    print()
    print("| blocks of | read | perplexity | KL to all | first choice as with all | ms per token |")
    print("|---|---|---|---|---|---|")
    for block_size in sizes:
        cache = host.PagedCache(model, tokens=end, block_size=block_size)
        model(input_ids=text[:, : options.prompt], past_key_values=cache, logits_to_keep=1)
        measure_quality(model, cache, ids, targets)
        lines += measure_attention(model, cache, ids)
        cache.close()
    print("\n" + "\n".join(lines))


with torch.inference_mode():
    main()
