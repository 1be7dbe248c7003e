/* A server's loop: requests come in, wait for room, and are computed in chunks beside those that
 * decode.
 *
 * usage: schedule [BLOCKS [WATERMARK [BUDGET]]]   compares with one request at a time */
#include "toy.h"

enum { REQUESTS = 6, ANSWER = 40, PLENTY = 256, BLOCK = 16 };

static const char* const prompts[REQUESTS] = {
    "the sun rose over the hills, and the hills were red. the sun rose over the sea, and the sea "
    "was gold. the sun rose over the town, and the town w",
    "one potato, two potato, three potato, four. five potato, six potato, seven potato, m",
    "one potato, two potato, three potato, four. to be or not to be, th",
    "she sells sea shells by the sea shore. the shells she sells are sea shells, i am sure. so if "
    "she sells sea shells by the sea shore, then i am sure sh",
    "row, row, row your boat. row, r",
    "a big black bear sat on a big black rug. a big black bear sat on a b",
};

typedef enum state { WAITING, RUNNING, PREEMPTED, DONE } state;

typedef struct request {
  pkv_session session;
  text text;
  size_t end; /* the length at which it is done */
  state state;
} request;

typedef struct server {
  pkv_cache cache;
  request requests[REQUESTS]; /* in order of arrival */
  uint32_t budget;            /* rows of a step at most */
  int steps, preemptions;
  uint64_t matched; /* tokens that were cached */
  size_t max_rows;
} server;

/* Returns whether a running request is computing blocks that this prompt begins with. */
static int begins_like_running(server* s, const request* r) {
  uint64_t cached;
  check(pkv_prefix_probe(s->cache, NULL, 0, r->text.length - 1, r->text.tokens, &cached));
  for (int i = 0; i < REQUESTS; i++) {
    const text* other = &s->requests[i].text;
    size_t common = 0;
    if (s->requests[i].state != RUNNING) continue;
    while (common < r->text.length - 1 && common < other->length &&
           r->text.tokens[common] == other->tokens[common])
      common++;
    if (common / BLOCK * BLOCK > cached) return 1;
  }
  return 0;
}

/* [admit] */
/* Starts requests in order of arrival, while there is room for the prompt of the next one. A
 * request that does not fit delays those behind it, so that a long prompt does not starve. One
 * whose beginning is being computed waits for that, and others may pass it. */
static void admit(server* s) {
  for (int i = 0; i < REQUESTS; i++) {
    request* r = &s->requests[i];
    pkv_status status = PKV_OK;
    if (r->state == PREEMPTED) {
      uint64_t length, total;
      status = pkv_session_resume(r->session, &length, &total);
    } else if (r->state == WAITING) {
      uint64_t matched;
      if (begins_like_running(s, r)) continue;
      status = pkv_session_admit(r->session, r->text.length - 1, r->text.tokens, r->text.length,
                                 &matched);
      if (status == PKV_OK) s->matched += matched;
    }
    if (status == PKV_OUT_OF_BLOCKS) return;
    check(status); /* a server refuses the request here if it is PKV_TOO_LARGE */
    if (r->state != DONE) r->state = RUNNING;
  }
}
/* [admit end] */

/* What a step computes: one row of each decoding request, and, with the rest of the budget, the
 * next chunks of prompts, oldest first. */
typedef struct plan {
  size_t n;
  request* owners[REQUESTS];
  pkv_session sessions[REQUESTS];
  uint32_t new_tokens[REQUESTS];
} plan;

static plan make_plan(server* s) {
  plan p = {0};
  uint32_t left = s->budget, missing[REQUESTS] = {0};
  for (int i = 0; i < REQUESTS; i++) {
    uint64_t held;
    if (s->requests[i].state != RUNNING) continue;
    check(pkv_session_get_length(s->requests[i].session, &held));
    missing[i] = (uint32_t)(s->requests[i].text.length - held);
    left -= missing[i] == 1; /* decoding comes first: no answer waits for a prompt */
  }
  for (int i = 0; i < REQUESTS; i++) {
    if (missing[i] == 0) continue;
    const uint32_t chunk = missing[i] < left ? missing[i] : left;
    if (missing[i] > 1 && chunk == 0) continue;
    if (missing[i] > 1) left -= chunk;
    p.owners[p.n] = &s->requests[i], p.sessions[p.n] = s->requests[i].session;
    p.new_tokens[p.n++] = missing[i] > 1 ? chunk : 1;
  }
  return p;
}

/* Computes the rows of a plan. The output of a chunk that ends inside its prompt is not used. */
static pkv_status forward(server* s, const plan* p) {
  text parts[REQUESTS];
  const text* texts[REQUESTS];
  float next[REQUESTS][LETTERS];
  size_t rows = 0;
  for (size_t i = 0; i < p->n; i++) {
    uint64_t held;
    check(pkv_session_get_length(p->sessions[i], &held));
    parts[i] = p->owners[i]->text;
    parts[i].length = (size_t)held + p->new_tokens[i];
    texts[i] = &parts[i];
    rows += p->new_tokens[i];
  }
  const pkv_status status = toy_forward(s->cache, p->n, p->sessions, texts, next);
  if (status != PKV_OK) return status;
  if (rows > s->max_rows) s->max_rows = rows;
  for (size_t i = 0; i < p->n; i++) {
    request* r = p->owners[i];
    if (parts[i].length < r->text.length) continue;
    r->text.tokens[r->text.length++] = most_likely(next[i]);
    if (r->text.length < r->end) continue;
    check(pkv_session_close(r->session));
    r->state = DONE;
  }
  return PKV_OK;
}

/* [step] */
/* One step. Returns whether there was anything to do. */
static int step(server* s) {
  admit(s); /* once, and never in a step that has preempted */
  for (;;) {
    const plan p = make_plan(s);
    if (p.n == 0) return 0;
    const pkv_status status = forward(s, &p);
    s->steps += status == PKV_OK;
    if (status == PKV_OK) return 1;
    if (status != PKV_OUT_OF_BLOCKS && status != PKV_BATCH_TOO_LARGE) check(status);
    pkv_session victims[REQUESTS];
    size_t count;
    check(pkv_batch_choose_victims(s->cache, p.n, p.sessions, p.new_tokens, REQUESTS, victims,
                                   &count));
    for (size_t v = 0; v < count; v++) {
      check(pkv_session_suspend(victims[v]));
      for (int i = 0; i < REQUESTS; i++)
        if (s->requests[i].session == victims[v]) s->requests[i].state = PREEMPTED;
      s->preemptions++;
    }
  }
}
/* [step end] */

/* Serves requests [first, end), which all come at once. */
static void serve(server* s, int first, int end) {
  for (int i = 0; i < REQUESTS; i++) {
    request* r = &s->requests[i];
    memset(r, 0, sizeof *r);
    r->state = DONE;
    if (i < first || i >= end) continue;
    r->state = WAITING;
    add(&r->text, prompts[i]);
    r->end = r->text.length + ANSWER;
    check(pkv_session_open(s->cache, NULL, &r->session));
  }
  const int before = s->steps;
  while (step(s))
    if (s->steps - before > 10 * REQUESTS * MAX_TEXT) {
      fprintf(stderr, "no progress\n");
      exit(EXIT_FAILURE);
    }
  for (int i = first; i < end; i++)
    if (s->requests[i].state != DONE) {
      fprintf(stderr, "request %d was not served\n", i);
      exit(EXIT_FAILURE);
    }
}

static void start(server* s, uint64_t blocks, uint32_t watermark, uint32_t budget) {
  memset(s, 0, sizeof *s);
  s->budget = budget;
  pkv_cache_config config = toy_config();
  config.blocks = blocks;
  config.watermark_blocks = watermark; /* blocks for requests that are already running */
  const pkv_prefix_config prefix = {.struct_size = sizeof prefix};
  config.prefix = &prefix;
  check(pkv_cache_create(&config, &s->cache));
}

static void stop(server* s) {
  check(pkv_cache_validate(s->cache));
  check(pkv_cache_destroy(s->cache));
}

int main(int argc, char** argv) {
  const uint64_t blocks = argc > 1 ? strtoull(argv[1], NULL, 10) : 24;
  const uint32_t budget = argc > 3 ? (uint32_t)strtoul(argv[3], NULL, 10) : 32; /* >= REQUESTS */
  const uint32_t watermark = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 2;
  static server alone, together;
  static text answers[REQUESTS];
  start(&alone, PLENTY, 0, MAX_ROWS);
  for (int i = 0; i < REQUESTS; i++) {
    serve(&alone, i, i + 1);
    answers[i] = alone.requests[i].text;
  }
  stop(&alone);

  start(&together, blocks, watermark, budget);
  serve(&together, 0, REQUESTS);
  stop(&together);
  int same = 0;
  for (int i = 0; i < REQUESTS; i++)
    same += memcmp(&answers[i], &together.requests[i].text, sizeof answers[i]) == 0;
  printf("%llu blocks, steps of up to %u rows: %d of %d answers are those of one at a time\n",
         (unsigned long long)blocks, budget, same, REQUESTS);
  printf("one at a time: %d steps, the longest of %zu rows\n", alone.steps, alone.max_rows);
  printf("together:      %d steps, the longest of %zu rows\n", together.steps, together.max_rows);
  printf("%llu tokens were computed once for two requests\n", (unsigned long long)together.matched);
  print("", &answers[5], strlen(prompts[5]));
  return same == REQUESTS && together.max_rows <= budget && together.matched > 0 ? EXIT_SUCCESS
                                                                                 : EXIT_FAILURE;
}
