"""A cache with a Mooncake store behind it. usage: mooncake_store.py MASTER:PORT [MIB_TO_LEND]"""

import sys

import numpy as np

import pagedkv

lent = int(sys.argv[2]) << 20 if len(sys.argv) > 2 else 0
store = pagedkv.MooncakeStore(master=sys.argv[1], segment_bytes=lent)
config = pagedkv.CacheConfig(
    layers=2,
    query_heads=4,
    kv_heads=2,
    key_dim=64,
    blocks=64,
    prefix=pagedkv.PrefixConfig(),
    store=pagedkv.StoreConfig(store, fingerprint=b"a hash of the weights"),
)
text = list(range(1000))
with pagedkv.Cache(config) as cache:
    cache.hint("prefetch", text)  # when a request is queued
    cache.wait_for_prefetch(text, timeout_ms=10_000)
    with cache.open_session() as session:
        found = session.admit(text)
        rest = text[found:]
        with cache.begin([session], [len(rest)]) as batch:
            for layer in range(2):
                rows = np.ones((len(rest), 2, 64), np.float32)  # of the model
                batch.write(layer, rows, rows)
            batch.commit(rest)
    cache.flush_store(timeout_ms=10_000)
    print(f"{found} of {len(text)} tokens were there")
    if lent:
        input("Press Enter to take back the memory that this process lends. ")
