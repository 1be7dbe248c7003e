/* Beam search: the prompt is computed once, and every beam is a fork that shares its blocks. */
#include <math.h>

#include "toy.h"

enum { WIDTH = 3, DEPTH = 12 };

typedef struct beam {
  pkv_session session;
  text text;
  double score; /* log probability of what was added to the prompt */
} beam;

typedef struct candidate {
  int parent;
  int32_t token;
  double score;
} candidate;

/* Keeps the best WIDTH candidates, best first. Scores that differ by rounding alone keep their
 * order. */
static int insert(candidate* best, int n, candidate c) {
  int at = n;
  while (at > 0 && c.score > best[at - 1].score + 1e-3) at--;
  if (at == WIDTH) return n;
  if (n < WIDTH) n++;
  memmove(best + at + 1, best + at, (size_t)(n - 1 - at) * sizeof *best);
  best[at] = c;
  return n;
}

/* Each beam's next letter is chosen among all letters of all beams. beams[0 .. n) in, up to WIDTH
 * of them out. */
static int extend(pkv_cache cache, beam* beams, int n) {
  pkv_session sessions[WIDTH];
  const text* texts[WIDTH];
  float p[WIDTH][LETTERS];
  for (int i = 0; i < n; i++) sessions[i] = beams[i].session, texts[i] = &beams[i].text;
  check(toy_forward(cache, (size_t)n, sessions, texts, p));

  candidate best[WIDTH + 1];
  int kept = 0;
  for (int i = 0; i < n; i++)
    for (int32_t token = 0; token < LETTERS; token++)
      if (p[i][token] > 0)
        kept = insert(best, kept, (candidate){i, token, beams[i].score + log(p[i][token])});

  /* [step] */
  beam next[WIDTH];
  for (int i = 0; i < kept; i++) {
    next[i].text = beams[best[i].parent].text;
    next[i].text.tokens[next[i].text.length++] = best[i].token;
    next[i].score = best[i].score;
    check(pkv_session_fork(beams[best[i].parent].session,
                           &next[i].session)); /* no block is copied before a session writes */
  }
  for (int i = 0; i < n; i++)
    check(pkv_session_close(beams[i].session)); /* what no child holds is free again */
  /* [step end] */
  memcpy(beams, next, (size_t)kept * sizeof *beams);
  return kept;
}

/* The score of a text, computed from its first letter on in a session that shares nothing. */
static double score_alone(pkv_cache cache, const text* whole, size_t prompt) {
  double score = 0;
  pkv_session session;
  check(pkv_session_open(cache, NULL, &session));
  text part = *whole;
  for (part.length = prompt; part.length < whole->length; part.length++) {
    const text* texts[] = {&part};
    float p[1][LETTERS];
    check(toy_forward(cache, 1, &session, texts, p));
    score += log(p[0][whole->tokens[part.length]]);
  }
  check(pkv_session_close(session));
  return score;
}

int main(void) {
  const pkv_cache_config config = toy_config();
  pkv_cache cache;
  check(pkv_cache_create(&config, &cache));

  beam beams[WIDTH] = {{.score = 0}};
  add(&beams[0].text,
      "the cat sat on the mat. the cow ate the grass. the cat ran to the cow. the cat sat. the c");
  const size_t prompt = beams[0].text.length;
  check(pkv_session_open(cache, NULL, &beams[0].session));
  int n = 1;
  for (int step = 0; step < DEPTH; step++) n = extend(cache, beams, n);

  pkv_pool_stats pool = {.struct_size = sizeof pool};
  check(pkv_cache_get_pool_stats(cache, 0, &pool));
  for (int i = 0; i < n; i++) {
    printf("%7.2f  ", beams[i].score);
    print("", &beams[i].text, prompt);
  }
  printf("%d beams hold %llu blocks, %llu of them shared\n", n,
         (unsigned long long)pool.held_blocks, (unsigned long long)pool.shared_blocks);
  const double alone = score_alone(cache, &beams[0].text, prompt);
  printf("the best alone: %.2f\n", alone);
  check(pkv_cache_destroy(cache));
  return fabs(alone - beams[0].score) < 1e-3 ? EXIT_SUCCESS : EXIT_FAILURE;
}
