/* Blocks on a "device", which only the engine can read, go to a directory and come back after a
 * restart. */
#include "toy.h"

enum { BLOCKS = 64, SIZE = 16 };

/* [device] */
/* What stands for the device: a block has the key and the value of 16 tokens. */
typedef struct block {
  float keys[SIZE], values[SIZE];
} block;
typedef struct device {
  block blocks[BLOCKS];
} device;

static int32_t read_blocks(void* user, uint32_t group, size_t n, const uint32_t* ids,
                           const uint32_t* tokens, void* to) {
  const device* d = user;
  (void)group;
  for (size_t i = 0; i < n; i++) {
    block* copy = (block*)to + i; /* all 0: what no token of the block wrote stays so */
    memcpy(copy->keys, d->blocks[ids[i]].keys, tokens[i] * sizeof *copy->keys);
    memcpy(copy->values, d->blocks[ids[i]].values, tokens[i] * sizeof *copy->values);
  }
  return 0; /* or a negative errno: the store gets nothing, and a later prompt finds less */
}

static int32_t write_blocks(void* user, uint32_t group, size_t n, const uint32_t* ids,
                            const void* from) {
  device* d = user;
  (void)group;
  for (size_t i = 0; i < n; i++) d->blocks[ids[i]] = ((const block*)from)[i];
  return 0;
}
/* [device end] */

static pkv_cache create(device* d, const char* path) {
  /* [create] */
  const pkv_layer_group group = {.struct_size = sizeof group,
                                 .layers = 1,
                                 .kind = PKV_LAYERS_OPAQUE_KV,
                                 .layer_bytes = sizeof(block),
                                 .blocks = BLOCKS};
  const pkv_block_io io = {
      .struct_size = sizeof io, .user = d, .read = read_blocks, .write = write_blocks};
  /* [create end] */
  const pkv_directory_config directory = {.struct_size = sizeof directory, .path = path};
  pkv_store store = {.struct_size = sizeof store};
  check(pkv_store_open_directory(&directory, &store));
  const pkv_store_config store_config = {.struct_size = sizeof store_config,
                                         .store = &store,
                                         .wait_ms = 1000,
                                         .fingerprint = "toy 1: keys, values",
                                         .fingerprint_size = 19};
  const pkv_prefix_config prefix = {.struct_size = sizeof prefix};
  const pkv_cache_config config = {.struct_size = sizeof config,
                                   .groups = &group,
                                   .storage = PKV_STORAGE_EXTERNAL,
                                   .prefix = &prefix,
                                   .store = &store_config,
                                   .block_io = &io};
  pkv_cache cache;
  check(pkv_cache_create(&config, &cache));
  return cache;
}

/* Computes the tokens that are not cached, and returns the sum of all keys and values as the
 * engine's kernels would read them. */
static float serve(device* d, pkv_cache cache, size_t n, const int32_t* tokens) {
  pkv_session session;
  uint64_t matched;
  check(pkv_session_open(cache, NULL, &session));
  check(pkv_session_admit(session, n - 1, tokens, 0, &matched)); /* the last output is needed */
  const uint32_t rest = (uint32_t)(n - matched);
  pkv_batch batch;
  check(pkv_batch_begin(cache, 1, &session, &rest, &batch));
  uint32_t from, to;
  size_t count;
  check(pkv_batch_get_block_copies(batch, 0, 1, &from, &to, &count));
  if (count > 0) d->blocks[to] = d->blocks[from];
  int64_t slots[256];
  check(pkv_batch_get_slot_mapping(batch, 0, 256, slots, &count));
  for (size_t i = 0; i < count; i++) {
    block* b = &d->blocks[slots[i] / SIZE];
    b->keys[slots[i] % SIZE] = (float)tokens[matched + i];
    b->values[slots[i] % SIZE] = 1;
  }
  check(pkv_batch_commit(batch, rest, tokens + matched));

  uint32_t ids[BLOCKS];
  check(pkv_session_get_block_table(session, 0, BLOCKS, ids, &count));
  float sum = 0;
  for (size_t i = 0; i < n; i++)
    sum += d->blocks[ids[i / SIZE]].keys[i % SIZE] + d->blocks[ids[i / SIZE]].values[i % SIZE];
  check(pkv_session_close(session));
  printf("%llu of %zu tokens were there; the sum is %.0f\n", (unsigned long long)matched, n, sum);
  return sum;
}

int main(int argc, char** argv) {
  static device first, second; /* as after a restart, the second one is empty */
  device* const devices[] = {&first, &second};
  int32_t tokens[80];
  for (int i = 0; i < 80; i++) tokens[i] = 7 * i % 50;
  float sums[2];
  for (int run = 0; run < 2; run++) {
    pkv_cache cache = create(devices[run], argc > 1 ? argv[1] : "kv");
    sums[run] = serve(devices[run], cache, 80, tokens);
    check(pkv_cache_destroy(cache)); /* waits until all is written */
  }
  return sums[0] == sums[1] ? EXIT_SUCCESS : EXIT_FAILURE;
}
