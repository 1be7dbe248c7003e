/* Speculative decoding: a cheap draft proposes a tree of letters, one pass looks at all of them,
 * one path is accepted. */
#include "toy.h"

enum { ANSWER = 48, NODES = 7 };

/* The draft's guesses: which letters followed this one in the text, the latest first. */
static int guesses(const text* t, int32_t letter, int32_t* found, int most) {
  int n = 0;
  for (size_t i = t->length - 1; i > 0 && n < most; i--)
    if (t->tokens[i - 1] == letter && (n == 0 || found[0] != t->tokens[i]))
      found[n++] = t->tokens[i];
  return n;
}

typedef struct draft {
  uint32_t nodes;
  int32_t token[NODES];
  int32_t parent[NODES]; /* -1: of the root */
} draft;

/* The root is the text's last letter, which the session does not hold yet; below it two letters,
 * below each of them a line of two. */
static void grow(const text* t, draft* out) {
  *out = (draft){.nodes = 1, .token = {t->tokens[t->length - 1]}, .parent = {-1}};
  int32_t first[2], next[1];
  const int n = guesses(t, out->token[0], first, 2);
  for (int i = 0; i < n; i++) {
    int parent = 0;
    int32_t letter = first[i];
    for (int depth = 0; depth < 3; depth++) {
      out->token[out->nodes] = letter, out->parent[out->nodes] = parent;
      parent = (int)out->nodes++;
      if (guesses(t, letter, next, 1) == 0) break;
      letter = next[0];
    }
  }
}

static int32_t token_above(const text* t, const draft* tree, int node, int up) {
  for (; up > 0 && node > 0; up--) node = tree->parent[node];
  return node > 0 ? tree->token[node] : token_at(t, t->length - 1 - (size_t)up);
}

/* One step computes the whole tree. Then it follows the path on which each letter is the model's
 * own choice. The text grows by this path and one more letter. */
static void verify(pkv_cache cache, pkv_session session, text* t, const draft* tree) {
  static float q[NODES][KEY_DIM], k[NODES][KEY_DIM], v[NODES][LETTERS], out[NODES][LETTERS];
  const pkv_tensor queries = {.data = q, .dtype = PKV_F32}, keys = {.data = k, .dtype = PKV_F32};
  const pkv_tensor values = {.data = v, .dtype = PKV_F32},
                   outputs = {.data = out, .dtype = PKV_F32};
  /* [mask] */
  /* Each node sees itself and its ancestors. */
  const pkv_mask mask = {
      .struct_size = sizeof mask, .kind = PKV_MASK_TREE_PARENTS, .data = tree->parent};
  const pkv_attention_params params = {.struct_size = sizeof params, .scale = 8, .mask = &mask};
  /* [mask end] */

  pkv_batch batch;
  check(pkv_batch_begin(cache, 1, &session, &tree->nodes, &batch));
  float p[NODES][LETTERS] = {{0}};
  for (uint32_t layer = 0; layer < LAYERS; layer++) {
    for (int i = 0; i < (int)tree->nodes; i++)
      toy_row(layer, token_above(t, tree, i, 2), token_above(t, tree, i, 1), tree->token[i], q[i],
              k[i], v[i]);
    check(pkv_batch_write(batch, layer, &keys, &values));
    check(pkv_batch_attend(batch, layer, &params, &queries, &outputs, NULL));
    for (uint32_t i = 0; i < tree->nodes; i++)
      for (int j = 0; j < LETTERS; j++) p[i][j] += out[i][j] / (float)LAYERS;
  }

  /* [accept] */
  uint32_t path[NODES], length = 1;
  path[0] = 0; /* the root was decided in the step before */
  int32_t says = most_likely(p[0]);
  for (uint32_t i = 1; i < tree->nodes; i++) { /* children come after their parents */
    if (tree->parent[i] != (int)path[length - 1] || tree->token[i] != says) continue;
    path[length++] = i;
    t->tokens[t->length++] = says;
    says = most_likely(p[i]);
  }
  t->tokens[t->length++] = says;
  check(pkv_batch_accept(
      batch, 0, length,
      path)); /* the session gets just these tokens, wherever they were in the tree */
  check(pkv_batch_commit(batch, tree->nodes, tree->token));
  /* [accept end] */
}

int main(void) {
  const pkv_cache_config config = toy_config();
  pkv_cache cache;
  check(pkv_cache_create(&config, &cache));
  text plain = {0}, fast;
  add(&plain, "how much wood would a woodchuck chuck if a woodchuck could chuck wood? a w");
  fast = plain;
  const size_t prompt = plain.length;

  pkv_session session, other;
  float p[1][LETTERS];
  check(pkv_session_open(cache, NULL, &session));
  check(pkv_session_open(cache, NULL, &other));
  const text* texts[] = {&plain};
  while (plain.length < prompt + ANSWER) { /* as ever: a pass per letter */
    check(toy_forward(cache, 1, &session, texts, p));
    plain.tokens[plain.length++] = most_likely(p[0]);
  }
  text start = fast;
  start.length--; /* the prompt's last letter is the first tree's root */
  texts[0] = &start;
  check(toy_forward(cache, 1, &other, texts, p));
  int passes = 1;
  for (; fast.length < prompt + ANSWER; passes++) {
    draft tree;
    grow(&fast, &tree);
    verify(cache, other, &fast, &tree);
  }
  fast.length = prompt + ANSWER; /* the last pass may say a little more */
  print("one letter a pass: ", &plain, prompt);
  print("trees:             ", &fast, prompt);
  printf("%d letters in %d passes\n", ANSWER, passes);
  check(pkv_cache_destroy(cache));
  return memcmp(plain.tokens, fast.tokens, plain.length * sizeof *plain.tokens) == 0 ? EXIT_SUCCESS
                                                                                     : EXIT_FAILURE;
}
