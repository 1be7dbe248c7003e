/* A layer that keeps a state in place of keys and values. The state is how often each letter came
 * lately: S' = 0.8 S + the letter's unit vector. */
#include "toy.h"

enum { BLOCK = 16, LAYER = 0, GROUP = 0 };

/* [config] */
static pkv_cache create_recurrent(void) {
  const pkv_layer_group group = {
      .struct_size = sizeof group,
      .layers = 1,
      .kind = PKV_LAYERS_STATES,
      .layer_bytes = LETTERS * sizeof(float),
      .checkpoint_interval = 2 * BLOCK, /* a state is kept every 32 tokens */
      .max_verify_tokens = 4,           /* and after each token of steps of up to 4 */
      .blocks = 64,                     /* each holds one state of every layer */
  };
  const pkv_cache_config config = {
      .struct_size = sizeof config,
      .groups = &group, /* a hybrid model also lists its attention layers */
  };
  pkv_cache cache;
  check(pkv_cache_create(&config, &cache));
  return cache;
}
/* [config end] */

/* [forward] */
/* One layer of one session: reads the state before the new tokens, and writes the states that are
 * kept. */
static void forward(pkv_batch batch, const int32_t* tokens, uint32_t n) {
  const void* before;
  void* after[8];
  uint32_t kept[8], indptr[2];
  size_t count;
  check(pkv_batch_get_state_blocks(batch, GROUP, NULL, indptr, 8, kept, NULL, &count));
  check(pkv_batch_get_states(batch, LAYER, &before, 8, after, &count));
  float state[LETTERS] = {0}; /* before the first token there is none: begin with zeros */
  if (before != NULL) memcpy(state, before, sizeof state);
  for (uint32_t i = 0, k = 0; i < n; i++) {
    for (int letter = 0; letter < LETTERS; letter++) state[letter] *= 0.8f;
    state[tokens[i]] += 1;
    if (k < count && kept[k] == i) memcpy(after[k++], state, sizeof state);
  }
}
/* [forward end] */

static void step(pkv_cache cache, pkv_session session, const int32_t* tokens, uint32_t n) {
  pkv_batch batch;
  check(pkv_batch_begin(cache, 1, &session, &n, &batch));
  forward(batch, tokens, n);
  check(pkv_batch_commit(batch, n, tokens));
}

static void print_state(const char* what, pkv_session session) {
  uint64_t length;
  float state[LETTERS];
  check(pkv_session_get_length(session, &length));
  check(pkv_session_get_state(session, LAYER, length, sizeof state, state));
  printf("%s: %llu tokens, mostly '%c' lately\n", what, (unsigned long long)length,
         ALPHABET[most_likely(state)]);
}

int main(void) {
  const pkv_cache cache = create_recurrent();
  pkv_session session, fork;
  check(pkv_session_open(cache, NULL, &session));
  text t = {0};
  add(&t, "a state is as long after the last token as it was after the first");
  step(cache, session, t.tokens, 60);
  print_state("a prompt", session);
  for (size_t i = 60; i < t.length; i++) step(cache, session, &t.tokens[i], 1);
  print_state("its rest", session);

  /* [trim] */
  check(pkv_session_fork(session, &fork)); /* shares the states, and copies none */
  printf("trim to 40: %s\n", pkv_status_name(pkv_session_trim(fork, 40)));
  uint64_t length;
  check(pkv_session_get_trim_point(fork, 40, &length));
  check(pkv_session_trim(fork, length)); /* then compute tokens 32 to 39 again */
  print_state("the checkpoint", fork);
  /* [trim end] */

  /* [draft] */
  text draft = {0};
  add(&draft, "zzzz");
  const uint32_t four = 4, right[] = {0, 1}; /* two of the four turn out right */
  pkv_batch batch;
  check(pkv_batch_begin(cache, 1, &session, &four, &batch));
  forward(batch, draft.tokens, four);
  check(pkv_batch_accept(batch, 0, 2, right)); /* the state after the second one stays */
  check(pkv_batch_commit(batch, four, draft.tokens));
  print_state("a draft", session);
  /* [draft end] */
  check(pkv_cache_destroy(cache));
  return EXIT_SUCCESS;
}
