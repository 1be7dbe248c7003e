#include "scheduler.h"

#include <stdlib.h>
#include <string.h>

static size_t blocks_of(size_t tokens, size_t block_size) {
  return tokens / block_size + (tokens % block_size != 0);
}

static size_t limit_of(const prompts* p, const options* o, size_t context, size_t index) {
  const size_t wanted = p->lengths[index] + o->max_tokens;
  return wanted < context ? wanted : context;
}

size_t scheduler_ample_blocks(const prompts* p, const options* o, size_t context) {
  size_t blocks = 0;
  for (size_t i = 0; i < p->count; i++)
    blocks += blocks_of(limit_of(p, o, context, i), o->block_size);
  return blocks;
}

size_t scheduler_watermark(const prompts* p, const options* o, size_t context, size_t blocks) {
  size_t largest = 0;
  for (size_t i = 0; i < p->count; i++) {
    const size_t needed = blocks_of(limit_of(p, o, context, i), o->block_size);
    if (needed > largest) largest = needed;
  }
  const size_t spare = blocks > largest ? blocks - largest : 0;
  return spare < o->running ? spare : o->running;
}

/* ---- Setting up ---- */

sequence sequence_new(const prompts* p, const options* o, size_t context, size_t index) {
  const size_t length = p->lengths[index];
  if (length >= context)
    die(EXIT_BAD_INPUT,
        "prompt %zu has %zu tokens, a session has a context of %zu and must have room for an "
        "answer",
        index + 1, length, context);
  sequence q = {.state = SEQUENCE_WAITING,
                .prompt_length = length,
                .length = length,
                .limit = limit_of(p, o, context, index),
                .sampler = sampler_new(o->temperature, o->top_p, o->seed, index)};
  q.tokens = new_array(q.limit, sizeof *q.tokens);
  memcpy(q.tokens, p->tokens[index], length * sizeof *q.tokens);
  return q;
}

static void check_fits(const scheduler* s, size_t index) {
  const sequence* q = &s->sequences[index];
  const size_t block_size = s->engine->info.block_size, needed = blocks_of(q->limit, block_size);
  if (needed > s->engine->plan.blocks)
    die(EXIT_BAD_INPUT,
        "session %zu can never fit: %zu prompt tokens and %zu more need %zu blocks of %zu, the "
        "cache has %zu",
        index + 1, q->prompt_length, q->limit - q->prompt_length, needed, block_size,
        (size_t)s->engine->plan.blocks);
}

void scheduler_open(scheduler* s, engine* e, const prompts* p, const options* o, size_t context) {
  memset(s, 0, sizeof *s);
  s->engine = e;
  s->count = p->count;
  s->running_limit = o->running;
  s->chunk = o->chunk;
  s->context = context;
  s->sequences = new_array(s->count, sizeof *s->sequences);
  s->steps = new_array(s->count, sizeof *s->steps);
  s->owners = new_array(s->count, sizeof *s->owners);
  s->victims = new_array(s->count, sizeof *s->victims);
  for (size_t i = 0; i < s->count; i++) {
    s->sequences[i] = sequence_new(p, o, context, i);
    check_fits(s, i);
    engine_check(e, e->lib->session_open(e->cache, NULL, &s->sequences[i].session),
                 "opening a session");
  }
  s->start = seconds();
}

static pkv_prefix_stats prefix_stats(const scheduler* s) {
  pkv_prefix_stats stats = {.struct_size = sizeof stats};
  if (s->engine->prefixes)
    engine_check(s->engine,
                 s->engine->lib->prefix_get_stats(s->engine->cache, NULL, PKV_ALL_SALTS, &stats),
                 "prefix stats");
  return stats;
}

void scheduler_close(scheduler* s) {
  for (size_t i = 0; i < s->count; i++) free(s->sequences[i].tokens);
  free(s->sequences);
  free(s->steps);
  free(s->owners);
  free(s->victims);
}

/* ---- Admission ---- */

/* Whether a running sequence is computing blocks that this prompt begins with. */
static bool begins_like_running(const scheduler* s, const sequence* q) {
  const engine* e = s->engine;
  uint64_t cached;
  if (!e->prefixes) return false;
  const pkv_prompt prompt = {.struct_size = sizeof prompt, .tokens = q->tokens, .n = q->length - 1};
  engine_check(e, e->lib->prefix_probe(e->cache, &prompt, &cached), "looking for a prefix");
  for (const sequence* other = s->sequences; other < s->sequences + s->count; other++) {
    size_t common = 0;
    if (other->state != SEQUENCE_RUNNING) continue;
    while (common < q->length - 1 && common < other->length &&
           q->tokens[common] == other->tokens[common])
      common++;
    common -= common % e->info.block_size;
    if (common > cached && common > other->held) return true;
  }
  return false;
}

/* [admit] */
/* Starts sequences in order of arrival, while there is room for what the next one has to compute.
 * One that does not fit delays those behind it, so that a long prompt does not starve. One whose
 * beginning is being computed waits for that, and others may pass it. */
static void admit(scheduler* s) {
  const engine* e = s->engine;
  size_t running = 0;
  for (size_t i = 0; i < s->count; i++) running += s->sequences[i].state == SEQUENCE_RUNNING;
  for (sequence* q = s->sequences; q < s->sequences + s->count; q++) {
    pkv_status status;
    uint64_t held, total;
    if (running == s->running_limit) return;
    if (q->state == SEQUENCE_PREEMPTED) {
      status = e->lib->session_resume(q->session, &held, &total);
    } else if (q->state == SEQUENCE_WAITING && !begins_like_running(s, q)) {
      /* Without its last token, whose output it needs. */
      status = e->lib->session_admit(q->session, q->length - 1, q->tokens, q->length, &held);
    } else {
      continue;
    }
    if (status == PKV_OUT_OF_BLOCKS) return;
    engine_check(e, status, "starting a session"); /* a server refuses what is PKV_TOO_LARGE */
    q->state = SEQUENCE_RUNNING;
    q->held = (size_t)held;
    running++;
  }
}
/* [admit end] */

/* ---- A pass ---- */

static void add_step(scheduler* s, size_t at, sequence* q, size_t count) {
  const step next = {q->session, q->tokens + q->held,          count,
                     q->held,    q->held + count == q->length, NULL};
  s->steps[at] = next;
  s->owners[at] = q;
}

/* One token of each session that decodes, and the next `chunk` tokens of those in prefill, first
 * come first served. */
static size_t plan_pass(scheduler* s) {
  size_t count = 0, chunk = s->chunk;
  for (size_t i = 0; i < s->count; i++) {
    sequence* q = &s->sequences[i];
    if (q->state != SEQUENCE_RUNNING) continue;
    const size_t pending = q->length - q->held;
    if (pending == 1) {
      add_step(s, count++, q, 1);
    } else if (chunk > 0) {
      const size_t part = pending < chunk ? pending : chunk;
      add_step(s, count++, q, part);
      chunk -= part;
    }
  }
  return count;
}

/* [preempt] */
/* Blocks are short for a pass over `count` sessions: suspends those that the library names. */
static void preempt(scheduler* s, size_t count) {
  engine* e = s->engine;
  size_t n;
  engine_check(e,
               e->lib->batch_choose_victims(e->cache, count, e->sessions, e->new_tokens, s->count,
                                            s->victims, &n),
               "a session does not fit even alone");
  for (size_t v = 0; v < n; v++) {
    sequence* q = s->sequences;
    while (q->session != s->victims[v]) q++;
    engine_check(e, e->lib->session_suspend(q->session), "suspending a session");
    q->state = SEQUENCE_PREEMPTED;
    q->held = 0;
    q->preemptions++;
    s->totals.preemptions++;
  }
}
/* [preempt end] */

bool sequence_continue(sequence* q, const float* logits, size_t vocabulary, double start) {
  const int32_t token = sampler_next(&q->sampler, logits, vocabulary);
  if (q->length == q->prompt_length) q->first_token = seconds() - start;
  q->tokens[q->length++] = token;
  return q->length < q->limit && token != TOKEN_BEGIN && token != TOKEN_END;
}

static void take_token(scheduler* s, sequence* q, const float* logits) {
  const engine* e = s->engine;
  if (sequence_continue(q, logits, e->model->vocabulary, s->start)) return;
  engine_check(e, e->lib->session_close(q->session), "closing a session");
  q->session = NULL;
  q->held = 0;
  q->state = SEQUENCE_DONE;
}

static void observe(scheduler* s) {
  const engine* e = s->engine;
  run_totals* t = &s->totals;
  pkv_pool_stats pool = {.struct_size = sizeof pool};
  pkv_cache_stats stats = {.struct_size = sizeof stats};
  engine_check(e, e->lib->cache_get_stats(e->cache, &stats), "stats");
  engine_check(e, e->lib->cache_get_pool_stats(e->cache, 0, &pool), "stats");
  /* Cached blocks that no session uses do not count: they can be evicted. */
  const pkv_prefix_stats prefix = prefix_stats(s);
  const uint64_t used = pool.held_blocks - stats.evictable_blocks;
  const uint64_t saved = pool.references - prefix.cached_tokens / e->info.block_size - used;
  const uint64_t bytes = used * e->plan.bytes_per_block;
  const uint64_t filled = stats.filled_slots - stats.evictable_blocks * e->info.block_size;

  t->passes++;
  t->filled_bytes += filled * e->plan.bytes_per_token;
  t->reserved_bytes += bytes;
  for (size_t i = 0; i < s->count; i++)
    if (s->sequences[i].state == SEQUENCE_RUNNING) {
      t->tokens += s->sequences[i].held;
      t->worst_case += s->context;
    }
  if (used > t->peak_blocks) t->peak_blocks = used;
  t->lookup_tokens = prefix.lookup_tokens;
  t->matched_tokens = prefix.matched_tokens;
  t->evicted_tokens = prefix.evicted_tokens;
  t->copied_blocks = stats.copied_blocks;
  if (saved > t->peak_saved_blocks) t->peak_saved_blocks = saved;
  if (bytes > t->peak_bytes) t->peak_bytes = bytes;
}

static bool all_done(const scheduler* s) {
  for (size_t i = 0; i < s->count; i++)
    if (s->sequences[i].state != SEQUENCE_DONE) return false;
  return true;
}

bool scheduler_pass(scheduler* s) {
  const double start = seconds();
  size_t count, decoded = 0;
  /* [pass] */
  admit(s); /* once, and never after a preemption */
  for (;;) {
    count = plan_pass(s);
    if (engine_forward(s->engine, count, s->steps)) break;
    preempt(s, count);
  }
  /* [pass end] */
  for (size_t i = 0; i < count; i++) s->owners[i]->held += s->steps[i].count;
  observe(s);
  for (size_t i = 0; i < count; i++) {
    if (!s->steps[i].wants_logits) continue;
    decoded += s->owners[i]->length > s->owners[i]->prompt_length;
    take_token(s, s->owners[i], s->steps[i].logits);
  }
  const double end = seconds();
  s->totals.decode_tokens += decoded;
  if (decoded > 0) s->totals.decode_seconds += end - start;
  s->totals.seconds = end - s->start;
  return !all_done(s);
}
