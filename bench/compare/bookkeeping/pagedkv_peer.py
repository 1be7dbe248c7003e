"""This library, from Python: a cache without keys and values."""

from array import array

import numpy as np
import pagedkv


class Lists:
    """Tokens are lists of int, as engines have them."""

    def __init__(self, blocks):
        self.cache = pagedkv.Cache(
            pagedkv.CacheConfig(
                layers=1,
                query_heads=1,
                kv_heads=1,
                key_dim=16,
                block_size=16,
                blocks=blocks,
                storage=pagedkv.Storage.EXTERNAL,
                prefix=pagedkv.PrefixConfig(),
            )
        )

    @staticmethod
    def tokens(ids):
        return ids.tolist()

    def begin(self, prompt):
        session, ids = self.cache.open_session(), self.ids(prompt)
        matched = session.admit(ids[:-1])  # the output of the last token is needed
        return (session, ids, matched), matched

    @staticmethod
    def ids(prompt):
        return array("i", prompt)

    def step(self, requests, tokens):
        sessions, counts = [session for session, *_ in requests], [len(ids) for ids in tokens]
        self.cache.begin(sessions, counts).commit(self.joined(tokens))

    @staticmethod
    def joined(tokens):
        joined = array("i")
        for ids in tokens:
            joined.extend(ids)
        return joined

    def compute(self, requests):
        self.step(requests, [ids[matched:] for _, ids, matched in requests])

    def extend(self, requests, tokens):
        self.step(requests, tokens)

    def append(self, requests, tokens):
        self.cache.begin([session for session, *_ in requests], [1] * len(requests)).commit(tokens)

    def end(self, request):
        request[0].close()


class Arrays(Lists):
    """Tokens are arrays of numpy."""

    @staticmethod
    def tokens(ids):
        return ids

    @staticmethod
    def ids(prompt):
        return prompt

    joined = staticmethod(np.concatenate)
