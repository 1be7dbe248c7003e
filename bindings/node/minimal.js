'use strict';
// The whole life of a cache from Node: node minimal.js
// with PAGEDKV_LIBRARY naming the library, or one that is installed, and koffi (npm install koffi)
const pkv = require('./pagedkv.js');

const LAYERS = 2, QUERY_HEADS = 4, KV_HEADS = 2, DIM = 32, TOKENS = 20;

const model = {...pkv.make('pkv_layer_group'),
               layers: LAYERS, query_heads: QUERY_HEADS, kv_heads: KV_HEADS, key_dim: DIM, blocks: 64};
const config = pkv.make('pkv_cache_config');
config.groups = pkv.place('pkv_layer_group', model);

const [cache, session, batch] = [[null], [null], [null]];
pkv.pkv_cache_create(config, cache);
pkv.free(config.groups);
pkv.pkv_session_open(cache[0], null, session);

// All keys are alike, so attention gives the mean of the values so far.
const rows = (heads) => new Float32Array(TOKENS * heads * DIM);
const tensor = (data) => ({...pkv.make('pkv_tensor'), data, dtype: pkv.PKV_F32});
const v = rows(KV_HEADS).map((_, i) => Math.floor(i / (KV_HEADS * DIM)));
const out = rows(QUERY_HEADS);
const tokens = Int32Array.from({length: TOKENS}, (_, i) => 100 + i);

pkv.pkv_batch_begin(cache[0], 1, session, [TOKENS], batch);
for (let layer = 0; layer < LAYERS; layer++) {
  pkv.pkv_batch_write(batch[0], layer, tensor(rows(KV_HEADS)), tensor(v));
  pkv.pkv_batch_attend(batch[0], layer, null, tensor(rows(QUERY_HEADS)), tensor(out), null);
}
pkv.pkv_batch_commit(batch[0], TOKENS, tokens);

for (let token = 0; token < TOKENS; token++) {
  const mean = out[token * QUERY_HEADS * DIM];
  if (Math.abs(mean - token / 2) > 1e-5) throw new Error(`token ${token}: ${mean}`);
}
const length = [0];
pkv.pkv_session_get_length(session[0], length);
console.log(`token ${length[0] - 1} attends to ${length[0]} tokens: ` +
            `${out[(TOKENS - 1) * QUERY_HEADS * DIM].toFixed(2)} (expected 9.50)`);

// A failed call says why, and changes nothing.
try {
  pkv.pkv_session_trim(session[0], TOKENS + 1);
} catch (error) {
  if (error.details?.status !== pkv.PKV_OUT_OF_RANGE) throw error;
  console.log(`refused, as it should be: ${error.message}`);
}

const stats = pkv.make('pkv_cache_stats');
pkv.pkv_cache_get_stats(cache[0], stats);
const pools = pkv.make('pkv_pool_stats');
pkv.pkv_cache_get_pool_stats(cache[0], pkv.PKV_ALL_GROUPS, pools);
console.log(`${pools.held_blocks} blocks hold ${stats.tokens} tokens`);
pkv.pkv_cache_destroy(cache[0]); // closes the session as well
